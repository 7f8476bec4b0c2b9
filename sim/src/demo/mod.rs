//! The main job: every cell works on real files, one cell dies in the middle, the rest finishes
//! the work, and the host checks every byte of it (`hive demo`).
//!
//! The guest's scripts are in `sim/guest`. This side types at the consoles, strikes one fault, and
//! watches: it never tells the guest what happened. One driver script, on cell 0, starts every
//! task; the kernels place them over the cells. The driver runs again what was lost; if its own
//! cell died, the same script is typed at the lowest survivor's console. What a run shows is a
//! function of its setup alone.
//!
//! Reading order: this file, `watch` (consoles and marks become facts), `verify` (the outputs
//! beside the host's own), `report`.

mod report;
mod verify;
mod watch;

pub use report::Report;

use crate::Error;
use crate::inject::{Injection, Kind, When};
use crate::lab::{Lab, Progress, Setup};
use hive_machine::fault::Mode;
use hive_machine::seed::{Random, Stream};
use hive_protocol::{CellId, CellSet};
use watch::Watch;

/// Boot, until every console has its shell.
const BOOT_LIMIT_US: u64 = 60_000_000;
/// The job, with everything that has to be done again.
const JOB_LIMIT_US: u64 = 60_000_000;
/// Survivors that have not recovered so long after the fault never will.
const RECOVERY_LIMIT_US: u64 = 5_000_000;
/// The fault strikes so long after the job has begun.
const STRIKE_US: std::ops::Range<u64> = 50_000..1_500_000;
/// Heartbeats are watched so long after all is done.
const AFTER_US: u64 = 500_000;

/// A fact worth a line while the demo runs.
pub type Tell<'a> = &'a mut dyn FnMut(u64, &str);

/// Runs the demo; `request` overrides the drawn fault. Facts are told as they are seen.
///
/// # Errors
/// If the setup is no good, a tool of the host is missing, or the guest does not come so far that
/// there is something to report.
pub fn run(setup: &Setup, request: Option<Injection>, tell: Tell<'_>) -> Result<Report, Error> {
    if setup.cells < 2 {
        return Err(Error::Input("the demo needs at least 2 cells: one dies".into()));
    }
    let tasks = verify::tasks(&setup.images.rootfs)?;
    let mut lab = Lab::new(setup)?;
    let cells = setup.cells;
    for cell in 0..cells {
        let node = lab.node_of(cell);
        lab.expect(node, "# ", BOOT_LIMIT_US)?;
        // Read by the console's own shell: no exec, so it is not moved to another cell.
        lab.type_text(node, ". /demo/heartbeat.sh &\n")?;
    }
    for cell in 0..cells {
        let node = lab.node_of(cell);
        lab.expect(node, "heartbeat pid", BOOT_LIMIT_US)?;
    }
    tell(lab.now_us(), &format!("{cells} cells are up; {} tasks begin", tasks.len()));
    let mut watch = Watch::new(cells, tasks.len());
    drive(&mut lab, &mut watch, 0)?;
    let fault = lab.inject(&drawn(setup, &lab, request))?;
    let struck = fault.node.unwrap_or(0);
    let victim = hive_platform::cell_of_node(struck, setup.config.nodes, cells);
    let end = lab.now_us() + JOB_LIMIT_US;
    let mut told = false;
    let mut recovered = false;
    loop {
        let progress = lab.step();
        watch.look(&mut lab, tell);
        if !told && let Some(injection) = lab.machine().injections().first() {
            told = true;
            let us = cycles_to_us(injection.cycle, setup.config.clock_hz);
            tell(us, &format!("FAULT: {} strikes cell {victim}", fault.kind.name()));
        }
        if !recovered && watch.all_resumed(victim) {
            recovered = true;
            if victim == 0 {
                tell(lab.now_us(), "the driver's own cell died: typed again at cell 1");
                drive(&mut lab, &mut watch, 1)?;
            }
        }
        let hopeless = !recovered
            && lab.machine().injections().first().is_some_and(|injection| {
                let us = cycles_to_us(injection.cycle, setup.config.clock_hz);
                lab.now_us() > us + RECOVERY_LIMIT_US
            });
        let done = hopeless || recovered && watch.all_finished(victim);
        if done || progress != Progress::Running || lab.now_us() >= end {
            break;
        }
    }
    let end = lab.now_us() + AFTER_US;
    while lab.now_us() < end && lab.step() == Progress::Running {
        watch.look(&mut lab, tell);
    }
    tell(lab.now_us(), "reading the survivors' disks");
    let outcome = verify::outputs(&lab, &tasks, victim)?;
    Ok(Report::new(setup, &lab, &watch, fault, victim, tasks.len(), outcome))
}

/// What the request leaves open, drawn from the seed: which cell, when after now, and which fault.
fn drawn(setup: &Setup, lab: &Lab, request: Option<Injection>) -> Injection {
    let mut random = Random::new(setup.config.seed, Stream::Scenario, 1 << 16);
    let node = random.below(setup.config.nodes as u64) as usize;
    let after_us = STRIKE_US.start + random.below(STRIKE_US.end - STRIKE_US.start);
    let cycle = lab.machine().cycle() + setup.config.cycles(after_us) + random.below(1000);
    let request = request.unwrap_or(Injection { kind: Kind::NodeFailure, node: None, at: None });
    Injection {
        kind: request.kind,
        node: request.node.or(Some(node)),
        at: request.at.or(Some(When::Cycle(cycle))),
    }
}

/// Types the driver at the cell's console.
fn drive(lab: &mut Lab, watch: &mut Watch, cell: usize) -> Result<(), Error> {
    watch.driven(cell);
    let node = lab.node_of(cell);
    lab.type_text(node, "(. /demo/driver.sh)\n")
}

fn cycles_to_us(cycles: u64, clock_hz: u64) -> u64 {
    (u128::from(cycles) * 1_000_000 / u128::from(clock_hz)) as u64
}

/// The mode of the struck node's first hart as a word.
fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Idle => "idle",
        Mode::User => "user",
        Mode::Kernel => "kernel",
        Mode::Firmware => "firmware",
        Mode::Stopped => "stopped",
    }
}

/// All cells but the victim.
fn survivors(cells: usize, victim: usize) -> CellSet {
    CellSet::first(cells).minus(CellSet::only(CellId::of(victim)))
}
