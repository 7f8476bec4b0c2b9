//! Where a new process goes: the least loaded live cell, home on a near tie (Hive §3.2).
//! Loads come from the cell pages; hints from Wax are checked and, if bad, refused and counted.

use hive_protocol::{CellId, CellSet, MAX_CELLS};

/// By how many runnable threads another cell must be better before a process leaves home.
pub const HOME_BIAS: u64 = 1;

/// Placement of one cell.
#[derive(Clone, Debug)]
pub struct Placement {
    me: CellId,
    /// Last read load of each cell.
    loads: [u64; MAX_CELLS],
    /// What was sent to each cell since its load was last read.
    sent: [u64; MAX_CELLS],
    /// The cell that Wax prefers.
    preferred: Option<CellId>,
    refused: u64,
}

impl Placement {
    /// Nothing known: everything stays at home until loads are reported.
    pub const fn new(me: CellId) -> Placement {
        let mut loads = [u64::MAX; MAX_CELLS];
        loads[me.index()] = 0;
        Placement { me, loads, sent: [0; MAX_CELLS], preferred: None, refused: 0 }
    }

    /// The load word of a cell was read (careful reference; its own for the own cell).
    pub fn report(&mut self, cell: CellId, load: u64) {
        if let (Some(l), Some(s)) =
            (self.loads.get_mut(cell.index()), self.sent.get_mut(cell.index()))
        {
            (*l, *s) = (load, 0);
        }
    }

    /// A hint from Wax: prefer that cell among equals. `number` is unchecked.
    pub fn hint(&mut self, number: u64, live: CellSet) {
        let cell = usize::try_from(number).ok().and_then(CellId::new);
        match cell.filter(|cell| live.contains(*cell)) {
            Some(cell) => self.preferred = Some(cell),
            None => self.refused += 1,
        }
    }

    /// Hints refused so far.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn burden(&self, cell: CellId) -> u64 {
        let i = cell.index();
        let load = self.loads.get(i).copied().unwrap_or(u64::MAX);
        let home = if cell == self.me { 0 } else { HOME_BIAS };
        load.saturating_add(self.sent.get(i).copied().unwrap_or(0)).saturating_add(home)
    }

    /// The cell for a new process that may run on `allowed`; it counts as sent there. `None` if
    /// no live cell is allowed.
    pub fn choose(&mut self, live: CellSet, allowed: CellSet) -> Option<CellId> {
        let candidates = live.intersection(allowed);
        let rank = |cell: &CellId| {
            let other = *cell != self.me;
            (self.burden(*cell), other, Some(*cell) != self.preferred, *cell)
        };
        let chosen = candidates.iter().min_by_key(rank)?;
        if let Some(sent) = self.sent.get_mut(chosen.index()) {
            *sent += 1;
        }
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(placement: &mut Placement, live: u64, n: usize) -> [usize; 4] {
        let mut count = [0; 4];
        for _ in 0..n {
            let cell = placement.choose(CellSet(live), CellSet::first(4)).unwrap();
            count[cell.index()] += 1;
        }
        count
    }

    fn idle() -> Placement {
        let mut placement = Placement::new(CellId::of(1));
        (0..4).for_each(|c| placement.report(CellId::of(c), 0));
        placement
    }

    #[test]
    fn a_burst_spreads_before_the_loads_are_read_again() {
        assert_eq!(spread(&mut idle(), 0b1111, 4), [1, 2, 1, 0]);
        assert_eq!(spread(&mut idle(), 0b1111, 12).iter().max(), Some(&4));
        assert_eq!(spread(&mut idle(), 0b0111, 30)[3], 0);
    }

    #[test]
    fn home_wins_a_near_tie_and_unknown_cells_are_left_alone() {
        let mut placement = Placement::new(CellId::of(2));
        placement.report(CellId::of(2), 1);
        placement.report(CellId::of(0), 0);
        assert_eq!(placement.choose(CellSet(0b1111), CellSet(0b1111)), Some(CellId::of(2)));
        assert_eq!(placement.choose(CellSet(0b1111), CellSet(0b1111)), Some(CellId::of(0)));
        assert_eq!(placement.choose(CellSet(0b0001), CellSet(0b1000)), None);
    }

    #[test]
    fn bad_hints_are_counted_and_good_ones_break_ties_only() {
        let mut placement = idle();
        for bad in [3, 64, u64::MAX] {
            placement.hint(bad, CellSet(0b0111));
        }
        assert_eq!(placement.refused(), 3);
        placement.hint(2, CellSet(0b0111));
        placement.report(CellId::of(1), 1);
        placement.report(CellId::of(0), 0);
        assert_eq!(placement.choose(CellSet(0b0101), CellSet(0b1111)), Some(CellId::of(2)));
        placement.report(CellId::of(2), 5);
        assert_eq!(placement.choose(CellSet(0b0101), CellSet(0b1111)), Some(CellId::of(0)));
    }
}
