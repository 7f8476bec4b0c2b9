//! A whole machine: harts, memory and bus, and the rule by which harts take turns.
//!
//! **Interleaving is architecture** (DESIGN §3). Each hart has a clock. The hart with the least
//! (clock, id) runs for a slice of `slice_cycles`, cut short where the next event is due. WFI
//! ends the slice where it stands; PAUSE gives up the rest of it: the hart's clock moves to the
//! slice's end. A waiting hart is woken at the cycle of the event, or of the other hart's store,
//! that raised its line. When all wait, time jumps to the next event. Events due at the clock of
//! the next hart happen before it runs.
//!
//! Stopping is not architecture: [`Machine::run`] may stop inside a slice (after an exact number
//! of instructions, or at a mark) and the next call goes on with the same slice. Everything else
//! that stops a run does so between slices and cuts none.
//!
//! There is no global state: a process may hold any number of machines.
//!
//! Reading order: this file, `boot` (what is in memory), `reset`, `inject` (inputs and faults),
//! `storm`, `htif`, `trace`.

pub mod boot;
mod htif;
mod inject;
mod reset;
mod storm;
mod trace;

use crate::bus::events::Event;
use crate::bus::{Action, Bus, cycle_of_tick, ticks_at};
use crate::config::Config;
use crate::dev::disk::Disk;
use crate::engine::{Engine, Why};
use crate::env::{Log, Observer};
use crate::fault::{Counts, Injection, Mode};
use crate::hart::Hart;
use crate::platform::Privilege;
use crate::ram::Ram;
use boot::Plan;
use htif::{Htif, Request};
use inject::Armed;
use storm::Storm;
use trace::Trace;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// When no hart that runs is before this cycle. No slice is cut for it.
    pub cycle: u64,
    /// When exactly this many instructions have run since power-on, on all harts together.
    pub instructions: u64,
    /// Right after a mark with this code.
    pub mark: Option<u16>,
}

impl Until {
    /// Until the machine ends or can do nothing more.
    pub const END: Until = Until { cycle: u64::MAX, instructions: u64::MAX, mark: None };

    /// Until `cycle`.
    pub fn cycle(cycle: u64) -> Until {
        Until { cycle, ..Until::END }
    }

    /// Until `total` instructions have run.
    pub fn instructions(total: u64) -> Until {
        Until { instructions: total, ..Until::END }
    }

    /// Also stop at a mark.
    pub fn or_mark(self, code: u16) -> Until {
        Until { mark: Some(code), ..self }
    }
}

/// Why a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The machine ended with this exit code.
    Exit(u8),
    /// [`Until::cycle`].
    Cycle,
    /// [`Until::instructions`].
    Instructions,
    /// [`Until::mark`].
    Mark,
    /// Every hart waits or stands still and no event is due: only an input can go on.
    Stuck,
}

/// What a hart does with its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Executes instructions (or waits in WFI: then `Bus::waiting` is set).
    Run,
    /// Stores wildly.
    Storm,
    /// Nothing.
    Stand,
}

/// A hart's turn.
#[derive(Clone, Copy, Debug)]
struct Slice {
    hart: usize,
    end: u64,
}

/// See the module head.
pub struct Machine {
    plan: Plan,
    ram: Ram,
    engine: Engine,
    harts: Vec<Hart>,
    bus: Bus,
    activity: Vec<Activity>,
    /// Per hart: cycle of its next timer interrupt, `u64::MAX` if none is ahead.
    deadline: Vec<u64>,
    slice: Option<Slice>,
    /// Time of the latest slice start or event. Never goes back.
    now: u64,
    /// End of the latest slice that was granted: what enters from here on finds every decision
    /// still open.
    horizon: u64,
    instructions: u64,
    log: Log,
    armed: Vec<Armed>,
    injections: Vec<Injection>,
    storms: Vec<Storm>,
    counts: Counts,
    htif: Option<Htif>,
    htif_output: Vec<u8>,
    trace: Trace,
    exit: Option<u8>,
}

impl Machine {
    /// Runs until `until`; `observer` sees what comes out, up to the moment of return.
    pub fn run(&mut self, until: Until, observer: &mut dyn Observer) -> Stop {
        self.bus.stop_at_mark = until.mark;
        loop {
            self.show(observer);
            if std::mem::take(&mut self.bus.stopped_at_mark) {
                return Stop::Mark;
            }
            if let Some(code) = self.exit {
                return Stop::Exit(code);
            }
            if self.instructions >= until.instructions {
                return Stop::Instructions;
            }
            if self.slice.is_some() {
                self.run_slice(until.instructions);
                continue;
            }
            let hart = self.next_hart();
            let clock = hart.map_or(u64::MAX, |h| self.bus.clock[h]);
            let event = self.next_event();
            let next = clock.min(event);
            if next == u64::MAX {
                return Stop::Stuck;
            }
            if next >= until.cycle {
                // Nothing happens before it: time may as well be there.
                self.now = self.now.max(until.cycle);
                return Stop::Cycle;
            }
            self.now = self.now.max(next);
            if event <= clock {
                self.happen(event);
            } else if let Some(hart) = hart {
                let end = clock.saturating_add(self.bus.config.slice_cycles).min(event);
                self.horizon = self.horizon.max(end);
                self.slice = Some(Slice { hart, end });
            }
        }
    }

    /// The hart that runs next: least clock, then least id.
    fn next_hart(&self) -> Option<usize> {
        let ready = |h: &usize| {
            self.activity[*h] == Activity::Storm
                || self.activity[*h] == Activity::Run && self.bus.waiting[*h].is_none()
        };
        (0..self.harts.len()).filter(ready).min_by_key(|h| (self.bus.clock[*h], *h))
    }

    /// Cycle of the next event of any kind.
    fn next_event(&self) -> u64 {
        let timer = self.deadline.iter().copied().min().unwrap_or(u64::MAX);
        self.bus.events.next().min(timer)
    }

    /// Everything due at `cycle` happens: device events in the order in which they were
    /// scheduled, inputs, timers.
    fn happen(&mut self, cycle: u64) {
        while let Some(event) = self.bus.events.take(cycle) {
            match event {
                Event::Input(number) => self.enter(cycle, number),
                event => self.bus.happen(&mut self.ram, cycle, &event),
            }
        }
        for hart in 0..self.harts.len() {
            if self.deadline[hart] <= cycle {
                self.deadline[hart] = self.timer_after(hart, cycle);
                self.wake(hart, cycle);
            }
        }
        self.wake_noted();
        self.strike_armed();
    }

    /// First cycle after `cycle` at which a timer of `hart` becomes pending.
    fn timer_after(&self, hart: usize, cycle: u64) -> u64 {
        if self.activity[hart] != Activity::Run {
            return u64::MAX;
        }
        let per_node = self.bus.config.harts_per_node;
        let machine = self.bus.nodes[hart / per_node].aclint.mtimecmp(hart % per_node);
        let own = self.harts[hart].timer().unwrap_or(u64::MAX);
        [machine, own]
            .into_iter()
            .filter(|ticks| *ticks != u64::MAX)
            .map(|ticks| cycle_of_tick(&self.bus.config, ticks))
            .filter(|at| *at > cycle)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Ends the wait of `hart` at `cycle` if an interrupt that it enabled is pending.
    fn wake(&mut self, hart: usize, cycle: u64) {
        if self.bus.waiting[hart].is_none() {
            return;
        }
        self.bus.woken[hart] = None;
        let at = self.bus.clock[hart].max(cycle);
        let lines = self.bus.lines_at(hart, at);
        if self.harts[hart].wakes(lines, ticks_at(&self.bus.config, at)) {
            self.bus.waiting[hart] = None;
            self.bus.clock[hart] = at;
        } else {
            self.bus.waiting[hart] = Some(lines);
        }
    }

    fn wake_noted(&mut self) {
        for hart in 0..self.harts.len() {
            if let Some(cycle) = self.bus.woken[hart] {
                self.wake(hart, cycle);
            }
        }
    }

    /// Goes on with the slice, for at most as many instructions as make `instructions` in all.
    fn run_slice(&mut self, instructions: u64) {
        let Some(Slice { hart, end }) = self.slice else { return };
        // What an access scheduled within the slice cuts it.
        let end = end.min(self.next_event().max(self.bus.clock[hart]));
        self.slice = Some(Slice { hart, end });
        self.bus.slice_end = end;
        self.bus.retimed = false;
        let left = end - self.bus.clock[hart];
        let budget = left.min(instructions - self.instructions);
        let why = match self.activity[hart] {
            Activity::Run if left > 0 => {
                let outcome =
                    self.engine.run(&mut self.harts[hart], &mut self.ram, &mut self.bus, budget);
                self.bus.clock[hart] += outcome.executed;
                self.instructions += outcome.executed;
                outcome.why
            }
            Activity::Storm if left > 0 => {
                let stores = self.run_storm(hart, budget);
                self.bus.clock[hart] += stores;
                self.instructions += stores;
                Why::Budget
            }
            _ => Why::Budget,
        };
        self.retime(hart);
        let clock = self.bus.clock[hart];
        match why {
            Why::Wait => {
                self.bus.waiting[hart] = Some(self.bus.lines_at(hart, clock));
                self.slice = None;
            }
            Why::Pause => {
                self.bus.clock[hart] = end;
                self.retime(hart);
                self.slice = None;
            }
            Why::Budget | Why::Stop | Why::Timer => {
                if clock >= end {
                    self.slice = None;
                }
            }
        }
        self.act(clock);
        if self.slice.is_none() {
            self.end_slice();
        }
    }

    fn retime(&mut self, hart: usize) {
        if std::mem::take(&mut self.bus.retimed) {
            for other in 0..self.harts.len() {
                self.deadline[other] = self.timer_after(other, self.bus.clock[other]);
            }
        } else {
            self.deadline[hart] = self.timer_after(hart, self.bus.clock[hart]);
        }
    }

    /// What is looked at between slices.
    fn end_slice(&mut self) {
        self.wake_noted();
        if let Some(htif) = &self.htif {
            match htif.poll(&mut self.ram) {
                Request::None => {}
                Request::Exit(code) => self.exit = Some(exit_code(code)),
                Request::Output(bytes) => self.htif_output.extend(bytes),
            }
        }
        self.strike_armed();
        self.sample();
    }

    /// Carries out what accesses asked for, at `cycle`.
    fn act(&mut self, cycle: u64) {
        for action in std::mem::take(&mut self.bus.actions) {
            match action {
                Action::Exit(code) => self.exit = Some(code),
                Action::NodeOff(node) => self.node_off(node),
                Action::ResetNode(node, cause) => self.reset_node(node, cause, cycle),
                Action::ColdReset => self.cold_reset(cycle),
            }
        }
    }

    /// Shows the observer what came out.
    fn show(&mut self, observer: &mut dyn Observer) {
        if !self.bus.marks.is_empty() {
            for mark in std::mem::take(&mut self.bus.marks) {
                observer.mark(mark);
            }
        }
        if !self.htif_output.is_empty() {
            observer.console(0, self.now, &std::mem::take(&mut self.htif_output));
        }
        for node in 0..self.bus.nodes.len() {
            if self.bus.nodes[node].uart.has_output() {
                let bytes = self.bus.nodes[node].uart.take_output();
                observer.console(node, self.now, &bytes);
            }
        }
    }

    /// The machine's description.
    pub fn config(&self) -> &Config {
        &self.bus.config
    }

    /// Simulated time in cycles: no hart that runs is before it.
    pub fn cycle(&self) -> u64 {
        self.now
    }

    /// Instructions begun since power-on, by all harts together.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Exit code, if the machine has ended.
    pub fn exit_code(&self) -> Option<u8> {
        self.exit
    }

    /// Everything that entered so far.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Faults that struck so far.
    pub fn injections(&self) -> &[Injection] {
        &self.injections
    }

    /// Faults that struck so far, by kind.
    pub fn fault_counts(&self) -> Counts {
        self.counts
    }

    /// Harts, for a debugger's eyes.
    pub fn hart(&self, hart: usize) -> Option<&Hart> {
        self.harts.get(hart)
    }

    /// A hart's own clock.
    pub fn clock(&self, hart: usize) -> u64 {
        self.bus.clock.get(hart).copied().unwrap_or(0)
    }

    /// Memory, for a debugger's eyes.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// Devices, controllers and protection, for reports.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The disk of `node`, to export what the guest made of it.
    pub fn disk(&self, node: usize) -> Option<&Disk> {
        self.bus.nodes.get(node)?.disk()
    }

    /// What `hart` is doing.
    pub fn mode(&self, hart: usize) -> Mode {
        if self.activity[hart] != Activity::Run {
            return Mode::Stopped;
        }
        if self.bus.waiting[hart].is_some() {
            return Mode::Idle;
        }
        match self.harts[hart].privilege() {
            Privilege::User => Mode::User,
            Privilege::Supervisor => Mode::Kernel,
            Privilege::Machine => Mode::Firmware,
        }
    }

    /// A copy of the machine as it is, sharing memory until one of the two writes it.
    pub fn fork(&mut self) -> Machine {
        Machine {
            plan: self.plan.clone(),
            ram: self.ram.fork(),
            engine: Engine::new(),
            harts: self.harts.clone(),
            bus: self.bus.clone(),
            activity: self.activity.clone(),
            deadline: self.deadline.clone(),
            slice: self.slice,
            now: self.now,
            horizon: self.horizon,
            instructions: self.instructions,
            log: self.log.clone(),
            armed: self.armed.clone(),
            injections: self.injections.clone(),
            storms: self.storms.clone(),
            counts: self.counts,
            htif: self.htif,
            htif_output: self.htif_output.clone(),
            trace: self.trace.clone(),
            exit: self.exit,
        }
    }
}

/// A guest's exit code as a process' one: what does not fit is a failure still.
fn exit_code(code: u64) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}
