//! What a demo showed, and whether all of it held.

use super::verify::Outcome;
use super::watch::{Heartbeat, Watch};
use super::{mode_name, survivors};
use crate::inject::Injection;
use crate::lab::{Lab, Setup};
use hive_protocol::event::{Entry, Event, mark};
use serde::Serialize;

/// The machine-readable form: `hive demo --json`. What depends on the host is added by the caller.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seed of the run.
    pub seed: u64,
    /// Cells at the start.
    pub cells: usize,
    /// The cell that was struck.
    pub failed_cell: usize,
    /// The fault with nothing left open.
    pub fault: String,
    /// What the struck hart was doing.
    pub struck_in: String,
    /// Tasks.
    pub tasks: Tasks,
    /// Outputs.
    pub outputs: Outputs,
    /// Fault to the last survivor entering recovery.
    pub detect_ms: Option<f64>,
    /// First hint to the live set known everywhere.
    pub agree_ms: Option<f64>,
    /// First survivor entering recovery to the last one running user processes again.
    pub recover_ms: Option<f64>,
    /// The first hint against the failed cell.
    pub detected_by: Option<DetectedBy>,
    /// Processes killed by recovery, each with the state it lost.
    pub killed: Vec<Killed>,
    /// Pages of survivors that a wild-write storm changed though it must not.
    pub escapes: usize,
    /// Hashes of what the run started from.
    pub images: Images,
    /// Instructions of the whole run.
    pub instructions: u64,
    /// Hash that two runs share only if they are the same run.
    pub trace_hash: String,
    /// What did not hold; empty if the demo succeeded.
    pub failures: Vec<String>,
}

/// Numbers of tasks.
#[derive(Clone, Debug, Serialize)]
pub struct Tasks {
    /// All.
    pub total: usize,
    /// That had to be begun again: they ran on the failed cell, or their output was on its disk.
    pub lost: usize,
    /// How often tasks were begun again.
    pub rerun: usize,
}

/// Numbers of outputs.
#[derive(Clone, Debug, Serialize)]
pub struct Outputs {
    /// Compared with the host's own.
    pub checked: usize,
    /// Different, or missing.
    pub mismatched: usize,
}

/// Who noticed, and how.
#[derive(Clone, Debug, Serialize)]
pub struct DetectedBy {
    /// The check.
    pub check: String,
    /// The cell.
    pub cell: usize,
}

/// A process that recovery killed.
#[derive(Clone, Debug, Serialize)]
pub struct Killed {
    /// Its id.
    pub pid: i32,
    /// The state it could not do without.
    pub lost: String,
}

/// Hashes.
#[derive(Clone, Debug, Serialize)]
pub struct Images {
    /// Of the firmware.
    pub firmware: String,
    /// Of the kernel.
    pub kernel: String,
    /// Of the root file system.
    pub rootfs: String,
}

/// Largest difference between a mark and the printed time of the same event: printing comes a
/// few instructions after.
const CLOCK_TOLERANCE_MS: f64 = 0.1;

impl Report {
    #[expect(clippy::too_many_arguments, reason = "the one place where all facts meet")]
    pub(super) fn new(
        setup: &Setup,
        lab: &Lab,
        watch: &Watch,
        fault: Injection,
        victim: usize,
        total: usize,
        outcome: Outcome,
    ) -> Report {
        let mut failures = Vec::new();
        let mut require = |held: bool, what: &str| {
            if !held {
                failures.push(what.to_owned());
            }
        };
        let injection = lab.machine().injections().first();
        require(injection.is_some(), "the fault never struck");
        require(watch.agreed(setup.cells, victim), "the survivors did not agree on who is dead");
        require(watch.all_resumed(victim), "a survivor did not come out of recovery");
        require(watch.all_finished(victim), "a survivor's driver did not finish");
        require(watch.missing(victim) == 0, "a survivor's driver misses outputs");
        for heartbeat in watch.heartbeats(victim) {
            let held = heartbeat.is_some_and(|h: Heartbeat| h.unbroken && h.count > 1);
            require(held, "an independent process on a survivor lost its pid or its counter");
        }
        for unclean in &outcome.unclean {
            require(false, &format!("e2fsck: {unclean}"));
        }
        for name in &outcome.mismatched {
            require(false, &format!("output {name}"));
        }
        let storms = lab.machine().injections().iter().filter_map(|i| i.storm.as_ref());
        let escapes: usize = storms.map(|storm| storm.escapes().count()).sum();
        require(escapes == 0, &format!("{escapes} pages of survivors were damaged"));

        let times = Times::from_marks(setup, watch, victim, injection.map_or(0, |i| i.cycle));
        let printed = Times::from_entries(setup, watch, victim, injection.map_or(0, |i| i.cycle));
        require(times.near(&printed), "the kernels' own times differ from the machine's");
        let per_node = setup.config.harts_per_node;
        let struck_hart = fault.node.unwrap_or(0) * per_node;
        let struck_in = injection.and_then(|i| i.modes.get(struck_hart)).map(|m| mode_name(*m));
        let hashes = &setup.images.hashes;
        let (lost, rerun) = watch.reruns();
        Report {
            seed: setup.config.seed,
            cells: setup.cells,
            failed_cell: victim,
            fault: fault.to_string(),
            struck_in: struck_in.unwrap_or("nothing").into(),
            tasks: Tasks { total, lost, rerun },
            outputs: Outputs { checked: outcome.checked, mismatched: outcome.mismatched.len() },
            detect_ms: times.detect,
            agree_ms: times.agree,
            recover_ms: times.recover,
            detected_by: detected_by(&watch.entries, victim),
            killed: killed(&watch.entries),
            escapes,
            images: Images {
                firmware: hashes.firmware.clone(),
                kernel: hashes.kernel.clone(),
                rootfs: hashes.rootfs.clone(),
            },
            instructions: lab.machine().instructions(),
            trace_hash: lab.machine().trace_hash(),
            failures,
        }
    }

    /// Whether everything held.
    pub fn held(&self) -> bool {
        self.failures.is_empty()
    }
}

/// The three times, in milliseconds; `None` where an event is missing.
#[derive(Debug, PartialEq)]
struct Times {
    detect: Option<f64>,
    agree: Option<f64>,
    recover: Option<f64>,
}

/// An event of a cell at a cycle, as marks and entries both have it.
type Seen = (u64, usize, u16);

impl Times {
    fn from_marks(setup: &Setup, watch: &Watch, victim: usize, fault: u64) -> Times {
        let cell_of = |hart: usize| {
            let node = hart / setup.config.harts_per_node;
            hive_platform::cell_of_node(node, setup.config.nodes, setup.cells)
        };
        let seen = watch.marks.iter().map(|m| (m.cycle, cell_of(m.hart), m.code));
        Times::of(setup, seen.collect(), victim, fault)
    }

    fn from_entries(setup: &Setup, watch: &Watch, victim: usize, fault: u64) -> Times {
        let cycles_per_tick = setup.config.clock_hz / hive_platform::TIMEBASE_HZ;
        let seen = watch
            .entries
            .iter()
            .map(|e| (e.time * cycles_per_tick, e.cell.index(), e.event.mark().0));
        Times::of(setup, seen.collect(), victim, fault)
    }

    fn of(setup: &Setup, seen: Vec<Seen>, victim: usize, fault: u64) -> Times {
        let per_ms = setup.config.clock_hz as f64 / 1000.0;
        // The fault's own cycle is exact, a printed time is rounded down to its tick.
        let slack = setup.config.clock_hz / hive_platform::TIMEBASE_HZ;
        let of = |code: u16| {
            seen.iter()
                .filter(move |(cycle, cell, c)| {
                    *c == code && *cell != victim && *cycle + slack >= fault
                })
                .map(|(cycle, cell, _)| (*cycle, *cell))
                .collect::<Vec<_>>()
        };
        let expected = survivors(setup.cells, victim).len() as usize;
        // First of each cell; all must be there.
        let firsts = |code: u16| {
            let mut first = std::collections::BTreeMap::new();
            for (cycle, cell) in of(code) {
                first.entry(cell).or_insert(cycle);
            }
            (first.len() == expected).then(|| first.into_values().collect::<Vec<u64>>())
        };
        let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / per_ms;
        let entered = firsts(mark::RECOVERY);
        let last_in = entered.as_ref().and_then(|all| all.iter().max().copied());
        let first_in = entered.as_ref().and_then(|all| all.iter().min().copied());
        let suspended = of(mark::HINT).into_iter().chain(of(mark::SUSPENDED));
        let first_hint = suspended.map(|(cycle, _)| cycle).min();
        let agreed = firsts(mark::AGREED).and_then(|all| all.into_iter().max());
        let resumed = firsts(mark::RESUMED).and_then(|all| all.into_iter().max());
        Times {
            detect: last_in.map(|to| ms(fault, to)),
            agree: first_hint.zip(agreed).map(|(from, to)| ms(from, to)),
            recover: first_in.zip(resumed).map(|(from, to)| ms(from, to)),
        }
    }

    fn near(&self, other: &Times) -> bool {
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= CLOCK_TOLERANCE_MS,
            (None, None) => true,
            _ => false,
        };
        near(self.detect, other.detect)
            && near(self.agree, other.agree)
            && near(self.recover, other.recover)
    }
}

fn detected_by(entries: &[Entry], victim: usize) -> Option<DetectedBy> {
    let hints = entries.iter().filter_map(|entry| match entry.event {
        Event::Hint { accused, reason } if accused.index() == victim => Some((entry, reason)),
        _ => None,
    });
    let (entry, reason) = hints.min_by_key(|(entry, _)| entry.time)?;
    Some(DetectedBy { check: reason.name().into(), cell: entry.cell.index() })
}

fn killed(entries: &[Entry]) -> Vec<Killed> {
    let killed = entries.iter().filter_map(|entry| match entry.event {
        Event::Killed { pid, lost } => Some(Killed { pid: pid.raw(), lost: lost.name().into() }),
        _ => None,
    });
    killed.collect()
}
