//! The directories of a tmpfs: one table under one lock, so that rename needs no lock order.

use super::ROOT;
use super::node::Node;
use crate::abi::{FileType, rename::RENAME_EXCHANGE, rename::RENAME_NOREPLACE};
use crate::errno::{Errno, Result};
use crate::vnode::{DirEntry, EmitEntry};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// All directories by inode number.
#[derive(Default)]
pub struct Tree {
    dirs: BTreeMap<u64, Dir>,
}

struct Dir {
    parent: u64,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Names by cookie, for reading that goes on where it was while names come and go.
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// Keeps the directory's node alive while it has a name.
    node: Arc<Node>,
}

#[derive(Clone)]
struct Entry {
    cookie: u64,
    node: Arc<Node>,
}

/// Cookies of `.` and `..`; entries have larger ones.
const DOTS: u64 = 2;

impl Tree {
    /// Makes `node` the root.
    pub fn plant(&mut self, node: Arc<Node>) {
        self.add_dir(ROOT, node);
    }

    fn add_dir(&mut self, parent: u64, node: Arc<Node>) {
        let (entries, order) = (BTreeMap::new(), BTreeMap::new());
        self.dirs.insert(node.ino, Dir { parent, entries, order, next: DOTS + 1, node });
    }

    fn dir(&self, ino: u64) -> Result<&Dir> {
        self.dirs.get(&ino).ok_or(Errno::ENOENT)
    }

    fn dir_mut(&mut self, ino: u64) -> Result<&mut Dir> {
        self.dirs.get_mut(&ino).ok_or(Errno::ENOENT)
    }

    /// The node called `name`.
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<Arc<Node>> {
        let d = self.dir(dir)?;
        match name {
            b"." => Ok(d.node.clone()),
            b".." => Ok(self.dir(d.parent)?.node.clone()),
            _ => Ok(d.entries.get(name).ok_or(Errno::ENOENT)?.node.clone()),
        }
    }

    /// Enters `node`, a directory of its own if it is one.
    pub fn enter(&mut self, dir: u64, name: &[u8], node: Arc<Node>) -> Result<()> {
        let d = self.dir_mut(dir)?;
        if d.entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        d.put(name, node.clone());
        if node.kind == FileType::Dir {
            d.node.count_link(1);
            self.add_dir(dir, node);
        }
        Ok(())
    }

    /// Takes a name out; the node is to be dropped without the lock.
    pub fn remove(&mut self, dir: u64, name: &[u8], rmdir: bool) -> Result<Arc<Node>> {
        let node = self.lookup(dir, name)?;
        match (rmdir, node.kind == FileType::Dir) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !self.dir(node.ino)?.entries.is_empty() => {
                return Err(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        self.dir_mut(dir)?.take(name);
        self.bury(dir, &node);
        Ok(node)
    }

    /// A node has lost a name in `dir`.
    fn bury(&mut self, dir: u64, node: &Arc<Node>) {
        if node.kind == FileType::Dir {
            self.dirs.remove(&node.ino);
            node.count_link(-2);
            if let Ok(d) = self.dir(dir) {
                d.node.count_link(-1);
            }
        } else {
            node.count_link(-1);
        }
    }

    fn is_below(&self, mut at: u64, top: u64) -> bool {
        loop {
            if at == top {
                return true;
            }
            match self.dirs.get(&at) {
                Some(d) if at != ROOT => at = d.parent,
                _ => return false,
            }
        }
    }

    /// rename(2); answers a node that lost its name, to be dropped without the lock.
    pub fn rename(
        &mut self,
        from: u64,
        old: &[u8],
        to: u64,
        new: &[u8],
        flags: u32,
    ) -> Result<Option<Arc<Node>>> {
        let moved = self.lookup(from, old)?;
        let target = match self.lookup(to, new) {
            Err(Errno::ENOENT) if self.dirs.contains_key(&to) => None,
            other => Some(other?),
        };
        let dir = moved.kind == FileType::Dir;
        if dir && self.is_below(to, moved.ino) {
            return Err(Errno::EINVAL);
        }
        let Some(target) = target else {
            if flags & RENAME_EXCHANGE != 0 {
                return Err(Errno::ENOENT);
            }
            self.move_entry(from, old, to, new, &moved)?;
            return Ok(None);
        };
        if flags & RENAME_NOREPLACE != 0 {
            return Err(Errno::EEXIST);
        }
        if target.ino == moved.ino {
            return Ok(None);
        }
        let target_dir = target.kind == FileType::Dir;
        if flags & RENAME_EXCHANGE != 0 {
            if target_dir && self.is_below(from, target.ino) {
                return Err(Errno::EINVAL);
            }
            self.dir_mut(from)?.take(old);
            self.dir_mut(to)?.take(new);
            self.dir_mut(from)?.put(old, target.clone());
            self.dir_mut(to)?.put(new, moved.clone());
            self.reparent(&moved, from, to);
            self.reparent(&target, to, from);
            return Ok(None);
        }
        match (dir, target_dir) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !self.dir(target.ino)?.entries.is_empty() => {
                return Err(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        self.dir_mut(to)?.take(new);
        self.bury(to, &target);
        self.move_entry(from, old, to, new, &moved)?;
        Ok(Some(target))
    }

    fn move_entry(
        &mut self,
        from: u64,
        old: &[u8],
        to: u64,
        new: &[u8],
        node: &Arc<Node>,
    ) -> Result<()> {
        self.dir_mut(from)?.take(old);
        self.dir_mut(to)?.put(new, node.clone());
        self.reparent(node, from, to);
        Ok(())
    }

    fn reparent(&mut self, node: &Arc<Node>, from: u64, to: u64) {
        let now = node.fs.now();
        for d in [from, to] {
            if let Ok(d) = self.dir(d) {
                d.node.touch(now);
            }
        }
        if node.kind != FileType::Dir || from == to {
            return;
        }
        for (d, change) in [(from, -1), (to, 1)] {
            if let Ok(d) = self.dir(d) {
                d.node.count_link(change);
            }
        }
        if let Ok(d) = self.dir_mut(node.ino) {
            d.parent = to;
        }
    }

    /// Emits what comes after `cookie`.
    pub fn read(&self, dir: u64, cookie: u64, emit: &mut EmitEntry<'_>) -> Result<()> {
        let Some(d) = self.dirs.get(&dir) else { return Ok(()) }; // removed: nothing left
        let d_type = FileType::Dir.d_type();
        for (next, name, ino) in [(1, &b"."[..], dir), (2, b"..", d.parent)] {
            if next > cookie && !emit(DirEntry { ino, d_type, name, next }) {
                return Ok(());
            }
        }
        for (next, name) in d.order.range(cookie + 1..) {
            let Some(e) = d.entries.get(name) else { continue };
            let (ino, d_type) = (e.node.ino, e.node.kind.d_type());
            if !emit(DirEntry { ino, d_type, name, next: *next }) {
                break;
            }
        }
        Ok(())
    }
}

impl Dir {
    fn put(&mut self, name: &[u8], node: Arc<Node>) {
        let cookie = self.next;
        self.next += 1;
        self.node.touch(node.fs.now());
        self.order.insert(cookie, name.to_vec());
        self.entries.insert(name.to_vec(), Entry { cookie, node });
    }

    fn take(&mut self, name: &[u8]) {
        if let Some(e) = self.entries.remove(name) {
            self.order.remove(&e.cookie);
            self.node.touch(e.node.fs.now());
        }
    }
}
