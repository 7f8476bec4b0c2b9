//! Which nodes boot one kernel together: cut by the flash header, or all of them without one.

use crate::hw::{self, Controller};
use hive_platform::flash::{HEADER_SIZE, Header};
use hive_platform::{cell_of_node, controller, firewall_bit, first_node_of_cell, map};

/// The partition of a hart: a pure function of controller and flash, so every hart of it comes
/// to the same answer without asking another.
#[derive(Clone, Copy)]
pub struct Partition {
    /// This hart's node.
    pub node: usize,
    /// First node of the partition.
    pub first: usize,
    /// One past its last node.
    pub end: usize,
    /// Nodes of the machine.
    pub nodes: usize,
    /// Harts of each node.
    pub harts_per_node: usize,
    /// What the flash says, if there is one.
    pub flash: Option<Header>,
}

impl Partition {
    /// Works out the partition of `controller`'s node.
    pub fn find(controller: &Controller) -> Partition {
        let node = controller.read(controller::NODE) as usize;
        let nodes = controller.read(controller::NODES) as usize;
        let harts_per_node = controller.read(controller::HARTS_PER_NODE) as usize;
        let flash = read_header(node).filter(|h| h.partitions >= 1 && h.partitions <= nodes as u64);
        let (first, end) = match flash {
            None => (0, nodes),
            Some(header) => {
                let cells = header.partitions as usize;
                let cell = cell_of_node(node, nodes, cells);
                (first_node_of_cell(cell, nodes, cells), first_node_of_cell(cell + 1, nodes, cells))
            }
        };
        Partition { node, first, end, nodes, harts_per_node, flash }
    }

    /// Whether `hart` belongs to this partition.
    pub fn contains(&self, hart: usize) -> bool {
        (self.first..self.end).contains(&(hart / self.harts_per_node))
    }

    /// All harts of the partition.
    pub fn harts(&self) -> core::ops::Range<usize> {
        self.first * self.harts_per_node..self.end * self.harts_per_node
    }

    /// The hart that boots the partition's kernel.
    pub fn boot_hart(&self) -> usize {
        self.first * self.harts_per_node
    }

    /// Firewall vector that lets exactly this partition's harts write.
    pub fn firewall_vector(&self) -> u64 {
        let all = self.nodes * self.harts_per_node;
        self.harts().fold(0, |vector, hart| vector | firewall_bit(hart, all))
    }
}

/// The header of `node`'s flash; `None` if there is no flash or it holds something else.
fn read_header(node: usize) -> Option<Header> {
    let mut bytes = [0; HEADER_SIZE];
    for (offset, byte) in bytes.iter_mut().enumerate() {
        *byte = hw::probe_load(map::flash(node) + offset as u64)?;
    }
    Header::from_bytes(&bytes)
}
