//! The *cell page*: the first thing that another cell reads of a cell, by careful reference.
//! One page at a fixed place of the cell's DRAM, written only by its owner.
//!
//! All fields are 64-bit words, each stored by one instruction, so no reader sees half of one.
//! No two words are promised to be of the same moment. What changes at every tick stands in a
//! cache line apart from what others poll in recovery, and both apart from what hardly changes.

use core::mem::{offset_of, size_of};

use hive_platform::{MAX_HARTS, PAGE_SIZE, map, sips};

use crate::{CellId, CellSet, Incarnation, MAX_CELLS, TypeTag};

/// Offset of the cell page from the start of the cell's DRAM: the last page below the kernel
/// image. On a board whose firmware lives in DRAM (QEMU `virt`) it lies above that firmware.
pub const CELL_PAGE_OFFSET: u64 = map::KERNEL_OFFSET - PAGE_SIZE;
/// Offset of the page with the [`crate::death::DeathRecord`] from the start of the cell's DRAM.
pub const DEATH_PAGE_OFFSET: u64 = CELL_PAGE_OFFSET - PAGE_SIZE;

/// Offset of the clock word of the cell's hart number `hart` (0-based within the cell) in the
/// cell page. Each hart increments its own at every clock interrupt (Hive §4.3).
pub const fn clock_offset(hart: usize) -> usize {
    assert!(hart < MAX_HARTS);
    CLOCKS_OFFSET + hart * 8
}
const CLOCKS_OFFSET: usize = 2048;

/// Offset of [`CellInfo::phase`]: polled by the others in recovery.
pub const PHASE_OFFSET: usize = offset_of!(CellInfo, phase);
/// Offset of [`CellInfo::load`] and the statistics that follow it.
pub const LOAD_OFFSET: usize = offset_of!(CellInfo, load);

/// State of a cell, in [`CellInfo::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum State {
    /// Booting: takes no part yet.
    Booting = 1,
    /// Running.
    Live = 2,
    /// Panicked: its death record is complete.
    Panicked = 3,
}

/// The published words, as they stand in memory from the start of the cell page. The clock
/// words follow at [`clock_offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CellInfo {
    /// [`TypeTag::CellInfo`]; written last when the cell comes up.
    pub tag: u64,
    /// [`crate::message::VERSION`].
    pub version: u64,
    /// Number of this cell.
    pub cell: u64,
    /// Its life.
    pub incarnation: u64,
    /// First byte of its DRAM.
    pub dram_base: u64,
    /// Bytes of its DRAM.
    pub dram_size: u64,
    /// Its first node.
    pub first_node: u64,
    /// Number of its nodes.
    pub nodes: u64,
    /// Number of its harts, hence of clock words.
    pub harts: u64,
    /// A [`State`].
    pub state: u64,
    /// Number of cells the machine was cut into.
    pub cells: u64,
    reserved0: [u64; 5],

    /// How far this cell is in recovery: [`Phase::word`]. A line of its own.
    pub phase: u64,
    /// The live set of the epoch in [`CellInfo::phase`].
    pub live: u64,
    reserved1: [u64; 14],

    /// Runnable threads: what placement goes by.
    pub load: u64,
    /// Free page frames.
    pub free_frames: u64,
    /// Page frames in all.
    pub frames: u64,
    /// Processes.
    pub processes: u64,
    /// Clock ticks since it came up.
    pub ticks: u64,
    /// RPC requests it served.
    pub rpc_served: u64,
    /// RPC requests it made.
    pub rpc_called: u64,
    /// Hints it raised.
    pub hints: u64,
    /// Messages and foreign data it refused.
    pub refused: u64,
    /// Foreign pages it holds mapped.
    pub imported: u64,
    /// Own pages writable by other cells.
    pub exported_writable: u64,
    reserved2: [u64; 5],
}

const _: () = {
    assert!(offset_of!(CellInfo, reserved0) == 88);
    assert!(PHASE_OFFSET == sips::LINE);
    assert!(LOAD_OFFSET == 2 * sips::LINE);
    assert!(offset_of!(CellInfo, reserved2) == 2 * sips::LINE + 88);
    assert!(size_of::<CellInfo>() == 3 * sips::LINE);
    assert!(size_of::<CellInfo>() <= CLOCKS_OFFSET);
    assert!(CLOCKS_OFFSET + MAX_HARTS * 8 <= PAGE_SIZE as usize);
    assert!(MAX_CELLS <= 64);
};

/// Words of a [`CellInfo`].
pub const INFO_WORDS: usize = size_of::<CellInfo>() / 8;

/// What is wrong with a cell page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPage {
    /// Not a cell page (or not yet).
    Tag,
    /// Another version.
    Version,
    /// It names another cell than the one whose memory it stands in.
    Cell,
    /// Another life of the cell than expected.
    Incarnation,
    /// DRAM, node or hart numbers that contradict the device tree.
    Shape,
    /// A state or phase that does not exist.
    State,
}

impl CellInfo {
    /// A page with everything zero but the identity: what a booting cell starts from.
    pub const fn new(cell: CellId, incarnation: Incarnation) -> CellInfo {
        CellInfo {
            tag: TypeTag::CellInfo.word(),
            version: crate::message::VERSION as u64,
            cell: cell.index() as u64,
            incarnation: incarnation.0 as u64,
            dram_base: 0,
            dram_size: 0,
            first_node: 0,
            nodes: 0,
            harts: 0,
            state: State::Booting as u64,
            cells: 0,
            reserved0: [0; 5],
            phase: 0,
            live: 0,
            reserved1: [0; 14],
            load: 0,
            free_frames: 0,
            frames: 0,
            processes: 0,
            ticks: 0,
            rpc_served: 0,
            rpc_called: 0,
            hints: 0,
            refused: 0,
            imported: 0,
            exported_writable: 0,
            reserved2: [0; 5],
        }
    }

    /// Reads a page that was copied word by word.
    pub fn from_words(w: &[u64; INFO_WORDS]) -> CellInfo {
        let [tag, version, cell, incarnation, dram_base, dram_size, first_node, nodes, rest @ ..] =
            *w;
        let [harts, state, cells, rest @ ..] = rest;
        let (reserved0, rest) = split::<5, { INFO_WORDS - 11 }, { INFO_WORDS - 16 }>(rest);
        let [phase, live, rest @ ..] = rest;
        let (reserved1, rest) = split::<14, { INFO_WORDS - 18 }, 16>(rest);
        let [load, free_frames, frames, processes, ticks, rpc_served, rpc_called, hints, rest @ ..] =
            rest;
        let [refused, imported, exported_writable, reserved2 @ ..] = rest;
        CellInfo {
            tag,
            version,
            cell,
            incarnation,
            dram_base,
            dram_size,
            first_node,
            nodes,
            harts,
            state,
            cells,
            reserved0,
            phase,
            live,
            reserved1,
            load,
            free_frames,
            frames,
            processes,
            ticks,
            rpc_served,
            rpc_called,
            hints,
            refused,
            imported,
            exported_writable,
            reserved2,
        }
    }

    /// What is wrong with the page of `cell` in its life `incarnation`, whose DRAM starts at
    /// `dram_base`; `None` if nothing is.
    pub fn invalid(
        &self,
        cell: CellId,
        incarnation: Incarnation,
        dram_base: u64,
    ) -> Option<BadPage> {
        if self.tag != TypeTag::CellInfo.word() {
            return Some(BadPage::Tag);
        }
        if self.version != crate::message::VERSION as u64 {
            return Some(BadPage::Version);
        }
        if self.cell != cell.index() as u64 {
            return Some(BadPage::Cell);
        }
        if self.incarnation != u64::from(incarnation.0) {
            return Some(BadPage::Incarnation);
        }
        if self.dram_base != dram_base
            || self.harts == 0
            || self.harts > MAX_HARTS as u64
            || self.nodes == 0
            || self.nodes > MAX_CELLS as u64
        {
            return Some(BadPage::Shape);
        }
        let known = [State::Booting, State::Live, State::Panicked];
        if !known.iter().any(|s| *s as u64 == self.state) || Phase::from_word(self.phase).is_none()
        {
            return Some(BadPage::State);
        }
        None
    }

    /// The published live set.
    pub const fn live(&self) -> CellSet {
        CellSet(self.live)
    }
}

/// Splits an array in two.
fn split<const A: usize, const N: usize, const B: usize>(a: [u64; N]) -> ([u64; A], [u64; B]) {
    const { assert!(A + B == N) };
    let (mut first, mut second) = ([0; A], [0; B]);
    for (to, from) in first.iter_mut().chain(second.iter_mut()).zip(a) {
        *to = from;
    }
    (first, second)
}

/// How far a cell is in the recovery that follows the agreement on epoch `epoch` (Hive §4.3).
/// Phases of one epoch only advance; a higher epoch starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Step {
    /// Running normally: recovery of this epoch is over (or it is epoch 0).
    Running = 0,
    /// In recovery: flushing translations, removing remote mappings.
    Flushing = 1,
    /// At the first barrier: no access of ours to other cells' pages is under way.
    Barrier1 = 2,
    /// Past it: revoking the firewall, discarding, cleaning up.
    CleaningUp = 3,
    /// At the second barrier: clean-up done.
    Barrier2 = 4,
    /// Past it: recovery is over here.
    Done = 5,
}

/// The content of the phase word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase {
    /// The epoch, counted in deaths agreed on since power-on.
    pub epoch: u32,
    /// The step within it.
    pub step: Step,
}

impl Phase {
    /// As published: epoch in the high half, step in the low byte.
    pub const fn word(self) -> u64 {
        (self.epoch as u64) << 32 | self.step as u64
    }

    /// Reads a published word; `None` if no sane cell can have written it.
    pub const fn from_word(word: u64) -> Option<Phase> {
        let step = match word & 0xffff_ffff {
            0 => Step::Running,
            1 => Step::Flushing,
            2 => Step::Barrier1,
            3 => Step::CleaningUp,
            4 => Step::Barrier2,
            5 => Step::Done,
            _ => return None,
        };
        Some(Phase { epoch: (word >> 32) as u32, step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_land_in_their_fields() {
        let mut words = [0; INFO_WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            *word = i as u64;
        }
        let info = CellInfo::from_words(&words);
        assert_eq!((info.tag, info.harts, info.cells), (0, 8, 10));
        assert_eq!((info.phase, info.live), (16, 17));
        assert_eq!((info.load, info.exported_writable), (32, 42));
        assert_eq!(info.phase * 8, PHASE_OFFSET as u64);
        assert_eq!(info.load * 8, LOAD_OFFSET as u64);
    }

    #[test]
    fn a_page_is_refused_for_the_first_thing_wrong() {
        let (cell, life) = (CellId::of(2), Incarnation(3));
        let mut good = CellInfo::new(cell, life);
        (good.dram_base, good.harts, good.nodes) = (0x9000_0000, 1, 1);
        let why = |info: CellInfo| info.invalid(cell, life, 0x9000_0000);
        assert_eq!(why(good), None);
        assert_eq!(why(CellInfo { tag: 0, ..good }), Some(BadPage::Tag));
        assert_eq!(why(CellInfo { version: 9, ..good }), Some(BadPage::Version));
        assert_eq!(why(CellInfo { cell: 1, ..good }), Some(BadPage::Cell));
        assert_eq!(why(CellInfo { incarnation: 4, ..good }), Some(BadPage::Incarnation));
        assert_eq!(why(CellInfo { harts: 0, ..good }), Some(BadPage::Shape));
        assert_eq!(why(CellInfo { state: 0, ..good }), Some(BadPage::State));
        assert_eq!(why(CellInfo { phase: 6, ..good }), Some(BadPage::State));
    }

    #[test]
    fn phases_order_by_epoch_first() {
        let phase = |epoch, step| Phase { epoch, step };
        assert!(phase(1, Step::Done) < phase(2, Step::Flushing));
        for step in 0..=5 {
            let word = 7 << 32 | step;
            assert_eq!(Phase::from_word(word).map(Phase::word), Some(word));
        }
        assert_eq!(Phase::from_word(6), None);
    }
}
