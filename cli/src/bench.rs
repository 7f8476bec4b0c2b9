//! `hive bench NAME`: a measure, as a table and as JSON (DESIGN §8, §9).

use crate::failure::{Failure, Outcome};
use hive_sim::bench::simulator::{self, Report};
use hive_sim::bench::{Figure, Row, Spread, engine};
use hive_sim::images;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Measure, and compare with the papers and with other simulators.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure.
    #[arg(value_enum)]
    name: Name,
    /// Rounds; figures are medians of them.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Write the report to this file.
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Name {
    /// Instructions a second, beside QEMU.
    Simulator,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let Name::Simulator = args.name;
    if let Some(path) = &args.json {
        writable(path)?;
    }
    let mut tell = |line: &str| eprintln!("{line}");
    let report = simulator::run(args.runs.into(), &images::folder(), &mut tell)?;
    show(&report);
    if let Some(path) = &args.json {
        let fail = |e: String| Failure::Input(format!("{}: {e}", path.display()));
        let mut json = serde_json::to_value(&report).map_err(|e| fail(e.to_string()))?;
        json["command"] = format!("hive bench simulator --runs {}", args.runs).into();
        json["seed"] = engine::config(1)?.seed.into();
        json["commit"] = commit().into();
        std::fs::write(path, format!("{json:#}\n")).map_err(|e| fail(e.to_string()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds a wrong path before the minutes that the measure takes.
fn writable(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_none_or(Path::is_dir) && !path.is_dir() {
        return Ok(());
    }
    Err(Failure::Input(format!("--json {}: no such folder, or not a file", path.display())))
}

fn show(report: &Report) {
    let host = &report.host;
    let qemu = host.qemu.as_deref().unwrap_or("not installed: nothing to compare with");
    println!("{} rounds, {} host cores, QEMU: {qemu}", host.runs, host.cores);
    println!("{:<11} {:<7} {:>24} {:>22} {:>22}", "", "", "seconds", "MIPS", "ours faster by");
    for t in &host.timings {
        let [seconds, mips, faster] = [(t.seconds, 3), (t.mips, 1), (t.ours_faster, 2)].map(spread);
        println!("{:<11} {:<7} {seconds:>24} {mips:>22} {faster:>22}", t.program, t.engine);
    }
    for row in host.rows.iter().filter(|row| row.aim.is_some()) {
        println!("{}", line(row));
    }
}

/// Median, then least and greatest.
fn spread((spread, digits): (Option<Spread>, usize)) -> String {
    spread.map_or("-".into(), |s| {
        format!("{:.digits$} ({:.digits$}-{:.digits$})", s.median, s.min, s.max)
    })
}

fn line(row: &Row) -> String {
    let Some(Figure::Measure(ours)) = row.ours else { return format!("{}: -", row.name) };
    let aim = row.aim.unwrap_or_default();
    let met = if row.met == Some(true) { "met" } else { "missed" };
    format!("{}: {ours:.2} (aim {aim:.2}: {met})", row.name)
}

/// The source the program was built from, as far as git knows; marked if it was changed since.
fn commit() -> Option<String> {
    let guest = images::folder();
    let root = guest.ancestors().nth(2).filter(|root| root.is_dir());
    let root = root.unwrap_or(Path::new("."));
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
    let out = git.output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
