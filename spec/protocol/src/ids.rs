//! Names of cells and processes. Names outlive what they name, so they carry the incarnation of
//! the cell: whatever comes from a former life of a cell is recognized and refused.

use core::fmt;

use crate::MAX_CELLS;

/// Number of a cell, always below [`MAX_CELLS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CellId(u8);

impl CellId {
    /// The cell with this number, if a machine can have it.
    pub const fn new(number: usize) -> Option<CellId> {
        if number < MAX_CELLS { Some(CellId(number as u8)) } else { None }
    }

    /// As [`CellId::new`], for numbers known to be good (constants, loop counters of our own).
    ///
    /// # Panics
    /// If the number is too large. Never call it with a number that a peer sent.
    pub const fn of(number: usize) -> CellId {
        assert!(number < MAX_CELLS);
        CellId(number as u8)
    }

    /// Its number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How often a cell has been booted since power-on, modulo 256. Compared for equality only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Incarnation(pub u8);

impl Incarnation {
    /// The incarnation after this one.
    pub const fn next(self) -> Incarnation {
        Incarnation(self.0.wrapping_add(1))
    }
}

/// A set of cells: bit n is cell n.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CellSet(pub u64);

impl CellSet {
    /// No cell.
    pub const EMPTY: CellSet = CellSet(0);

    /// Cells `0..count`.
    pub const fn first(count: usize) -> CellSet {
        CellSet(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// Just `cell`.
    pub const fn only(cell: CellId) -> CellSet {
        CellSet(1 << cell.index())
    }

    /// Whether `cell` is in the set.
    pub const fn contains(self, cell: CellId) -> bool {
        self.0 >> cell.index() & 1 != 0
    }

    /// The set with `cell`.
    #[must_use]
    pub const fn with(self, cell: CellId) -> CellSet {
        CellSet(self.0 | 1 << cell.index())
    }

    /// The set without `cell`.
    #[must_use]
    pub const fn without(self, cell: CellId) -> CellSet {
        CellSet(self.0 & !(1 << cell.index()))
    }

    /// Members of either.
    #[must_use]
    pub const fn union(self, other: CellSet) -> CellSet {
        CellSet(self.0 | other.0)
    }

    /// Members of both.
    #[must_use]
    pub const fn intersection(self, other: CellSet) -> CellSet {
        CellSet(self.0 & other.0)
    }

    /// Members of this set that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: CellSet) -> CellSet {
        CellSet(self.0 & !other.0)
    }

    /// Whether every member is in `other`.
    pub const fn is_subset(self, other: CellSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// How many cells.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The member with the lowest number: the recovery master, among others.
    pub const fn lowest(self) -> Option<CellId> {
        if self.0 == 0 { None } else { Some(CellId(self.0.trailing_zeros() as u8)) }
    }

    /// Members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = CellId> {
        let mut left = self;
        core::iter::from_fn(move || {
            let cell = left.lowest()?;
            left = left.without(cell);
            Some(cell)
        })
    }
}

impl fmt::Debug for CellSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(CellId::index)).finish()
    }
}

/// A process id of the one process-id space: bits 0..16 sequence, 16..22 cell, 22..30
/// incarnation. Cell 0 in its first life gives 1, 2, 3 and so on. Sequence 0 is never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pid(u32);

/// Bits of the sequence number in a [`Pid`].
pub const PID_SEQUENCE_BITS: u32 = 16;
const PID_CELL_BITS: u32 = 6;
const PID_INCARNATION_BITS: u32 = 8;
const _: () = {
    assert!(1 << PID_CELL_BITS == MAX_CELLS);
    // Positive as an i32: Linux gives negative process ids other meanings.
    assert!(PID_SEQUENCE_BITS + PID_CELL_BITS + PID_INCARNATION_BITS <= 30);
};

impl Pid {
    /// The id of process `sequence` that `cell` created in its life `incarnation`; `None` for
    /// sequence 0.
    pub const fn new(cell: CellId, incarnation: Incarnation, sequence: u16) -> Option<Pid> {
        if sequence == 0 {
            return None;
        }
        let cell = (cell.index() as u32) << PID_SEQUENCE_BITS;
        let incarnation = (incarnation.0 as u32) << (PID_SEQUENCE_BITS + PID_CELL_BITS);
        Some(Pid(incarnation | cell | sequence as u32))
    }

    /// A process id as programs see it; `None` if no cell can have given it.
    pub const fn from_raw(raw: i32) -> Option<Pid> {
        if raw <= 0 || raw >> 30 != 0 || raw as u32 & 0xffff == 0 {
            return None;
        }
        Some(Pid(raw as u32))
    }

    /// As programs see it: always positive.
    pub const fn raw(self) -> i32 {
        self.0 as i32
    }

    /// The cell that created the process.
    pub const fn cell(self) -> CellId {
        CellId((self.0 >> PID_SEQUENCE_BITS) as u8 & 0x3f)
    }

    /// The life of that cell in which it did.
    pub const fn incarnation(self) -> Incarnation {
        Incarnation((self.0 >> (PID_SEQUENCE_BITS + PID_CELL_BITS)) as u8)
    }

    /// The sequence number, from 1.
    pub const fn sequence(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_zero_counts_from_one() {
        let pid = |n| Pid::new(CellId::of(0), Incarnation(0), n).map(Pid::raw);
        assert_eq!((pid(0), pid(1), pid(2), pid(3)), (None, Some(1), Some(2), Some(3)));
    }

    #[test]
    fn pids_round_trip_and_stay_positive() {
        for cell in 0..MAX_CELLS {
            for incarnation in [0, 1, 127, 255] {
                for sequence in [1, 2, 0x7fff, 0xffff] {
                    let (cell, inc) = (CellId::of(cell), Incarnation(incarnation));
                    let pid = Pid::new(cell, inc, sequence).unwrap();
                    assert!(pid.raw() > 0);
                    assert_eq!(Pid::from_raw(pid.raw()), Some(pid));
                    assert_eq!(
                        (pid.cell(), pid.incarnation(), pid.sequence()),
                        (cell, inc, sequence)
                    );
                }
            }
        }
        for raw in [0, -1, i32::MIN, 0x10000, 1 << 30 | 1, i32::MAX] {
            assert_eq!(Pid::from_raw(raw), None);
        }
    }

    #[test]
    fn sets_behave_like_sets() {
        let a = CellSet::first(4);
        assert_eq!(a.len(), 4);
        assert_eq!(a.without(CellId::of(0)).lowest(), Some(CellId::of(1)));
        assert_eq!(CellSet::first(64).len(), 64);
        assert!(CellSet::EMPTY.is_subset(a) && !a.is_subset(CellSet::EMPTY));
        assert!(CellSet(0b101).iter().map(CellId::index).eq([0, 2]));
        assert_eq!(CellId::new(64), None);
    }
}
