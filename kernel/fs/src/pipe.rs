//! Pipes and fifos: a bounded stream of bytes between those who write and those who read.
//!
//! A write of up to [`PIPE_BUF`] bytes stays in one piece. The bytes are under a spin lock; a copy
//! to or from a user is made outside it through a buffer, and `reading` keeps readers from
//! taking the same bytes twice in the meantime (lock order: `reading`, then `state`).

use crate::abi::{Attr, FileType, StatFs, oflag::*};
use crate::errno::{Errno, Result};
use crate::file::{FIONREAD, FileOps, OpenFile};
use crate::io::{ByteSink, ByteSource, UserArg, put_all};
use crate::name::Place;
use crate::poll::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, PollHead, PollTable};
use crate::vnode::{FileSystem, FsId, Vnode, VnodeId, VnodeRef};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec;
use core::any::Any;
use hive_sync::{AtomicU64, Mutex, SpinLock, rank};

/// Bytes a pipe holds (Linux's default).
pub const PIPE_SIZE: usize = 64 << 10;
/// Largest write that is never mixed with others.
pub const PIPE_BUF: usize = 4096;

/// A pipe, whoever holds its ends.
pub struct Pipe {
    state: SpinLock<State>,
    reading: Mutex<()>,
    head: PollHead,
}

struct State {
    bytes: VecDeque<u8>,
    readers: usize,
    writers: usize,
    /// How often each side was ever opened: an opener of a fifo waits for the other to change.
    opened: [u64; 2],
}

/// One open end; both for a fifo opened O_RDWR.
struct End {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
}

impl Pipe {
    fn new() -> Arc<Pipe> {
        let state = State { bytes: VecDeque::new(), readers: 0, writers: 0, opened: [0; 2] };
        Arc::new(Pipe {
            state: SpinLock::ranked(rank::FILE, state),
            reading: Mutex::new(()),
            head: PollHead::new(),
        })
    }

    fn end(self: &Arc<Pipe>, reads: bool, writes: bool) -> Arc<End> {
        let mut state = self.state.lock();
        state.readers += reads as usize;
        state.writers += writes as usize;
        state.opened[0] += reads as u64;
        state.opened[1] += writes as u64;
        drop(state);
        self.head.notify();
        Arc::new(End { pipe: self.clone(), reads, writes })
    }

    /// Waits for `ready` to give a value, or says `EAGAIN` where waiting is not wanted.
    fn wait<T>(
        &self,
        nonblock: bool,
        mut ready: impl FnMut(&mut State) -> Option<Result<T>>,
    ) -> Result<T> {
        if nonblock {
            return ready(&mut self.state.lock()).unwrap_or(Err(Errno::EAGAIN));
        }
        self.head.wait(|| ready(&mut self.state.lock()))?
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.pipe.state.lock();
        state.readers -= self.reads as usize;
        state.writers -= self.writes as usize;
        drop(state);
        self.pipe.head.notify();
    }
}

impl FileOps for End {
    fn read(&self, _offset: u64, nonblock: bool, sink: &mut dyn ByteSink) -> Result<usize> {
        if sink.left() == 0 {
            return Ok(0);
        }
        loop {
            let some = self.pipe.wait(nonblock, |state| match state.bytes.is_empty() {
                false => Some(Ok(true)),
                true if state.writers == 0 => Some(Ok(false)),
                true => None,
            })?;
            if !some {
                return Ok(0);
            }
            let turn = self.pipe.reading.lock();
            let mut done = 0;
            loop {
                let part: vec::Vec<u8> = {
                    let state = self.pipe.state.lock();
                    state.bytes.iter().copied().take(sink.left().min(PIPE_BUF)).collect()
                };
                let taken = match put_all(sink, &part) {
                    Ok(0) => break,
                    Ok(n) => n,
                    Err(_) if done > 0 => break,
                    Err(e) => return Err(e),
                };
                self.pipe.state.lock().bytes.drain(..taken);
                done += taken;
            }
            drop(turn);
            // Another reader may have been faster.
            if done > 0 {
                self.pipe.head.notify();
                return Ok(done);
            }
        }
    }

    fn write(&self, _offset: u64, nonblock: bool, source: &mut dyn ByteSource) -> Result<usize> {
        let whole = source.left() <= PIPE_BUF;
        let mut buffer = vec![0; source.left().min(PIPE_BUF)];
        let mut done = 0;
        while source.left() > 0 {
            let got = match source.get(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            };
            let mut part = &buffer[..got];
            while !part.is_empty() {
                let pushed = self.pipe.wait(nonblock, |state| {
                    let room = PIPE_SIZE - state.bytes.len();
                    if state.readers == 0 {
                        return Some(Err(Errno::EPIPE));
                    }
                    let now = if whole && room < part.len() { 0 } else { room.min(part.len()) };
                    state.bytes.extend(&part[..now]);
                    (now > 0).then_some(Ok(now))
                });
                match pushed {
                    Ok(n) => (done, part) = (done + n, &part[n..]),
                    Err(_) if done > 0 => return Ok(done),
                    Err(e) => return Err(e),
                }
                self.pipe.head.notify();
            }
        }
        Ok(done)
    }

    fn poll(&self, table: &mut PollTable) -> u16 {
        table.register(&self.pipe.head);
        let state = self.pipe.state.lock();
        let mut bits = 0;
        if self.reads {
            bits |= if state.bytes.is_empty() { 0 } else { POLLIN | POLLRDNORM };
            bits |= if state.writers == 0 { POLLHUP } else { 0 };
        }
        if self.writes {
            let room = PIPE_SIZE - state.bytes.len() >= PIPE_BUF;
            bits |= if room { POLLOUT | POLLWRNORM } else { 0 };
            bits |= if state.readers == 0 { POLLERR } else { 0 };
        }
        bits
    }

    fn ioctl(&self, cmd: u32, arg: &dyn UserArg) -> Result<usize> {
        if cmd != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let count = self.pipe.state.lock().bytes.len() as i32;
        arg.write(&count.to_le_bytes())?;
        Ok(0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes a pipe can hold, if `ops` is one (F_GETPIPE_SZ).
pub fn pipe_size(ops: &dyn FileOps) -> Option<usize> {
    ops.as_any().downcast_ref::<End>().map(|_| PIPE_SIZE)
}

/// Where pipes without a name live.
pub struct PipeFs {
    id: FsId,
    next: AtomicU64,
}

impl PipeFs {
    /// The pipes of a cell.
    pub fn new(id: FsId) -> Arc<PipeFs> {
        Arc::new(PipeFs { id, next: AtomicU64::new(1) })
    }

    /// pipe2(2): the end to read and the end to write. `flags`: O_NONBLOCK, O_CLOEXEC is the
    /// descriptor table's affair.
    pub fn pipe(self: &Arc<PipeFs>, flags: u32) -> (Arc<OpenFile>, Arc<OpenFile>) {
        let ino = self.next.fetch_add(1);
        let pipe = Pipe::new();
        let vnode: VnodeRef = Arc::new(PipeVnode { fs: self.clone(), ino, pipe: pipe.clone() });
        let flags = flags & O_NONBLOCK;
        let open = |end: Arc<End>, mode| {
            OpenFile::with_ops(Place::anonymous(vnode.clone()), Some(end), flags | mode)
        };
        (open(pipe.end(true, false), O_RDONLY), open(pipe.end(false, true), O_WRONLY))
    }
}

impl FileSystem for PipeFs {
    fn id(&self) -> FsId {
        self.id
    }
    fn type_name(&self) -> &'static str {
        "pipefs"
    }
    fn root(&self) -> Result<VnodeRef> {
        Err(Errno::ENODEV)
    }
    fn vnode(&self, _id: VnodeId) -> Result<VnodeRef> {
        Err(Errno::ESTALE)
    }
    fn statfs(&self) -> Result<StatFs> {
        const PIPEFS_MAGIC: u64 = 0x5049_5045;
        Ok(StatFs { magic: PIPEFS_MAGIC, ..StatFs::empty(self.id) })
    }
}

struct PipeVnode {
    fs: Arc<PipeFs>,
    ino: u64,
    pipe: Arc<Pipe>,
}

impl Vnode for PipeVnode {
    fn id(&self) -> VnodeId {
        VnodeId { fs: self.fs.id, ino: self.ino, generation: 0 }
    }
    fn kind(&self) -> FileType {
        FileType::Fifo
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn getattr(&self) -> Result<Attr> {
        Ok(Attr::bare(self.fs.id.dev(), self.ino, FileType::Fifo, 0o600))
    }
    /// Through /proc/PID/fd/N: one more end of the same pipe.
    fn open(&self, open_flags: u32) -> Result<Option<Arc<dyn FileOps>>> {
        Ok(Some(open_end(&self.pipe, open_flags, false)?))
    }
}

/// The pipes behind the fifos that are open somewhere on this cell.
static FIFOS: SpinLock<BTreeMap<VnodeId, Weak<Pipe>>> =
    SpinLock::ranked(rank::FILE, BTreeMap::new());

/// Opens the fifo `id`: what [`Vnode::open`] of a fifo does. Waits for the other side as fifo(7)
/// says: a reader for a writer and the other way round, unless O_NONBLOCK.
pub fn open_fifo(id: VnodeId, flags: u32) -> Result<Arc<dyn FileOps>> {
    let pipe = {
        let mut fifos = FIFOS.lock();
        fifos.retain(|_, pipe| pipe.strong_count() > 0);
        match fifos.get(&id).and_then(Weak::upgrade) {
            Some(pipe) => pipe,
            None => {
                let pipe = Pipe::new();
                fifos.insert(id, Arc::downgrade(&pipe));
                pipe
            }
        }
    };
    open_end(&pipe, flags, true)
}

/// An end as the flags ask; with `wait`, the other side is waited for.
fn open_end(pipe: &Arc<Pipe>, flags: u32, wait: bool) -> Result<Arc<dyn FileOps>> {
    let (reads, writes) = match flags & O_ACCMODE {
        O_RDONLY => (true, false),
        O_WRONLY => (false, true),
        O_RDWR => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    let nonblock = flags & O_NONBLOCK != 0;
    let (others, seen) = {
        let state = pipe.state.lock();
        let others = if reads { state.writers } else { state.readers };
        (others, state.opened[reads as usize])
    };
    if wait && writes && !reads && others == 0 && nonblock {
        return Err(Errno::ENXIO);
    }
    let end = pipe.end(reads, writes);
    if wait && others == 0 && !nonblock && reads != writes {
        pipe.head.wait(|| (pipe.state.lock().opened[reads as usize] != seen).then_some(()))?;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{SliceSource, VecSink};

    fn pair() -> (Arc<OpenFile>, Arc<OpenFile>) {
        PipeFs::new(FsId::new(0, 9)).pipe(O_NONBLOCK)
    }

    fn read(file: &OpenFile, n: usize) -> Result<alloc::vec::Vec<u8>> {
        let mut sink = VecSink::new(n);
        file.read(&mut sink).map(|_| sink.data)
    }

    #[test]
    fn bytes_come_out_in_order_and_end_with_the_writers() {
        let (r, w) = pair();
        assert_eq!(read(&r, 10), Err(Errno::EAGAIN));
        assert_eq!(w.write(&mut SliceSource::new(b"hello")), Ok(5));
        assert_eq!(read(&r, 3).unwrap(), b"hel");
        drop(w);
        assert_eq!(read(&r, 9).unwrap(), b"lo");
        assert_eq!(read(&r, 9).unwrap(), b"");
    }

    #[test]
    fn a_small_write_is_whole_or_not_at_all() {
        let (r, w) = pair();
        assert_eq!(w.write(&mut SliceSource::new(&[1; PIPE_SIZE - 10])), Ok(PIPE_SIZE - 10));
        assert_eq!(w.write(&mut SliceSource::new(&[2; 11])), Err(Errno::EAGAIN));
        assert_eq!(w.write(&mut SliceSource::new(&[2; PIPE_BUF + 1])), Ok(10));
        assert_eq!(read(&r, 1).unwrap(), [1]);
        drop(r);
        assert_eq!(w.write(&mut SliceSource::new(b"x")), Err(Errno::EPIPE));
    }

    #[test]
    fn readiness_follows_the_other_end() {
        let (r, w) = pair();
        let state = |f: &OpenFile| f.poll(&mut PollTable::new());
        assert_eq!(state(&r), 0);
        assert_eq!(state(&w), POLLOUT | POLLWRNORM);
        w.write(&mut SliceSource::new(b"x")).unwrap();
        assert_eq!(state(&r), POLLIN | POLLRDNORM);
        drop(w);
        assert_eq!(state(&r), POLLIN | POLLRDNORM | POLLHUP);
    }

    #[test]
    fn a_blocked_reader_is_woken() {
        let (r, w) = PipeFs::new(FsId::new(0, 9)).pipe(0);
        let reader = std::thread::spawn(move || read(&r, 5).unwrap());
        w.write(&mut SliceSource::new(b"abc")).unwrap();
        assert_eq!(reader.join().unwrap(), b"abc");
    }

    #[test]
    fn a_fifo_without_reader_refuses_an_impatient_writer() {
        let id = VnodeId { fs: FsId::new(0, 9), ino: 77, generation: 0 };
        assert_eq!(open_fifo(id, O_WRONLY | O_NONBLOCK).err(), Some(Errno::ENXIO));
        let r = open_fifo(id, O_RDONLY | O_NONBLOCK).unwrap();
        let w = open_fifo(id, O_WRONLY).unwrap();
        w.write(0, true, &mut SliceSource::new(b"f")).unwrap();
        let mut sink = VecSink::new(4);
        assert_eq!(r.read(0, true, &mut sink), Ok(1));
    }
}
