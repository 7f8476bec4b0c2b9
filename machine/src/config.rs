//! What a machine is made of: presets, a TOML form, and a typed builder over one plain struct.
//!
//! A machine file names a preset to start from and overrides what it likes:
//!
//! ```toml
//! preset = "flash4"       # default: smp4
//! name = "flash4-big"
//! nodes = 4
//! harts_per_node = 1
//! memory_mb = 512         # of each node
//! clock_mhz = 200
//! slice_cycles = 500
//! timing = "fast"
//! seed = 1
//! firewall = true         # false: enabling the firewall has no effect
//! disk_latency_us = 100
//! trace_interval_cycles = 65536
//! time_of_day_s = 1767225600
//! ```
//!
//! Absent: per-node differences (all nodes are alike), `flash` timing.

use crate::error::Error;
use hive_platform::{MAX_HARTS, MAX_NODES, controller, map};
use serde::{Deserialize, Serialize};

/// How instructions turn into cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// One instruction, one cycle.
    Fast,
}

/// Slices of fast timing: long enough that switching harts costs the host nothing, short enough
/// that spinning harts see each other soon.
pub const SLICE_CYCLES_FAST: u64 = 500;
/// Granularity of a node's memory: a megapage.
pub const MEMORY_UNIT: u64 = 2 << 20;
/// Least memory of a node: one unit for firmware or kernel offset, one to run in.
pub const MEMORY_MIN: u64 = 2 * MEMORY_UNIT;
/// Fewest cycles between two samples of the trace hash.
const TRACE_INTERVAL_MIN: u64 = 1;

/// A machine. Build one from [`Config::preset`], [`Config::from_toml`] or the `with_*` methods;
/// [`Config::check`] says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Config {
    /// For people.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Harts of each node.
    pub harts_per_node: usize,
    /// Bytes of DRAM of each node.
    pub memory: u64,
    /// Cycles per second of every hart.
    pub clock_hz: u64,
    /// Cycles a hart runs before the next one's turn (DESIGN §3: interleaving is architecture).
    pub slice_cycles: u64,
    /// Timing model.
    pub timing: Timing,
    /// Source of every choice the machine makes: entropy device, device-tree seed, faults.
    pub seed: u64,
    /// Whether turning a firewall on has an effect.
    pub firewall: bool,
    /// Simulated time of one disk request in microseconds.
    pub disk_latency_us: u64,
    /// Cycles between two samples of the trace hash.
    pub trace_interval_cycles: u64,
    /// What the real-time clock shows at power-on, in seconds since 1970.
    pub time_of_day_s: u64,
}

/// The TOML form: everything may be left out.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct File {
    preset: Option<String>,
    name: Option<String>,
    nodes: Option<usize>,
    harts_per_node: Option<usize>,
    memory_mb: Option<u64>,
    clock_mhz: Option<u64>,
    slice_cycles: Option<u64>,
    timing: Option<Timing>,
    seed: Option<u64>,
    firewall: Option<bool>,
    disk_latency_us: Option<u64>,
    trace_interval_cycles: Option<u64>,
    time_of_day_s: Option<u64>,
}

/// Names of the presets with one line each.
pub const PRESETS: &[(&str, &str)] = &[
    ("flash4", "the paper's machine (Hive §7.2): 4 nodes of 1 hart at 200 MHz and 32 MB"),
    ("flash4-512m", "flash4 with 512 MB per node, for workloads and Linux"),
    ("smp4", "1 node of 4 harts and 512 MB: looks like QEMU's virt board"),
    ("duo", "2 nodes of 1 hart and 128 MB"),
    ("wide64", "64 nodes of 1 hart and 32 MB"),
];

impl Config {
    /// The preset called `name`.
    ///
    /// # Errors
    /// If there is none; the message lists those there are.
    pub fn preset(name: &str) -> Result<Config, Error> {
        let (nodes, harts_per_node, megabytes) = match name {
            "flash4" => (4, 1, 32),
            "flash4-512m" => (4, 1, 512),
            "smp4" => (1, 4, 512),
            "duo" => (2, 1, 128),
            "wide64" => (64, 1, 32),
            _ => {
                let known: Vec<&str> = PRESETS.iter().map(|p| p.0).collect();
                return Err(Error::new(format!(
                    "no machine '{name}': use one of {} or a .toml file",
                    known.join(", ")
                )));
            }
        };
        Ok(Config {
            name: name.to_string(),
            nodes,
            harts_per_node,
            memory: megabytes << 20,
            clock_hz: 200_000_000,
            slice_cycles: SLICE_CYCLES_FAST,
            timing: Timing::Fast,
            seed: 1,
            firewall: true,
            disk_latency_us: 100,
            trace_interval_cycles: 1 << 16,
            time_of_day_s: 1_767_225_600,
        })
    }

    /// Reads a machine file.
    ///
    /// # Errors
    /// One line with the place and the mend, for bad syntax, unknown keys and bad values alike.
    pub fn from_toml(text: &str) -> Result<Config, Error> {
        let file: File = toml::from_str(text).map_err(|e| {
            let line = e.span().map(|s| text[..s.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map(|l| format!("line {l}: ")).unwrap_or_default();
            Error::new(format!("machine file: {place}{}", e.message().replace('\n', " ")))
        })?;
        let mut config = Config::preset(file.preset.as_deref().unwrap_or("smp4"))?;
        fn set<T>(to: &mut T, from: Option<T>) {
            if let Some(value) = from {
                *to = value;
            }
        }
        set(&mut config.name, file.name);
        set(&mut config.nodes, file.nodes);
        set(&mut config.harts_per_node, file.harts_per_node);
        set(&mut config.memory, file.memory_mb.map(|m| m.saturating_mul(1 << 20)));
        set(&mut config.clock_hz, file.clock_mhz.map(|m| m.saturating_mul(1_000_000)));
        set(&mut config.slice_cycles, file.slice_cycles);
        set(&mut config.timing, file.timing);
        set(&mut config.seed, file.seed);
        set(&mut config.firewall, file.firewall);
        set(&mut config.disk_latency_us, file.disk_latency_us);
        set(&mut config.trace_interval_cycles, file.trace_interval_cycles);
        set(&mut config.time_of_day_s, file.time_of_day_s);
        config.check()?;
        Ok(config)
    }

    /// The preset or the machine file that `name` stands for: a file if it ends in `.toml`.
    ///
    /// # Errors
    /// As [`Config::preset`] and [`Config::from_toml`], or that the file cannot be read.
    pub fn load(name: &str) -> Result<Config, Error> {
        if !name.ends_with(".toml") {
            return Config::preset(name);
        }
        let text = std::fs::read_to_string(name)
            .map_err(|e| Error::new(format!("cannot read machine file {name}: {e}")))?;
        Config::from_toml(&text)
    }

    /// Sets the bytes of DRAM per node.
    pub fn with_memory(mut self, bytes: u64) -> Config {
        self.memory = bytes;
        self
    }

    /// Sets the number of nodes and the harts of each.
    pub fn with_shape(mut self, nodes: usize, harts_per_node: usize) -> Config {
        self.nodes = nodes;
        self.harts_per_node = harts_per_node;
        self
    }

    /// Sets the seed.
    pub fn with_seed(mut self, seed: u64) -> Config {
        self.seed = seed;
        self
    }

    /// Chooses whether turning a firewall on has an effect.
    pub fn with_firewall(mut self, effective: bool) -> Config {
        self.firewall = effective;
        self
    }

    /// Number of harts of the whole machine.
    pub fn harts(&self) -> usize {
        self.nodes * self.harts_per_node
    }

    /// The node of a machine-wide hart id.
    pub fn node_of_hart(&self, hart: usize) -> usize {
        hart / self.harts_per_node
    }

    /// First byte of DRAM of `node`.
    pub fn dram_base(&self, node: usize) -> u64 {
        map::DRAM + node as u64 * self.memory
    }

    /// Cycles in `us` microseconds, at least one.
    pub fn cycles(&self, us: u64) -> u64 {
        (us as u128 * self.clock_hz as u128 / 1_000_000).clamp(1, u64::MAX as u128) as u64
    }

    /// Says whether such a machine can be built.
    ///
    /// # Errors
    /// One line naming the field, its value and what would do.
    pub fn check(&self) -> Result<(), Error> {
        let within = |what: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::new(format!("machine: {what} = {value} must be {low} to {high}")))
        };
        within("nodes", self.nodes as u64, 1, MAX_NODES as u64)?;
        let per_node = (MAX_HARTS / self.nodes) as u64;
        within("harts_per_node", self.harts_per_node as u64, 1, per_node)?;
        let most = controller::MAX_PAGES_PER_NODE * hive_platform::PAGE_SIZE;
        within("memory_mb", self.memory >> 20, MEMORY_MIN >> 20, most >> 20)?;
        if self.memory % MEMORY_UNIT != 0 {
            return Err(Error::new(format!(
                "machine: memory of a node = {} bytes must be a multiple of 2 MB",
                self.memory
            )));
        }
        if self.dram_base(self.nodes) > map::controller(0) {
            return Err(Error::new("machine: memory of all nodes together must be below 62 GB"));
        }
        within("clock_mhz", self.clock_hz / 1_000_000, 10, 10_000)?;
        within("slice_cycles", self.slice_cycles, 1, 1_000_000)?;
        within("disk_latency_us", self.disk_latency_us, 0, 10_000_000)?;
        within("trace_interval_cycles", self.trace_interval_cycles, TRACE_INTERVAL_MIN, 1 << 40)?;
        within("time_of_day_s", self.time_of_day_s, 0, 1 << 33)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound() {
        for (name, _) in PRESETS {
            Config::preset(name).unwrap().check().unwrap();
        }
    }

    #[test]
    fn a_file_overrides_its_preset() {
        let c = Config::from_toml("preset = \"flash4\"\nmemory_mb = 64\nseed = 7").unwrap();
        assert_eq!((c.nodes, c.memory, c.seed), (4, 64 << 20, 7));
    }

    #[test]
    fn every_bad_value_gives_one_line() {
        for bad in [
            "nodes = 0",
            "nodes = 65",
            "nodes = \"four\"",
            "harts_per_node = 0",
            "harts_per_node = 257",
            "memory_mb = 1",
            "memory_mb = 33",
            "memory_mb = 99999999999999",
            "memory_mb = -3",
            "clock_mhz = 0",
            "slice_cycles = 0",
            "timing = \"slow\"",
            "preset = \"flush4\"",
            "colour = 3",
            "nodes = ",
            "nodes = 64\nmemory_mb = 4096",
        ] {
            let error = Config::from_toml(bad).expect_err(bad).to_string();
            assert!(!error.is_empty() && !error.contains('\n'), "{bad}: {error}");
        }
    }
}
