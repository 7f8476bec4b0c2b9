//! Faults as a user asks for them: `KIND[:NODE][@TIME]`.
//!
//! | part | is |
//! |---|---|
//! | KIND | one of [`Kind::NAMES`] |
//! | NODE | the node it strikes; left out: drawn from the seed |
//! | TIME | cycles (`123456`) or simulated time (`250us`, `40ms`, `2s`); left out: drawn from the seed |

use crate::Error;
use std::fmt;

/// The faults of DESIGN §3 that can be injected so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The node fails: harts stop, memory faults, DMA is cancelled.
    NodeFailure,
    /// One hart executes nothing more; memory and devices of its node stay.
    HaltHart,
    /// The node's kernel panics.
    Panic,
    /// A kernel gone mad: stores to random addresses of all DRAM and all device pages.
    WildWrites,
}

impl Kind {
    /// Every kind with its name.
    pub const NAMES: [(Kind, &'static str); 4] = [
        (Kind::NodeFailure, "node-failure"),
        (Kind::HaltHart, "halt-hart"),
        (Kind::Panic, "panic"),
        (Kind::WildWrites, "wild-writes"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Kind::NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// One fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// What.
    pub kind: Kind,
    /// Where; `None`: drawn from the seed.
    pub node: Option<usize>,
    /// When; `None`: drawn from the seed.
    pub at: Option<When>,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A cycle since reset.
    Cycle(u64),
    /// Microseconds of simulated time since reset.
    Us(u64),
}

impl When {
    /// The moment as a cycle of a machine of `clock_hz`.
    pub fn cycle(self, clock_hz: u64) -> u64 {
        match self {
            When::Cycle(cycle) => cycle,
            When::Us(us) => {
                let cycles = us as u128 * clock_hz as u128 / 1_000_000;
                u64::try_from(cycles).unwrap_or(u64::MAX)
            }
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Some(node) = self.node {
            write!(f, ":{node}")?;
        }
        match self.at {
            Some(When::Cycle(cycle)) => write!(f, "@{cycle}"),
            Some(When::Us(us)) => write!(f, "@{us}us"),
            None => Ok(()),
        }
    }
}

impl std::str::FromStr for Injection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Injection, Error> {
        let (rest, at) = match text.split_once('@') {
            Some((rest, at)) => (rest, Some(when(at, text)?)),
            None => (text, None),
        };
        let (name, node) = match rest.split_once(':') {
            Some((name, node)) => {
                let bad = |_| Error::Input(format!("fault '{text}': node '{node}' is no number"));
                (name, Some(node.parse().map_err(bad)?))
            }
            None => (rest, None),
        };
        let Some((kind, _)) = Kind::NAMES.iter().find(|(_, known)| *known == name) else {
            let known: Vec<&str> = Kind::NAMES.iter().map(|(_, name)| *name).collect();
            let known = known.join(", ");
            return Err(Error::Input(format!("no fault '{name}': there are {known}")));
        };
        Ok(Injection { kind: *kind, node, at })
    }
}

fn when(text: &str, whole: &str) -> Result<When, Error> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let scale = match unit {
        "" | "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => 0,
    };
    let value = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).filter(|_| scale > 0);
    match value {
        Some(cycle) if unit.is_empty() => Ok(When::Cycle(cycle)),
        Some(us) => Ok(When::Us(us)),
        None => Err(Error::Input(format!(
            "fault '{whole}': '{text}' is no time: give cycles (123456), or 250us, 40ms, 2s"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_round_trip() {
        for spec in ["panic", "node-failure:3", "halt-hart:0@12345", "wild-writes@40000us"] {
            assert_eq!(spec.parse::<Injection>().unwrap().to_string(), spec);
        }
        let at = |spec: &str| spec.parse::<Injection>().unwrap().at.unwrap().cycle(200_000_000);
        assert_eq!(at("panic@2ms"), 400_000);
        assert_eq!(at("panic@1s"), 200_000_000);
        assert_eq!(at("panic@7"), 7);
    }

    #[test]
    fn bad_specs_are_one_line() {
        for spec in [
            "",
            "flood",
            "panic:",
            "panic:x",
            "panic:-1",
            "panic@",
            "panic@1h",
            "panic@ms",
            "panic@99999999999999999999",
            "panic@18446744073709551615s",
        ] {
            let error = spec.parse::<Injection>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
