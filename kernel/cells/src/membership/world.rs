//! The machine as agreement sees it, for the tests: links that lose nothing and keep order,
//! probes that show what is there, vote words with the controller's rule, cells that halt (memory
//! still answers), die (nothing answers) or lie.

use core::hash::{Hash, Hasher};
use std::collections::VecDeque;
use std::vec::Vec;

use super::*;
use crate::hint::watched;
use crate::limits::PROBE_TICKS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    Up,
    /// Its harts stand still: messages to it pile up, its clock words do not move.
    Halted,
    /// Faults every access; sends to it say so.
    Dead,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Deliver {
        from: usize,
        to: usize,
    },
    ProbeDone {
        prober: usize,
        target: usize,
    },
    /// Every cell's clock, at once.
    Tick,
    /// One cell's clock.
    TickOf(usize),
    /// The next line from one cell to another finds the queue full.
    Lose {
        from: usize,
        to: usize,
    },
    Kill(usize),
    Halt(usize),
    /// A correct cell is mistaken.
    Mistake {
        by: usize,
        about: usize,
        reason: Reason,
    },
    /// A liar sends opinion number `script` to one cell.
    Lie {
        from: usize,
        to: usize,
        script: usize,
    },
    /// A liar names everybody in its vote word.
    LieVote {
        from: usize,
    },
}

/// A broken property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Two correct cells hold different live sets for one epoch.
    Split,
    /// A correct live cell was removed, reset or told to panic.
    Innocent(usize),
    /// Too many ticks and still no agreement.
    Endless,
    /// All is quiet and a dead cell is still in a live set, or live sets differ.
    Unfinished,
}

#[derive(Clone, Debug)]
pub struct Node<const N: usize> {
    pub health: Health,
    pub machine: Membership<N>,
    vote: CellSet,
    /// Probes under way: by target, the ticks left.
    probes: [Option<u64>; N],
    /// Users suspended.
    pub suspended: bool,
}

/// What was in the head of a cell that runs no more makes no difference.
impl<const N: usize> Hash for Node<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.health, self.vote).hash(state);
        if self.health == Health::Up {
            (&self.machine, self.probes, self.suspended).hash(state);
        }
    }
}

#[derive(Clone, Debug, Hash)]
pub struct World<const N: usize> {
    pub nodes: [Node<N>; N],
    links: [[VecDeque<Opinion>; N]; N],
    pub liars: CellSet,
    pub ticks: u64,
    /// By epoch: the live set some correct cell took as agreed.
    agreed: [Option<CellSet>; MAX_CELLS],
    /// Every correct cell notices every failed cell, not only its ring neighbour (it uses it).
    pub all_watch: bool,
}

impl<const N: usize> World<N> {
    pub fn new(liars: CellSet) -> Self {
        let members = CellSet::first(N);
        let node = |i| Node {
            health: Health::Up,
            machine: Membership::new(CellId::of(i), members),
            vote: CellSet::EMPTY,
            probes: [None; N],
            suspended: false,
        };
        World {
            nodes: core::array::from_fn(node),
            links: core::array::from_fn(|_| core::array::from_fn(|_| VecDeque::new())),
            liars,
            ticks: 0,
            agreed: [None; MAX_CELLS],
            all_watch: !liars.is_empty(),
        }
    }

    fn liar(&self, cell: usize) -> bool {
        self.liars.contains(CellId::of(cell))
    }

    /// Follows the protocol and runs.
    pub fn correct(&self, cell: usize) -> bool {
        self.nodes[cell].health == Health::Up && !self.liar(cell)
    }

    pub fn all_correct(&self) -> impl Iterator<Item = usize> + '_ {
        (0..N).filter(|cell| self.correct(*cell))
    }

    /// Deliveries that can happen now, and with `any_time` probes that finish before their tick.
    pub fn pending(&self, any_time: bool, out: &mut Vec<Event>) {
        for to in self.all_correct() {
            for from in 0..N {
                if !self.links[from][to].is_empty() {
                    out.push(Event::Deliver { from, to });
                }
            }
            for target in 0..N {
                if any_time && self.nodes[to].probes[target].is_some() {
                    out.push(Event::ProbeDone { prober: to, target });
                }
            }
        }
    }

    /// Whether time may go on: messages take far less than a tick.
    pub fn drained(&self) -> bool {
        self.all_correct().all(|to| (0..N).all(|from| self.links[from][to].is_empty()))
    }

    pub fn apply(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Deliver { from, to } => {
                if let Some(opinion) = self.links[from][to].pop_front() {
                    self.step(to, Input::Message { from: CellId::of(from), opinion })?;
                }
            }
            Event::ProbeDone { prober, target } => {
                self.nodes[prober].probes[target] = None;
                let finding = match self.nodes[target].health {
                    Health::Up => Finding::Alive,
                    Health::Halted => Finding::Failed,
                    Health::Dead => Finding::Dead,
                };
                self.step(prober, Input::Probed { cell: CellId::of(target), finding })?;
            }
            Event::Tick => self.tick()?,
            Event::TickOf(cell) => self.tick_of(cell)?,
            Event::Lose { from, to } => {
                self.links[from][to].pop_back();
            }
            Event::Kill(cell) => self.fail(cell, Health::Dead),
            Event::Halt(cell) => self.fail(cell, Health::Halted),
            Event::Mistake { by, about, reason } => {
                let accused = CellId::of(about);
                self.step(by, Input::Hint(Hint { accused, reason, address: 0 }))?;
            }
            Event::Lie { from, to, script } => {
                let opinion = self.lie(from, script);
                self.links[from][to].push_back(opinion);
            }
            Event::LieVote { from } => {
                self.nodes[from].vote = CellSet::first(N).without(CellId::of(from));
                self.count_votes()?;
            }
        }
        Ok(())
    }

    fn fail(&mut self, cell: usize, health: Health) {
        self.nodes[cell].health = health;
        if health == Health::Dead {
            for other in 0..N {
                self.links[other][cell].clear();
            }
        }
    }

    fn tick(&mut self) -> Result<(), Broken> {
        self.ticks += 1;
        (0..N).try_for_each(|cell| self.tick_of(cell))
    }

    /// The clock tick of one cell.
    fn tick_of(&mut self, cell: usize) -> Result<(), Broken> {
        if !self.correct(cell) {
            return Ok(());
        }
        for target in 0..N {
            let left = &mut self.nodes[cell].probes[target];
            *left = left.map(|ticks| ticks.saturating_sub(1));
            if *left == Some(0) {
                self.apply(Event::ProbeDone { prober: cell, target })?;
            }
        }
        self.watch(cell)?;
        self.step(cell, Input::Tick)
    }

    /// The neighbour's clock word, or with `all_watch` every cell that is in use.
    fn watch(&mut self, cell: usize) -> Result<(), Broken> {
        let machine = &self.nodes[cell].machine;
        let others = machine.live().without(CellId::of(cell));
        let seen: Vec<CellId> = if self.all_watch {
            others.iter().collect()
        } else {
            watched(CellId::of(cell), machine.live()).into_iter().collect()
        };
        for accused in seen {
            let reason = match self.nodes[accused.index()].health {
                Health::Up => continue,
                Health::Halted => Reason::ClockStopped,
                Health::Dead => Reason::BusError,
            };
            self.step(cell, Input::Hint(Hint { accused, reason, address: 0 }))?;
        }
        Ok(())
    }

    /// One input, and whatever its outputs show at once, in order.
    fn step(&mut self, cell: usize, input: Input) -> Result<(), Broken> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if !self.correct(cell) {
                return Ok(());
            }
            let mut outputs = Vec::new();
            self.nodes[cell].machine.step(input, &mut |output| outputs.push(output));
            for output in outputs {
                if let Some(dead) = self.perform(cell, output)? {
                    inputs.push_back(Input::Probed { cell: dead, finding: Finding::Dead });
                }
            }
        }
        Ok(())
    }

    /// Does what was asked for; a cell that turned out dead over it.
    fn perform(&mut self, cell: usize, output: Output) -> Result<Option<CellId>, Broken> {
        match output {
            Output::Send { to, opinion } => {
                if self.nodes[to.index()].health == Health::Dead {
                    return Ok(Some(to));
                }
                if self.correct(to.index()) {
                    self.links[cell][to.index()].push_back(opinion);
                }
            }
            Output::Probe { cell: target, .. } => {
                if self.nodes[target.index()].health == Health::Dead {
                    return Ok(Some(target));
                }
                self.nodes[cell].probes[target.index()].get_or_insert(PROBE_TICKS);
            }
            Output::Suspend { .. } => self.nodes[cell].suspended = true,
            Output::VoteWord { cells } => {
                self.nodes[cell].vote = cells;
                self.count_votes()?;
            }
            Output::Convicted => return Err(Broken::Innocent(cell)),
            Output::Accused { .. } | Output::VotedDown { .. } => {}
            Output::Verdict { epoch, live, .. } => {
                self.nodes[cell].suspended = false;
                let slot = &mut self.agreed[epoch as usize];
                if slot.is_some_and(|other| other != live) {
                    return Err(Broken::Split);
                }
                *slot = Some(live);
                let innocent = self.all_correct().find(|c| !live.contains(CellId::of(*c)));
                if let Some(cell) = innocent {
                    return Err(Broken::Innocent(cell));
                }
            }
            Output::Resume => self.nodes[cell].suspended = false,
        }
        Ok(None)
    }

    /// The controller's rule: a live node is reset when more than half of the other live nodes
    /// name it.
    fn count_votes(&mut self) -> Result<(), Broken> {
        for target in 0..N {
            if self.nodes[target].health == Health::Dead {
                continue;
            }
            let live = (0..N).filter(|c| *c != target && self.nodes[*c].health != Health::Dead);
            let (mut voters, mut votes) = (0, 0);
            for voter in live {
                voters += 1;
                votes += usize::from(self.nodes[voter].vote.contains(CellId::of(target)));
            }
            // Of two live nodes each can reset the other: no protocol defends a cell against a
            // liar alone with it, so that is outside the bound (decision 0050).
            let alone = voters < 2 && self.correct(target);
            if 2 * votes > voters && !alone {
                if self.correct(target) {
                    return Err(Broken::Innocent(target));
                }
                self.fail(target, Health::Dead);
            }
        }
        Ok(())
    }

    /// Nothing is under way and every correct cell is out of its round.
    pub fn quiet(&self) -> bool {
        self.drained()
            && self.all_correct().all(|c| {
                let node = &self.nodes[c];
                !node.machine.in_round() && node.probes.iter().all(Option::is_none)
            })
    }

    /// Whether the votes of correct cells alone convict a halted cell.
    fn convictable(&self, cell: usize) -> bool {
        let voters = (0..N).filter(|c| *c != cell && self.nodes[*c].health != Health::Dead).count();
        is_conviction(self.all_correct().count(), voters)
    }

    /// The properties of the end: dead cells are out, correct cells agree, users run.
    pub fn finished(&self) -> Result<(), Broken> {
        let out = |c: &usize| match self.nodes[*c].health {
            Health::Up => false,
            Health::Halted => self.convictable(*c),
            Health::Dead => true,
        };
        let dead = (0..N).filter(out).map(CellId::of).fold(CellSet::EMPTY, CellSet::with);
        let mut views = self.all_correct().map(|c| &self.nodes[c]);
        let first = self.all_correct().next().map(|c| self.nodes[c].machine.live());
        let good = views.all(|node| {
            let live = node.machine.live();
            Some(live) == first && live.intersection(dead).is_empty() && !node.suspended
        });
        if good { Ok(()) } else { Err(Broken::Unfinished) }
    }

    /// The lies that are tried: false alerts, false votes, false deaths, silence being free.
    pub const SCRIPTS: usize = 4;

    fn lie(&self, from: usize, script: usize) -> Opinion {
        let me = CellId::of(from);
        let all = CellSet::first(N).without(me);
        let latest = self.all_correct().map(|c| self.nodes[c].machine.round()).max().unwrap_or(0);
        let some =
            self.all_correct().next().map_or(CellSet::EMPTY, |c| CellSet::only(CellId::of(c)));
        let dead =
            self.all_correct().next().map_or(CellSet::EMPTY, |c| self.nodes[c].machine.dead());
        let mut lie = Opinion { round: latest, dead, ..Opinion::default() };
        match script {
            // "They are all guilty", in the round under way.
            0 => (lie.accused, lie.voted, lie.guilty) = (all, all, all),
            // A new round with a false alert.
            1 => {
                lie.round = latest + 1;
                (lie.accused, lie.voted, lie.guilty) = (some, some, some);
                lie.alerts[Reason::RpcTimeout as usize] = some;
            }
            // "They are all alive", in the round under way.
            2 => (lie.accused, lie.voted) = (all, all),
            // "That one is dead".
            _ => {
                lie.dead = dead.union(some);
                (lie.accused, lie.voted) = (all, all);
            }
        }
        lie
    }
}

impl<const CELLS: usize> Membership<CELLS> {
    pub(super) const fn round(&self) -> u64 {
        self.round
    }

    pub(super) const fn dead(&self) -> CellSet {
        self.dead
    }
}
