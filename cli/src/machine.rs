//! `hive machine`: any RISC-V image on the machine. Flags are QEMU's where QEMU has one.
//!
//! Standard input and output are the console of node 0; other nodes' consoles are dropped. The
//! guest's exit code is ours.

use crate::failure::{Failure, Outcome};
use crate::terminal::{Key, Terminal};
use hive_machine::config::Config;
use hive_machine::dev::disk::Image;
use hive_machine::env::{Input, Observer};
use hive_machine::machine::boot::{Boot, Firmware};
use hive_machine::machine::{Machine, Stop, Until};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Run any RISC-V image: a kernel, or a bare program.
#[derive(clap::Args)]
pub struct Args {
    /// ELF file or raw image.
    #[arg(long, short, value_name = "F")]
    kernel: Option<String>,
    /// Firmware for the bottom of memory (such as OpenSBI's fw_dynamic.bin); "none" starts the
    /// kernel in M-mode on every hart [default: Hive's own].
    #[arg(long, value_name = "F|none")]
    bios: Option<String>,
    /// Initial RAM disk.
    #[arg(long, value_name = "F")]
    initrd: Option<String>,
    /// Kernel command line.
    #[arg(long, value_name = "S", default_value = "")]
    append: String,
    /// A preset, or a machine file (.toml).
    #[arg(long, short = 'M', value_name = "P", default_value = "smp4")]
    machine: String,
    /// Harts of the whole machine.
    #[arg(long, value_name = "N")]
    smp: Option<usize>,
    /// Memory of each node: megabytes, or with suffix M or G.
    #[arg(long, short, value_name = "MEM")]
    memory: Option<String>,
    /// Disk image of every node; never written. Once for each node gives each its own.
    #[arg(long, value_name = "F")]
    drive: Vec<String>,
    /// Stop after this many simulated cycles.
    #[arg(long, value_name = "N")]
    max_cycles: Option<u64>,
    /// Seed of every choice [default: the machine's].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write a summary as JSON.
    #[arg(long, value_name = "F")]
    json: Option<String>,
}

/// Longest stretch of simulated time between two looks at the terminal.
const STEP_US: u64 = 1000;

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let bad = |e: hive_machine::error::Error| Failure::Input(e.to_string());
    let config = configure(args)?;
    let boot = images(args)?;
    let mut machine = Machine::new(&config, &boot).map_err(bad)?;
    let began = Instant::now();
    let stop = drive(&mut machine, args.max_cycles.unwrap_or(u64::MAX));
    if let Some(path) = &args.json {
        summary(args, &machine, &stop, began.elapsed(), path)?;
    }
    match stop {
        End::Exit(code) => Ok(ExitCode::from(code)),
        End::Quit => Ok(ExitCode::SUCCESS),
        End::Stuck => Err(Failure::Run(format!(
            "every hart waits and nothing can wake one (cycle {})",
            machine.cycle()
        ))),
        End::Cycles => Err(Failure::Run(format!("still running after {} cycles", machine.cycle()))),
    }
}

fn read(path: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| Failure::Input(format!("{path}: {e}")))
}

fn configure(args: &Args) -> Result<Config, Failure> {
    let bad = |e: hive_machine::error::Error| Failure::Input(e.to_string());
    let mut config = Config::load(&args.machine).map_err(bad)?;
    if let Some(harts) = args.smp {
        if harts == 0 || harts % config.nodes != 0 {
            let nodes = config.nodes;
            return Err(Failure::Input(format!(
                "--smp {harts}: must be a multiple of the machine's {nodes} nodes"
            )));
        }
        config.harts_per_node = harts / config.nodes;
    }
    if let Some(text) = &args.memory {
        config.memory = megabytes(text).ok_or_else(|| {
            Failure::Input(format!("--memory {text}: give megabytes, or a number with M or G"))
        })?;
    }
    if let Some(seed) = args.seed {
        config.seed = seed;
    }
    config.check().map_err(bad)?;
    Ok(config)
}

/// Bytes of "512", "512M" or "2G".
fn megabytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['G', 'g']) {
        Some(digits) => (digits, 30),
        None => (text.strip_suffix(['M', 'm']).unwrap_or(text), 20),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn images(args: &Args) -> Result<Boot, Failure> {
    let firmware = match args.bios.as_deref() {
        Some("none") => Firmware::None,
        Some(path) => Firmware::Dram(read(path)?),
        None => {
            let path = hive_sim::images::folder().join("firmware.bin");
            let path = path.to_string_lossy();
            Firmware::Window(read(&path).map_err(|_| {
                Failure::Input(format!(
                    "no firmware at {path}: './hive' makes it; or use --bios none or --bios FILE"
                ))
            })?)
        }
    };
    let optional = |path: &Option<String>| path.as_deref().map(read).transpose();
    let mut disks = Vec::new();
    for path in &args.drive {
        disks.push(Image::load(path).map_err(|e| Failure::Input(e.to_string()))?);
    }
    Ok(Boot {
        firmware,
        kernel: optional(&args.kernel)?,
        initrd: optional(&args.initrd)?,
        append: args.append.clone(),
        flash: None,
        disks,
    })
}

/// How the run ended.
#[derive(Debug)]
enum End {
    Exit(u8),
    Quit,
    Stuck,
    Cycles,
}

/// Node 0's console is our standard output.
struct Screen;

impl Observer for Screen {
    fn console(&mut self, node: usize, _cycle: u64, bytes: &[u8]) {
        if node == 0 {
            let mut out = std::io::stdout();
            // A closed pipe is the reader's choice; the run still goes to its end.
            let _ = out.write_all(bytes).and_then(|()| out.flush());
        }
    }
}

fn drive(machine: &mut Machine, max_cycles: u64) -> End {
    let mut terminal = Terminal::open();
    let interactive = terminal.is_interactive();
    let mut open = true;
    let step = machine.config().cycles(STEP_US);
    let clock_hz = machine.config().clock_hz;
    let mut origin = Instant::now();
    loop {
        let limit = machine.cycle().saturating_add(step).min(max_cycles);
        let stop = machine.run(Until::cycle(limit), &mut Screen);
        let mut wait = Duration::ZERO;
        match stop {
            Stop::Exit(code) => return End::Exit(code),
            Stop::Stuck if !open => return End::Stuck,
            Stop::Stuck => wait = Duration::from_secs(3600),
            Stop::Cycle if limit == max_cycles => return End::Cycles,
            Stop::Cycle | Stop::Instructions | Stop::Mark => {}
        }
        if interactive && wait.is_zero() {
            // Only a person's wish to see time pass holds the machine back.
            let micros = machine.cycle() as u128 * 1_000_000 / u128::from(clock_hz);
            let simulated = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
            wait = simulated.saturating_sub(origin.elapsed());
            if wait.is_zero() {
                origin = Instant::now().checked_sub(simulated).unwrap_or(origin);
            }
        }
        if !open {
            continue;
        }
        for key in terminal.keys(wait) {
            match key {
                Key::Bytes(bytes) => {
                    // Node 0 exists: it cannot be refused.
                    let _ = machine.input(Input::Console { node: 0, bytes });
                }
                Key::Quit => return End::Quit,
                Key::End => open = false,
                Key::Switch(_) | Key::Next | Key::Help => eprint!("\r\n[Ctrl-A x: end]\r\n"),
            }
        }
    }
}

fn summary(
    args: &Args,
    machine: &Machine,
    end: &End,
    wall: Duration,
    path: &str,
) -> Result<(), Failure> {
    let exit = match end {
        End::Exit(code) => code.to_string(),
        _ => "null".into(),
    };
    let config = machine.config();
    let seconds = wall.as_secs_f64();
    let mips = machine.instructions() as f64 / seconds.max(1e-9) / 1e6;
    let text = format!(
        "{{\"command\":\"machine\",\"machine\":{:?},\"kernel\":{:?},\"seed\":{},\"nodes\":{},\
         \"harts\":{},\"end\":\"{}\",\"exit_code\":{exit},\"cycles\":{},\"instructions\":{},\
         \"trace_hash\":\"{}\",\"host\":{{\"seconds\":{seconds:.3},\"mips\":{mips:.1}}}}}\n",
        args.machine,
        args.kernel.as_deref().unwrap_or(""),
        config.seed,
        config.nodes,
        config.harts(),
        format!("{end:?}").split('(').next().unwrap_or("").to_lowercase(),
        machine.cycle(),
        machine.instructions(),
        machine.trace_hash(),
    );
    std::fs::write(path, text).map_err(|e| Failure::Input(format!("{path}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes() {
        assert_eq!(megabytes("512"), Some(512 << 20));
        assert_eq!(megabytes("64M"), Some(64 << 20));
        assert_eq!(megabytes("2G"), Some(2 << 30));
        for bad in ["", "x", "-1", "1.5G", "99999999999999999G", "5T"] {
            assert_eq!(megabytes(bad), None, "{bad}");
        }
    }
}
