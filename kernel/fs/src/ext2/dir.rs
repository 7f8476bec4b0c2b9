//! Directories: entries in the blocks of a file, a block never crossed. The directory's `rw` is
//! held throughout.

use super::disk::{ENTRY_HEAD, Entry, FLAG_INDEX, entry_len};
use super::inode::Inode;
use crate::abi::FileType;
use crate::errno::{Errno, Result};
use crate::vnode::{DirEntry, EmitEntry};
use alloc::vec::Vec;

/// Where a name was found.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Byte of the block in the directory.
    block: u64,
    /// The entry in the block, and the one before it.
    at: usize,
    prev: Option<usize>,
    len: usize,
    name_len: usize,
    /// What it names.
    pub ino: u32,
}

/// What a search gives: the name if it is there, and room for one more if there is any.
pub struct Search {
    /// The name.
    pub found: Option<Slot>,
    room: Option<Slot>,
}

/// Names a directory remembers at most; then it forgets them all. Bounds memory, and is more than
/// any directory of a Debian base system that programs look into by name.
const NAMES_MAX: usize = 1024;

impl Inode {
    /// What is known of `name` without looking: `Some(0)` is "not there".
    pub(super) fn known(&self, name: &[u8]) -> Option<u32> {
        self.names.lock().get(name).copied()
    }

    /// Remembers what a search found.
    pub(super) fn learn(&self, name: &[u8], ino: u32) {
        let mut names = self.names.lock();
        let old =
            if names.len() >= NAMES_MAX { core::mem::take(&mut *names) } else { <_>::default() };
        names.insert(name.into(), ino);
        drop(names);
        drop(old);
    }

    fn forget(&self, name: &[u8]) {
        self.names.lock().remove(name);
    }

    fn dir_block(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let n = self.fs.cache().read(&self.pager_ref(), at, &mut &mut *buf)?;
        if n == buf.len() { Ok(()) } else { Err(Errno::EUCLEAN) }
    }

    /// Looks for `name`; with `need` > 0 also for room of so many bytes.
    pub(super) fn search(&self, name: &[u8], need: usize) -> Result<Search> {
        let bs = self.fs.block_size();
        let mut buf = alloc::vec![0; bs];
        let mut room = None;
        let mut block = 0;
        while block < self.length() {
            self.dir_block(block, &mut buf)?;
            let (mut at, mut prev) = (0, None);
            while at < bs {
                let e = Entry::decode(&buf, at)?;
                let (len, name_len) = (e.len, e.name.len());
                let slot = Slot { block, at, prev, len, name_len, ino: e.ino };
                if e.ino != 0 && e.name == name {
                    return Ok(Search { found: Some(slot), room });
                }
                let used = if e.ino == 0 { 0 } else { entry_len(name_len) };
                if need > 0 && room.is_none() && len.saturating_sub(used) >= need {
                    room = Some(slot);
                }
                prev = Some(at);
                at += len;
            }
            block += bs as u64;
        }
        Ok(Search { found: None, room })
    }

    /// The name's slot; `ENOENT` if it is not there.
    pub(super) fn find(&self, name: &[u8]) -> Result<Slot> {
        self.search(name, 0)?.found.ok_or(Errno::ENOENT)
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let n = self.write_pages(at, &mut &bytes[..])?;
        if n == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Enters a name for which [`Self::search`] (with the need of the name) found none.
    pub(super) fn insert(&self, s: &Search, name: &[u8], ino: u32, kind: FileType) -> Result<()> {
        self.forget(name);
        self.drop_index()?;
        let ftype = self.fs.ftype(kind);
        let Some(room) = s.room else {
            let bs = self.fs.block_size();
            let mut block = Entry::encode(ino, bs, ftype, name);
            block.resize(bs, 0);
            return self.put(self.length(), &block);
        };
        if room.ino == 0 {
            let e = Entry::encode(ino, room.len, ftype, name);
            return self.put(room.block + room.at as u64, &e);
        }
        // Split: the new entry takes what the old one does not need, then the old one shrinks.
        let used = entry_len(room.name_len);
        let e = Entry::encode(ino, room.len - used, ftype, name);
        self.put(room.block + (room.at + used) as u64, &e)?;
        self.put(room.block + room.at as u64 + 4, &(used as u16).to_le_bytes())
    }

    /// Takes an entry out.
    pub(super) fn remove(&self, slot: &Slot, name: &[u8]) -> Result<()> {
        self.forget(name);
        self.drop_index()?;
        match slot.prev {
            Some(prev) => {
                let len = (slot.at - prev + slot.len) as u16;
                self.put(slot.block + prev as u64 + 4, &len.to_le_bytes())
            }
            None => self.put(slot.block + slot.at as u64, &[0; 4]),
        }
    }

    /// Makes an entry name another inode.
    pub(super) fn repoint(&self, slot: &Slot, name: &[u8], ino: u32, kind: FileType) -> Result<()> {
        self.forget(name);
        let at = slot.block + slot.at as u64;
        self.put(at, &ino.to_le_bytes())?;
        if self.fs.filetype() {
            self.put(at + 7, &[self.fs.ftype(kind)])?;
        }
        Ok(())
    }

    /// The first block of a new directory.
    pub(super) fn write_dots(&self, parent: u32) -> Result<()> {
        let bs = self.fs.block_size();
        let ftype = self.fs.ftype(FileType::Dir);
        let dot = entry_len(1);
        let mut block: Vec<u8> = Entry::encode(self.ino, dot, ftype, b".");
        block.extend_from_slice(&Entry::encode(parent, bs - dot, ftype, b".."));
        block.resize(bs, 0);
        self.put(0, &block)
    }

    /// True if there is nothing but `.` and `..`.
    pub(super) fn is_empty_dir(&self) -> Result<bool> {
        let mut empty = true;
        self.entries(0, &mut |e| {
            empty = e.name == b"." || e.name == b"..";
            empty
        })?;
        Ok(empty)
    }

    /// Emits entries that lie at or behind byte `cookie`.
    pub(super) fn entries(&self, cookie: u64, emit: &mut EmitEntry<'_>) -> Result<()> {
        let bs = self.fs.block_size();
        let mut buf = alloc::vec![0; bs];
        // From the start of the block: entries may have been joined since the cookie was given.
        let mut block = cookie - cookie % bs as u64;
        while block < self.length() {
            self.dir_block(block, &mut buf)?;
            let mut at = 0;
            while at < bs {
                let e = Entry::decode(&buf, at)?;
                let here = block + at as u64;
                at += e.len;
                if e.ino == 0 || here < cookie || e.len <= ENTRY_HEAD {
                    continue;
                }
                let d_type = if self.fs.filetype() { d_type(e.ftype) } else { 0 };
                let next = block + at as u64;
                if !emit(DirEntry { ino: e.ino as u64, d_type, name: e.name, next }) {
                    return Ok(());
                }
            }
            block += bs as u64;
        }
        Ok(())
    }

    /// A hash index does not survive plain changes.
    fn drop_index(&self) -> Result<()> {
        let mut raw = self.raw.lock();
        if raw.flags & FLAG_INDEX == 0 {
            return Ok(());
        }
        raw.flags &= !FLAG_INDEX;
        self.store(&raw)
    }
}

/// ext2's file type code of a kind.
pub fn ftype_of(kind: FileType) -> u8 {
    match kind {
        FileType::Regular => 1,
        FileType::Dir => 2,
        FileType::Char => 3,
        FileType::Block => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

fn d_type(ftype: u8) -> u8 {
    let all = [
        FileType::Regular,
        FileType::Dir,
        FileType::Char,
        FileType::Block,
        FileType::Fifo,
        FileType::Socket,
        FileType::Symlink,
    ];
    all.into_iter().find(|k| ftype_of(*k) == ftype).map_or(0, FileType::d_type)
}
