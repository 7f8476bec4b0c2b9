//! An open file that came from another cell with a process: a handle at its home.
//!
//! Reads and writes never wait at the home. What would block registers for one [`Ready`] message
//! and sleeps here, where a signal or the death of the home ends it. The offset is the home's, so
//! processes on both cells share it as after a fork.

use crate::client::{Peer, ask, expected};
use crate::wire::{self, DATA_MAX, Ready, Reply, Request, Travelling};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec;
use core::any::Any;
use hive_fs::abi::{Attr, FileType, StatFs};
use hive_fs::file::FileOps;
use hive_fs::io::{ByteSink, ByteSource, UserArg, put_all};
use hive_fs::poll::{POLLERR, POLLHUP, POLLIN, POLLOUT, PollHead, PollTable};
use hive_fs::vnode::{FileSystem, FsId, Vnode, VnodeId};
use hive_fs::{Errno, OpenFile, Place, Result, VnodeRef};
use hive_protocol::CellId;
use hive_sync::{AtomicU64, SpinLock, rank};

/// The remote files of a cell, so that [`Ready`] messages and deaths find them.
pub struct RemoteFiles {
    peer: Arc<dyn Peer>,
    open: SpinLock<BTreeMap<(usize, u64), Weak<RemoteFile>>>,
}

impl RemoteFiles {
    /// No files yet.
    pub fn new(peer: Arc<dyn Peer>) -> Arc<RemoteFiles> {
        Arc::new(RemoteFiles { peer, open: SpinLock::ranked(rank::FILE, BTreeMap::new()) })
    }

    /// The open file behind what a process brought from another cell.
    pub fn import(self: &Arc<Self>, from: &Travelling) -> Result<Arc<OpenFile>> {
        let home = CellId::new(from.home.into()).ok_or(Errno::EIO)?;
        let file = Arc::new(RemoteFile {
            all: self.clone(),
            home,
            handle: from.handle,
            id: from.id.into(),
            kind: wire::kind(from.kind)?,
            head: PollHead::new(),
            news: AtomicU64::new(0),
        });
        self.open.lock().insert(file.key(), Arc::downgrade(&file));
        let vnode: VnodeRef = Arc::new(HandleVnode(file.clone()));
        Ok(OpenFile::with_ops(Place::anonymous(vnode), Some(file), from.flags))
    }

    /// A handle on the same open file for cell `to`, if `file` is a remote one.
    pub fn dup_for(&self, file: &OpenFile, to: CellId) -> Option<Result<Travelling>> {
        let remote = file.ops()?.as_any().downcast_ref::<RemoteFile>()?;
        let request = Request::HandleDup(remote.handle, to.index() as u16);
        Some(remote.ask(&request).and_then(|reply| {
            Ok(Travelling {
                home: remote.home.index() as u16,
                handle: expected!(reply, Reply::Number(handle) => handle)?,
                flags: file.flags(),
                id: remote.id.into(),
                kind: remote.kind as u8,
            })
        }))
    }

    /// A [`Ready`] message from `home`. Interrupt level.
    pub fn ready(&self, home: CellId, ready: Ready) {
        let file = self.open.lock().get(&(home.index(), ready.0)).and_then(Weak::upgrade);
        if let Some(file) = file {
            file.news.fetch_add(1);
            file.head.notify();
        }
    }

    /// Wakes everyone who waits for a file of `home`: their next call finds it dead.
    pub fn home_died(&self, home: CellId) {
        let files: vec::Vec<_> = {
            let open = self.open.lock();
            let of_home = open.range((home.index(), 0)..=(home.index(), u64::MAX));
            of_home.filter_map(|(_, weak)| weak.upgrade()).collect()
        };
        for file in files {
            file.news.fetch_add(1);
            file.head.notify();
        }
    }
}

struct RemoteFile {
    all: Arc<RemoteFiles>,
    home: CellId,
    handle: u64,
    id: VnodeId,
    kind: FileType,
    head: PollHead,
    /// Ready messages so far.
    news: AtomicU64,
}

impl RemoteFile {
    fn key(&self) -> (usize, u64) {
        (self.home.index(), self.handle)
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        ask(&*self.all.peer, self.home, request)
    }

    /// State now; the home tells when one of `wanted` comes true if none is.
    fn state(&self, wanted: u16) -> u16 {
        match self.ask(&Request::HandlePoll { handle: self.handle, wanted }) {
            Ok(Reply::Number(state)) => state as u16,
            _ => POLLERR | POLLHUP,
        }
    }

    /// Asks until it gets something else than "would block", sleeping in between.
    fn waiting(
        &self,
        nonblock: bool,
        wanted: u16,
        mut request: impl FnMut() -> Result<Reply>,
    ) -> Result<Reply> {
        loop {
            let before = self.news.load();
            match request()? {
                Reply::WouldBlock if nonblock => return Err(Errno::EAGAIN),
                Reply::WouldBlock => {
                    if self.state(wanted) & (wanted | POLLERR | POLLHUP) == 0 {
                        self.head.wait(|| (self.news.load() != before).then_some(()))?;
                    }
                }
                reply => return Ok(reply),
            }
        }
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.key());
        let _ = self.ask(&Request::HandleClose(self.handle));
    }
}

impl FileOps for RemoteFile {
    fn read(&self, _offset: u64, nonblock: bool, sink: &mut dyn ByteSink) -> Result<usize> {
        let count = sink.left().min(DATA_MAX);
        let caller = self.all.peer.caller();
        let reply = self.waiting(nonblock, POLLIN, || {
            self.ask(&Request::HandleRead { handle: self.handle, caller, count: count as u32 })
        })?;
        let data = expected!(reply, Reply::Data(data) => data)?;
        if data.len() > count {
            return Err(Errno::EIO);
        }
        put_all(sink, &data)
    }

    fn write(&self, _offset: u64, nonblock: bool, source: &mut dyn ByteSource) -> Result<usize> {
        let caller = self.all.peer.caller();
        let mut buffer = vec![0; source.left().min(DATA_MAX)];
        let mut done = 0;
        while source.left() > 0 {
            let got = match source.get(&mut buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            let mut data = &buffer[..got];
            while !data.is_empty() {
                let reply = self.waiting(nonblock, POLLOUT, || {
                    self.ask(&Request::HandleWrite { handle: self.handle, caller, data })
                });
                let count = match reply.and_then(|r| expected!(r, Reply::Number(n) => n as usize)) {
                    Ok(0) => return Ok(done),
                    Ok(count) if count <= data.len() => count,
                    Ok(_) => return Err(Errno::EIO),
                    Err(_) if done > 0 => return Ok(done),
                    Err(error) => return Err(error),
                };
                done += count;
                data = &data[count..];
            }
        }
        Ok(done)
    }

    fn shared_offset(&self) -> bool {
        !matches!(self.kind, FileType::Fifo | FileType::Char | FileType::Socket)
    }

    fn seek(&self, delta: i64, whence: u32) -> Result<u64> {
        let reply = self.ask(&Request::HandleSeek { handle: self.handle, delta, whence })?;
        expected!(reply, Reply::Number(at) => at)
    }

    fn poll(&self, table: &mut PollTable) -> u16 {
        table.register(&self.head);
        self.state(POLLIN | POLLOUT)
    }

    fn ioctl(&self, command: u32, arg: &dyn UserArg) -> Result<usize> {
        let (input, output) = ioctl_sizes(command).ok_or(Errno::ENOTTY)?;
        let mut bytes = vec![0; input];
        if input > 0 {
            arg.read(&mut bytes)?;
        }
        let reply = self.ask(&Request::HandleIoctl {
            handle: self.handle,
            caller: self.all.peer.caller(),
            command,
            value: arg.value() as u64,
            input: &bytes,
        })?;
        let (result, data) = expected!(reply, Reply::Ioctl(result, data) => (result, data))?;
        if data.len() > output {
            return Err(Errno::EIO);
        }
        if !data.is_empty() {
            arg.write(&data)?;
        }
        Ok(result as usize)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes that an ioctl reads from and writes to its argument: those of terminals and pipes
/// (asm-generic/ioctls.h); `None` for others, whose arguments nobody here knows.
fn ioctl_sizes(command: u32) -> Option<(usize, usize)> {
    /// `struct termios` of the kernel.
    const TERMIOS: usize = 36;
    Some(match command {
        0x5401 => (0, TERMIOS),             // TCGETS
        0x5402..=0x5404 => (TERMIOS, 0),    // TCSETS, TCSETSW, TCSETSF
        0x5409..=0x540b | 0x540e => (0, 0), // TCSBRK, TCXONC, TCFLSH, TIOCSCTTY
        0x5425 | 0x5422 => (0, 0),          // TCSBRKP, TIOCNOTTY
        0x540f | 0x5429 | 0x541b => (0, 4), // TIOCGPGRP, TIOCGSID, FIONREAD
        0x5410 => (4, 0),                   // TIOCSPGRP
        0x5413 => (0, 8),                   // TIOCGWINSZ
        0x5414 => (8, 0),                   // TIOCSWINSZ
        _ => return None,
    })
}

/// The vnode of a remote file: enough for fstat.
struct HandleVnode(Arc<RemoteFile>);

impl Vnode for HandleVnode {
    fn id(&self) -> VnodeId {
        self.0.id
    }
    fn kind(&self) -> FileType {
        self.0.kind
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        Arc::new(HandleFs(self.0.home))
    }
    fn getattr(&self) -> Result<Attr> {
        let reply = self.0.ask(&Request::HandleAttr(self.0.handle))?;
        expected!(reply, Reply::Attr(attr) => attr.attr()?)
    }
}

/// What fstatfs sees of a remote file: nothing but its home.
struct HandleFs(CellId);

impl FileSystem for HandleFs {
    fn id(&self) -> FsId {
        FsId::new(self.0.index() as u16, u16::MAX)
    }
    fn type_name(&self) -> &'static str {
        "hive"
    }
    fn root(&self) -> Result<VnodeRef> {
        Err(Errno::ESTALE)
    }
    fn vnode(&self, _id: VnodeId) -> Result<VnodeRef> {
        Err(Errno::ESTALE)
    }
    fn statfs(&self) -> Result<StatFs> {
        Err(Errno::ENOSYS)
    }
}
