//! The order of recovery after a verdict (Hive §4.3): flush, first barrier, clean up, second
//! barrier, resume, elect a master.
//!
//! | step | entered by | this cell is then |
//! |---|---|---|
//! | `Flushing` | a verdict with a higher epoch | flushing TLBs, removing remote mappings |
//! | `Barrier1` | flush done | waiting until every live cell has flushed |
//! | `CleaningUp` | all at barrier 1 | revoking firewall grants, discarding, killing |
//! | `Barrier2` | clean-up done | waiting until every live cell has cleaned up |
//! | `Done` | all at barrier 2 | running again |
//!
//! The barriers are phase words: each cell publishes its own in its cell page and reads the
//! others' by careful reference. Against messages this has no queue that could be full, nothing to
//! lose or repeat, a dead cell shows at the read itself, and no cell writes another's memory; it
//! costs one cache miss per cell and look.
//!
//! A further death in the middle brings a verdict with a higher epoch, and everything starts over
//! under it; phases of different epochs are never mixed. That a verdict reaches every live cell is
//! membership's promise, so a cell that waits at a barrier of a superseded epoch will get it too.
//!
//! Invariants: no cell cleans up before every live cell of that epoch has flushed; none resumes
//! before every live cell has cleaned up; work for a superseded epoch never advances the step.
//!
//! Absent: what flushing and cleaning up are (the kernel's affair); rebooting the dead.

use hive_protocol::page::{Phase, Step};
use hive_protocol::{CellId, CellSet};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Membership agreed on a new live set.
    Verdict {
        /// Its epoch.
        epoch: u32,
        /// Who lives.
        live: CellSet,
        /// Who died since the verdict before.
        died: CellSet,
    },
    /// The work asked for by the last [`Output::Flush`] or [`Output::CleanUp`] is done.
    WorkDone {
        /// The epoch it was asked for.
        epoch: u32,
    },
    /// What another cell's page says.
    Peer {
        /// The cell.
        cell: CellId,
        /// Its phase word.
        phase: u64,
        /// Its live set.
        live: u64,
    },
}

/// What to do, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Store into the own cell page: the live set first, then the phase word (release order).
    Publish {
        /// The phase.
        phase: Phase,
        /// The live set it belongs to.
        live: CellSet,
    },
    /// Flush TLBs, remove remote mappings, hold up new remote faults; then report.
    Flush {
        /// For [`Input::WorkDone`].
        epoch: u32,
    },
    /// Revoke all firewall permission granted to the dead, discard what they could write, end
    /// calls to them, kill processes that lost state; then report. May come again for cells
    /// already cleaned up after: it must be harmless.
    CleanUp {
        /// For [`Input::WorkDone`].
        epoch: u32,
        /// After whom.
        dead: CellSet,
    },
    /// Recovery is over: let remote faults and, unless a round of agreement runs, user
    /// processes go on.
    Resume {
        /// The epoch.
        epoch: u32,
    },
    /// This cell is recovery master: diagnose the nodes of the dead and report.
    Master {
        /// The epoch.
        epoch: u32,
        /// Who died.
        dead: CellSet,
    },
    /// A check of that cell's page failed.
    Suspect {
        /// The cell.
        cell: CellId,
    },
}

/// The sequencer of one cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovery {
    me: CellId,
    phase: Phase,
    live: CellSet,
    /// Died since recovery was last complete here.
    dead: CellSet,
    /// Who was seen at (or past) the barrier we wait at.
    arrived: CellSet,
}

/// What makes a step end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trigger {
    WorkDone,
    AllArrived,
}

/// The whole order: (step, what ends it, next step). Everything else changes nothing.
const ORDER: [(Step, Trigger, Step); 4] = [
    (Step::Flushing, Trigger::WorkDone, Step::Barrier1),
    (Step::Barrier1, Trigger::AllArrived, Step::CleaningUp),
    (Step::CleaningUp, Trigger::WorkDone, Step::Barrier2),
    (Step::Barrier2, Trigger::AllArrived, Step::Done),
];

impl Recovery {
    /// A cell that runs, on a machine of `live` cells.
    pub const fn new(me: CellId, live: CellSet) -> Recovery {
        let phase = Phase { epoch: 0, step: Step::Running };
        Recovery { me, phase, live, dead: CellSet::EMPTY, arrived: CellSet::EMPTY }
    }

    /// What this cell publishes.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether recovery is under way, hence user processes suspended.
    pub const fn active(&self) -> bool {
        !matches!(self.phase.step, Step::Running | Step::Done)
    }

    /// Whose pages to read and report as [`Input::Peer`] until this is empty. A cell that stays
    /// in it for long is to be probed as failed: its clock may tick while its recovery hangs.
    pub const fn awaited(&self) -> CellSet {
        match self.phase.step {
            Step::Barrier1 | Step::Barrier2 => self.live.without(self.me).minus(self.arrived),
            _ => CellSet::EMPTY,
        }
    }

    /// Takes one input; `out` is called for each output.
    pub fn step(&mut self, input: Input, out: &mut impl FnMut(Output)) {
        match input {
            Input::Verdict { epoch, live, died } => self.verdict(epoch, live, died, out),
            Input::WorkDone { epoch } if epoch == self.phase.epoch => {
                self.advance(Trigger::WorkDone, out);
            }
            Input::WorkDone { .. } => {}
            Input::Peer { cell, phase, live } => self.peer(cell, phase, live, out),
        }
        // Alone, or all there: a barrier without anyone to wait for is passed at once.
        if self.waiting() && self.awaited().is_empty() {
            self.advance(Trigger::AllArrived, out);
        }
    }

    const fn waiting(&self) -> bool {
        matches!(self.phase.step, Step::Barrier1 | Step::Barrier2)
    }

    fn verdict(&mut self, epoch: u32, live: CellSet, died: CellSet, out: &mut impl FnMut(Output)) {
        if epoch <= self.phase.epoch {
            return;
        }
        self.live = live;
        self.dead = self.dead.union(died);
        self.enter(Phase { epoch, step: Step::Flushing }, out);
    }

    fn peer(&mut self, cell: CellId, phase: u64, live: u64, out: &mut impl FnMut(Output)) {
        if !self.awaited().contains(cell) {
            return;
        }
        let Some(theirs) = Phase::from_word(phase) else {
            return out(Output::Suspect { cell });
        };
        // Only our own epoch counts: a cell ahead of us may never have come by here.
        if theirs.epoch != self.phase.epoch {
            return;
        }
        if live != self.live.0 {
            return out(Output::Suspect { cell });
        }
        if theirs.step >= self.phase.step {
            self.arrived = self.arrived.with(cell);
        }
    }

    fn advance(&mut self, trigger: Trigger, out: &mut impl FnMut(Output)) {
        let next = ORDER.iter().find(|(step, by, _)| *step == self.phase.step && *by == trigger);
        if let Some((_, _, step)) = next {
            self.enter(Phase { step: *step, ..self.phase }, out);
        }
    }

    fn enter(&mut self, phase: Phase, out: &mut impl FnMut(Output)) {
        self.phase = phase;
        self.arrived = CellSet::EMPTY;
        out(Output::Publish { phase, live: self.live });
        let epoch = phase.epoch;
        match phase.step {
            Step::Flushing => out(Output::Flush { epoch }),
            Step::CleaningUp => out(Output::CleanUp { epoch, dead: self.dead }),
            Step::Done => {
                let dead = core::mem::take(&mut self.dead);
                out(Output::Resume { epoch });
                if self.live.lowest() == Some(self.me) {
                    out(Output::Master { epoch, dead });
                }
            }
            Step::Running | Step::Barrier1 | Step::Barrier2 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const CELLS: usize = 4;

    /// Everything that may differ between two states of a system of cells in recovery.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Key(Vec<(bool, u64, u64, u64, usize, bool, Option<u32>)>);

    #[derive(Clone)]
    struct Cell {
        up: bool,
        machine: Recovery,
        /// As stored in memory.
        published: (u64, u64),
        /// Verdicts of the script taken so far.
        verdicts: usize,
        /// Work under way, for its epoch.
        work: Option<u32>,
        /// Work that a further verdict overtook; it may still report.
        stale: Option<u32>,
        flushed: u32,
        cleaned: u32,
        resumed: u32,
        master: u32,
    }

    #[derive(Clone)]
    struct System {
        cells: Vec<Cell>,
        /// The live sets that membership agrees on, one after the other.
        script: Vec<CellSet>,
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Verdict(usize),
        Work(usize),
        StaleWork(usize),
        Look(usize, usize),
        Die(usize),
    }

    impl System {
        fn new(script: &[CellSet]) -> System {
            let live = CellSet::first(CELLS);
            let cell = |i| Cell {
                up: true,
                machine: Recovery::new(CellId::of(i), live),
                published: (0, live.0),
                verdicts: 0,
                work: None,
                stale: None,
                flushed: 0,
                cleaned: 0,
                resumed: 0,
                master: 0,
            };
            System { cells: (0..CELLS).map(cell).collect(), script: script.to_vec() }
        }

        fn key(&self) -> Key {
            Key(self
                .cells
                .iter()
                .map(|c| {
                    let phase = c.machine.phase.word();
                    let arrived = c.machine.arrived.0;
                    (c.up, phase, arrived, c.published.0, c.verdicts, c.work.is_some(), c.stale)
                })
                .collect())
        }

        fn live_before(&self, verdict: usize) -> CellSet {
            if verdict == 0 { CellSet::first(CELLS) } else { self.script[verdict - 1] }
        }

        fn events(&self) -> Vec<Event> {
            let mut events = Vec::new();
            for (i, cell) in self.cells.iter().enumerate().filter(|(_, cell)| cell.up) {
                let next = cell.verdicts;
                // A verdict cannot come before the death it tells of.
                let happened = |live: CellSet| {
                    (0..CELLS).all(|c| !self.cells[c].up || live.contains(CellId::of(c)))
                };
                if next < self.script.len() && happened(self.script[next]) {
                    events.push(Event::Verdict(i));
                }
                if cell.work.is_some() {
                    events.push(Event::Work(i));
                }
                if cell.stale.is_some() {
                    events.push(Event::StaleWork(i));
                }
                for other in cell.machine.awaited().iter() {
                    if self.cells[other.index()].up {
                        events.push(Event::Look(i, other.index()));
                    }
                }
            }
            // The deaths of the script, in order, at any moment.
            let dying = (0..self.script.len()).find_map(|v| {
                let died = self.live_before(v).minus(self.script[v]);
                died.iter().find(|c| self.cells[c.index()].up)
            });
            events.extend(dying.map(|c| Event::Die(c.index())));
            events
        }

        fn apply(&mut self, event: Event) {
            match event {
                Event::Die(c) => self.cells[c].up = false,
                Event::Verdict(c) => {
                    let v = self.cells[c].verdicts;
                    self.cells[c].verdicts += 1;
                    let (before, live) = (self.live_before(v), self.script[v]);
                    let epoch = (CELLS - live.len()) as u32;
                    self.step(c, Input::Verdict { epoch, live, died: before.minus(live) });
                }
                Event::Work(c) => {
                    let Some(epoch) = self.cells[c].work.take() else { return };
                    match self.cells[c].machine.phase.step {
                        Step::Flushing => self.cells[c].flushed = epoch,
                        _ => self.cells[c].cleaned = epoch,
                    }
                    self.step(c, Input::WorkDone { epoch });
                }
                Event::StaleWork(c) => {
                    let Some(epoch) = self.cells[c].stale.take() else { return };
                    self.step(c, Input::WorkDone { epoch });
                }
                Event::Look(c, at) => {
                    let (phase, live) = self.cells[at].published;
                    self.step(c, Input::Peer { cell: CellId::of(at), phase, live });
                }
            }
        }

        fn step(&mut self, c: usize, input: Input) {
            let mut outputs = Vec::new();
            self.cells[c].machine.step(input, &mut |output| outputs.push(output));
            for output in outputs {
                match output {
                    Output::Publish { phase, live } => {
                        self.cells[c].published = (phase.word(), live.0);
                    }
                    Output::Flush { epoch } => {
                        self.cells[c].stale = self.cells[c].work.replace(epoch);
                    }
                    Output::CleanUp { epoch, dead } => {
                        // Invariant: all live cells of this epoch have flushed for it.
                        self.all_live(c, |cell| cell.flushed >= epoch);
                        assert!(!dead.is_empty());
                        self.cells[c].work = Some(epoch);
                    }
                    Output::Resume { epoch } => {
                        self.all_live(c, |cell| cell.cleaned >= epoch);
                        self.cells[c].resumed = epoch;
                    }
                    Output::Master { epoch, .. } => self.cells[c].master = epoch,
                    Output::Suspect { cell } => panic!("{cell} suspected"),
                }
            }
        }

        fn all_live(&self, c: usize, holds: impl Fn(&Cell) -> bool) {
            let live = self.cells[c].machine.live;
            assert!(
                live.iter().all(|l| !self.cells[l.index()].up || holds(&self.cells[l.index()]))
            );
        }
    }

    /// Every order of verdicts, work, looks and deaths. Seen to fail when the rules are broken: when
    /// a barrier counts cells of a later epoch (`peer`), when work of an overtaken epoch counts
    /// (`WorkDone`), when `arrived` survives a step, when any step counts as arrival.
    fn explore(script: &[u64]) -> usize {
        let script: Vec<CellSet> = script.iter().map(|live| CellSet(*live)).collect();
        let (mut seen, mut stack) = (BTreeSet::new(), std::vec![System::new(&script)]);
        while let Some(system) = stack.pop() {
            if !seen.insert(system.key()) {
                continue;
            }
            let mut progress = false;
            for event in system.events() {
                let mut next = system.clone();
                next.apply(event);
                progress |= next.key() != system.key();
                stack.push(next);
            }
            if !progress {
                finished(&system, script.len());
            }
        }
        std::println!("{script:?}: {} states", seen.len());
        seen.len()
    }

    /// Nothing can happen any more: then all is done.
    fn finished(system: &System, verdicts: usize) {
        let last = system.script[verdicts - 1];
        let epoch = (CELLS - last.len()) as u32;
        for cell in last.iter() {
            let cell = &system.cells[cell.index()];
            assert_eq!((cell.resumed, cell.verdicts), (epoch, verdicts));
            assert!(!cell.machine.active());
        }
        let masters = last.iter().filter(|c| system.cells[c.index()].master == epoch);
        assert_eq!(masters.count(), 1);
    }

    #[test]
    fn every_order_with_one_death() {
        assert!(explore(&[0b0111]) > 200);
        explore(&[0b1110]);
    }

    #[test]
    fn every_order_with_a_death_in_the_middle() {
        assert!(explore(&[0b0111, 0b0011]) > 1000);
        explore(&[0b0011]);
        explore(&[0b1110, 0b1100, 0b1000]);
    }

    #[test]
    fn rubbish_in_a_cell_page_is_a_hint_and_moves_nothing() {
        let mut machine = Recovery::new(CellId::of(0), CellSet(0b111));
        let mut outputs = Vec::new();
        let live = CellSet(0b011);
        machine.step(Input::Verdict { epoch: 1, live, died: CellSet(0b100) }, &mut |_| {});
        machine.step(Input::WorkDone { epoch: 1 }, &mut |_| {});
        let cell = CellId::of(1);
        for (phase, live) in [(99, 0b011), (1 << 32 | 2, 0b111)] {
            machine.step(Input::Peer { cell, phase, live }, &mut |o| outputs.push(o));
        }
        assert_eq!(outputs, [Output::Suspect { cell }; 2]);
        assert_eq!(machine.awaited(), CellSet(0b010));
        machine.step(Input::Peer { cell, phase: 1 << 32 | 2, live: 0b011 }, &mut |_| {});
        assert_eq!(machine.phase.step, Step::CleaningUp);
    }
}
