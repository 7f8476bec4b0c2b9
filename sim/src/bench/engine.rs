//! One bare-metal program, once, on one engine: ours, or QEMU as a process of its own.
//!
//! The only place under the laboratory that reads the host's clock: what it reads is what is
//! measured, and never reaches a machine. Start-up is left out on both sides: ours is timed from
//! the machine's first instruction to its end; QEMU's start-up is timed apart, on a program that
//! ends at once, for the caller to take off.

use crate::Error;
use hive_machine::config::Config;
use hive_machine::env::Recorder;
use hive_machine::machine::boot::{Boot, Firmware};
use hive_machine::machine::{Machine, Stop, Until};
use hive_platform::map;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The command that Debian's qemu-system-misc installs.
const QEMU: &str = "qemu-system-riscv64";
/// Memory of the measured machine in megabytes, on every engine.
const MEMORY_MB: u64 = 256;
/// A program that runs longer on our machine loops: the longest is below 4e8.
const LIMIT_INSTRUCTIONS: u64 = 20_000_000_000;
/// A program that runs longer on QEMU loops: the longest takes 9 s on a loaded host.
const LIMIT: Duration = Duration::from_secs(300);
/// How often QEMU is asked whether it has ended: well below the shortest start-up (30 ms).
const POLL: Duration = Duration::from_micros(500);

/// What executes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// The machine of this project, on one host core.
    Ours,
    /// QEMU's translator; one host thread for each hart.
    Tcg,
    /// The same with `-icount shift=0`: repeatable time, all harts on one host thread.
    Icount,
}

impl Engine {
    /// All of them, ours first.
    pub const ALL: [Engine; 3] = [Engine::Ours, Engine::Tcg, Engine::Icount];

    /// As rows are named.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Ours => "ours",
            Engine::Tcg => "tcg",
            Engine::Icount => "icount",
        }
    }
}

/// What one run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Wall time; QEMU's with its start-up.
    pub seconds: f64,
    /// Console output.
    pub output: String,
    /// Instructions executed, where the engine counts them.
    pub instructions: Option<u64>,
}

/// The measured machine with `harts` harts.
///
/// # Errors
/// If there cannot be such a machine.
pub fn config(harts: usize) -> Result<Config, Error> {
    Ok(Config::preset("smp4")?.with_shape(1, harts).with_memory(MEMORY_MB << 20))
}

/// Runs `elf` on our machine.
///
/// # Errors
/// If the file is no program, or does not end with success.
pub fn ours(elf: &Path, harts: usize) -> Result<Run, Error> {
    let place = elf.display();
    let kernel = std::fs::read(elf).map_err(|e| {
        Error::Input(format!("{place}: {e}: './hive' makes it, or 'cargo xtask guest'"))
    })?;
    let boot = Boot { firmware: Firmware::None, kernel: Some(kernel), ..Boot::default() };
    let mut machine = Machine::new(&config(harts)?, &boot)?;
    let mut console = Recorder::default();
    let start = Instant::now();
    let stop = machine.run(Until::instructions(LIMIT_INSTRUCTIONS), &mut console);
    let seconds = start.elapsed().as_secs_f64();
    if stop != Stop::Exit(0) {
        let output = console.text(0);
        return Err(Error::Run(format!("{place}: ended with {stop:?} on our machine: {output}")));
    }
    let instructions = Some(machine.instructions());
    Ok(Run { seconds, output: console.text(0), instructions })
}

/// QEMU's own words about its version; none where it is not installed.
///
/// # Errors
/// If it is there and does not work.
pub fn qemu_version() -> Result<Option<String>, Error> {
    let broken = |why: String| Error::Run(format!("{QEMU} --version: {why}"));
    match Command::new(QEMU).arg("--version").stdin(Stdio::null()).output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(broken(e.to_string())),
        Ok(out) if !out.status.success() => Err(broken(out.status.to_string())),
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout);
            Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
        }
    }
}

/// Runs `elf` under QEMU; with `icount` on QEMU's own repeatable clock.
///
/// # Errors
/// If QEMU does not start, reports failure, or does not end in time.
pub fn qemu(elf: &Path, harts: usize, icount: bool) -> Result<Run, Error> {
    let failed = |why: String| Error::Run(format!("{QEMU} on {}: {why}", elf.display()));
    let mut command = Command::new(QEMU);
    command.args(["-M", "virt", "-bios", "none", "-nographic"]);
    command.args(["-m", &MEMORY_MB.to_string(), "-smp", &harts.to_string()]);
    if icount {
        command.args(["-icount", "shift=0"]);
    }
    command.arg("-kernel").arg(elf);
    // A program's whole output fits into a pipe: nobody needs to read while it runs.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let ended = await_end(&mut child, start);
    let seconds = start.elapsed().as_secs_f64();
    if !ended.map_err(|e| failed(e.to_string()))? {
        return Err(failed(format!("still running after {} s", LIMIT.as_secs())));
    }
    let out = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !out.status.success() {
        return Err(failed(format!("{}: {}", out.status, text(&out.stderr))));
    }
    Ok(Run { seconds, output: text(&out.stdout), instructions: None })
}

/// Whether `child` ended by itself; whatever it did, it is gone on return.
fn await_end(child: &mut Child, start: Instant) -> std::io::Result<bool> {
    loop {
        let ended = child.try_wait();
        if matches!(ended, Ok(Some(_))) {
            return Ok(true);
        }
        if ended.is_err() || start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return ended.map(|_| false);
        }
        std::thread::sleep(POLL);
    }
}

/// An ELF file whose program ends the machine at once: what is left of QEMU's time is start-up.
pub fn empty_program() -> Vec<u8> {
    const ELF_HEADER: usize = 64;
    const PROGRAM_HEADER: usize = 56;
    const EXEC: u16 = 2;
    const RISCV: u16 = 243;
    let lui = |register: u32, value: u32| value.wrapping_add(0x800) & !0xfff | register << 7 | 0x37;
    let addi = |register: u32, value: u32| value << 20 | register << 15 | register << 7 | 0x13;
    let (at, value) = (5, 6);
    let code: [u32; 5] = [
        lui(at, map::FINISHER as u32),
        lui(value, map::FINISHER_PASS),
        addi(value, map::FINISHER_PASS & 0xfff),
        value << 20 | at << 15 | 0x2023, // sw value, 0(at)
        0x6f,                            // j .
    ];
    let start = (ELF_HEADER + PROGRAM_HEADER) as u64;
    let length = size_of_val(&code) as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    put(&EXEC.to_le_bytes());
    put(&RISCV.to_le_bytes());
    put(&1u32.to_le_bytes());
    for word in [map::DRAM, ELF_HEADER as u64, 0] {
        put(&word.to_le_bytes());
    }
    put(&0u32.to_le_bytes());
    for half in [ELF_HEADER as u16, PROGRAM_HEADER as u16, 1, 0, 0, 0] {
        put(&half.to_le_bytes());
    }
    // One segment to load, readable and executable.
    put(&1u32.to_le_bytes());
    put(&5u32.to_le_bytes());
    for word in [start, map::DRAM, map::DRAM, length, length, 4] {
        put(&word.to_le_bytes());
    }
    for word in code {
        put(&word.to_le_bytes());
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_program_ends_at_once() {
        let path = std::env::temp_dir().join(format!("hive-empty-{}.elf", std::process::id()));
        std::fs::write(&path, empty_program()).unwrap();
        let run = ours(&path, 1);
        std::fs::remove_file(&path).unwrap();
        let run = run.unwrap();
        assert!(run.output.is_empty() && run.instructions.unwrap() <= 5, "{run:?}");
    }

    #[test]
    fn a_missing_program_is_the_callers_mistake() {
        assert!(matches!(ours(Path::new("/nonexistent"), 1), Err(Error::Input(_))));
    }
}
