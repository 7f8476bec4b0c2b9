//! Failure detection and agreement (Hive §4.3): feeds [`hive_cells::membership`] and carries out
//! what it says.
//!
//! One spin lock holds both state machines of the cell, agreement and recovery; it is taken at
//! interrupt level and for short steps only. What a step leads to (a send answered "dead", a probe
//! that faults) is fed back before the lock is dropped, so no other input comes in between.
//!
//! Ticks are those of the cell's first hart.

use super::peers::{self, Peer};
use super::recover::{self, Work};
use super::{id, show};
use crate::user::gate;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hive_cells::careful::Fault;
use hive_cells::hint::{self, ClockProbe, ClockWatch, Finding, Hint};
use hive_cells::membership::{Input, Membership, Output};
use hive_cells::recovery::{self, Recovery};
use hive_hal::{hart, platform, plic};
use hive_platform::MAX_HARTS;
use hive_platform::sips::{Class, LINE, SendStatus};
use hive_protocol::event::Event;
use hive_protocol::membership::{Opinion, Reason};
use hive_protocol::message::Expect;
use hive_protocol::page::{LOAD_OFFSET, PHASE_OFFSET, Step};
use hive_protocol::{CellId, CellSet, Incarnation, Kind, Message};
use hive_sync::{AtomicU64, Once, SpinLock, rank};

/// Ticks for which a live cell may keep the others waiting at a barrier before it is suspected.
const BARRIER_TICKS: u64 = 10;

struct State {
    membership: Box<Membership>,
    recovery: Recovery,
    /// The clock words watched each tick: whose, and one watch per hart.
    watching: Option<(CellId, Vec<ClockWatch>)>,
    /// Probes whose clock words are being compared.
    probes: Vec<(CellId, Box<ClockProbe<MAX_HARTS>>)>,
    /// The hint last shown, so that a repeated one is shown once.
    shown: Option<(CellId, Reason)>,
    /// Ticks spent at the present barrier.
    at_barrier: u64,
}

static STATE: Once<SpinLock<State>> = Once::new();
/// A copy of the live set, for those who may not take the lock.
static LIVE: AtomicU64 = AtomicU64::new(1);

/// What a step of either machine asked for.
enum Todo {
    Member(Output),
    Recover(recovery::Output),
}

/// Starts watching, once all cells are up.
pub fn start() {
    let state = State {
        membership: Box::new(Membership::new(id(), peers::everyone())),
        recovery: Recovery::new(id(), peers::everyone()),
        watching: None,
        probes: Vec::new(),
        shown: None,
        at_barrier: 0,
    };
    LIVE.store(peers::everyone().0);
    // Below every lock that a hint may be raised under, above what a send takes.
    let _ = STATE.set(SpinLock::ranked(rank::DEVICE, state));
    crate::trap::on_sips(Class::Agreement, messages);
    crate::time::on_tick(tick);
}

/// The cells that agreement holds to be live; only this one before [`start`].
pub fn live() -> CellSet {
    match STATE.get() {
        Some(_) => CellSet(LIVE.load()),
        None => CellSet::only(id()),
    }
}

/// A check of another cell failed. Any context.
pub fn suspect(hint: Hint) {
    feed(Input::Hint(hint));
}

/// An access to another cell's memory faulted.
pub fn bus_error(accused: CellId, fault: Fault) {
    suspect(Hint { accused, reason: Reason::BusError, address: fault.address });
}

/// The recovery thread finished the work for `epoch`.
pub fn work_done(epoch: u32) {
    if let Some(state) = STATE.get() {
        state.lock().advance_recovery(recovery::Input::WorkDone { epoch });
    }
}

/// Looks whether those we wait for have come to the barrier; whether we still wait. Called by
/// the recovery thread in a loop, and at each tick.
pub fn look_at_barrier() -> bool {
    let Some(state) = STATE.get() else { return false };
    let mut state = state.lock();
    state.look_at_barrier();
    !state.recovery.awaited().is_empty()
}

fn feed(input: Input) {
    if let Some(state) = STATE.get() {
        state.lock().drive(input);
    }
}

fn tick() {
    if hart::index() != 0 {
        return;
    }
    super::publish(LOAD_OFFSET, crate::sched::load());
    let Some(state) = STATE.get() else { return };
    let mut state = state.lock();
    state.watch();
    state.probe_clocks();
    state.drive(Input::Tick);
    if state.recovery.awaited().is_empty() {
        state.at_barrier = 0;
    } else {
        state.at_barrier += 1;
        state.look_at_barrier();
        if state.at_barrier % BARRIER_TICKS == 0 {
            for accused in state.recovery.awaited().iter() {
                state.drive(Input::Hint(Hint { accused, reason: Reason::FailedCheck, address: 0 }));
            }
        }
    }
}

/// Messages of the agreement class have arrived.
fn messages() {
    let Some(platform) = platform::get() else { return };
    while let Some((node, line)) = platform.sips_receive(Class::Agreement) {
        let Some((from, message)) = decode(node, &line, Class::Agreement) else { continue };
        if message.kind == Kind::Membership
            && let Ok(opinion) = Opinion::from_message(&message, super::place().cells)
        {
            feed(Input::Message { from, opinion });
        }
    }
}

/// Decodes a line from `node`; a sound message and its sender. An unsound one is counted, and is
/// a hint against its sender unless it may be a leftover of a former life.
pub fn decode(node: usize, line: &[u8; LINE], class: Class) -> Option<(CellId, Message)> {
    use hive_protocol::Invalid::{ReceiverIncarnation, SenderIncarnation};
    let from = peers::cell_of_node(node)?;
    let mut words = [0; LINE / 8];
    for (word, bytes) in words.iter_mut().zip(line.chunks_exact(8)) {
        *word = bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    }
    let expect = Expect {
        to: id(),
        to_incarnation: Incarnation(0),
        from,
        from_incarnation: Incarnation(0),
        class,
    };
    match Message::decode(&words, &expect) {
        Ok(message) => Some((from, message)),
        Err(SenderIncarnation | ReceiverIncarnation) => None,
        Err(_) => {
            super::count_refused();
            suspect(Hint { accused: from, reason: Reason::FailedCheck, address: 0 });
            None
        }
    }
}

impl State {
    /// Takes `input` and everything it leads to.
    fn drive(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if let Input::Hint(hint) = input {
                self.show_hint(hint);
            }
            let mut todo = Vec::new();
            self.membership.step(input, &mut |output| todo.push(Todo::Member(output)));
            self.carry_out(todo, &mut inputs);
        }
    }

    fn advance_recovery(&mut self, input: recovery::Input) {
        let mut todo = Vec::new();
        self.recovery.step(input, &mut |output| todo.push(Todo::Recover(output)));
        let mut inputs = VecDeque::new();
        self.carry_out(todo, &mut inputs);
        inputs.into_iter().for_each(|input| self.drive(input));
    }

    fn carry_out(&mut self, todo: Vec<Todo>, inputs: &mut VecDeque<Input>) {
        for todo in todo {
            match todo {
                Todo::Member(output) => self.member_output(output, inputs),
                Todo::Recover(output) => self.recovery_output(output, inputs),
            }
        }
    }

    fn show_hint(&mut self, hint: Hint) {
        let news = (hint.accused, hint.reason);
        let live = self.membership.live().contains(hint.accused) && hint.accused != id();
        if live && self.shown != Some(news) {
            self.shown = Some(news);
            show(Event::Hint { accused: hint.accused, reason: hint.reason });
        }
    }

    fn member_output(&mut self, output: Output, inputs: &mut VecDeque<Input>) {
        match output {
            Output::Send { to, opinion } => {
                let status = peers::peer(to).map(|peer| peer.send(&opinion.message()));
                if status == Some(SendStatus::Dead) {
                    inputs.push_back(Input::Probed { cell: to, finding: Finding::Dead });
                }
            }
            Output::Probe { cell, address } => {
                if let Some(finding) = self.begin_probe(cell, address) {
                    inputs.push_back(Input::Probed { cell, finding });
                }
            }
            Output::Suspend { round } => {
                gate::close();
                show(Event::Suspended { round });
            }
            Output::VoteWord { cells } => {
                show(Event::VoteWord { cells });
                vote(peers::nodes_of(cells));
            }
            Output::Accused { .. } => {}
            Output::Convicted => panic!("convicted by the other cells"),
            Output::VotedDown { accused } => show(Event::VotedDown { accused }),
            Output::Verdict { epoch, live, died } => {
                show(Event::Agreed { epoch, live });
                LIVE.store(live.0);
                self.probes.retain(|(cell, _)| live.contains(*cell));
                let mut todo = Vec::new();
                let verdict = recovery::Input::Verdict { epoch, live, died };
                self.recovery.step(verdict, &mut |output| todo.push(Todo::Recover(output)));
                self.carry_out(todo, inputs);
            }
            Output::Resume => {
                self.shown = None;
                if !self.recovery.active() {
                    gate::open();
                }
            }
        }
    }

    fn recovery_output(&mut self, output: recovery::Output, inputs: &mut VecDeque<Input>) {
        match output {
            recovery::Output::Publish { phase, live } => {
                super::publish(PHASE_OFFSET + 8, live.0);
                super::publish(PHASE_OFFSET, phase.word());
                let epoch = phase.epoch;
                match phase.step {
                    Step::Flushing => {
                        gate::close();
                        show(Event::Recovery { epoch });
                    }
                    Step::CleaningUp => show(Event::Barrier { number: 1, epoch }),
                    Step::Done => show(Event::Barrier { number: 2, epoch }),
                    _ => {}
                }
            }
            recovery::Output::Flush { epoch } => recover::queue(Work::Flush { epoch }),
            recovery::Output::CleanUp { epoch, dead } => {
                recover::queue(Work::CleanUp { epoch, dead });
            }
            recovery::Output::Resume { epoch } => {
                self.shown = None;
                show(Event::Resumed { epoch });
                if !self.membership.in_round() {
                    gate::open();
                }
            }
            recovery::Output::Master { epoch, dead } => {
                show(Event::Master { epoch });
                recover::queue(Work::Diagnose { dead });
            }
            recovery::Output::Suspect { cell } => inputs.push_back(Input::Hint(Hint {
                accused: cell,
                reason: Reason::FailedCheck,
                address: 0,
            })),
        }
    }

    /// Reads the clock words of the next live cell in the ring (Hive §4.3).
    fn watch(&mut self) {
        let next = hint::watched(id(), self.membership.live());
        let Some((cell, peer)) = next.and_then(|cell| Some((cell, peers::peer(cell)?))) else {
            self.watching = None;
            return;
        };
        let words: Result<Vec<u64>, Fault> = (0..peer.harts).map(|h| peer.clock(h)).collect();
        let words = match words {
            Ok(words) => words,
            Err(Fault { address }) => {
                let hint = Hint { accused: cell, reason: Reason::BusError, address };
                return self.drive(Input::Hint(hint));
            }
        };
        match &mut self.watching {
            Some((watched, watches)) if *watched == cell => {
                let mut stopped = false;
                for (watch, word) in watches.iter_mut().zip(words) {
                    stopped |= watch.check(word);
                }
                if stopped {
                    let reason = Reason::ClockStopped;
                    self.drive(Input::Hint(Hint { accused: cell, reason, address: 0 }));
                }
            }
            watching => {
                *watching = Some((cell, words.into_iter().map(ClockWatch::new).collect()));
            }
        }
    }

    /// The part of a probe that is done at once; `None` if its clock words must be watched.
    fn begin_probe(&mut self, cell: CellId, address: u64) -> Option<Finding> {
        let peer = peers::peer(cell)?;
        let probe = Message::new(Kind::Probe, 0);
        let mut nodes = peer.nodes.clone();
        if nodes.any(|node| peer.send_to(node, &probe) == SendStatus::Dead)
            || peer.touch(address).is_err()
        {
            return Some(Finding::Dead);
        }
        let Ok(info) = peer.info() else { return Some(Finding::Dead) };
        if !peer.sane(&info) {
            return Some(self.voted(cell, Finding::Failed));
        }
        if self.probes.iter().all(|(probed, _)| *probed != cell) {
            match clocks(peer, 0) {
                Ok(words) => self.probes.push((cell, Box::new(ClockProbe::new(words)))),
                Err(_) => return Some(Finding::Dead),
            }
        }
        None
    }

    /// Goes on with the probes under way.
    fn probe_clocks(&mut self) {
        let mut found = Vec::new();
        self.probes.retain_mut(|(cell, probe)| {
            let Some(peer) = peers::peer(*cell) else { return false };
            // Words of harts that do not exist always advance.
            let finding = match clocks(peer, u64::MAX) {
                Ok(words) => probe.check(&words),
                Err(_) => Some(Finding::Dead),
            };
            found.extend(finding.map(|finding| (*cell, finding)));
            finding.is_none()
        });
        for (cell, finding) in found {
            self.voted(cell, finding);
            self.drive(Input::Probed { cell, finding });
        }
    }

    fn voted(&self, accused: CellId, finding: Finding) -> Finding {
        show(Event::Voted { accused, guilty: finding != Finding::Alive });
        finding
    }

    fn look_at_barrier(&mut self) {
        for cell in self.recovery.awaited().iter() {
            let Some(peer) = peers::peer(cell) else { continue };
            let read = peer.word(PHASE_OFFSET).and_then(|p| Ok((p, peer.word(PHASE_OFFSET + 8)?)));
            match read {
                Ok((phase, live)) => {
                    self.advance_recovery(recovery::Input::Peer { cell, phase, live });
                }
                Err(Fault { address }) => {
                    let reason = Reason::BusError;
                    self.drive(Input::Hint(Hint { accused: cell, reason, address }));
                }
            }
        }
    }
}

/// The clock words of `peer`, and `absent` for harts that it does not have.
fn clocks(peer: &Peer, absent: u64) -> Result<[u64; MAX_HARTS], Fault> {
    let mut words = [absent; MAX_HARTS];
    for (hart, word) in words.iter_mut().enumerate().take(peer.harts) {
        *word = peer.clock(hart)?;
    }
    Ok(words)
}

/// Writes the vote words of all nodes of this cell: each by a hart of that node, which alone may.
fn vote(nodes: u64) {
    let Some(platform) = platform::get() else { return };
    let Some(me) = peers::peer(id()) else { return };
    let here = hart::local().node();
    platform.vote(nodes);
    for node in me.nodes.clone().filter(|node| *node != here) {
        plic::run_on_node(node, move || platform.vote(nodes));
    }
}
