//! The `hive` command: arguments and printing, nothing else.
//!
//! One file per subcommand, each with an `Args` and a `run`. Exit codes: 0 done, 1 what was asked
//! for went wrong, 2 the request itself is wrong (one line on stderr says what and how to mend
//! it); a subcommand that runs a guest's command passes that command's status on.

mod bench;
mod demo;
mod failure;
mod machine;
mod run;
mod terminal;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// An operating system that outlives parts of its machine, and that machine.
#[derive(Parser)]
#[command(name = "hive", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Machine(machine::Args),
    Demo(demo::Args),
    Run(run::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::report_usage(&error),
    };
    let result = match cli.command {
        Command::Machine(args) => machine::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    result.unwrap_or_else(|failure| failure.report())
}
