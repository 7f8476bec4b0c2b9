//! What enters from outside: inputs at a cycle that nothing has begun, faults when they are due.

use super::{Activity, Machine};
use crate::bus::events::Event;
use crate::env::{Entry, Input, Log};
use crate::error::Error;
use crate::fault::{Fault, Injection, Mode, When, some_lines};
use crate::hart::{Exception, Trap};
use crate::machine::storm::Storm;
use crate::seed::{Random, Stream};

/// A fault that waits for a hart to be in a mode.
#[derive(Clone, Copy)]
pub(super) struct Armed {
    fault: Fault,
    hart: usize,
    mode: Mode,
    after: u64,
}

impl Machine {
    /// Lets `input` enter as soon as it can without touching a decision already made; returns the
    /// cycle. A fault's own time still counts if it is later.
    ///
    /// # Errors
    /// If it names a node or hart that does not exist.
    pub fn input(&mut self, input: Input) -> Result<u64, Error> {
        let cycle = self.horizon.max(self.now + 1);
        self.input_at(cycle, input)
    }

    /// Lets `input` enter at `cycle`.
    ///
    /// # Errors
    /// If that is in the past (before [`Machine::horizon`]) or the input names something that
    /// does not exist.
    pub fn input_at(&mut self, cycle: u64, input: Input) -> Result<u64, Error> {
        self.check_input(&input)?;
        if cycle < self.horizon || cycle < self.now {
            return Err(Error::new(format!(
                "cycle {cycle} is past: inputs can enter from cycle {}",
                self.horizon.max(self.now)
            )));
        }
        let due = match &input {
            Input::Fault { when: When::At(at), .. } => cycle.max(*at),
            _ => cycle,
        };
        self.bus.events.add(due, Event::Input(self.log.entries.len()));
        self.log.entries.push(Entry { cycle, input });
        Ok(due)
    }

    /// First cycle at which an input may still enter.
    pub fn horizon(&self) -> u64 {
        self.horizon.max(self.now + 1)
    }

    /// Injects `fault` at `when`, or at once if that is past.
    ///
    /// # Errors
    /// If it names a node or hart that does not exist.
    pub fn inject(&mut self, fault: Fault, when: When) -> Result<u64, Error> {
        self.input(Input::Fault { fault, when })
    }

    /// Lets everything of `log` enter a machine at power-on, at the cycles it entered before.
    ///
    /// # Errors
    /// If the machine is another one than the log's.
    pub fn replay(&mut self, log: &Log) -> Result<(), Error> {
        if log.seed != self.log.seed {
            return Err(Error::new(format!(
                "the log is of seed {}, the machine has seed {}",
                log.seed, self.log.seed
            )));
        }
        if log.disks != self.log.disks {
            return Err(Error::new("the log is of a machine with other disk images"));
        }
        for entry in &log.entries {
            self.input_at(entry.cycle, entry.input.clone())?;
        }
        Ok(())
    }

    fn check_input(&self, input: &Input) -> Result<(), Error> {
        let nodes = self.bus.config.nodes;
        let harts = self.harts.len();
        let node_exists = |node: usize| match node < nodes {
            true => Ok(()),
            false => Err(Error::new(format!("no node {node}: the machine has {nodes}"))),
        };
        let hart_exists = |hart: usize| match hart < harts {
            true => Ok(()),
            false => Err(Error::new(format!("no hart {hart}: the machine has {harts}"))),
        };
        match *input {
            Input::Console { node, .. } => node_exists(node),
            Input::TimeOfDay { .. } => Ok(()),
            Input::Fault { fault, when } => {
                if let When::InMode { hart, .. } = when {
                    hart_exists(hart)?;
                }
                match fault {
                    Fault::NodeFailure { node } | Fault::WildWrites { node } => node_exists(node),
                    Fault::HartHalt { hart } | Fault::HardwareError { hart } => hart_exists(hart),
                }
            }
        }
    }

    /// Entry `number` of the log enters at `cycle`.
    pub(super) fn enter(&mut self, cycle: u64, number: usize) {
        let Some(entry) = self.log.entries.get(number).cloned() else { return };
        self.trace.event(cycle, format!("{:?}", entry.input).as_bytes());
        match entry.input {
            Input::Console { node, bytes } => {
                self.bus.nodes[node].uart.input(&bytes);
                self.bus.wire(node, cycle);
            }
            Input::TimeOfDay { ns } => self.bus.set_time_of_day(ns, cycle),
            Input::Fault { fault, when: When::At(_) } => self.strike(fault, cycle),
            Input::Fault { fault, when: When::InMode { hart, mode, after } } => {
                self.armed.push(Armed { fault, hart, mode, after });
            }
        }
    }

    /// Strikes with every armed fault whose hart is in its mode.
    pub(super) fn strike_armed(&mut self) {
        if self.armed.is_empty() {
            return;
        }
        let mut later = Vec::new();
        for armed in std::mem::take(&mut self.armed) {
            let cycle = self.bus.clock[armed.hart].max(self.now);
            if cycle >= armed.after && self.mode(armed.hart) == armed.mode {
                self.strike(armed.fault, cycle);
            } else {
                later.push(armed);
            }
        }
        self.armed = later;
    }

    /// The fault strikes.
    fn strike(&mut self, fault: Fault, cycle: u64) {
        let modes = (0..self.harts.len()).map(|h| self.mode(h)).collect();
        let number = self.injections.len() as u64;
        self.injections.push(Injection { fault, cycle, modes, storm: None });
        match fault {
            Fault::NodeFailure { node } => {
                self.counts.node_failures += 1;
                self.bus.nodes[node].cancel();
                let mut random = Random::new(self.bus.config.seed, Stream::LostLines, number);
                let lose = || some_lines(&mut random);
                self.bus.protection.node_failed(&mut self.ram, node, lose);
                self.stand_node(node, Activity::Stand);
                self.end_with_last_node();
            }
            Fault::HartHalt { hart } => {
                self.counts.hart_halts += 1;
                self.stand(hart, Activity::Stand);
            }
            Fault::HardwareError { hart } => {
                self.counts.hardware_errors += 1;
                if self.activity[hart] == Activity::Run {
                    self.harts[hart].inject(Trap { cause: Exception::HardwareError, value: 0 });
                    self.wake(hart, cycle);
                }
            }
            Fault::WildWrites { node } => {
                self.counts.wild_writes += 1;
                let per_node = self.bus.config.harts_per_node;
                let random = Random::new(self.bus.config.seed, Stream::Storm, number);
                self.storms.retain(|storm| storm.node != node);
                self.storms.push(Storm::new(number as usize, node, random));
                for hart in node * per_node..(node + 1) * per_node {
                    if self.activity[hart] == Activity::Run {
                        self.stand(hart, Activity::Storm);
                        self.bus.clock[hart] = self.bus.clock[hart].max(cycle);
                    }
                }
            }
        }
    }
}
