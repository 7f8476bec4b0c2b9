//! The outside: everything that enters a machine while it runs, and everything that leaves it.
//!
//! Inputs enter through [`crate::machine::Machine::input`] at a cycle that no hart has begun, and
//! are logged with it: giving a new machine of the same description the same log
//! ([`crate::machine::Machine::replay`]) repeats the run. Disk images and the seed enter when the
//! machine is made; [`Log`] carries their hashes.

use crate::bus::Mark;
use crate::fault::{Fault, When};
use serde::{Deserialize, Serialize};

/// Something from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// Bytes typed at a node's console.
    Console {
        /// Which node.
        node: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// The real-time clock is set, in nanoseconds since 1970.
    TimeOfDay {
        /// New time.
        ns: u64,
    },
    /// A fault is injected.
    Fault {
        /// What.
        fault: Fault,
        /// When.
        when: When,
    },
}

/// An input and the cycle at which it entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub cycle: u64,
    /// What.
    pub input: Input,
}

/// Everything that entered a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The seed.
    pub seed: u64,
    /// BLAKE3 hashes of the disks' base images by node, in hexadecimal.
    pub disks: Vec<String>,
    /// Inputs in the order in which they entered.
    pub entries: Vec<Entry>,
}

/// Who sees what leaves the machine. Called between slices, in order of simulated time.
pub trait Observer {
    /// Bytes that a node's console sent.
    fn console(&mut self, node: usize, cycle: u64, bytes: &[u8]) {
        let _ = (node, cycle, bytes);
    }
    /// A mark that a guest executed.
    fn mark(&mut self, mark: Mark) {
        let _ = mark;
    }
}

/// Sees nothing.
impl Observer for () {}

/// Keeps everything.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// Console output by node.
    pub console: Vec<Vec<u8>>,
    /// Marks.
    pub marks: Vec<Mark>,
}

impl Observer for Recorder {
    fn console(&mut self, node: usize, _cycle: u64, bytes: &[u8]) {
        if self.console.len() <= node {
            self.console.resize(node + 1, Vec::new());
        }
        self.console[node].extend_from_slice(bytes);
    }
    fn mark(&mut self, mark: Mark) {
        self.marks.push(mark);
    }
}

impl Recorder {
    /// Output of `node`'s console so far.
    pub fn text(&self, node: usize) -> String {
        String::from_utf8_lossy(self.console.get(node).map_or(&[], |b| b)).into_owned()
    }
}
