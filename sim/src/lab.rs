//! A running machine with its consoles: the one way scenarios and the command line drive a run.
//!
//! A run advances in steps of [`STEP_US`] of simulated time. Input, expectations and checks happen
//! between steps only, so that a scenario is a function of what the machine showed, not of when
//! somebody looked. (Faults are exact: they strike at their cycle, inside a step.)

use crate::Error;
use crate::console::Console;
use crate::images::Images;
use crate::inject::{Injection, Kind, When};
use hive_machine::bus::Mark;
use hive_machine::config::Config;
use hive_machine::controller::NodeState;
use hive_machine::dev::disk::Image;
use hive_machine::env::{Input, Observer};
use hive_machine::fault::{self, Fault};
use hive_machine::machine::boot::{Boot, Firmware};
use hive_machine::machine::{Machine, Stop, Until};
use hive_machine::seed::{Random, Stream};
use std::fmt::Write;

/// Simulated time between two looks at the consoles.
pub const STEP_US: u64 = 1_000;
/// A fault without a time strikes between these moments: after the boot, within a short session.
const STRIKE_US: std::ops::Range<u64> = 500_000..2_000_000;

/// What to run.
#[derive(Clone)]
pub struct Setup {
    /// The machine.
    pub config: Config,
    /// Cells it is cut into.
    pub cells: usize,
    /// What it starts from.
    pub images: Images,
    /// A shell command that cell 0 runs instead of serving its console.
    pub command: Option<String>,
    /// Further words for the kernel's command line.
    pub append: String,
}

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It goes on.
    Running,
    /// The machine has ended with this code.
    Ended(u8),
    /// Nothing will ever happen again without input.
    Stuck,
}

/// See the module head.
pub struct Lab {
    machine: Machine,
    screens: Screens,
    cells: usize,
    faults: Vec<Injection>,
    rootfs: Image,
}

/// Sees what the machine shows.
#[derive(Default)]
struct Screens {
    consoles: Vec<Console>,
    marks: Vec<Mark>,
    fresh: Vec<(usize, Vec<u8>)>,
}

impl Observer for Screens {
    fn console(&mut self, node: usize, _cycle: u64, bytes: &[u8]) {
        if let Some(console) = self.consoles.get_mut(node) {
            console.push(bytes);
            self.fresh.push((node, bytes.to_vec()));
        }
    }
    fn mark(&mut self, mark: Mark) {
        self.marks.push(mark);
    }
}

impl Setup {
    /// Whether it can be run.
    ///
    /// # Errors
    /// One line that names what is wrong and what would do.
    pub fn check(&self) -> Result<(), Error> {
        self.config.check()?;
        let nodes = self.config.nodes;
        if self.cells == 0 || self.cells > nodes {
            let cells = self.cells;
            let name = &self.config.name;
            return Err(Error::Input(format!(
                "{cells} cells: machine {name} can be cut into 1 to {nodes}"
            )));
        }
        Ok(())
    }

    /// The kernel's command line.
    fn bootargs(&self) -> String {
        let mut line = self.append.clone();
        if let Some(command) = &self.command {
            line.push_str(if line.is_empty() { "hive.exec=" } else { " hive.exec=" });
            for byte in command.bytes() {
                // Writing to a string cannot fail.
                let _ = write!(line, "{byte:02x}");
            }
        }
        line
    }
}

impl Lab {
    /// A machine at power-on.
    ///
    /// # Errors
    /// If the setup is no good.
    pub fn new(setup: &Setup) -> Result<Lab, Error> {
        setup.check()?;
        let boot = Boot {
            firmware: Firmware::Window(setup.images.firmware.clone()),
            // One cell has nobody to be fenced from, and its harts use every node's devices.
            flash: Some(setup.images.flash(setup.cells, setup.cells > 1)?),
            append: setup.bootargs(),
            disks: vec![setup.images.rootfs.clone()],
            ..Boot::default()
        };
        let machine = Machine::new(&setup.config, &boot)?;
        let consoles = vec![Console::default(); setup.config.nodes];
        let screens = Screens { consoles, ..Screens::default() };
        Ok(Lab {
            machine,
            screens,
            cells: setup.cells,
            faults: Vec::new(),
            rootfs: setup.images.rootfs.clone(),
        })
    }

    /// The faults injected so far, with nothing left open.
    pub fn faults(&self) -> &[Injection] {
        &self.faults
    }

    /// The machine, for reports.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What every disk started as.
    pub fn base_image(&self) -> &Image {
        &self.rootfs
    }

    /// Cells the machine was cut into.
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// The first node of `cell`: its console is the cell's.
    pub fn node_of(&self, cell: usize) -> usize {
        hive_platform::first_node_of_cell(cell, self.machine.config().nodes, self.cells)
    }

    /// Simulated time in microseconds.
    pub fn now_us(&self) -> u64 {
        let us = self.machine.cycle() as u128 * 1_000_000;
        (us / u128::from(self.machine.config().clock_hz)) as u64
    }

    /// Runs for one step, [`STEP_US`].
    pub fn step(&mut self) -> Progress {
        let config = self.machine.config();
        let step = config.cycles(STEP_US);
        let until = Until::cycle((self.machine.cycle() / step + 1) * step);
        match self.machine.run(until, &mut self.screens) {
            Stop::Exit(code) => Progress::Ended(code),
            Stop::Stuck => Progress::Stuck,
            Stop::Cycle | Stop::Instructions | Stop::Mark => Progress::Running,
        }
    }

    /// Console output since the last call, in order.
    pub fn take_output(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.screens.fresh)
    }

    /// Marks since the last call, in order.
    pub fn take_marks(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.screens.marks)
    }

    /// Console of `node`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn console(&mut self, node: usize) -> &mut Console {
        &mut self.screens.consoles[node]
    }

    /// What became of `node`.
    pub fn state(&self, node: usize) -> NodeState {
        self.machine.bus().protection.controllers.node(node).state
    }

    /// Types `text` at the console of `node`.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn type_text(&mut self, node: usize, text: &str) -> Result<(), Error> {
        self.type_bytes(node, text.as_bytes())
    }

    /// Types bytes that need not be text.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn type_bytes(&mut self, node: usize, bytes: &[u8]) -> Result<(), Error> {
        self.machine.input(Input::Console { node, bytes: bytes.to_vec() })?;
        Ok(())
    }

    /// Runs until the console of `node` shows `text`, for at most `limit_us` of simulated time;
    /// returns all it showed up to there.
    ///
    /// # Errors
    /// If it does not come, with the console's last lines.
    pub fn expect(&mut self, node: usize, text: &str, limit_us: u64) -> Result<String, Error> {
        let end = self.now_us().saturating_add(limit_us);
        loop {
            if let Some(found) = self.console(node).find(text) {
                return Ok(found);
            }
            let why = match self.step() {
                Progress::Running if self.now_us() < end => continue,
                Progress::Running => format!("within {limit_us} us"),
                // The last step may have brought it.
                Progress::Ended(_) | Progress::Stuck
                    if self
                        .console(node)
                        .unread()
                        .windows(text.len().max(1))
                        .any(|w| w == text.as_bytes()) =>
                {
                    continue;
                }
                Progress::Ended(code) => format!("before the machine ended with code {code}"),
                Progress::Stuck => "before everything stood still".into(),
            };
            let tail = self.console(node).tail(5);
            return Err(Error::Run(format!("console {node} did not show '{text}' {why}: {tail}")));
        }
    }

    /// Arms a fault; what the request leaves open is drawn from the seed. Returns the request with
    /// nothing left open.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn inject(&mut self, request: &Injection) -> Result<Injection, Error> {
        let config = self.machine.config();
        let (nodes, per_node, clock_hz) = (config.nodes, config.harts_per_node, config.clock_hz);
        let number = self.machine.log().entries.len() as u64;
        let mut random = Random::new(config.seed, Stream::Scenario, number);
        let drawn_node = random.below(nodes as u64) as usize;
        let drawn_us = STRIKE_US.start + random.below(STRIKE_US.end - STRIKE_US.start);
        let node = request.node.unwrap_or(drawn_node);
        let at = request.at.unwrap_or(When::Us(drawn_us)).cycle(clock_hz);
        let hart = node * per_node;
        let fault = match request.kind {
            Kind::NodeFailure => Fault::NodeFailure { node },
            Kind::HaltHart => Fault::HartHalt { hart },
            Kind::Panic => Fault::HardwareError { hart },
            Kind::WildWrites => Fault::WildWrites { node },
        };
        let cycle = match request.kind {
            // In user mode a hardware error is the process' death, not the kernel's.
            Kind::Panic => {
                let when = fault::When::InMode { hart, mode: fault::Mode::Kernel, after: at };
                self.machine.inject(fault, when)?.max(at)
            }
            _ => self.machine.inject(fault, fault::When::At(at))?,
        };
        let fault =
            Injection { kind: request.kind, node: Some(node), at: Some(When::Cycle(cycle)) };
        self.faults.push(fault);
        Ok(fault)
    }
}
