//! `hive bench simulator`: how fast the machine executes, beside QEMU on the same programs.
//!
//! Each round runs every program once on every engine, beginning with another engine each time,
//! so that a host whose speed drifts does so for all. Ratios are taken within a round and above 1
//! where ours is faster. A program prints one checksum: engines that disagree on it have not done
//! the same work, and the measure fails.

use super::engine::{self, Engine, Run};
use super::{Figure, Row, Spread};
use crate::Error;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A program of bench/guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name; the image is `bench-NAME.elf`.
    pub name: &'static str,
    /// Harts it is written for.
    pub harts: usize,
}

/// All programs.
pub const PROGRAMS: [Program; 5] = [
    Program { name: "integer", harts: 1 },
    Program { name: "memory", harts: 1 },
    Program { name: "float", harts: 1 },
    Program { name: "paging", harts: 1 },
    Program { name: "contention", harts: 4 },
];

/// Level with QEMU (DESIGN §8).
const AIM: f64 = 1.0;
/// Rows of ratios: name, program, engine ours is compared with.
const RATIOS: [(&str, &str, Engine); 2] =
    [("integer_vs_tcg", "integer", Engine::Tcg), ("trap_vs_icount", "paging", Engine::Icount)];

/// What the measure found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Facts of the run.
    pub rows: Vec<Row>,
    /// Facts of the host.
    pub host: Host,
}

/// Facts of the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Cores the host lets us use.
    pub cores: usize,
    /// QEMU's version; none if it is not installed.
    pub qemu: Option<String>,
    /// Rounds.
    pub runs: usize,
    /// Speeds and ratios, by the names of [`Report::rows`], then one for each program and engine.
    pub rows: Vec<Row>,
    /// The measurements behind the rows.
    pub timings: Vec<Timing>,
}

/// One program on one engine, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Program.
    pub program: &'static str,
    /// Engine.
    pub engine: &'static str,
    /// Seconds of a run without start-up; none where QEMU is not installed.
    pub seconds: Option<Spread>,
    /// Median start-up in seconds that was taken off.
    pub startup_s: Option<f64>,
    /// Millions of instructions a second. None on QEMU with several harts: it does not count
    /// them, and they spin a different number of times than ours.
    pub mips: Option<Spread>,
    /// Times that ours is faster.
    pub ours_faster: Option<Spread>,
}

/// What the rounds gave for one program.
struct Samples {
    program: Program,
    checksum: Option<(String, Engine)>,
    instructions: u64,
    /// By engine as in [`Engine::ALL`].
    seconds: [Vec<f64>; 3],
    startup: [Vec<f64>; 3],
}

/// Measures over `runs` rounds with the images in `folder`; `tell` hears of progress.
///
/// # Errors
/// If an image is missing, a program fails, or engines disagree on a checksum.
pub fn run(runs: usize, folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Report, Error> {
    let images: Vec<PathBuf> =
        PROGRAMS.iter().map(|p| folder.join(format!("bench-{}.elf", p.name))).collect();
    if let Some(missing) = images.iter().find(|path| !path.is_file()) {
        let path = missing.display();
        return Err(Error::Input(format!("no {path}: './hive' makes it, or 'cargo xtask guest'")));
    }
    let qemu = engine::qemu_version()?;
    let empty = Empty::new(qemu.is_some())?;
    let mut samples: Vec<Samples> = PROGRAMS.iter().map(|p| Samples::new(*p)).collect();
    for round in 0..runs {
        for (samples, image) in samples.iter_mut().zip(&images) {
            for turn in 0..Engine::ALL.len() {
                let engine = Engine::ALL[(turn + round) % Engine::ALL.len()];
                if engine == Engine::Ours || qemu.is_some() {
                    let seconds = samples.measure(engine, image, &empty)?;
                    let (name, engine) = (samples.program.name, engine.name());
                    tell(&format!("round {} of {runs}: {name} {engine} {seconds:.3} s", round + 1));
                }
            }
        }
    }
    Ok(report(&samples, runs, qemu))
}

impl Samples {
    fn new(program: Program) -> Samples {
        let [seconds, startup] = [const { [const { Vec::new() }; 3] }; 2];
        Samples { program, checksum: None, instructions: 0, seconds, startup }
    }

    /// Runs once more; gives the seconds of the whole run.
    fn measure(&mut self, engine: Engine, image: &Path, empty: &Empty) -> Result<f64, Error> {
        let harts = self.program.harts;
        let icount = engine == Engine::Icount;
        let run = if engine == Engine::Ours {
            engine::ours(image, harts)?
        } else {
            let startup = engine::qemu(&empty.0, harts, icount)?.seconds;
            self.startup[engine as usize].push(startup);
            engine::qemu(image, harts, icount)?
        };
        self.compare(engine, &run)?;
        self.instructions = run.instructions.unwrap_or(self.instructions);
        self.seconds[engine as usize].push(run.seconds);
        Ok(run.seconds)
    }

    /// Holds the checksum against that of the first run.
    fn compare(&mut self, engine: Engine, run: &Run) -> Result<(), Error> {
        let (name, by) = (self.program.name, engine.name());
        let sum = checksum(name, &run.output).ok_or_else(|| {
            Error::Run(format!("{name}: no checksum in what it printed on {by}: {}", run.output))
        })?;
        let (first, whose) = self.checksum.get_or_insert((sum.to_owned(), engine));
        if first == sum {
            return Ok(());
        }
        Err(Error::Run(format!("{name}: checksum {sum} on {by}, {first} on {}", whose.name())))
    }

    /// Seconds of each run without start-up. Empty if a start-up took longer than the run.
    fn net(&self, engine: Engine) -> Vec<f64> {
        let startup = self.startup_s(engine).unwrap_or(0.0);
        let net: Vec<f64> =
            self.seconds[engine as usize].iter().map(|seconds| seconds - startup).collect();
        if net.iter().all(|seconds| *seconds > 0.0) { net } else { Vec::new() }
    }

    fn startup_s(&self, engine: Engine) -> Option<f64> {
        Some(Spread::of(self.startup[engine as usize].iter().copied())?.median)
    }

    fn timing(&self, engine: Engine) -> Timing {
        let seconds = self.net(engine);
        let counted = engine == Engine::Ours || self.program.harts == 1;
        let rate = |seconds: &f64| self.instructions as f64 / seconds / 1e6;
        let ours = self.net(Engine::Ours);
        let faster = seconds.iter().zip(&ours).map(|(theirs, ours)| theirs / ours);
        Timing {
            program: self.program.name,
            engine: engine.name(),
            seconds: Spread::of(seconds.iter().copied()),
            startup_s: self.startup_s(engine),
            mips: Spread::of(seconds.iter().map(rate)).filter(|_| counted),
            ours_faster: Spread::of(faster),
        }
    }
}

/// The checksum in a program's output: `NAME CHECKSUM`.
fn checksum<'a>(name: &str, output: &'a str) -> Option<&'a str> {
    let sum = |line: &'a str| line.trim().strip_prefix(name)?.strip_prefix(' ');
    let sum = output.lines().find_map(sum)?;
    (sum.len() == 16 && sum.bytes().all(|b| b.is_ascii_hexdigit())).then_some(sum)
}

fn report(samples: &[Samples], runs: usize, qemu: Option<String>) -> Report {
    let timings: Vec<Timing> =
        samples.iter().flat_map(|s| Engine::ALL.map(|engine| s.timing(engine))).collect();
    let row = |name: String, unit, aim, ours| {
        let met = match (aim, &ours) {
            (Some(aim), Some(Figure::Measure(ours))) => Some(*ours >= aim),
            _ => None,
        };
        Row { name, unit, paper: None, aim, ours, met }
    };
    let mut rows = Vec::new();
    let mut host = Vec::new();
    for (name, program, engine) in RATIOS {
        let timing = timings.iter().find(|t| (t.program, t.engine) == (program, engine.name()));
        let ratio = timing.and_then(|t| t.ours_faster).map(|s| Figure::Measure(s.median));
        rows.push(row(name.into(), "ratio (see host)", Some(AIM), None));
        host.push(row(name.into(), "ratio", Some(AIM), ratio));
    }
    rows.push(row("flash_mips".into(), "MIPS (not measured: no flash timing)", None, None));
    for s in samples {
        let name = s.program.name;
        let instructions = Some(Figure::Count(s.instructions));
        rows.push(row(format!("{name}_instructions"), "instructions", None, instructions));
        let sum = s.checksum.clone().map(|(sum, _)| Figure::Text(sum));
        rows.push(row(format!("{name}_checksum"), "hexadecimal", None, sum));
    }
    for t in &timings {
        let mips = t.mips.map(|s| Figure::Measure(s.median));
        host.push(row(format!("{}_{}", t.program, t.engine), "MIPS", None, mips));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Report { rows, host: Host { cores, qemu, runs, rows: host, timings } }
}

/// The empty program in a file of its own, gone with this.
struct Empty(PathBuf);

impl Empty {
    /// Writes it if it is `wanted`.
    fn new(wanted: bool) -> Result<Empty, Error> {
        let path = std::env::temp_dir().join(format!("hive-bench-{}.elf", std::process::id()));
        if wanted {
            std::fs::write(&path, engine::empty_program())
                .map_err(|e| Error::Run(format!("{}: {e}", path.display())))?;
        }
        Ok(Empty(path))
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        // It may not have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(output: &str) -> Run {
        Run { seconds: 1.0, output: output.into(), instructions: None }
    }

    /// Two rounds: ours takes 2 s, plain QEMU 1.5 s after 0.5 s of start-up.
    fn samples(program: Program) -> Samples {
        let mut s = Samples::new(program);
        s.instructions = 40_000_000;
        s.seconds = [vec![2.0, 2.0], vec![1.5, 1.5], Vec::new()];
        s.startup = [Vec::new(), vec![0.5, 0.5], Vec::new()];
        s
    }

    #[test]
    fn engines_must_agree() {
        let mut s = Samples::new(PROGRAMS[0]);
        assert_eq!(s.compare(Engine::Ours, &run("integer 0123456789abcdef\n")), Ok(()));
        assert_eq!(s.compare(Engine::Tcg, &run("integer 0123456789abcdef\r\n")), Ok(()));
        for wrong in ["integer 0123456789abcdee\n", "integer 12\n", "float 0123456789abcdef\n", ""]
        {
            assert!(
                matches!(s.compare(Engine::Icount, &run(wrong)), Err(Error::Run(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn start_up_is_taken_off() {
        let s = samples(PROGRAMS[0]);
        let ours = s.timing(Engine::Ours);
        assert_eq!(ours.mips.unwrap().median, 20.0);
        let theirs = s.timing(Engine::Tcg);
        assert_eq!((theirs.seconds.unwrap().max, theirs.mips.unwrap().max), (1.0, 40.0));
        assert_eq!(theirs.ours_faster.unwrap().median, 0.5);
        assert_eq!(s.timing(Engine::Icount).seconds, None);
    }

    #[test]
    fn a_start_up_longer_than_the_run_gives_no_figure() {
        let mut s = samples(PROGRAMS[0]);
        s.startup[1] = vec![1.5, 1.6];
        assert_eq!(s.timing(Engine::Tcg).ours_faster, None);
    }

    #[test]
    fn what_depends_on_the_host_is_under_host() {
        let all = PROGRAMS.map(samples);
        let report = report(&all, 2, Some("QEMU".into()));
        let find =
            |rows: &[Row], name: &str| rows.iter().find(|r| r.name == name).cloned().unwrap();
        let row = find(&report.rows, "integer_vs_tcg");
        assert_eq!((row.ours, row.met), (None, None));
        let row = find(&report.host.rows, "integer_vs_tcg");
        assert_eq!((row.ours, row.met), (Some(Figure::Measure(0.5)), Some(false)));
        assert_eq!(find(&report.host.rows, "contention_tcg").ours, None);
        let row = find(&report.rows, "paging_instructions");
        assert_eq!(row.ours, Some(Figure::Count(40_000_000)));
    }
}
