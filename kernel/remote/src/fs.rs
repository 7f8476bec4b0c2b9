//! A tree of another cell, and its shadow vnodes (Hive §5.2).
//!
//! read and write go to the home's page cache each time, so all cells see one file. What is
//! mapped or executed is paged in here; [`Vnode::pager`] compares the home's change time and starts
//! with an empty cache if the file changed since (close-to-open, until pages are shared).
//!
//! Locks: `known` and `forgotten` are leaves; no call is made with one held.

use crate::client::{Peer, ask, expected};
use crate::wire::{self, DATA_MAX, Id, Reply, Request, Tree, WireKind};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use hive_fs::abi::{Attr, FileType, StatFs, Time};
use hive_fs::file::FileOps;
use hive_fs::io::{ByteSink, ByteSource, put_all};
use hive_fs::vnode::{DirEntry, EmitEntry, FileSystem, FsId, NewFile, SetAttr, Vnode, VnodeId};
use hive_fs::{Errno, Result, VnodeRef};
use hive_protocol::CellId;
use hive_sync::{AtomicU64, SpinLock, rank};
use hive_vm::{Cache, CellNumber, Error, Frame, Kind, PAGE_SIZE, Pager, Tag};

/// Vnodes let go are told to the home this many at a time.
const FORGET_BATCH: usize = 32;

/// A tree whose home is another cell.
pub struct RemoteFs {
    home: CellId,
    tree: Tree,
    peer: Arc<dyn Peer>,
    cache: Arc<Cache>,
    itself: Weak<RemoteFs>,
    known: SpinLock<BTreeMap<Id, Weak<RemoteVnode>>>,
    forgotten: SpinLock<Vec<(Id, u32)>>,
}

impl RemoteFs {
    /// The tree `tree` of cell `home`. Asks nothing yet.
    pub fn new(home: CellId, tree: Tree, peer: Arc<dyn Peer>, cache: Arc<Cache>) -> Arc<RemoteFs> {
        Arc::new_cyclic(|itself| RemoteFs {
            home,
            tree,
            peer,
            cache,
            itself: itself.clone(),
            known: SpinLock::ranked(rank::FILE, BTreeMap::new()),
            forgotten: SpinLock::ranked(rank::FILE, Vec::new()),
        })
    }

    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        let batch = {
            let mut forgotten = self.forgotten.lock();
            let full = forgotten.len() >= FORGET_BATCH;
            if full { core::mem::take(&mut *forgotten) } else { Vec::new() }
        };
        if !batch.is_empty() {
            // Lost only if the home is dead, and then it does not matter.
            let _ = ask(&*self.peer, self.home, &Request::Forget(&wire::encode(&batch)));
        }
        ask(&*self.peer, self.home, request)
    }

    /// The vnode that the home just handed out.
    fn handed(&self, reply: Reply) -> Result<VnodeRef> {
        let (id, kind) = expected!(reply, Reply::Vnode(id, kind) => (id, wire::kind(kind)?))?;
        // A home names only its own files.
        if VnodeId::from(id).fs.cell() != self.home.index() as u16 {
            return Err(Errno::EIO);
        }
        let mut known = self.known.lock();
        if let Some(vnode) = known.get(&id).and_then(Weak::upgrade) {
            vnode.handed.fetch_add(1);
            return Ok(vnode);
        }
        let vnode = Arc::new(RemoteVnode {
            fs: self.itself.upgrade().ok_or(Errno::EIO)?,
            id,
            kind,
            handed: AtomicU64::new(1),
            pages: SpinLock::ranked(rank::FILE, Pages::default()),
        });
        known.insert(id, Arc::downgrade(&vnode));
        Ok(vnode)
    }
}

impl FileSystem for RemoteFs {
    fn id(&self) -> FsId {
        FsId::new(self.home.index() as u16, 0x8000 | self.tree as u16)
    }
    fn type_name(&self) -> &'static str {
        "hive"
    }
    fn root(&self) -> Result<VnodeRef> {
        let reply = self.ask(&Request::Root(self.tree))?;
        self.handed(reply)
    }
    fn vnode(&self, id: VnodeId) -> Result<VnodeRef> {
        let vnode = self.known.lock().get(&id.into()).and_then(Weak::upgrade);
        Ok(vnode.ok_or(Errno::ESTALE)?)
    }
    fn statfs(&self) -> Result<StatFs> {
        expected!(self.ask(&Request::StatFs(self.tree))?, Reply::StatFs(w) => wire::statfs(w))
    }
    fn sync(&self) -> Result<()> {
        expected!(self.ask(&Request::Sync)?, Reply::Done => ())
    }
}

/// A shadow vnode.
struct RemoteVnode {
    fs: Arc<RemoteFs>,
    id: Id,
    kind: FileType,
    /// How often the home handed it out, told back when it is let go.
    handed: AtomicU64,
    pages: SpinLock<Pages>,
}

/// What the pager of a shadow vnode knows of the file.
#[derive(Clone, Copy, Default)]
struct Pages {
    size: u64,
    changed: (Time, Time),
    generation: u32,
}

impl RemoteVnode {
    fn done(&self, request: &Request<'_>) -> Result<()> {
        expected!(self.fs.ask(request)?, Reply::Done => ())
    }

    fn tag(&self, generation: u32) -> Tag {
        let VnodeId { fs, ino, .. } = self.id.into();
        // Ids of a home's trees differ in the low half of the file system's id.
        let object = u64::from(fs.0 & 0xffff) << 48 | ino & 0xffff_ffff_ffff;
        Tag { home: CellNumber(self.fs.home.index() as u16), kind: Kind::File, object, generation }
    }

    fn read_chunk(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        let request = Request::Read { id: self.id, offset, count: count.min(DATA_MAX) as u32 };
        let data = expected!(self.fs.ask(&request)?, Reply::Data(data) => data)?;
        if data.len() > count { Err(Errno::EIO) } else { Ok(data) }
    }

    fn write_chunk(&self, offset: Option<u64>, data: &[u8]) -> Result<(usize, u64)> {
        let reply = self.fs.ask(&Request::Write { id: self.id, offset, data })?;
        let (count, behind) = expected!(reply, Reply::Written(count, behind) => (count, behind))?;
        let count = usize::try_from(count).map_err(|_| Errno::EIO)?;
        if count > data.len() { Err(Errno::EIO) } else { Ok((count, behind)) }
    }
}

impl Drop for RemoteVnode {
    fn drop(&mut self) {
        let mut known = self.fs.known.lock();
        if known.get(&self.id).is_some_and(|weak| weak.strong_count() == 0) {
            known.remove(&self.id);
        }
        drop(known);
        self.fs.forgotten.lock().push((self.id, self.handed.load() as u32));
    }
}

impl Vnode for RemoteVnode {
    fn id(&self) -> VnodeId {
        self.id.into()
    }
    fn kind(&self) -> FileType {
        self.kind
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn getattr(&self) -> Result<Attr> {
        let attr =
            expected!(self.fs.ask(&Request::GetAttr(self.id))?, Reply::Attr(a) => a.attr()?)?;
        if attr.kind == self.kind { Ok(attr) } else { Err(Errno::EIO) }
    }
    fn setattr(&self, set: &SetAttr) -> Result<()> {
        self.done(&Request::SetAttr(self.id, set.into()))
    }
    fn lookup(&self, name: &[u8]) -> Result<VnodeRef> {
        self.fs.handed(self.fs.ask(&Request::Lookup(self.id, name))?)
    }
    fn create(&self, name: &[u8], new: &NewFile<'_>) -> Result<VnodeRef> {
        let NewFile { ref kind, perm, uid, gid } = *new;
        let kind = WireKind::of(kind);
        self.fs.handed(self.fs.ask(&Request::Create {
            dir: self.id,
            name,
            kind,
            perm,
            uid,
            gid,
        })?)
    }
    fn link(&self, name: &[u8], target: VnodeId) -> Result<()> {
        self.done(&Request::Link { dir: self.id, name, target: target.into() })
    }
    fn unlink(&self, name: &[u8]) -> Result<()> {
        self.done(&Request::Unlink(self.id, name))
    }
    fn rmdir(&self, name: &[u8]) -> Result<()> {
        self.done(&Request::Rmdir(self.id, name))
    }
    fn rename(&self, old: &[u8], to: VnodeId, new: &[u8], flags: u32) -> Result<()> {
        self.done(&Request::Rename { dir: self.id, old, to: to.into(), new, flags })
    }
    fn readdir(&self, mut cookie: u64, emit: &mut EmitEntry<'_>) -> Result<()> {
        loop {
            let reply = self.fs.ask(&Request::ReadDir { dir: self.id, cookie })?;
            let entries = expected!(reply, Reply::Entries(list) => list)?;
            if entries.is_empty() {
                return Ok(());
            }
            for (ino, d_type, name, next) in &entries {
                // A home that repeats itself must not hold us for ever.
                if *next <= cookie || name.is_empty() || name.contains(&b'/') {
                    return Err(Errno::EIO);
                }
                if !emit(DirEntry { ino: *ino, d_type: *d_type, name, next: *next }) {
                    return Ok(());
                }
                cookie = *next;
            }
        }
    }
    fn readlink(&self) -> Result<Vec<u8>> {
        expected!(self.fs.ask(&Request::Readlink(self.id))?, Reply::Data(text) => text)
    }
    fn open(&self, _flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        match self.kind {
            FileType::Regular | FileType::Dir | FileType::Symlink => Ok(None),
            _ => Err(Errno::ENXIO),
        }
    }
    fn read_at(&self, offset: u64, sink: &mut dyn ByteSink) -> Result<usize> {
        if self.kind == FileType::Dir {
            return Err(Errno::EISDIR);
        }
        let mut done = 0;
        while sink.left() > 0 {
            let at = offset.checked_add(done as u64).ok_or(Errno::EINVAL)?;
            let data = match self.read_chunk(at, sink.left()) {
                Ok(data) => data,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            let taken = put_all(sink, &data);
            done += if done > 0 { taken.unwrap_or(0) } else { taken? };
            if data.len() < DATA_MAX {
                break;
            }
        }
        Ok(done)
    }
    fn write_at(
        &self,
        mut offset: Option<u64>,
        source: &mut dyn ByteSource,
    ) -> Result<(usize, u64)> {
        if self.kind == FileType::Dir {
            return Err(Errno::EISDIR);
        }
        let (mut done, mut behind) = (0, offset.unwrap_or(0));
        let mut buffer = vec![0; source.left().min(DATA_MAX)];
        while source.left() > 0 {
            let got = match source.get(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            let (count, end) = match self.write_chunk(offset, &buffer[..got]) {
                Ok(written) => written,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            (done, behind) = (done + count, end);
            // An append goes on where its first part ended.
            offset = Some(end);
            if count < got {
                break;
            }
        }
        Ok((done, behind))
    }
    fn seek_extent(&self, offset: u64, hole: bool) -> Result<u64> {
        let reply = self.fs.ask(&Request::SeekExtent { id: self.id, offset, hole })?;
        expected!(reply, Reply::Number(at) => at)
    }
    fn fsync(&self, data_only: bool) -> Result<()> {
        let itself = self.fs.known.lock().get(&self.id).and_then(Weak::upgrade);
        if let Some(vnode) = itself {
            // What a shared mapping made dirty goes to the home first.
            let pager: Arc<dyn Pager> = vnode;
            self.fs.cache.sync(&pager).map_err(|_| Errno::EIO)?;
        }
        self.done(&Request::Fsync { id: self.id, data_only })
    }
    fn pager(self: Arc<Self>) -> Option<Arc<dyn Pager>> {
        if self.kind != FileType::Regular {
            return None;
        }
        let attr = self.getattr().ok()?;
        let changed = (attr.mtime, attr.ctime);
        let stale = {
            let mut pages = self.pages.lock();
            let stale = (pages.changed != changed || pages.size != attr.size)
                .then(|| self.tag(pages.generation));
            pages.generation += stale.is_some() as u32;
            pages.size = attr.size;
            pages.changed = changed;
            stale
        };
        if let Some(tag) = stale {
            self.fs.cache.invalidate(tag);
        }
        Some(self)
    }
}

impl Pager for RemoteVnode {
    fn tag(&self) -> Tag {
        let generation = self.pages.lock().generation;
        RemoteVnode::tag(self, generation)
    }
    fn size(&self) -> u64 {
        self.pages.lock().size
    }
    fn page_in(&self, index: u64, frames: &[Frame]) -> core::result::Result<(), Error> {
        let phys = self.fs.cache.memory().phys();
        for (frame, page) in frames.iter().zip(index..) {
            let mut at = 0;
            while at < PAGE_SIZE {
                let offset = page * PAGE_SIZE as u64 + at as u64;
                let data = self.read_chunk(offset, PAGE_SIZE - at).map_err(|_| Error::Io)?;
                if data.is_empty() {
                    break;
                }
                phys.write(*frame, at, &data);
                at += data.len();
            }
            phys.zero(*frame, at, PAGE_SIZE - at);
        }
        Ok(())
    }
    fn page_out(&self, index: u64, frames: &[Frame]) -> core::result::Result<(), Error> {
        let phys = self.fs.cache.memory().phys();
        let mut bytes = [0; PAGE_SIZE];
        for (frame, page) in frames.iter().zip(index..) {
            let offset = page * PAGE_SIZE as u64;
            let length = self.size().saturating_sub(offset).min(PAGE_SIZE as u64) as usize;
            phys.read(*frame, 0, &mut bytes);
            let mut done = 0;
            while done < length {
                let at = Some(offset + done as u64);
                match self.write_chunk(at, &bytes[done..length]) {
                    Ok((0, _)) | Err(_) => return Err(Error::Io),
                    Ok((count, _)) => done += count,
                }
            }
        }
        Ok(())
    }
    fn extend(&self, end: u64) {
        let mut pages = self.pages.lock();
        pages.size = pages.size.max(end);
    }
    fn discarded(&self) {
        self.pages.lock().generation += 1;
    }
}
