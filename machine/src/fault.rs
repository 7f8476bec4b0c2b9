//! The fault model as a type: what can be made to go wrong, when, and what was seen of it.
//!
//! Each fault names the reason why software above must survive it; [`Counts`] has a counter for
//! each. Absent as yet: poisoned ranges, corrupted structures, dropped messages, disk errors.

use crate::ram::LINE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fault")]
pub enum Fault {
    /// The node's harts stop, its memory faults for everyone, its DMA is cancelled, lines that
    /// only its caches held are lost. Reason: fail-stop hardware (Hive §2 "Memory fault model",
    /// table 7.4 "node failure").
    NodeFailure {
        /// Which node.
        node: usize,
    },
    /// One hart stops executing; memory and devices of its node go on. Reason: a dead processor,
    /// or a kernel stuck with interrupts off, which looks the same (Hive §4.3).
    HartHalt {
        /// Which hart.
        hart: usize,
    },
    /// The hart takes a hardware error exception (cause 19) instead of its next instruction.
    /// Reason: how a kernel panic is provoked from outside, as an uncorrectable error would.
    HardwareError {
        /// Which hart.
        hart: usize,
    },
    /// Every hart of the node stops executing and instead stores random values of random width
    /// to random addresses, one per cycle, over all DRAM and all devices, with the rights of its
    /// S-mode. Reason: a kernel gone wild (Hive §4.2 "wild writes").
    WildWrites {
        /// Which node.
        node: usize,
    },
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// At this cycle exactly.
    At(u64),
    /// When this hart is first seen in this mode at or after a cycle (looked at whenever a slice
    /// ends).
    InMode {
        /// Which hart.
        hart: usize,
        /// In which mode.
        mode: Mode,
        /// Not before this cycle.
        after: u64,
    },
}

/// What a hart was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Waiting for an interrupt.
    Idle,
    /// In U-mode.
    User,
    /// In S-mode.
    Kernel,
    /// In M-mode.
    Firmware,
    /// Not executing instructions: halted, storming, or its node failed or is off.
    Stopped,
}

/// How often each fault struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// [`Fault::NodeFailure`].
    pub node_failures: u64,
    /// [`Fault::HartHalt`].
    pub hart_halts: u64,
    /// [`Fault::HardwareError`].
    pub hardware_errors: u64,
    /// [`Fault::WildWrites`].
    pub wild_writes: u64,
}

/// A fault that struck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Injection {
    /// What.
    pub fault: Fault,
    /// When, exactly.
    pub cycle: u64,
    /// What every hart of the machine was doing at that moment.
    pub modes: Vec<Mode>,
    /// What the storm did, if it was one.
    pub storm: Option<StormReport>,
}

/// What a wild store was aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    /// DRAM of the storming node.
    OwnMemory,
    /// DRAM of another node.
    OtherMemory,
    /// The remap window: firmware.
    Firmware,
    /// Console, disk, timers, interrupt controller of the storming node.
    OwnDevice,
    /// Those of another node.
    OtherDevice,
    /// Coherence controller of the storming node.
    OwnController,
    /// That of another node.
    OtherController,
    /// Test finisher, clock, boot ROM, flash.
    Board,
}

/// Wild stores of one aim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shots {
    /// Attempts.
    pub tried: u64,
    /// Refused with an access fault.
    pub denied: u64,
    /// Carried out.
    pub landed: u64,
}

/// A page of another node whose contents changed during a storm slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedPage {
    /// Cycle of the first slice that changed it.
    pub first_cycle: u64,
    /// Slices that changed it.
    pub slices: u64,
    /// Whether the firewall let the storming node write it, at the first change. A page with
    /// `false` is an escape.
    pub granted: bool,
}

/// What a storm did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StormReport {
    /// Stores by aim.
    pub shots: BTreeMap<Aim, Shots>,
    /// Pages of other nodes, by physical address, whose contents before and after a batch of
    /// stores differ. Found without asking the firewall or the counters above.
    pub changed: BTreeMap<u64, ChangedPage>,
    /// Cycle of the storm's last store.
    pub last_cycle: u64,
}

impl StormReport {
    /// Pages that changed though the firewall says they could not.
    pub fn escapes(&self) -> impl Iterator<Item = u64> + '_ {
        self.changed.iter().filter(|(_, c)| !c.granted).map(|(page, _)| *page)
    }
}

impl Fault {
    /// The node that is struck, given the harts per node.
    pub fn node(&self, harts_per_node: usize) -> usize {
        match *self {
            Fault::NodeFailure { node } | Fault::WildWrites { node } => node,
            Fault::HartHalt { hart } | Fault::HardwareError { hart } => hart / harts_per_node,
        }
    }
}

/// 64-byte lines of a page, as a mask, of which about one in eight is set.
pub fn some_lines(random: &mut crate::seed::Random) -> u64 {
    const _: () = assert!(4096 / LINE == 64);
    random.next() & random.next() & random.next()
}
