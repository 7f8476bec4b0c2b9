//! The machine as software sees it: the one place where an address, a register offset or a
//! message size is written down. Simulator, firmware and kernel all read it from here.
//!
//! Reading order: [`map`] (where things are), [`controller`] (the coherence controller of a node:
//! firewall, SIPS, votes, mailboxes), [`sips`] (the message line), [`flash`] (what the firmware
//! boots), [`mark`] (events that a guest shows to whoever watches the machine).
//!
//! Sources: Hive SOSP'95 §2, §4.2, §6, table 8.1; the QEMU `virt` board where it has a device of
//! that kind; the RISC-V privileged specification for interrupt numbers.
#![no_std]

pub mod controller;
pub mod flash;
pub mod map;
pub mod mark;
pub mod sips;

/// Most nodes a machine may have: one bit each in a vote word.
pub const MAX_NODES: usize = 64;
/// Most harts a machine may have.
pub const MAX_HARTS: usize = 256;
/// Bits of a firewall vector. Beyond this many harts each bit stands for a group (Hive §4.2).
pub const FIREWALL_BITS: usize = 64;
/// Bytes of a page: the unit of translation, of the firewall and of the page attribute word.
pub const PAGE_SIZE: u64 = 4096;
/// Frequency of the `time` CSR in Hz (as QEMU `virt`).
pub const TIMEBASE_HZ: u64 = 10_000_000;

/// Harts that share one bit of a firewall vector on a machine of `harts` harts.
pub const fn firewall_group(harts: usize) -> usize {
    harts.div_ceil(FIREWALL_BITS)
}

/// The firewall bit of hart `hart` on a machine of `harts` harts.
pub const fn firewall_bit(hart: usize, harts: usize) -> u64 {
    1 << (hart / firewall_group(harts))
}

/// The cell that owns `node` when `nodes` nodes are cut into `cells` cells: contiguous runs, as
/// even as they come. Firmware and kernel must cut alike, so the rule is here.
pub const fn cell_of_node(node: usize, nodes: usize, cells: usize) -> usize {
    node * cells / nodes
}

/// The first node of `cell`: the inverse of [`cell_of_node`].
pub const fn first_node_of_cell(cell: usize, nodes: usize, cells: usize) -> usize {
    (cell * nodes).div_ceil(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_gives_each_cell_a_contiguous_nonempty_run() {
        for nodes in 1..=MAX_NODES {
            for cells in 1..=nodes {
                let mut next = 0;
                for cell in 0..cells {
                    assert_eq!(first_node_of_cell(cell, nodes, cells), next);
                    let start = next;
                    while next < nodes && cell_of_node(next, nodes, cells) == cell {
                        next += 1;
                    }
                    assert!(next > start);
                }
                assert_eq!(next, nodes);
            }
        }
    }

    #[test]
    fn firewall_bits_cover_every_hart() {
        for harts in 1..=MAX_HARTS {
            for hart in 0..harts {
                assert!(firewall_bit(hart, harts).count_ones() == 1);
            }
        }
        assert_eq!(firewall_group(64), 1);
        assert_eq!(firewall_group(65), 2);
    }
}
