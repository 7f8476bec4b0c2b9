//! Goldfish real-time clock: nanoseconds since 1970 in two halves, with an alarm. The time of
//! day comes from the machine file, then moves with simulated time only.

/// One clock.
#[derive(Clone, Debug)]
pub struct Rtc {
    /// Nanoseconds since 1970 at cycle 0.
    base_ns: u64,
    /// High half of the time, latched per hart by reading the low half.
    latch: Vec<u32>,
    alarm_high: u32,
    /// Nanoseconds since 1970 at which the alarm goes off.
    alarm_ns: Option<u64>,
    pending: bool,
    enabled: bool,
}

impl Rtc {
    /// A clock that shows `time_of_day_s` at cycle 0 on a machine of `harts` harts.
    pub fn new(time_of_day_s: u64, harts: usize) -> Rtc {
        Rtc {
            base_ns: time_of_day_s * 1_000_000_000,
            latch: vec![0; harts],
            alarm_high: 0,
            alarm_ns: None,
            pending: false,
            enabled: false,
        }
    }

    /// The clock is set by the outside: it shows `ns` at machine time `now_ns`.
    pub fn set(&mut self, ns: u64, now_ns: u64) {
        self.base_ns = ns.wrapping_sub(now_ns);
    }

    /// Machine time in nanoseconds at which the alarm goes off.
    pub fn alarm(&self) -> Option<u64> {
        self.alarm_ns.map(|at| at.saturating_sub(self.base_ns))
    }

    /// Tells the clock that machine time is `now_ns`.
    pub fn advance(&mut self, now_ns: u64) {
        if self.alarm().is_some_and(|at| at <= now_ns) {
            self.alarm_ns = None;
            self.pending = true;
        }
    }

    /// The interrupt line.
    pub fn interrupt(&self) -> bool {
        self.pending && self.enabled
    }

    /// Reads the 32-bit register at `offset` for `hart`.
    pub fn read(&mut self, offset: u64, size: usize, now_ns: u64, hart: usize) -> Option<u64> {
        if size != 4 {
            return None;
        }
        let now = self.base_ns.wrapping_add(now_ns);
        let value = match offset {
            0x00 => {
                *self.latch.get_mut(hart)? = (now >> 32) as u32;
                now as u32
            }
            0x04 => *self.latch.get(hart)?,
            0x08 => self.alarm_ns.unwrap_or(0) as u32,
            0x0c => self.alarm_high,
            0x10 => self.enabled as u32,
            0x18 => self.alarm_ns.is_some() as u32,
            _ => 0,
        };
        Some(value as u64)
    }

    /// Writes the 32-bit register at `offset`.
    pub fn write(&mut self, offset: u64, size: usize, value: u64, now_ns: u64) -> Option<()> {
        if size != 4 {
            return None;
        }
        let now = self.base_ns.wrapping_add(now_ns);
        match offset {
            0x00 => self.set(now & !0xffff_ffff | value & 0xffff_ffff, now_ns),
            0x04 => self.set(now & 0xffff_ffff | value << 32, now_ns),
            0x08 => {
                self.alarm_ns = Some((self.alarm_high as u64) << 32 | value & 0xffff_ffff);
                self.advance(now_ns);
            }
            0x0c => self.alarm_high = value as u32,
            0x10 => self.enabled = value & 1 != 0,
            0x14 => self.alarm_ns = None,
            0x1c => self.pending = false,
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_and_the_alarm_rings() {
        let mut r = Rtc::new(5, 1);
        let low = r.read(0, 4, 17, 0).unwrap();
        let high = r.read(4, 4, 17, 0).unwrap();
        assert_eq!(high << 32 | low, 5_000_000_017);
        r.write(0x0c, 4, high, 17).unwrap();
        r.write(0x08, 4, low + 100, 17).unwrap();
        r.write(0x10, 4, 1, 17).unwrap();
        assert_eq!(r.alarm(), Some(117));
        r.advance(116);
        assert!(!r.interrupt());
        r.advance(117);
        assert!(r.interrupt());
        r.write(0x1c, 4, 1, 118).unwrap();
        assert!(!r.interrupt());
    }
}
