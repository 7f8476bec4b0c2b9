//! What fault containment asks of the machine (Hive §2, §4.2, §6), behind one small interface:
//! the coherence controller is its first implementation, a monitor in HS-mode may be another.
//! A machine without it (QEMU `virt`) runs one cell, and [`get`] is `None`.

use crate::devicetree::{Machine, machine};
use crate::memory::{PAGE, Pa};
use crate::mmio::Mmio;
use crate::{hart, uaccess};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hive_platform::sips::{Class, LINE, SendStatus};
use hive_platform::{controller as reg, flash, map};
use hive_sync::Once;

/// The page belongs to a node that is not the running hart's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMine;

/// Firewall, messages, cutoff and votes. All of it acts for the running hart's node.
pub trait Platform: Sync {
    /// Nodes of the machine, dead or alive.
    fn nodes(&self) -> usize;
    /// Sets which harts may write the page at `page` (bits as [`hive_platform::firewall_bit`]).
    /// When this returns, every write accepted before has reached memory.
    fn firewall_set(&self, page: Pa, vector: u64) -> Result<(), NotMine>;
    /// Which harts may write the page at `page`.
    fn firewall_get(&self, page: Pa) -> Result<u64, NotMine>;
    /// Sends a message to `node`.
    fn sips_send(&self, node: usize, class: Class, line: &[u8; LINE]) -> SendStatus;
    /// Takes the oldest message of `class`: (sender's node, line).
    fn sips_receive(&self, class: Class) -> Option<(usize, [u8; LINE])>;
    /// Bars other nodes from this node's memory, until node reset (table 8.1).
    fn cutoff(&self);
    /// Names nodes as failed: replaces this node's vote word.
    fn vote(&self, nodes: u64);
    /// Why this node last started: a `RESET_*` of [`hive_platform::controller`].
    fn reset_cause(&self) -> u64;
}

static PLATFORM: Once<Box<dyn Platform + Send>> = Once::new();

/// The machine's fault containment, if it has any.
pub fn get() -> Option<&'static dyn Platform> {
    PLATFORM.get().map(|p| &**p as &dyn Platform)
}

/// Finds it.
pub fn init(machine: &Machine) {
    if machine.controllers.is_empty() {
        return;
    }
    let _ = PLATFORM.set(Box::new(Magic::new(machine)));
}

/// The coherence controllers of this cell's nodes.
struct Magic {
    /// By node; the others' answer nobody here.
    regs: Vec<Option<(Mmio, Pa, u64)>>,
    nodes: usize,
}

impl Magic {
    fn new(m: &Machine) -> Magic {
        let nodes = m.nodes();
        let mut regs = Vec::new();
        regs.resize(nodes, None);
        for c in m.controllers.iter().filter(|c| m.cell_nodes.contains(&c.node)) {
            // SAFETY: the device tree says that a controller is there.
            let window = unsafe { Mmio::new(c.base, c.size) };
            let ranges = || m.memory.iter().filter(|r| r.node == c.node);
            let start = ranges().map(|r| r.start).min();
            let end = ranges().map(|r| r.end).max();
            if let (Some(start), Some(end), Some(slot)) = (start, end, regs.get_mut(c.node)) {
                *slot = Some((window, start, (end.0 - start.0) / PAGE));
            }
        }
        Magic { regs, nodes }
    }

    fn local(&self) -> (Mmio, Pa, u64) {
        let node = hart::local().node();
        self.regs.get(node).copied().flatten().expect("this node has a controller")
    }

    fn vector_at(&self, page: Pa) -> Result<(Mmio, u64), NotMine> {
        let (regs, start, pages) = self.local();
        let index = page.0.checked_sub(start.0).ok_or(NotMine)? / PAGE;
        if index < pages { Ok((regs, reg::FIREWALL + index * 8)) } else { Err(NotMine) }
    }
}

impl Platform for Magic {
    fn nodes(&self) -> usize {
        self.nodes
    }

    fn firewall_set(&self, page: Pa, vector: u64) -> Result<(), NotMine> {
        hive_sync::hart::without_irq(|| {
            let (regs, at) = self.vector_at(page)?;
            hive_sync::fence();
            regs.write64(at, vector);
            hive_sync::fence();
            Ok(())
        })
    }

    fn firewall_get(&self, page: Pa) -> Result<u64, NotMine> {
        hive_sync::hart::without_irq(|| {
            let (regs, at) = self.vector_at(page)?;
            Ok(regs.read64(at))
        })
    }

    fn sips_send(&self, node: usize, class: Class, line: &[u8; LINE]) -> SendStatus {
        if node >= self.nodes {
            return SendStatus::Dead;
        }
        // The transmit line is this hart's own; nothing may come between filling and sending it.
        hive_sync::hart::without_irq(|| {
            let (regs, ..) = self.local();
            for (i, chunk) in line.chunks_exact(8).enumerate() {
                let word = chunk.try_into().map(u64::from_le_bytes).unwrap_or(0);
                regs.write64(reg::SIPS_TX + i as u64 * 8, word);
            }
            hive_sync::fence();
            regs.write64(reg::SIPS_SEND, reg::sips_send(node, class));
            SendStatus::from_register(regs.read64(reg::SIPS_STATUS))
        })
    }

    fn sips_receive(&self, class: Class) -> Option<(usize, [u8; LINE])> {
        hive_sync::hart::without_irq(|| {
            let (regs, ..) = self.local();
            let id = regs.read64(reg::SIPS_RX + class as u64 * 8).checked_sub(1)?;
            let mut line = [0; LINE];
            for (i, chunk) in line.chunks_exact_mut(8).enumerate() {
                let word = regs.read64(reg::SIPS_SLOTS + id * LINE as u64 + i as u64 * 8);
                chunk.copy_from_slice(&word.to_le_bytes());
            }
            regs.write64(reg::SIPS_RX_RELEASE + class as u64 * 8, id);
            let sender = id as usize / reg::SIPS_DEPTH % hive_platform::MAX_NODES;
            Some((sender, line))
        })
    }

    fn cutoff(&self) {
        self.local().0.write64(reg::CUTOFF, 1);
    }

    fn vote(&self, nodes: u64) {
        hive_sync::hart::without_irq(|| self.local().0.write64(reg::VOTE, nodes));
    }

    fn reset_cause(&self) -> u64 {
        hive_sync::hart::without_irq(|| self.local().0.read64(reg::RESET_CAUSE))
    }
}

/// The cut of the machine that this cell is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of this cell.
    pub cell: usize,
    /// Number of cells.
    pub cells: usize,
}

/// Which cell this is: from the boot flash of its first node, as firmware found it there. A
/// machine without controllers is one cell.
pub fn place() -> Place {
    let m = machine();
    let alone = Place { cell: 0, cells: 1 };
    if m.controllers.is_empty() {
        return alone;
    }
    let first = m.cell_nodes.first().copied().unwrap_or(0);
    let mut bytes = [0; flash::HEADER_SIZE];
    if uaccess::careful_copy(&mut bytes, Pa(map::flash(first))).is_err() {
        return alone; // no flash: started by a loader
    }
    let cells = flash::Header::from_bytes(&bytes).map_or(1, |h| h.partitions as usize);
    if !(1..=m.nodes()).contains(&cells) {
        return alone;
    }
    Place { cell: hive_platform::cell_of_node(first, m.nodes(), cells), cells }
}

/// Firewall bits of all harts of this cell.
pub fn cell_vector() -> u64 {
    let harts = machine().harts.len();
    hart::all().iter().fold(0, |v, h| v | hive_platform::firewall_bit(h.id(), harts))
}
