//! Errors as the user sees them: one line, and an exit code that says who can mend it.

use std::process::ExitCode;

/// What a subcommand gives back.
pub type Outcome = Result<ExitCode, Failure>;

/// Why a subcommand did not do what was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request is wrong: a flag, a file, a description. Exit code 2.
    Input(String),
    /// The request is right and went wrong all the same. Exit code 1.
    Run(String),
}

impl Failure {
    /// Prints the line and gives the exit code.
    pub fn report(&self) -> ExitCode {
        let (line, code) = match self {
            Failure::Input(line) => (line, 2),
            Failure::Run(line) => (line, 1),
        };
        eprintln!("hive: {}", one_line(line));
        code.into()
    }
}

impl From<hive_sim::Error> for Failure {
    fn from(error: hive_sim::Error) -> Failure {
        match error {
            hive_sim::Error::Input(line) => Failure::Input(line),
            hive_sim::Error::Run(line) => Failure::Run(line),
        }
    }
}

/// Help and version go to stdout; everything else the parser says becomes one line on stderr.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        // A closed pipe is the reader's choice, not a failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    Failure::Input(usage_line(error)).report()
}

/// The parser's own words up to its first empty line.
fn usage_line(error: &clap::Error) -> String {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        return "what shall it do? 'hive --help' lists the subcommands".into();
    }
    let text = error.to_string();
    let first: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).collect();
    let first = first.join(" ");
    format!("{}: see --help", first.strip_prefix("error: ").unwrap_or(&first))
}

/// Folds white space, so that nothing a file's contents say spreads over lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
