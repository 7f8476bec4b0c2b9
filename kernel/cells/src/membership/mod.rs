//! Which cells live: agreement on the live set, as DESIGN §4 and decision 0050 state it.
//!
//! A sans-I/O state machine, one per cell. It is fed with [`Input`]s (clock ticks, opinions of
//! other cells, hints, results of its own probes) and puts out [`Output`]s (what to send, whom to
//! probe, what to write into the vote word, and in the end the live set). It may run at interrupt
//! level: it never waits, and its steps are short.
//!
//! How it works, in one paragraph. *Dead* is what this cell's own probe has shown by hardware; the
//! set only grows, and every live cell that looks comes to see the same. *Failed* is an opinion.
//! Opinions are exchanged all to all in numbered rounds; a majority of them (of the live cells
//! without the accused, and at least two) makes each cell that counts it name the accused in its
//! vote word; the machine resets a node that a majority names; and then its death is shown by
//! hardware like any other. So the only thing agreed on is a growing set of facts that each cell
//! has checked for itself, and no message can put a cell in it. A cell takes a set as agreed once
//! every cell outside the set has said that it holds exactly this set. Two sets that correct cells
//! take as agreed are therefore comparable, and the number of deaths in a set, its *epoch*,
//! identifies it.
//!
//! Sources: the double role of membership as failure detector output is Ricciardi and Birman's
//! (PODC 1991, Hive's reference 16); growing sets exchanged until all agree are the stable vectors
//! of Attiya, Bar-Noy and Dolev and the lattice agreement of Attiya, Herlihy and Rachman
//! (Distributed Computing 8, 1995).
//!
//! Invariants: a cell enters `dead` only through [`Finding::Dead`] of an own probe; a vote word
//! names only the dead and those whom a majority convicts; an accusation opens at most one vote
//! per round and reason; everything ends within a bounded number of ticks.
//!
//! Absent: reintegration (a cell that boots again must be let in by a later protocol, which adds
//! to the count that makes the epoch).

#[cfg(test)]
mod explore;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use hive_protocol::membership::{Opinion, REASONS, Reason};
use hive_protocol::{CellId, CellSet, MAX_CELLS};

use crate::hint::{Finding, Hint, Ledger};
use crate::limits::{PROBE_TICKS, ROUND_TICKS, STOP_TICKS};

/// Rounds by which an opinion may be ahead of ours: no correct cell ever is by more than a few,
/// and no liar shall exhaust the counter.
const MAX_ROUND_JUMP: u64 = 1 << 32;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A clock tick of this cell (of one of its harts only).
    Tick,
    /// A checked membership message.
    Message {
        /// Who sent it, by the receive slot it came in.
        from: CellId,
        /// What it says.
        opinion: Opinion,
    },
    /// A check of this cell failed.
    Hint(Hint),
    /// A probe that was asked for is done; also: a send was answered "dead".
    Probed {
        /// Who was probed.
        cell: CellId,
        /// What was found.
        finding: Finding,
    },
}

/// What to do, in the order given. Whatever that shows (a send answered "dead", a probe that
/// faults) is fed back as an input after all outputs of the step are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Send the opinion in the agreement class. "Full" needs no retry (the next tick repeats it);
    /// "dead" comes back as [`Input::Probed`].
    Send {
        /// To whom.
        to: CellId,
        /// What.
        opinion: Opinion,
    },
    /// Probe the cell as [`Finding`] describes and report within
    /// [`crate::limits::PROBE_TICKS`]. Accesses and sends are to be tried at once, and what they
    /// show reported at once; for the clock words a probe that is under way may be joined.
    Probe {
        /// Whom.
        cell: CellId,
        /// An address to read as well if it lies in the cell's DRAM, or 0.
        address: u64,
    },
    /// Suspend user processes: a round began.
    Suspend {
        /// Its number.
        round: u64,
    },
    /// Write into the vote words of all own nodes: all nodes of these cells.
    VoteWord {
        /// The cells to name.
        cells: CellSet,
    },
    /// Someone accuses this cell. If it has means to check its own structures, now is the time.
    Accused {
        /// Who.
        by: CellId,
    },
    /// A majority votes against this cell: panic, it will be reset anyway.
    Convicted,
    /// An accusation of this cell's own was voted down.
    VotedDown {
        /// Whom it had accused.
        accused: CellId,
    },
    /// Agreed: enter recovery with this live set. A later verdict with a higher epoch
    /// supersedes a recovery under way.
    Verdict {
        /// Deaths agreed on since power-on: names the live set.
        epoch: u32,
        /// Who lives.
        live: CellSet,
        /// Who died since the last verdict.
        died: CellSet,
    },
    /// The round ended without a death: let user processes run, unless a recovery is under way.
    Resume,
}

/// The state machine of one cell on a machine of up to `CELLS` cells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership<const CELLS: usize = MAX_CELLS> {
    me: CellId,
    members: CellSet,
    now: u64,
    /// Shown by hardware to our own probe.
    dead: CellSet,
    /// `dead` at the last verdict.
    announced: CellSet,
    ledger: Ledger<CELLS>,
    /// Cells seen to repeat an alert that was voted down.
    repeaters: CellSet,
    /// An address whose access faults, evidence against a cell that may look sane otherwise.
    address: u64,

    round: u64,
    open: bool,
    /// Who caused this round here.
    opener: CellId,
    accused: CellSet,
    voted: CellSet,
    guilty: CellSet,
    alerts: [CellSet; REASONS],
    /// Accused that were cleared: by their votes or by the deadline.
    cleared: CellSet,
    /// Accused anew after they were voted on: old votes do not clear them.
    reopened: CellSet,
    /// By accuser and reason: whose accusers have been told off in this round.
    told: [[CellSet; REASONS]; CELLS],
    /// Convicted by majority; named in our vote word.
    convicted: CellSet,
    stop_by: u64,
    /// Cells that neither agree nor can be convicted: not waited for in this round.
    disregarded: CellSet,
    deadline: u64,
    /// Last opinion of each cell, of whatever round: what it holds for dead does not depend on it.
    peers: [Option<Opinion>; CELLS],
    /// Our opinion changed since it was last sent.
    unsent: bool,
}

impl<const CELLS: usize> Membership<CELLS> {
    /// The machine of cell `me`, all cells of `members` being up.
    ///
    /// # Panics
    /// If `me` is not among them or `members` exceeds `CELLS`.
    pub const fn new(me: CellId, members: CellSet) -> Self {
        assert!(members.contains(me) && members.is_subset(CellSet::first(CELLS)));
        Membership {
            me,
            members,
            now: 0,
            dead: CellSet::EMPTY,
            announced: CellSet::EMPTY,
            ledger: Ledger::new(),
            repeaters: CellSet::EMPTY,
            address: 0,
            round: 0,
            open: false,
            opener: me,
            accused: CellSet::EMPTY,
            voted: CellSet::EMPTY,
            guilty: CellSet::EMPTY,
            alerts: [CellSet::EMPTY; REASONS],
            cleared: CellSet::EMPTY,
            reopened: CellSet::EMPTY,
            told: [[CellSet::EMPTY; REASONS]; CELLS],
            convicted: CellSet::EMPTY,
            stop_by: 0,
            disregarded: CellSet::EMPTY,
            deadline: 0,
            peers: [None; CELLS],
            unsent: false,
        }
    }

    /// The live set last agreed on.
    pub const fn live(&self) -> CellSet {
        self.members.minus(self.announced)
    }

    /// The epoch last agreed on.
    pub const fn epoch(&self) -> u32 {
        self.announced.len() as u32
    }

    /// Whether a round is under way, hence user processes suspended.
    pub const fn in_round(&self) -> bool {
        self.open
    }

    /// Takes one input; `out` is called for each output.
    pub fn step(&mut self, input: Input, out: &mut impl FnMut(Output)) {
        match input {
            Input::Tick => self.tick(out),
            Input::Message { from, opinion } => self.message(from, opinion, out),
            Input::Hint(hint) => self.hint(hint, out),
            Input::Probed { cell, finding } => self.probed(cell, finding, out),
        }
        self.speak(out);
        while self.open && self.progress(out) {
            self.speak(out);
        }
    }

    /// Sends a changed opinion once it is complete.
    fn speak(&mut self, out: &mut impl FnMut(Output)) {
        if self.unsent && self.accused.minus(self.dead).is_subset(self.voted) {
            self.broadcast(out);
        }
    }

    /// Live as far as we know, which may be ahead of what is agreed.
    const fn up(&self) -> CellSet {
        self.members.minus(self.dead)
    }

    fn others(&self) -> CellSet {
        self.up().without(self.me)
    }

    fn peer(&self, cell: CellId) -> Option<&Opinion> {
        self.peers.get(cell.index())?.as_ref()
    }

    fn opinion(&self) -> Opinion {
        Opinion {
            round: self.round,
            dead: self.dead,
            accused: self.accused,
            guilty: self.guilty,
            voted: self.voted,
            alerts: self.alerts,
            address: self.address,
            ask: false,
        }
    }

    fn broadcast(&mut self, out: &mut impl FnMut(Output)) {
        self.unsent = false;
        let opinion = self.opinion();
        self.others().iter().for_each(|to| out(Output::Send { to, opinion }));
    }

    fn tick(&mut self, out: &mut impl FnMut(Output)) {
        self.now += 1;
        if !self.open {
            return;
        }
        // What was heard is passed on within a tick, complete or not: the others may not have
        // been told, and their probes take time too.
        if self.unsent {
            self.broadcast(out);
        }
        // Once every probe must be done: whoever still owes us something may have missed what we
        // said, or we what it said.
        if self.now + ROUND_TICKS > self.deadline + PROBE_TICKS {
            let opinion = Opinion { ask: true, ..self.opinion() };
            for to in self.others().iter().filter(|p| !self.agrees(*p)) {
                out(Output::Send { to, opinion });
            }
        }
        // Whoever is said to be dead, or should be by now, is worth another look.
        let claimed = self.others().iter().filter_map(|p| self.peer(p));
        let claimed = claimed.fold(self.convicted, |all, opinion| all.union(opinion.dead));
        for cell in claimed.intersection(self.others()).iter() {
            self.probe(cell, out);
        }
        if self.now >= self.deadline {
            self.time_up();
        }
    }

    /// The deadline passed: missing votes count for the accused, and whoever does not agree with
    /// us is accused of that, once.
    fn time_up(&mut self) {
        self.unsent |= !self.accused.is_subset(self.voted);
        self.voted = self.voted.union(self.accused);
        let pending = self.accused.minus(self.convicted);
        self.clear(pending);
        let late = self.others().minus(self.disregarded);
        let late = late.iter().filter(|cell| !self.agrees(*cell));
        let late = late.fold(CellSet::EMPTY, CellSet::with);
        for cell in late.iter() {
            let tried = self.alerts[Reason::Disagreement as usize].contains(cell);
            if tried || self.ledger.muted(cell, Reason::Disagreement, self.now) {
                self.disregarded = self.disregarded.with(cell);
            } else {
                self.accuse(cell, Reason::Disagreement);
                self.guilty = self.guilty.with(cell);
                self.voted = self.voted.with(cell);
                self.unsent = true;
            }
        }
    }

    fn hint(&mut self, hint: Hint, out: &mut impl FnMut(Output)) {
        let Hint { accused, reason, address } = hint;
        if accused == self.me || !self.up().contains(accused) {
            return;
        }
        if reason == Reason::BusError {
            // A fact or nothing: look before crying out.
            self.address = address;
            return self.probe(accused, out);
        }
        let under_way = self.open && self.accused.contains(accused);
        if under_way || self.ledger.muted(accused, reason, self.now) {
            return;
        }
        if !self.open {
            self.enter(self.latest(), self.me, out);
        }
        self.accuse(accused, reason);
        if self.repeaters.contains(accused) {
            self.guilty = self.guilty.with(accused);
            self.voted = self.voted.with(accused);
        } else {
            self.probe(accused, out);
        }
        self.broadcast(out);
    }

    fn message(&mut self, from: CellId, said: Opinion, out: &mut impl FnMut(Output)) {
        let absurd = said.round > self.round.saturating_add(MAX_ROUND_JUMP);
        if from == self.me || !self.up().contains(from) || absurd {
            return;
        }
        if said.ask {
            let opinion = self.opinion();
            out(Output::Send { to: from, opinion });
        }
        let said = Opinion { ask: false, ..said };
        let before = self.peer(from).copied();
        if let Some(slot) = self.peers.get_mut(from.index()) {
            *slot = Some(said);
        }
        // A claimed death is looked at first, and opens a round only if it is true.
        let before = before.filter(|b| b.round == said.round).unwrap_or_default();
        self.look(said.dead.minus(before.dead), said.address, out);
        if said.round < self.round {
            // It missed the rest of a round, or we are in one that does not concern it.
        } else if self.open && said.round == self.round {
            self.hear(from, said, before, out);
        } else {
            self.follow(out);
        }
    }

    /// Whether an opinion accuses someone on whom we have not voted in this round.
    fn news(&self, said: &Opinion) -> CellSet {
        let live = said.accused.intersection(self.up()).minus(said.dead);
        if said.round > self.round { live } else { live.minus(self.accused) }
    }

    /// Enters the latest round that somebody else began and that is news to us.
    fn follow(&mut self, out: &mut impl FnMut(Output)) {
        let mut next: Option<(u64, CellId)> = None;
        for from in self.others().iter() {
            let Some(said) = self.peer(from).copied() else { continue };
            let later = said.round > self.round || !self.open && said.round == self.round;
            let first = later && next.is_none_or(|(round, _)| said.round > round);
            if first && !self.news(&said).is_empty() && self.ledger.heard(from, self.now) {
                next = Some((said.round, from));
            }
        }
        if let Some((round, opener)) = next {
            self.ledger.fruitless(opener, self.now);
            self.enter(round, opener, out);
        }
    }

    /// Takes in an opinion on the current round; `before` is what its sender said before.
    fn hear(&mut self, from: CellId, said: Opinion, before: Opinion, out: &mut impl FnMut(Output)) {
        if said.accused.minus(before.accused).contains(self.me) {
            out(Output::Accused { by: from });
        }
        // A new alert of its own about a cell that was cleared gets another vote.
        let again = said.raised().minus(before.raised()).intersection(self.cleared);
        for cell in self.news(&said).union(again).iter() {
            self.accused = self.accused.with(cell);
            self.reopen(cell);
            self.unsent = true;
            if cell == self.me || self.guilty.contains(cell) {
                self.voted = self.voted.with(cell);
            } else {
                // A vote once cast stands until the probe says worse.
                self.look(CellSet::only(cell), said.address, out);
            }
        }
    }

    /// Probes the cells of `claimed` that we hold to be alive.
    fn look(&mut self, claimed: CellSet, address: u64, out: &mut impl FnMut(Output)) {
        for cell in claimed.intersection(self.others()).iter() {
            if address != 0 {
                self.address = address;
            }
            self.probe(cell, out);
        }
    }

    fn probe(&self, cell: CellId, out: &mut impl FnMut(Output)) {
        out(Output::Probe { cell, address: self.address });
    }

    fn probed(&mut self, cell: CellId, finding: Finding, out: &mut impl FnMut(Output)) {
        if cell == self.me || !self.up().contains(cell) {
            return;
        }
        if finding == Finding::Dead {
            self.dead = self.dead.with(cell);
            if !self.open {
                self.enter(self.latest(), self.me, out);
            }
            self.accused = self.accused.with(cell);
            self.deadline = self.now + ROUND_TICKS;
            self.broadcast(out);
        } else if self.open && self.accused.contains(cell) {
            let before = (self.voted, self.guilty);
            self.voted = self.voted.with(cell);
            if finding == Finding::Failed {
                self.guilty = self.guilty.with(cell);
            }
            self.unsent |= before != (self.voted, self.guilty);
        }
    }

    /// The round to open: the next one, or a later one that others are in.
    fn latest(&self) -> u64 {
        let rounds = self.others().iter().filter_map(|p| self.peer(p)).map(|said| said.round);
        rounds.fold(self.round + 1, u64::max)
    }

    /// Begins round `round`, or joins it. Accusations that are not settled go on in it, but not as
    /// alerts of ours: nobody is to be blamed twice for one.
    fn enter(&mut self, round: u64, opener: CellId, out: &mut impl FnMut(Output)) {
        let new = round > self.round;
        if new {
            if self.open {
                self.tell_off(out);
            }
            let open = if self.open { self.accused.minus(self.cleared) } else { CellSet::EMPTY };
            for reason in Reason::ALL {
                for accused in self.alerts[reason as usize].intersection(open).iter() {
                    self.ledger.mute(accused, reason, self.now);
                }
            }
            self.alerts = [CellSet::EMPTY; REASONS];
            self.accused = open.union(self.dead.minus(self.announced));
            self.voted = self.voted.intersection(open);
            self.guilty = self.guilty.intersection(open);
            self.convicted = self.convicted.intersection(open);
            self.cleared = CellSet::EMPTY;
            self.reopened = CellSet::EMPTY;
            self.told = [[CellSet::EMPTY; REASONS]; CELLS];
            self.disregarded = CellSet::EMPTY;
        }
        let joined = self.open;
        self.round = round;
        self.opener = opener;
        self.open = true;
        self.deadline = self.now + ROUND_TICKS;
        self.unsent = true;
        if !joined {
            out(Output::Suspend { round });
        }
        for from in self.others().iter() {
            let Some(said) = self.peer(from).copied() else { continue };
            if said.round == round {
                self.hear(from, said, if new { Opinion::default() } else { said }, out);
            }
        }
    }

    fn accuse(&mut self, cell: CellId, reason: Reason) {
        let raised = &mut self.alerts[reason as usize];
        *raised = raised.with(cell);
        self.accused = self.accused.with(cell);
        self.reopen(cell);
    }

    /// A new accusation: if the cell was cleared before, only the deadline clears it again.
    fn reopen(&mut self, cell: CellId) {
        if self.cleared.contains(cell) {
            self.cleared = self.cleared.without(cell);
            self.reopened = self.reopened.with(cell);
        }
        self.deadline = self.now + ROUND_TICKS;
    }

    fn clear(&mut self, cells: CellSet) {
        self.cleared = self.cleared.union(cells);
    }

    /// Whether `cell` has said all that we need of it: the same dead, and its vote on every
    /// accused.
    fn agrees(&self, cell: CellId) -> bool {
        let due = self.accused.minus(self.dead).without(cell);
        self.peer(cell).is_some_and(|said| {
            let voted =
                said.round > self.round || said.round == self.round && due.is_subset(said.voted);
            said.dead == self.dead && (voted || due.is_empty())
        })
    }

    /// Counts votes and acts on them; whether anything changed.
    fn progress(&mut self, out: &mut impl FnMut(Output)) -> bool {
        for cell in self.accused.intersection(self.up()).minus(self.cleared).iter() {
            if self.convicted.contains(cell) {
                if self.now >= self.stop_by {
                    // The machine did not stop it: too few others agree.
                    self.convicted = self.convicted.without(cell);
                    self.clear(CellSet::only(cell));
                    self.write_votes(out);
                    return true;
                }
                continue;
            }
            let voters = self.up().without(cell);
            let guilty = voters.iter().filter(|voter| self.votes_guilty(*voter, cell)).count();
            if is_conviction(guilty, voters.len()) {
                self.convict(cell, out);
                return true;
            }
            let all = voters.iter().all(|voter| self.has_voted(voter, cell));
            if all && !self.reopened.contains(cell) {
                self.clear(CellSet::only(cell));
                return true;
            }
        }
        let up = self.accused.intersection(self.up());
        let agreed = self.others().minus(self.disregarded).iter().all(|p| self.agrees(p));
        if agreed && up.is_subset(self.cleared) {
            return self.close(out);
        }
        false
    }

    fn votes_guilty(&self, voter: CellId, cell: CellId) -> bool {
        if voter == self.me {
            return self.guilty.contains(cell);
        }
        self.peer(voter).is_some_and(|said| {
            said.dead.contains(cell) || said.round == self.round && said.guilty.contains(cell)
        })
    }

    fn has_voted(&self, voter: CellId, cell: CellId) -> bool {
        if voter == self.me {
            return self.voted.contains(cell);
        }
        self.disregarded.contains(voter)
            || self.peer(voter).is_some_and(|said| {
                said.dead.contains(cell)
                    || said.round > self.round
                    || said.round == self.round && said.voted.contains(cell)
            })
    }

    fn convict(&mut self, cell: CellId, out: &mut impl FnMut(Output)) {
        self.convicted = self.convicted.with(cell);
        self.stop_by = self.now + STOP_TICKS;
        self.deadline = self.stop_by + ROUND_TICKS;
        if cell == self.me {
            return out(Output::Convicted);
        }
        self.write_votes(out);
        // Ours may have been the vote that stopped it.
        self.probe(cell, out);
    }

    fn write_votes(&self, out: &mut impl FnMut(Output)) {
        let cells = self.announced.union(self.convicted).without(self.me);
        out(Output::VoteWord { cells });
    }

    /// Ends the round here; whether another began.
    fn close(&mut self, out: &mut impl FnMut(Output)) -> bool {
        self.open = false;
        let died = self.dead.minus(self.announced);
        if !died.is_empty() {
            self.ledger.forgive(self.opener);
        }
        self.tell_off(out);
        self.convicted = CellSet::EMPTY;
        if died.is_empty() {
            out(Output::Resume);
        } else {
            self.announced = self.dead;
            self.write_votes(out);
            out(Output::Verdict { epoch: self.epoch(), live: self.live(), died });
        }
        self.follow(out);
        if let Some(accused) = self.repeaters.intersection(self.others()).lowest() {
            self.hint(Hint { accused, reason: Reason::RepeatedAlert, address: 0 }, out);
        }
        self.open
    }

    /// Takes note of accusations that came to nothing.
    fn tell_off(&mut self, out: &mut impl FnMut(Output)) {
        let down = self.cleared.intersection(self.up());
        self.repeaters = self.repeaters.minus(down);
        for reason in Reason::ALL {
            for accused in self.alerts[reason as usize].intersection(down).iter() {
                self.ledger.mute(accused, reason, self.now);
                out(Output::VotedDown { accused });
            }
            for accuser in self.others().iter() {
                let Some(said) = self.peer(accuser).filter(|said| said.round == self.round) else {
                    continue;
                };
                let raised = said.alerts[reason as usize].intersection(down);
                let Some(told) = self.told.get_mut(accuser.index()) else { continue };
                let told = &mut told[reason as usize];
                for accused in raised.minus(*told).iter() {
                    if self.ledger.strike(accuser, accused, reason, self.now) {
                        self.repeaters = self.repeaters.with(accuser);
                    }
                }
                *told = told.union(raised);
            }
        }
    }
}

/// The rule of DESIGN §4: a majority of the live cells without the accused, and at least two.
pub const fn is_conviction(guilty: usize, voters: usize) -> bool {
    2 * guilty > voters && guilty >= 2
}
