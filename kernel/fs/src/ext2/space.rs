//! Free blocks and inodes: bitmaps and counts.

use super::disk::{Group, Super};
use super::meta::Metadata;
use crate::errno::{Errno, Result};
use alloc::vec::Vec;

/// Superblock and group descriptors in memory; one lock in [`super::Ext2`] guards them all.
pub struct Space {
    /// The superblock.
    pub sb: Super,
    /// The groups.
    pub groups: Vec<Group>,
    /// The disk says "clean": the next change must take that back first.
    pub clean_on_disk: bool,
    /// Counts changes, so that a sync notices one that came in its middle.
    pub changes: u64,
    /// Inodes without a name that are still in use, or not yet freed.
    pub orphans: u32,
}

/// Bytes of a bitmap looked at in one go.
const CHUNK: usize = 64;

impl Space {
    /// True if `block` may hold data or an indirect block.
    pub fn valid(&self, block: u32) -> bool {
        block > self.sb.first_block && block < self.sb.blocks
    }

    fn group_first(&self, group: usize) -> u32 {
        self.sb.first_block + group as u32 * self.sb.blocks_per_group
    }

    fn group_blocks(&self, group: usize) -> u32 {
        (self.sb.blocks - self.group_first(group)).min(self.sb.blocks_per_group)
    }

    /// Takes a free block, at or after `goal` if possible.
    pub fn take_block(&mut self, meta: &Metadata, goal: u32) -> Result<u32> {
        let goal = if self.valid(goal) { goal - self.sb.first_block } else { 0 };
        let count = self.groups.len();
        let start = (goal / self.sb.blocks_per_group) as usize;
        // The goal's own group comes twice: from the goal on, and last as a whole.
        for turn in 0..=count {
            let at = (start + turn) % count;
            let from = if turn == 0 { goal % self.sb.blocks_per_group } else { 0 };
            let limit = self.group_blocks(at);
            let first = self.group_first(at);
            let Some(g) = self.groups.get_mut(at).filter(|g| g.free_blocks > 0) else { continue };
            if let Some(bit) = take_bit(meta, g.block_bitmap, from, limit)? {
                let block = first + bit;
                g.free_blocks -= 1;
                self.sb.free_blocks = self.sb.free_blocks.saturating_sub(1);
                self.changes += 1;
                // A bitmap that offers the superblock is rubbish.
                return if self.valid(block) { Ok(block) } else { Err(Errno::EUCLEAN) };
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Gives a block back; `EUCLEAN` if it is none, or free already.
    pub fn free_block(&mut self, meta: &Metadata, block: u32) -> Result<()> {
        if !self.valid(block) {
            return Err(Errno::EUCLEAN);
        }
        let n = block - self.sb.first_block;
        let at = (n / self.sb.blocks_per_group) as usize;
        let g = self.groups.get_mut(at).ok_or(Errno::EUCLEAN)?;
        clear_bit(meta, g.block_bitmap, n % self.sb.blocks_per_group)?;
        g.free_blocks = g.free_blocks.saturating_add(1);
        self.sb.free_blocks = self.sb.free_blocks.saturating_add(1);
        self.changes += 1;
        Ok(())
    }

    /// Takes a free inode: for a file near `parent`, for a directory in a group with much room.
    pub fn take_inode(&mut self, meta: &Metadata, parent: u32, dir: bool) -> Result<u32> {
        let count = self.groups.len();
        let start = match dir {
            true => {
                let room = |(_, g): &(usize, &Group)| (g.free_inodes > 0, g.free_blocks);
                self.groups.iter().enumerate().max_by_key(room).map_or(0, |(i, _)| i)
            }
            false => self.group_of_inode(parent).0,
        };
        for turn in 0..count {
            let at = (start + turn) % count;
            let limit = self.sb.inodes_per_group;
            let reserved = if at == 0 { self.sb.first_inode - 1 } else { 0 };
            let Some(g) = self.groups.get_mut(at).filter(|g| g.free_inodes > 0) else { continue };
            if let Some(bit) = take_bit(meta, g.inode_bitmap, reserved, limit)? {
                g.free_inodes -= 1;
                g.dirs = g.dirs.saturating_add(dir as u16);
                self.sb.free_inodes = self.sb.free_inodes.saturating_sub(1);
                self.changes += 1;
                let ino = at as u32 * self.sb.inodes_per_group + bit + 1;
                return if ino <= self.sb.inodes { Ok(ino) } else { Err(Errno::EUCLEAN) };
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Gives an inode back; `EUCLEAN` if it is free already.
    pub fn free_inode(&mut self, meta: &Metadata, ino: u32, dir: bool) -> Result<()> {
        let (at, bit) = self.group_of_inode(ino);
        let g = self.groups.get_mut(at).ok_or(Errno::EUCLEAN)?;
        clear_bit(meta, g.inode_bitmap, bit)?;
        g.free_inodes = g.free_inodes.saturating_add(1);
        g.dirs = g.dirs.saturating_sub(dir as u16);
        self.sb.free_inodes = self.sb.free_inodes.saturating_add(1);
        self.changes += 1;
        Ok(())
    }

    /// Group of an inode and its place in it.
    pub fn group_of_inode(&self, ino: u32) -> (usize, u32) {
        let n = ino.saturating_sub(1);
        ((n / self.sb.inodes_per_group) as usize, n % self.sb.inodes_per_group)
    }

    /// Block and byte of an inode in the table; `EUCLEAN` if there is no such inode.
    pub fn inode_at(&self, ino: u32) -> Result<(u32, usize)> {
        if ino == 0 || ino > self.sb.inodes {
            return Err(Errno::EUCLEAN);
        }
        let (group, n) = self.group_of_inode(ino);
        let g = self.groups.get(group).ok_or(Errno::EUCLEAN)?;
        let byte = n as usize * self.sb.inode_size;
        Ok((g.inode_table + (byte / self.sb.block_size) as u32, byte % self.sb.block_size))
    }
}

/// Sets the first zero bit in `from..limit` of a bitmap block; its number.
fn take_bit(meta: &Metadata, bitmap: u32, from: u32, limit: u32) -> Result<Option<u32>> {
    let mut bytes = [0; CHUNK];
    let mut at = from as usize / 8 / CHUNK * CHUNK;
    while at * 8 < limit as usize {
        meta.read(bitmap, at, &mut bytes)?;
        for (i, byte) in bytes.iter().enumerate() {
            let base = ((at + i) * 8) as u32;
            let skip = from.saturating_sub(base).min(8);
            // Bits below `from` count as taken.
            let taken = *byte | ((1u16 << skip) - 1) as u8;
            let bit = base + taken.trailing_ones();
            if taken != 0xff && bit < limit {
                let byte = *byte | 1 << (bit - base);
                meta.write(bitmap, at + i, &[byte])?;
                return Ok(Some(bit));
            }
        }
        at += CHUNK;
    }
    Ok(None)
}

/// Clears a bit that is set; `EUCLEAN` if it is not.
fn clear_bit(meta: &Metadata, bitmap: u32, bit: u32) -> Result<()> {
    let mut byte = [0];
    let at = bit as usize / 8;
    meta.read(bitmap, at, &mut byte)?;
    let mask = 1 << (bit % 8);
    if byte[0] & mask == 0 {
        return Err(Errno::EUCLEAN);
    }
    meta.write(bitmap, at, &[byte[0] & !mask])
}
