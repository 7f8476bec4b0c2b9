//! ACLINT of one node in CLINT layout: software interrupts and machine timers of its harts.
//!
//! `mtime` is the machine's clock and cannot be written: a cell must not move another's time.

/// First byte of `mtimecmp`.
const MTIMECMP: u64 = 0x4000;
/// The `mtime` register.
const MTIME: u64 = 0xbff8;

/// Registers of the harts of one node, by local hart number.
#[derive(Clone, Debug)]
pub struct Aclint {
    msip: Vec<bool>,
    mtimecmp: Vec<u64>,
}

impl Aclint {
    /// The state after reset: nothing pending, timers never.
    pub fn new(harts: usize) -> Aclint {
        Aclint { msip: vec![false; harts], mtimecmp: vec![u64::MAX; harts] }
    }

    /// Whether software interrupt of local hart `hart` is pending.
    pub fn msip(&self, hart: usize) -> bool {
        self.msip.get(hart).copied().unwrap_or(false)
    }

    /// Time, in ticks, at which the machine timer of local hart `hart` becomes pending.
    pub fn mtimecmp(&self, hart: usize) -> u64 {
        self.mtimecmp.get(hart).copied().unwrap_or(u64::MAX)
    }

    /// Reads `size` bytes at `offset`; `time` is the present time in ticks.
    pub fn read(&self, offset: u64, size: usize, time: u64) -> Option<u64> {
        if offset < MTIMECMP {
            let hart = (offset / 4) as usize;
            return (size == 4).then(|| self.msip(hart) as u64);
        }
        let value = match offset & !7 {
            MTIME => time,
            at => self.mtimecmp.get(((at - MTIMECMP) / 8) as usize).copied().unwrap_or(0),
        };
        match (size, offset & 7) {
            (8, 0) => Some(value),
            (4, 0) => Some(value & 0xffff_ffff),
            (4, 4) => Some(value >> 32),
            _ => None,
        }
    }

    /// Writes `size` bytes at `offset`.
    pub fn write(&mut self, offset: u64, size: usize, value: u64) -> Option<()> {
        if offset < MTIMECMP {
            if size != 4 {
                return None;
            }
            if let Some(msip) = self.msip.get_mut((offset / 4) as usize) {
                *msip = value & 1 != 0;
            }
            return Some(());
        }
        if offset & !7 == MTIME {
            return Some(());
        }
        let mut ignored = 0;
        let index = (((offset & !7) - MTIMECMP) / 8) as usize;
        let register = self.mtimecmp.get_mut(index).unwrap_or(&mut ignored);
        match (size, offset & 7) {
            (8, 0) => *register = value,
            (4, 0) => *register = *register & !0xffff_ffff | value & 0xffff_ffff,
            (4, 4) => *register = *register & 0xffff_ffff | value << 32,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_stand_where_clint_has_them() {
        let mut a = Aclint::new(2);
        a.write(4, 4, 3).unwrap();
        assert!(a.msip(1) && !a.msip(0));
        a.write(0x4008, 8, 77).unwrap();
        assert_eq!(a.mtimecmp(1), 77);
        a.write(0x400c, 4, 1).unwrap();
        assert_eq!(a.mtimecmp(1), 77 + (1 << 32));
        assert_eq!(a.read(0xbff8, 8, 99), Some(99));
        a.write(0xbff8, 8, 1).unwrap();
        assert_eq!(a.read(0xbff8, 8, 100), Some(100));
        assert_eq!(a.read(0x4001, 2, 0), None);
    }
}
