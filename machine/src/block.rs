//! Decoded blocks: runs of instructions up to the first that transfers control, found by the
//! address of their first byte in memory (frame and offset), shared by all harts.
//!
//! A block never leaves its page. Its source lines are noted in [`Ram`], which reports the frame
//! when one of them is written; all blocks of that frame are then forgotten.

use crate::decode::{self, Insn};
use crate::ram::{Frame, LINE, PAGE, Ram};

/// Most instructions of a block: bounds the work thrown away when a budget ends inside one.
const MAX_LEN: usize = 64;
/// Slots of the table, one for each possible start in 128 pages; a conflict only decodes again.
const SLOTS: usize = 1 << 18;
/// Slots that the starts in one page map to.
const SLOTS_PER_PAGE: usize = PAGE / 2;
/// Decoded instructions kept before everything is thrown away (12 MB).
const CAPACITY: usize = 1 << 20;

/// Where the instructions of a block are.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    start: u32,
    len: u16,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Address of the first byte in `Frame::base` numbering.
    address: u64,
    block: Block,
}

const EMPTY: Slot = Slot { address: u64::MAX, block: Block { start: 0, len: 0 } };

/// All decoded blocks of a machine.
pub(crate) struct Blocks {
    table: Box<[Slot]>,
    code: Vec<Insn>,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        Blocks { table: vec![EMPTY; SLOTS].into(), code: Vec::new() }
    }

    fn slot(address: u64) -> usize {
        (address / 2) as usize & (SLOTS - 1)
    }

    /// The block that begins at `address`, if it is decoded.
    #[inline(always)]
    pub(crate) fn get(&self, address: u64) -> Option<Block> {
        let slot = &self.table[Self::slot(address)];
        (slot.address == address).then_some(slot.block)
    }

    /// The instructions of a block.
    #[inline(always)]
    pub(crate) fn insns(&self, block: Block) -> &[Insn] {
        let start = block.start as usize;
        self.code.get(start..start + usize::from(block.len)).unwrap_or(&[])
    }

    /// Decodes and keeps the block at `offset` of `frame`. `None` if its first instruction crosses
    /// into the next page.
    pub(crate) fn decode(&mut self, ram: &mut Ram, frame: Frame, offset: usize) -> Option<Block> {
        if self.code.len() + MAX_LEN > CAPACITY {
            self.code.clear();
            self.table.fill(EMPTY);
        }
        let start = self.code.len();
        let mut at = offset;
        while at < PAGE && self.code.len() - start < MAX_LEN {
            let low = halfword(ram, frame, at);
            let end = at + decode::length(low) as usize;
            if end > PAGE {
                break;
            }
            let high = if end - at == 4 { halfword(ram, frame, at + 2) } else { 0 };
            let bits = u32::from(high) << 16 | u32::from(low);
            let insn = decode::decode(bits).relocate((at - offset) as u16);
            self.code.push(insn);
            at = end;
            if insn.op.ends_block() {
                break;
            }
        }
        let len = self.code.len() - start;
        if len == 0 {
            return None;
        }
        let (first, last) = (offset as u64 / LINE, (at as u64 - 1) / LINE);
        ram.note_code(frame, u64::MAX << first & u64::MAX >> (63 - last));
        let block = Block { start: start as u32, len: len as u16 };
        let address = frame.base() + offset as u64;
        self.table[Self::slot(address)] = Slot { address, block };
        Some(block)
    }

    /// Forgets all blocks of `frame`.
    pub(crate) fn forget(&mut self, frame: Frame) {
        let first = Self::slot(frame.base());
        for slot in &mut self.table[first..first + SLOTS_PER_PAGE] {
            if slot.address / PAGE as u64 == u64::from(frame.0) {
                *slot = EMPTY;
            }
        }
    }

    /// Forgets everything: the frames now belong to other memory.
    pub(crate) fn clear(&mut self) {
        self.code.clear();
        self.table.fill(EMPTY);
    }
}

fn halfword(ram: &Ram, frame: Frame, at: usize) -> u16 {
    (ram.read_word(frame, at) >> (8 * (at & 6))) as u16
}
