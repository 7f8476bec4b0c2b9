//! `hive demo`: the main job, shown as it happens.

use crate::failure::{Failure, Outcome};
use hive_machine::config::Config;
use hive_sim::demo::{self, Report};
use hive_sim::images::{self, Images};
use hive_sim::inject::Injection;
use hive_sim::lab::Setup;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Cells run a real job; one dies in the middle; the rest finishes it.
#[derive(clap::Args)]
pub struct Args {
    /// Machine: a preset, or a machine file (.toml).
    #[arg(long, value_name = "P", default_value = "flash4-512m")]
    machine: String,
    /// Cells the machine is cut into [default: one for each node].
    #[arg(long, value_name = "N")]
    cells: Option<usize>,
    /// Root file system with the demo's scripts [default: Debian's, made by ./hive].
    #[arg(long, value_name = "F")]
    rootfs: Option<PathBuf>,
    /// Fault: KIND[:NODE][@TIME], KIND one of node-failure, halt-hart, panic, wild-writes.
    #[arg(long, value_name = "SPEC")]
    inject: Option<Injection>,
    /// Seed of every choice: which cell, when.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Leave a defence out: firewall.
    #[arg(long, value_name = "WHAT", value_parser = ["firewall"])]
    without: Vec<String>,
    /// Write the report to this file.
    #[arg(long, value_name = "F")]
    json: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let config = Config::load(&args.machine).map_err(|e| Failure::Input(e.to_string()))?;
    let config = config.with_seed(args.seed).with_firewall(args.without.is_empty());
    let cells = args.cells.unwrap_or(config.nodes);
    let images = Images::load(&images::folder(), args.rootfs.as_deref())?;
    let setup = Setup { config, cells, images, command: None, append: String::new() };
    let start = Instant::now();
    let mut tell =
        |us: u64, text: &str| println!("{:>4}.{:06}  {text}", us / 1_000_000, us % 1_000_000);
    let report = demo::run(&setup, args.inject, &mut tell)?;
    let seconds = start.elapsed().as_secs_f64();
    summary(&report);
    println!("  repeat with             ./hive demo{}", again(args, &report));
    if let Some(path) = &args.json {
        let fail = |e: String| Failure::Input(format!("{}: {e}", path.display()));
        let mut json = serde_json::to_value(&report).map_err(|e| fail(e.to_string()))?;
        json["command"] = format!("hive demo{}", again(args, &report)).into();
        json["host"] = serde_json::json!({
            "wall_s": seconds,
            "mips": report.instructions as f64 / seconds / 1e6,
        });
        std::fs::write(path, format!("{json:#}\n")).map_err(|e| fail(e.to_string()))?;
    }
    Ok(if report.held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summary(report: &Report) {
    let ms = |value: Option<f64>| value.map_or("-".into(), |ms| format!("{ms:.3} ms"));
    let by = report.detected_by.as_ref();
    println!();
    println!("  fault                   {} (while in {})", report.fault, report.struck_in);
    println!(
        "  noticed by              {}",
        by.map_or("nobody".into(), |d| format!("cell {}: {}", d.cell, d.check))
    );
    println!("  fault to recovery       {}", ms(report.detect_ms));
    println!("  hint to agreement       {}", ms(report.agree_ms));
    println!("  recovery                {}", ms(report.recover_ms));
    println!("  processes killed        {}", report.killed.len());
    println!("  tasks                   {}, {} run again", report.tasks.total, report.tasks.rerun);
    println!(
        "  outputs                 {} compared with the host's own, {} wrong",
        report.outputs.checked, report.outputs.mismatched
    );
    println!("  instructions            {}", report.instructions);
    println!("  trace                   {}", report.trace_hash);
    for failure in &report.failures {
        println!("  FAILED                  {failure}");
    }
    println!("  all held                {}", if report.held() { "yes" } else { "NO" });
}

/// The flags that repeat the run.
fn again(args: &Args, report: &Report) -> String {
    let mut line = format!(" --machine {} --cells {}", args.machine, report.cells);
    line += &format!(" --seed {} --inject {}", report.seed, report.fault);
    for what in &args.without {
        line += &format!(" --without {what}");
    }
    if let Some(path) = &args.rootfs {
        line += &format!(" --rootfs {}", path.display());
    }
    line
}
