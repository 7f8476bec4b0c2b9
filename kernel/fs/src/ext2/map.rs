//! The block map of an inode: direct pointers and trees of indirect blocks.
//!
//! Pointers come from the disk and may be rubbish: each is checked before use, and freeing stops
//! at the first block that is free already, so that a tree with loops is not walked for ever.

use super::Ext2;
use super::disk::{DIRECT, RawInode};
use crate::errno::{Errno, Result};

/// Way to a file block: slot in the inode, then an index for each of `depth` indirect blocks.
struct Way {
    slot: usize,
    index: [usize; 3],
    depth: usize,
}

/// Pointers in an indirect block.
fn fan(fs: &Ext2) -> u64 {
    fs.block_size() as u64 / 4
}

/// Blocks below a tree of `depth` levels of indirect blocks.
fn span(fs: &Ext2, depth: usize) -> u64 {
    fan(fs).pow(depth as u32)
}

fn way(fs: &Ext2, n: u64) -> Result<Way> {
    let p = fan(fs);
    if n < DIRECT as u64 {
        return Ok(Way { slot: n as usize, index: [0; 3], depth: 0 });
    }
    let mut n = n - DIRECT as u64;
    for depth in 1..=3 {
        if n < span(fs, depth) {
            let mut index = [0; 3];
            for i in index.iter_mut().take(depth).rev() {
                *i = (n % p) as usize;
                n /= p;
            }
            return Ok(Way { slot: DIRECT - 1 + depth, index, depth });
        }
        n -= span(fs, depth);
    }
    Err(Errno::EFBIG)
}

/// Largest file: what the tree can hold, or what `i_blocks` can count.
pub fn max_size(fs: &Ext2) -> u64 {
    let blocks = DIRECT as u64 + span(fs, 1) + span(fs, 2) + span(fs, 3);
    (blocks * fs.block_size() as u64).min(1 << 41)
}

/// The disk block of file block `n`; 0 for a hole.
pub fn lookup(fs: &Ext2, raw: &RawInode, n: u64) -> Result<u32> {
    let w = way(fs, n)?;
    let mut block = raw.block.get(w.slot).copied().unwrap_or(0);
    for &i in w.index.iter().take(w.depth) {
        if block == 0 {
            return Ok(0);
        }
        fs.check_block(block)?;
        block = fs.meta.pointer(block, i)?;
    }
    if block != 0 {
        fs.check_block(block)?;
    }
    Ok(block)
}

/// The disk block of file block `n`, made if there is none (then true: its bytes are rubbish).
pub fn lookup_or_make(fs: &Ext2, raw: &mut RawInode, ino: u32, n: u64) -> Result<(u32, bool)> {
    let old = lookup(fs, raw, n)?;
    if old != 0 {
        return Ok((old, false));
    }
    let near = if n > 0 { lookup(fs, raw, n - 1)? } else { 0 };
    let mut goal = if near != 0 { near + 1 } else { fs.group_start(ino) };
    let mut make = |raw: &mut RawInode, meta: bool| -> Result<u32> {
        let block = fs.space.lock().take_block(&fs.meta, goal)?;
        if meta {
            fs.meta.zero(block)?;
        }
        raw.blocks += fs.block_size() as u64 / 512;
        goal = block + 1;
        Ok(block)
    };
    let w = way(fs, n)?;
    let Some(mut block) = raw.block.get(w.slot).copied() else { return Err(Errno::EFBIG) };
    if block == 0 {
        block = make(raw, w.depth > 0)?;
        if let Some(p) = raw.block.get_mut(w.slot) {
            *p = block;
        }
    }
    for (level, &i) in w.index.iter().take(w.depth).enumerate() {
        let mut next = fs.meta.pointer(block, i)?;
        if next == 0 {
            next = make(raw, level + 1 < w.depth)?;
            fs.meta.write(block, i * 4, &next.to_le_bytes())?;
        }
        block = next;
    }
    Ok((block, true))
}

/// Frees every block from file block `keep` on.
pub fn truncate(fs: &Ext2, raw: &mut RawInode, keep: u64) -> Result<()> {
    for slot in keep.min(DIRECT as u64) as usize..DIRECT {
        drop_slot(fs, raw, slot, 0, 0)?;
    }
    let mut base = DIRECT as u64;
    for depth in 1..=3 {
        let below = span(fs, depth);
        if keep < base + below {
            drop_slot(fs, raw, DIRECT - 1 + depth, depth, keep.saturating_sub(base))?;
        }
        base += below;
    }
    Ok(())
}

fn drop_slot(fs: &Ext2, raw: &mut RawInode, slot: usize, depth: usize, keep: u64) -> Result<()> {
    let Some(block) = raw.block.get(slot).copied().filter(|b| *b != 0) else { return Ok(()) };
    let mut freed = 0;
    let result = drop_tree(fs, block, depth, keep, &mut freed);
    raw.blocks = raw.blocks.saturating_sub(freed * (fs.block_size() as u64 / 512));
    if let (Ok(true), Some(p)) = (&result, raw.block.get_mut(slot)) {
        *p = 0;
    }
    result.map(drop)
}

/// Frees what lies in a tree from its leaf `keep` on; true if the tree itself is gone.
fn drop_tree(fs: &Ext2, block: u32, depth: usize, keep: u64, freed: &mut u64) -> Result<bool> {
    fs.check_block(block)?;
    if depth > 0 {
        let below = span(fs, depth - 1);
        let mut first = keep % below;
        for i in (keep / below) as usize..fan(fs) as usize {
            let child = fs.meta.pointer(block, i)?;
            if child != 0 && drop_tree(fs, child, depth - 1, first, freed)? && keep > 0 {
                fs.meta.write(block, i * 4, &[0; 4])?;
            }
            first = 0;
        }
        if keep > 0 {
            return Ok(false);
        }
        fs.meta.forget(block);
    }
    fs.space.lock().free_block(&fs.meta, block)?;
    *freed += 1;
    Ok(true)
}
