//! Physical memory protection: sixteen entries (privileged specification, "Physical Memory
//! Protection"). Granularity 4 bytes.

use crate::platform::{Access, Privilege};

/// Number of entries.
pub(crate) const ENTRIES: usize = 16;
const R: u8 = 1;
const W: u8 = 2;
const X: u8 = 4;
const LOCKED: u8 = 0x80;
/// Bits of `pmpaddr` that exist: physical addresses have 56 bits.
const ADDRESS_MASK: u64 = (1 << 54) - 1;

/// How an entry's address is read (field A).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matching {
    Off,
    Tor,
    Na4,
    Napot,
}

/// What PMP says of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    Denied,
}

/// The registers.
#[derive(Clone, Default)]
pub(crate) struct Pmp {
    config: [u8; ENTRIES],
    address: [u64; ENTRIES],
    /// What the entries that are on match, in order: derived from the registers.
    active: Vec<Range>,
}

/// A range that an entry matches: first and last byte, and the entry's configuration.
#[derive(Clone, Copy)]
struct Range {
    low: u64,
    high: u64,
    config: u8,
}

impl Pmp {
    /// `pmpcfg0` (bank 0) or `pmpcfg2` (bank 1).
    pub(crate) fn config(&self, bank: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.config[bank * 8..bank * 8 + 8]);
        u64::from_le_bytes(bytes)
    }

    /// Writes eight entries' configuration; locked ones keep theirs.
    pub(crate) fn set_config(&mut self, bank: usize, value: u64) {
        for (entry, byte) in self.config[bank * 8..bank * 8 + 8].iter_mut().zip(value.to_le_bytes())
        {
            if *entry & LOCKED == 0 {
                // Write without read is reserved: such a value grants neither.
                let byte = byte & 0x9f;
                *entry = if byte & (R | W) == W { byte & !W } else { byte };
            }
        }
        self.update();
    }

    /// `pmpaddr` of entry `i`.
    pub(crate) fn address(&self, i: usize) -> u64 {
        self.address[i]
    }

    /// Writes `pmpaddr` of entry `i`, unless it is locked or bounds a locked TOR entry.
    pub(crate) fn set_address(&mut self, i: usize, value: u64) {
        let bounds_locked = self
            .config
            .get(i + 1)
            .is_some_and(|next| next & LOCKED != 0 && matching(*next) == Matching::Tor);
        if self.config[i] & LOCKED == 0 && !bounds_locked {
            self.address[i] = value & ADDRESS_MASK;
        }
        self.update();
    }

    fn update(&mut self) {
        let range = |i: usize| {
            let (low, high) = self.range(i)?;
            Some(Range { low, high, config: self.config[i] })
        };
        self.active = (0..ENTRIES).filter_map(range).collect();
    }

    /// First and last byte that entry `i` matches.
    fn range(&self, i: usize) -> Option<(u64, u64)> {
        let address = self.address[i];
        match matching(self.config[i]) {
            Matching::Off => None,
            Matching::Tor => {
                let low = if i == 0 { 0 } else { self.address[i - 1] << 2 };
                (low < address << 2).then(|| (low, (address << 2) - 1))
            }
            Matching::Na4 => Some((address << 2, (address << 2) + 3)),
            Matching::Napot => {
                let ones = address.trailing_ones();
                let bytes_log2 = ones + 3;
                if bytes_log2 >= 57 {
                    return Some((0, u64::MAX));
                }
                let base = (address & !((1 << ones) - 1)) << 2;
                Some((base, base + (1 << bytes_log2) - 1))
            }
        }
    }

    /// May `privilege` make this access to all of `size` bytes at `pa`? The lowest entry that
    /// matches any byte decides, and denies if it does not match all of them.
    pub(crate) fn check(
        &self,
        privilege: Privilege,
        pa: u64,
        size: u64,
        access: Access,
    ) -> Verdict {
        let last = pa + (size - 1);
        let need = match access {
            Access::Load => R,
            Access::Store => W,
            Access::Fetch => X,
        };
        for range in &self.active {
            if last < range.low || pa > range.high {
                continue;
            }
            let covers = pa >= range.low && last <= range.high;
            let exempt = privilege == Privilege::Machine && range.config & LOCKED == 0;
            let granted = covers && (exempt || range.config & need != 0);
            return if granted { Verdict::Granted } else { Verdict::Denied };
        }
        if privilege == Privilege::Machine { Verdict::Granted } else { Verdict::Denied }
    }

    /// Does one answer hold for all of the 4 KB page at `page`? If an entry's border cuts the
    /// page, permissions must be asked for each access.
    pub(crate) fn uniform(&self, page: u64) -> bool {
        let last = page + 4095;
        self.active.iter().all(|range| {
            last < range.low || page > range.high || (range.low <= page && last <= range.high)
        })
    }
}

fn matching(config: u8) -> Matching {
    match config >> 3 & 3 {
        0 => Matching::Off,
        1 => Matching::Tor,
        2 => Matching::Na4,
        _ => Matching::Napot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RWX: u64 = 7;

    fn granted(pmp: &Pmp, privilege: Privilege, pa: u64, size: u64, access: Access) -> bool {
        pmp.check(privilege, pa, size, access) == Verdict::Granted
    }

    #[test]
    fn without_entries_only_machine_mode_passes() {
        let pmp = Pmp::default();
        assert!(granted(&pmp, Privilege::Machine, 0x8000_0000, 8, Access::Store));
        assert!(!granted(&pmp, Privilege::Supervisor, 0x8000_0000, 8, Access::Load));
    }

    #[test]
    fn the_lowest_matching_entry_decides_and_must_cover_the_access() {
        let mut pmp = Pmp::default();
        pmp.set_address(0, 0x8000_0000 >> 2 | 0x1ff); // NAPOT 4 KB
        pmp.set_address(1, u64::MAX);
        pmp.set_config(0, 3 << 3 | (3 << 3 | RWX) << 8);
        assert_eq!(pmp.range(0), Some((0x8000_0000, 0x8000_0fff)));
        assert!(!granted(&pmp, Privilege::User, 0x8000_0ff8, 8, Access::Load));
        assert!(granted(&pmp, Privilege::User, 0x8000_1000, 8, Access::Load));
        assert!(!granted(&pmp, Privilege::User, 0x8000_0ffc, 8, Access::Load));
        assert!(granted(&pmp, Privilege::Machine, 0x8000_0000, 8, Access::Load));
        assert!(!granted(&pmp, Privilege::Machine, 0x8000_0ffc, 8, Access::Load));
    }

    #[test]
    fn tor_takes_the_lower_bound_from_the_entry_below() {
        let mut pmp = Pmp::default();
        pmp.set_address(0, 0x1000 >> 2);
        pmp.set_address(1, 0x2010 >> 2);
        pmp.set_config(0, (1 << 3 | 1) << 8);
        assert_eq!(pmp.range(1), Some((0x1000, 0x200f)));
        assert!(granted(&pmp, Privilege::User, 0x2008, 8, Access::Load));
        assert!(!granted(&pmp, Privilege::User, 0x2008, 8, Access::Store));
        assert!(!granted(&pmp, Privilege::User, 0x2010, 4, Access::Load));
        assert!(pmp.uniform(0x1000));
        assert!(!pmp.uniform(0x2000));
    }

    #[test]
    fn locked_entries_bind_machine_mode_and_cannot_be_rewritten() {
        let mut pmp = Pmp::default();
        pmp.set_address(3, 0x9000 >> 2);
        pmp.set_address(4, 0xa000 >> 2);
        pmp.set_config(0, (0x80 | 1 << 3 | 1) << 32);
        pmp.set_config(0, 0);
        pmp.set_address(4, 0);
        pmp.set_address(3, 0);
        assert_eq!(pmp.range(4), Some((0x9000, 0x9fff)));
        assert!(granted(&pmp, Privilege::Machine, 0x9000, 4, Access::Load));
        assert!(!granted(&pmp, Privilege::Machine, 0x9000, 4, Access::Store));
    }

    #[test]
    fn write_without_read_is_not_a_value() {
        let mut pmp = Pmp::default();
        pmp.set_config(1, 3 << 3 | 2);
        assert_eq!(pmp.config(1), 3 << 3);
    }
}
