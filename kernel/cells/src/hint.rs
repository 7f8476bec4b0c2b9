//! Failure hints (Hive §4.3): the cheap checks of normal operation, the probe that confirms them,
//! and the ledger that keeps a mad cell from crying wolf for ever.
//!
//! A hint accuses; it never convicts. What convicts is in [`crate::membership`].

use hive_protocol::membership::{REASONS, Reason};
use hive_protocol::{CellId, CellSet};

use crate::limits::{CLOCK_CHECKS, FRUITLESS_ROUNDS, MUTE_TICKS, PROBE_TICKS, STRIKE_TICKS};

/// A check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// Whom it blames.
    pub accused: CellId,
    /// Which check it was.
    pub reason: Reason,
    /// Physical address whose access faulted; 0 unless the reason is a bus error.
    pub address: u64,
}

/// What a probe of a cell found. The prober looks for itself: it reads the cell page and every
/// clock word of the cell, one word of the DRAM of each of its nodes, and the address that came
/// with the accusation if that lies in the cell's DRAM, all by careful reference; and it sends a
/// probe line to each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// Every clock word advanced and the cell page is sane.
    Alive,
    /// Memory answers, but a clock word stands still or the cell page is wrong: an opinion.
    Failed,
    /// An access faulted, or a send was answered "dead". Every other cell that looks will see it
    /// too, now and until the node is booted again: a fact.
    Dead,
}

/// Watches the clock words of one cell from the clock handler: one careful read per tick.
#[derive(Clone, Debug)]
pub struct ClockWatch {
    last: u64,
    unchanged: u64,
}

impl ClockWatch {
    /// Starts with what the word (or the sum of the words) is now.
    pub const fn new(word: u64) -> ClockWatch {
        ClockWatch { last: word, unchanged: 0 }
    }

    /// Called at each tick of the watcher; whether to raise [`Reason::ClockStopped`]. It says so
    /// again at every further tick: an alert already under way ignores it.
    pub fn check(&mut self, word: u64) -> bool {
        if word == self.last {
            self.unchanged += 1;
        } else {
            *self = ClockWatch::new(word);
        }
        self.unchanged >= CLOCK_CHECKS
    }
}

/// The part of a probe that takes time: whether each of the cell's harts still ticks.
#[derive(Clone, Debug)]
pub struct ClockProbe<const HARTS: usize> {
    first: [u64; HARTS],
    ticks: u64,
}

impl<const HARTS: usize> ClockProbe<HARTS> {
    /// Starts with what the words are now.
    pub const fn new(words: [u64; HARTS]) -> Self {
        ClockProbe { first: words, ticks: 0 }
    }

    /// Called at each tick of the prober: `None` while it is too early to tell.
    pub fn check(&mut self, words: &[u64; HARTS]) -> Option<Finding> {
        self.ticks += 1;
        if self.first.iter().zip(words).all(|(then, now)| then != now) {
            Some(Finding::Alive)
        } else if self.ticks >= PROBE_TICKS {
            Some(Finding::Failed)
        } else {
            None
        }
    }
}

/// The cell that `me` watches: the next live one, in a ring.
pub fn watched(me: CellId, live: CellSet) -> Option<CellId> {
    let above = CellSet(live.0 & !(((1u64 << me.index()) << 1).wrapping_sub(1)));
    above.lowest().or(live.without(me).lowest())
}

/// Who cried wolf: alerts of others that were voted down, and our own that we keep quiet about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger<const CELLS: usize> {
    /// By accuser and reason: whom it accused in vain.
    struck: [[CellSet; REASONS]; CELLS],
    /// By accuser: rounds it caused that came to nothing.
    fruitless: [u8; CELLS],
    /// By accuser: the tick at which all that is forgotten.
    forget: [u64; CELLS],
    /// By reason: whom we accused in vain.
    muted: [CellSet; REASONS],
    /// By accused: the tick at which we may try again.
    unmute: [u64; CELLS],
}

impl<const CELLS: usize> Ledger<CELLS> {
    /// Nothing held against anyone.
    pub const fn new() -> Self {
        Ledger {
            struck: [[CellSet::EMPTY; REASONS]; CELLS],
            fruitless: [0; CELLS],
            forget: [0; CELLS],
            muted: [CellSet::EMPTY; REASONS],
            unmute: [0; CELLS],
        }
    }

    fn refresh(&mut self, accuser: CellId, now: u64) {
        let i = accuser.index();
        if now >= self.forget[i] {
            self.struck[i] = [CellSet::EMPTY; REASONS];
            self.fruitless[i] = 0;
        }
    }

    /// An alert of `accuser` was voted down. Whether it is the second time for the same one:
    /// then the accuser itself is to be accused of [`Reason::RepeatedAlert`].
    pub fn strike(&mut self, accuser: CellId, accused: CellId, reason: Reason, now: u64) -> bool {
        self.refresh(accuser, now);
        let i = accuser.index();
        let set = &mut self.struck[i][reason as usize];
        let repeated = set.contains(accused);
        *set = set.with(accused);
        self.forget[i] = now + STRIKE_TICKS;
        repeated
    }

    /// `opener` caused a round: it counts as fruitless unless forgiven.
    pub fn fruitless(&mut self, opener: CellId, now: u64) {
        self.refresh(opener, now);
        let i = opener.index();
        self.fruitless[i] = self.fruitless[i].saturating_add(1);
        self.forget[i] = now + STRIKE_TICKS;
    }

    /// The round that `opener` caused found a death.
    pub fn forgive(&mut self, opener: CellId) {
        if let Some(count) = self.fruitless.get_mut(opener.index()) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether accusations that come from `cell` still open a round.
    pub fn heard(&mut self, cell: CellId, now: u64) -> bool {
        self.refresh(cell, now);
        self.fruitless[cell.index()] < FRUITLESS_ROUNDS
    }

    /// Our own alert was voted down: keep it to ourselves for a while.
    pub fn mute(&mut self, accused: CellId, reason: Reason, now: u64) {
        let set = &mut self.muted[reason as usize];
        *set = set.with(accused);
        self.unmute[accused.index()] = now + MUTE_TICKS;
    }

    /// Whether we keep this alert to ourselves.
    pub fn muted(&mut self, accused: CellId, reason: Reason, now: u64) -> bool {
        if now >= self.unmute[accused.index()] {
            self.muted.iter_mut().for_each(|set| *set = set.without(accused));
        }
        self.muted[reason as usize].contains(accused)
    }
}

impl<const CELLS: usize> Default for Ledger<CELLS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_suspected_after_two_idle_checks() {
        let mut watch = ClockWatch::new(5);
        assert!(!watch.check(6));
        assert!(!watch.check(6));
        assert!(watch.check(6));
        assert!(watch.check(6));
        assert!(!watch.check(7));
    }

    #[test]
    fn one_silent_hart_fails_the_cell() {
        let mut probe = ClockProbe::new([1, 9]);
        assert_eq!(probe.check(&[2, 9]), None);
        assert_eq!(probe.check(&[3, 9]), Some(Finding::Failed));
        let mut probe = ClockProbe::new([1, 9]);
        assert_eq!(probe.check(&[2, 10]), Some(Finding::Alive));
    }

    #[test]
    fn each_cell_watches_the_next_one() {
        let live = CellSet(0b1011);
        let next = |n| watched(CellId::of(n), live).map(CellId::index);
        assert_eq!((next(0), next(1), next(3)), (Some(1), Some(3), Some(0)));
        assert_eq!(watched(CellId::of(0), CellSet(1)), None);
        assert_eq!(watched(CellId::of(63), CellSet::first(64)), Some(CellId::of(0)));
        assert_eq!(watched(CellId::of(62), CellSet::first(64)), Some(CellId::of(63)));
    }

    #[test]
    fn only_the_same_alert_strikes_twice_and_time_forgives() {
        let mut ledger = Ledger::<4>::new();
        let [a, b, c] = [0, 1, 2].map(CellId::of);
        assert!(!ledger.strike(a, b, Reason::RpcTimeout, 0));
        assert!(!ledger.strike(a, c, Reason::RpcTimeout, 1));
        assert!(!ledger.strike(a, b, Reason::FailedCheck, 2));
        assert!(!ledger.strike(c, b, Reason::RpcTimeout, 3));
        assert!(ledger.strike(a, b, Reason::RpcTimeout, 4));
        assert!(!ledger.strike(a, b, Reason::RpcTimeout, 4 + STRIKE_TICKS));
        ledger.mute(b, Reason::RpcTimeout, 0);
        assert!(ledger.muted(b, Reason::RpcTimeout, MUTE_TICKS - 1));
        assert!(!ledger.muted(b, Reason::FailedCheck, 1));
        assert!(!ledger.muted(b, Reason::RpcTimeout, MUTE_TICKS));
    }
}
