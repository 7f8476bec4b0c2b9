//! Decoded blocks: runs of instructions up to the first that transfers control, found by the
//! address of their first byte in memory (frame and offset), shared by all harts.
//!
//! A block goes on behind conditional branches, which leave it when taken, and ends with a jump, a
//! system instruction or [`Op::End`]. It never leaves its page. Its source lines are noted in [`Ram`], which reports the frame
//! when one of them is written; all blocks of that frame are then forgotten.

#[cfg(doc)]
use crate::decode::Op;
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

/// A slot of the table. Its number and `tag` together are the address of a block.
#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    /// Index in `code` of the first instruction.
    start: u32,
}

/// No address has this tag: memory ends below 2^50 bytes.
const EMPTY: Slot = Slot { tag: u32::MAX, start: 0 };

/// All decoded blocks of a machine.
pub(crate) struct Blocks {
    table: Box<[Slot]>,
    code: Vec<Insn>,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        Blocks { table: vec![EMPTY; SLOTS].into(), code: Vec::new() }
    }

    /// Slot number and tag of a block at `address`.
    #[inline(always)]
    fn place(address: u64) -> (usize, u32) {
        ((address / 2) as usize % SLOTS, (address / (2 * SLOTS as u64)) as u32)
    }

    /// The block that begins at `address` (`Frame::base` numbering), if it is decoded: its
    /// instructions, and others behind its end.
    #[inline(always)]
    pub(crate) fn get(&self, address: u64) -> Option<&[Insn]> {
        let (slot, tag) = Self::place(address);
        let slot = &self.table[slot];
        if slot.tag == tag { self.code.get(slot.start as usize..) } else { None }
    }

    /// Decodes and keeps the block at `offset` of `frame`. False if its first instruction crosses
    /// into the next page.
    pub(crate) fn decode(&mut self, ram: &mut Ram, frame: Frame, offset: usize) -> bool {
        if self.code.len() + MAX_LEN >= CAPACITY {
            self.clear();
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
        if at == offset {
            return false;
        }
        self.code.push(Insn::end((at - offset) as u16));
        let (first, last) = (offset as u64 / LINE, (at as u64 - 1) / LINE);
        ram.note_code(frame, u64::MAX << first & u64::MAX >> (63 - last));
        let (slot, tag) = Self::place(frame.base() + offset as u64);
        self.table[slot] = Slot { tag, start: start as u32 };
        true
    }

    /// Forgets all blocks of `frame`.
    pub(crate) fn forget(&mut self, frame: Frame) {
        let (first, tag) = Self::place(frame.base());
        for slot in &mut self.table[first..first + SLOTS_PER_PAGE] {
            if slot.tag == tag {
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
