//! `hive run`: a shell on the cells' consoles, or one command.
//!
//! Three ways: with a command after `--`, cell 0 runs it and its exit status is ours; with a
//! terminal, the consoles are the user's, one at a time; with anything else as input, its lines
//! are typed at cell 0's console, each when the console asks for one, so that a run with a file as
//! input repeats exactly.
//!
//! Simulated time is kept from running ahead of the clock on the wall only while a person types.

use crate::failure::{Failure, Outcome};
use crate::terminal::{HELP, Key, Terminal};
use hive_machine::config::Config;
use hive_machine::controller::NodeState;
use hive_protocol::event::mark;
use hive_sim::images::{self, Images};
use hive_sim::inject::Injection;
use hive_sim::lab::{Lab, Progress, Setup};
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Run a cell's shell interactively, or one command in it.
#[derive(clap::Args)]
pub struct Args {
    /// Machine: a preset, or a machine file (.toml).
    #[arg(long, value_name = "P", default_value = "flash4-512m")]
    machine: String,
    /// Cells the machine is cut into [default: one for each node].
    #[arg(long, value_name = "N")]
    cells: Option<usize>,
    /// Root file system: an ext2 image [default: Debian's, made by ./hive].
    #[arg(long, value_name = "F")]
    rootfs: Option<PathBuf>,
    /// Fault: KIND[:NODE][@TIME], KIND one of node-failure, halt-hart, panic, wild-writes.
    #[arg(long, value_name = "SPEC")]
    inject: Vec<Injection>,
    /// Seed of every choice [default: the machine's].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Leave a defence out: firewall.
    #[arg(long, value_name = "WHAT", value_parser = ["firewall"])]
    without: Vec<String>,
    /// Further words for the kernel's command line.
    #[arg(long, value_name = "S", default_value = "")]
    append: String,
    /// Command for cell 0's /bin/sh.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let mut config = Config::load(&args.machine).map_err(|e| Failure::Input(e.to_string()))?;
    if let Some(seed) = args.seed {
        config = config.with_seed(seed);
    }
    if !args.without.is_empty() {
        config = config.with_firewall(false);
    }
    let cells = args.cells.unwrap_or(config.nodes);
    let command = (!args.command.is_empty()).then(|| args.command.join(" "));
    let images = Images::load(&images::folder(), args.rootfs.as_deref())?;
    let setup = Setup { config, cells, images, command, append: args.append.clone() };
    let mut lab = Lab::new(&setup)?;
    for request in &args.inject {
        let fault = lab.inject(request)?;
        eprintln!("hive: fault {fault}");
    }
    let outcome = if setup.command.is_some() {
        command_run(&mut lab)
    } else if std::io::stdin().is_terminal() {
        interactive(&mut lab)
    } else {
        scripted(&mut lab)
    };
    eprintln!("hive: again: {}", again(args, &setup, &lab));
    outcome
}

/// The line that repeats this run: what was asked for, nothing left to a default that may change.
fn again(args: &Args, setup: &Setup, lab: &Lab) -> String {
    let mut line = format!("hive run --machine {}", quoted(&args.machine));
    line += &format!(" --cells {} --seed {}", setup.cells, setup.config.seed);
    for fault in lab.faults() {
        line += &format!(" --inject {fault}");
    }
    for what in &args.without {
        line += &format!(" --without {what}");
    }
    if let Some(path) = &args.rootfs {
        line += &format!(" --rootfs {}", quoted(&path.display().to_string()));
    }
    if !args.append.is_empty() {
        line += &format!(" --append {}", quoted(&args.append));
    }
    if let Some(command) = &setup.command {
        line += &format!(" -- {}", quoted(command));
    }
    let hashes = &setup.images.hashes;
    line + &format!(
        "  # firmware {} kernel {} rootfs {}",
        hashes.firmware, hashes.kernel, hashes.rootfs
    )
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Runs until cell 0 has powered off; its console, from the command's start on, is our output.
fn command_run(lab: &mut Lab) -> Outcome {
    let mut started = false;
    let mut before = Vec::new();
    loop {
        let progress = lab.step();
        started |= lab.take_marks().iter().any(|m| m.code == mark::USER);
        for (node, bytes) in lab.take_output() {
            if node == 0 && started {
                // The terminal's carriage returns are for a terminal.
                show(&bytes.into_iter().filter(|b| *b != b'\r').collect::<Vec<u8>>());
            } else if node == 0 {
                before.extend(bytes);
            }
        }
        let code = match (lab.state(0), progress) {
            (NodeState::Off(code), _) | (_, Progress::Ended(code)) => code,
            (NodeState::Failed, _) => {
                return Err(lost(&before, "the node that ran the command failed"));
            }
            (_, Progress::Stuck) => return Err(lost(&before, "everything stands still")),
            _ => continue,
        };
        if !started {
            eprint!("{}", String::from_utf8_lossy(&before));
        }
        return Ok(ExitCode::from(code));
    }
}

/// The failure, after what the console showed before the command began.
fn lost(before: &[u8], why: &str) -> Failure {
    eprint!("{}", String::from_utf8_lossy(before));
    Failure::Run(why.into())
}

/// The consoles are a person's.
fn interactive(lab: &mut Lab) -> Outcome {
    let mut terminal = Terminal::open();
    let nodes = lab.machine().config().nodes;
    note(&format!("{} cells on {nodes} nodes. {HELP}", lab.cells()));
    let mut shown = 0;
    // Wall time at simulated time 0.
    let mut origin = Instant::now();
    loop {
        let progress = lab.step();
        for (node, bytes) in lab.take_output() {
            if node == shown {
                show(&bytes);
            }
        }
        lab.take_marks();
        match progress {
            Progress::Running => {}
            Progress::Ended(code) => return Ok(ExitCode::from(code)),
            Progress::Stuck => std::thread::sleep(Duration::from_millis(20)),
        }
        let simulated = Duration::from_micros(lab.now_us());
        let ahead = simulated.saturating_sub(origin.elapsed());
        if ahead.is_zero() {
            // Behind: time lost is not made up for.
            origin = Instant::now().checked_sub(simulated).unwrap_or(origin);
        }
        for key in terminal.keys(ahead) {
            match key {
                Key::Bytes(bytes) => lab.type_bytes(shown, &bytes)?,
                Key::Switch(node) if node < nodes => shown = switch(lab, node),
                Key::Switch(node) => note(&format!("no node {node}: there are {nodes}")),
                Key::Next => shown = switch(lab, (shown + 1) % nodes),
                Key::Help => note(HELP),
                Key::Quit | Key::End => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

/// Shows what `node`'s console last showed.
fn switch(lab: &mut Lab, node: usize) -> usize {
    let state = match lab.state(node) {
        NodeState::Live => "",
        NodeState::Off(_) => " (off)",
        NodeState::Failed => " (failed)",
    };
    note(&format!("console of node {node}{state}"));
    let tail = lab.console(node).tail(20).replace('\r', "").replace('\n', "\r\n");
    show(tail.as_bytes());
    node
}

/// Input is a file or a pipe: cell 0's console gets a line each time it asks for one.
fn scripted(lab: &mut Lab) -> Outcome {
    /// A console silent for so long wants input, prompt or not.
    const SILENT_US: u64 = 1_000_000;
    /// With no input left, this much silence is the end.
    const END_US: u64 = 10_000_000;
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|e| Failure::Input(format!("standard input: {e}")))?;
    let mut lines = text.split_inclusive('\n');
    let mut last_us = 0;
    loop {
        let progress = lab.step();
        let output = lab.take_output();
        lab.take_marks();
        let mut heard = false;
        for (_, bytes) in output.iter().filter(|(node, _)| *node == 0) {
            show(bytes);
            heard = true;
        }
        if heard {
            last_us = lab.now_us();
        }
        match progress {
            Progress::Running => {}
            Progress::Ended(code) => return Ok(ExitCode::from(code)),
            Progress::Stuck => return Err(Failure::Run("everything stands still".into())),
        }
        if let NodeState::Off(code) = lab.state(0) {
            return Ok(ExitCode::from(code));
        }
        let silent_us = lab.now_us() - last_us;
        let seen = lab.console(0).transcript();
        let prompt = [&b"# "[..], b"$ ", b"> "].iter().any(|end| seen.ends_with(end));
        if prompt && silent_us > 0 || silent_us >= SILENT_US {
            match lines.next() {
                Some(line) => {
                    lab.type_text(0, line)?;
                    last_us = lab.now_us();
                }
                None if silent_us >= END_US => return Ok(ExitCode::SUCCESS),
                None => {}
            }
        }
    }
}

/// A line of ours on a raw terminal.
fn note(text: &str) {
    eprint!("\r\n[{text}]\r\n");
}

fn show(bytes: &[u8]) {
    let mut out = std::io::stdout();
    // A closed pipe is the reader's choice; the run still goes to its end.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}
