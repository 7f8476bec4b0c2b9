//! tmpfs: a tree in memory, for /tmp and wherever else a place to write is wanted. It starts empty
//! and is gone with its home cell.
//!
//! The bytes of a file are pages of the page cache that are kept in memory (a reference is held
//! on each) and never written back: they are their own backing store. `limit` bounds them.
//!
//! Locks, in this order: `tree` (all directories), `rw` of a file, `pages` and `attr` of a node.
//! `live` is a leaf.

mod node;
mod tree;

use crate::abi::{FileType, StatFs, Time};
use crate::errno::{Errno, Result};
use crate::ext2::Clock;
use crate::vnode::{FileSystem, FsId, VnodeId, VnodeRef};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use hive_sync::{Mutex, SpinLock, rank};
use hive_vm::cache::Cache;
use hive_vm::{Frame, Tag};
use node::Node;
use tree::Tree;

/// Inode number of the root.
const ROOT: u64 = 1;

/// A file system in memory.
pub struct TmpFs {
    id: FsId,
    cache: Arc<Cache>,
    clock: Arc<dyn Clock>,
    tree: Mutex<Tree>,
    live: SpinLock<Live>,
    me: Weak<TmpFs>,
}

struct Live {
    nodes: BTreeMap<u64, Weak<Node>>,
    next: u64,
    /// Pages of files that are gone, to be given back by the next change.
    dead: Vec<(Tag, Vec<Frame>)>,
    pages: u64,
    limit: u64,
}

impl TmpFs {
    /// An empty file system that holds at most `limit` pages. `id` is this cell's own and unused.
    pub fn new(
        cache: Arc<Cache>,
        id: FsId,
        clock: Arc<dyn Clock>,
        limit: u64,
    ) -> Result<Arc<TmpFs>> {
        let live = Live { nodes: BTreeMap::new(), next: ROOT, dead: Vec::new(), pages: 0, limit };
        let fs = Arc::new_cyclic(|me| TmpFs {
            id,
            cache,
            clock,
            tree: Mutex::new(Tree::default()),
            live: SpinLock::ranked(rank::FILE, live),
            me: me.clone(),
        });
        let root = fs.new_node(FileType::Dir, 0o1777, 0, 0, 0)?;
        fs.tree.lock().plant(root);
        Ok(fs)
    }

    fn new_node(
        &self,
        kind: FileType,
        perm: u32,
        uid: u32,
        gid: u32,
        rdev: u64,
    ) -> Result<Arc<Node>> {
        let fs = self.me.upgrade().ok_or(Errno::ESTALE)?;
        let ino = {
            let mut live = self.live.lock();
            live.next += 1;
            live.next - 1
        };
        let node = Node::new(fs, ino, kind, perm, uid, gid, rdev);
        self.live.lock().nodes.insert(ino, Arc::downgrade(&node));
        Ok(node)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn node(&self, id: VnodeId) -> Result<Arc<Node>> {
        if id.fs != self.id {
            return Err(Errno::EXDEV);
        }
        let node = self.live.lock().nodes.get(&id.ino).and_then(Weak::upgrade);
        node.filter(|_| id.generation == 0).ok_or(Errno::ESTALE)
    }

    /// Counts one more page; `ENOSPC` at the limit.
    fn charge(&self) -> Result<()> {
        let mut live = self.live.lock();
        if live.pages >= live.limit {
            return Err(Errno::ENOSPC);
        }
        live.pages += 1;
        Ok(())
    }

    /// From the drop of a node: never sleeps.
    fn node_dropped(&self, ino: u64, tag: Tag, frames: Vec<Frame>) {
        let mut live = self.live.lock();
        live.nodes.remove(&ino);
        if !frames.is_empty() {
            live.dead.push((tag, frames));
        }
    }

    /// Gives back the pages of files that are gone.
    fn reap(&self) {
        loop {
            let Some((tag, frames)) = self.live.lock().dead.pop() else { return };
            self.cache.invalidate(tag);
            self.release(frames);
        }
    }

    /// Gives back frames whose pages have lost their names.
    fn release(&self, frames: Vec<Frame>) {
        self.live.lock().pages -= frames.len() as u64;
        for frame in frames {
            self.cache.memory().release(frame);
        }
    }
}

impl FileSystem for TmpFs {
    fn id(&self) -> FsId {
        self.id
    }
    fn type_name(&self) -> &'static str {
        "tmpfs"
    }
    fn root(&self) -> Result<VnodeRef> {
        Ok(self.node(VnodeId { fs: self.id, ino: ROOT, generation: 0 })?)
    }
    fn vnode(&self, id: VnodeId) -> Result<VnodeRef> {
        Ok(self.node(id)?)
    }
    fn statfs(&self) -> Result<StatFs> {
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        self.reap();
        let live = self.live.lock();
        let free = live.limit - live.pages;
        let files = live.nodes.len() as u64;
        Ok(StatFs {
            magic: TMPFS_MAGIC,
            blocks: live.limit,
            bfree: free,
            bavail: free,
            files: files + free,
            ffree: free,
            ..StatFs::empty(self.id)
        })
    }
    fn sync(&self) -> Result<()> {
        self.reap();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
