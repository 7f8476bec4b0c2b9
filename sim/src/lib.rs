//! The laboratory: boots images on a machine, types at its consoles, strikes faults, reads what
//! came out.
//!
//! Reading order: [`images`] (what a machine starts from), [`console`] (what it shows),
//! [`inject`] (what is done to it), [`lab`] (the run itself), [`demo`] (the main job),
//! [`bench`] (measures).
//!
//! Everything here is a function of the run: input enters at cycles that depend on the run alone,
//! so that a scenario repeats with its seed. Pacing to the clock on the wall is the command
//! line's business.

pub mod bench;
pub mod console;
pub mod demo;
pub mod images;
pub mod inject;
pub mod lab;

use std::fmt;

/// Why a run could not be made, or went wrong. One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// What the user asked for cannot be: a file, a fault, a machine.
    Input(String),
    /// The run itself went wrong.
    Run(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::Input(line) | Error::Run(line)) = self;
        f.write_str(line)
    }
}

impl std::error::Error for Error {}

impl From<hive_machine::error::Error> for Error {
    fn from(error: hive_machine::error::Error) -> Error {
        Error::Input(error.to_string())
    }
}
