//! The other cells, as the device tree describes them and as their memory shows them.
//!
//! Where a cell is, and how many harts it has, comes from the device tree and the cut alone; what
//! it says comes by careful reference (Hive §4.1) and is checked before use.

use crate::cell;
use alloc::vec::Vec;
use hive_cells::careful::{Dram, Fault, Memory};
use hive_hal::devicetree::machine;
use hive_hal::memory::Pa;
use hive_hal::{platform, uaccess};
use hive_platform::sips::SendStatus;
use hive_protocol::page::{self, CellInfo, INFO_WORDS};
use hive_protocol::{CellId, CellSet, Incarnation, Message};
use hive_sync::Once;

/// What is known of a cell without asking it.
pub struct Peer {
    /// Its memory. Nodes of a cell are neighbours, so it is one range.
    pub dram: Dram,
    /// Its nodes: a contiguous run.
    pub nodes: core::ops::Range<usize>,
    /// Number of its harts.
    pub harts: usize,
    /// First byte of each node's memory.
    node_bases: Vec<u64>,
}

static PEERS: Once<Vec<Peer>> = Once::new();

/// Reads the device tree; this cell is among the result.
pub fn init() {
    let m = machine();
    let (cells, nodes) = (cell::place().cells, m.nodes());
    let peer = |number: usize| {
        let first = hive_platform::first_node_of_cell(number, nodes, cells);
        let end = hive_platform::first_node_of_cell(number + 1, nodes, cells);
        let ranges = || m.memory.iter().filter(|r| (first..end).contains(&r.node));
        let base = ranges().map(|r| r.start.0).min().unwrap_or(0);
        let top = ranges().map(|r| r.end.0).max().unwrap_or(base);
        Peer {
            dram: Dram { cell: CellId::of(number), base, size: top - base },
            nodes: first..end,
            harts: m.harts.iter().filter(|h| (first..end).contains(&h.node)).count(),
            node_bases: ranges().map(|r| r.start.0).collect(),
        }
    };
    let _ = PEERS.set((0..cells).map(peer).collect());
}

/// What is known of `cell`; `None` if the machine has no such cell.
pub fn peer(cell: CellId) -> Option<&'static Peer> {
    PEERS.get()?.get(cell.index())
}

/// All cells that the machine was cut into.
pub fn everyone() -> CellSet {
    CellSet::first(cell::place().cells)
}

/// The cell that owns `node`.
pub fn cell_of_node(node: usize) -> Option<CellId> {
    let nodes = machine().nodes();
    let cells = cell::place().cells;
    (node < nodes).then(|| CellId::of(hive_platform::cell_of_node(node, nodes, cells)))
}

/// Nodes of `cells` as bits of a vote word.
pub fn nodes_of(cells: CellSet) -> u64 {
    let nodes = cells.iter().filter_map(peer).flat_map(|p| p.nodes.clone());
    nodes.fold(0, |word, node| word | 1 << node)
}

/// Careful copies from physical memory.
pub struct Careful;

impl Memory for Careful {
    fn copy(&self, from: u64, to: &mut [u64]) -> Result<(), Fault> {
        for (address, word) in (from..).step_by(8).zip(to) {
            *word = uaccess::careful_load(Pa(address)).map_err(|_| Fault { address })?;
        }
        Ok(())
    }
}

impl Peer {
    /// Physical address of offset `offset` of its cell page.
    fn page(&self, offset: usize) -> u64 {
        self.dram.base + page::CELL_PAGE_OFFSET + offset as u64
    }

    /// One word of its cell page.
    pub fn word(&self, offset: usize) -> Result<u64, Fault> {
        let mut word = [0];
        Careful.copy(self.page(offset), &mut word)?;
        Ok(word[0])
    }

    /// The clock word of its hart `hart`.
    pub fn clock(&self, hart: usize) -> Result<u64, Fault> {
        self.word(page::clock_offset(hart))
    }

    /// Its published words, unchecked.
    pub fn info(&self) -> Result<CellInfo, Fault> {
        let mut words = [0; INFO_WORDS];
        Careful.copy(self.page(0), &mut words)?;
        Ok(CellInfo::from_words(&words))
    }

    /// Whether its published words are sane.
    pub fn sane(&self, info: &CellInfo) -> bool {
        info.invalid(self.dram.cell, Incarnation(0), self.dram.base).is_none()
    }

    /// Reads a word of each of its nodes, and of `address` if that is its memory.
    pub fn touch(&self, address: u64) -> Result<(), Fault> {
        let mut word = [0];
        for base in &self.node_bases {
            Careful.copy(*base + page::CELL_PAGE_OFFSET, &mut word)?;
        }
        if address % 8 == 0 && self.dram.contains(address, 8) {
            Careful.copy(address, &mut word)?;
        }
        Ok(())
    }

    /// Sends `message` to its first node, as from this cell.
    pub fn send(&self, message: &Message) -> SendStatus {
        self.send_to(self.nodes.start, message)
    }

    /// Sends `message` to one of its nodes.
    pub fn send_to(&self, node: usize, message: &Message) -> SendStatus {
        let Some(platform) = platform::get() else { return SendStatus::Dead };
        let message = Message {
            from: cell::id(),
            from_incarnation: Incarnation(0),
            to: self.dram.cell,
            to_incarnation: Incarnation(0),
            ..*message
        };
        let mut line = [0; hive_platform::sips::LINE];
        for (bytes, word) in line.chunks_exact_mut(8).zip(message.encode()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        platform.sips_send(node, message.kind.class(), &line)
    }
}
