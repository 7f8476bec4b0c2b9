//! Where bytes go and come from: a kernel slice, or a user's buffer behind copyin/copyout.
//!
//! The traits are the "foreign memory is an allegation" rule for this crate: it never sees a
//! user address, only copies that may fail with `EFAULT`. A sink or source may take a page fault,
//! so no spin lock, page lock or inode lock is held while one is called (docs/internals/files.md).

use crate::errno::{Errno, Result};
use alloc::vec::Vec;
use hive_vm::{Frame, PhysMem};

/// Takes the bytes of a read.
pub trait ByteSink {
    /// Room left, bytes.
    fn left(&self) -> usize;
    /// Takes as much of `data` as there is room for; answers how much. `EFAULT` only if not one
    /// byte could be stored.
    fn put(&mut self, data: &[u8]) -> Result<usize>;
    /// Takes bytes of a cached page, `len <= left()`; answers how many, 0 for `EFAULT`. A sink
    /// of user memory does better than this detour over a small buffer.
    fn put_frame(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let mut bounce = Bounce::new();
        let buf = bounce.aligned_as(offset);
        let mut done = 0;
        while done < len {
            let part = &mut buf[..BOUNCE.min(len - done)];
            mem.read(frame, offset + done, part);
            match self.put(part) {
                Ok(n) if n > 0 => done += n,
                _ => break,
            }
        }
        done
    }
}

/// Gives the bytes of a write.
pub trait ByteSource {
    /// Bytes left to give.
    fn left(&self) -> usize;
    /// Fills `buf` from the front; answers how much. `EFAULT` only if not one byte could be had.
    fn get(&mut self, buf: &mut [u8]) -> Result<usize>;
    /// Fills bytes of a cached page, `len <= left()`; otherwise as [`ByteSink::put_frame`].
    fn get_frame(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let mut bounce = Bounce::new();
        let buf = bounce.aligned_as(offset);
        let mut done = 0;
        while done < len {
            let part = &mut buf[..BOUNCE.min(len - done)];
            match self.get(part) {
                Ok(n) if n > 0 => {
                    mem.write(frame, offset + done, &part[..n]);
                    done += n;
                }
                _ => break,
            }
        }
        done
    }
}

/// Bytes on the kernel's stack for a copy between a page and a sink without direct access.
const BOUNCE: usize = 256;

/// The buffer of such a copy. It starts at the same place in a word as the bytes in the page, so
/// that all copies go by words if the user's buffer does too.
#[repr(align(8))]
struct Bounce([u8; BOUNCE + 8]);

impl Bounce {
    fn new() -> Bounce {
        Bounce([0; BOUNCE + 8])
    }
    fn aligned_as(&mut self, offset: usize) -> &mut [u8] {
        &mut self.0[offset % 8..][..BOUNCE]
    }
}

/// A sink as the page cache wants it.
pub struct PageSink<'a>(pub &'a mut dyn ByteSink);

impl hive_vm::Sink for PageSink<'_> {
    fn remaining(&self) -> usize {
        self.0.left()
    }
    fn put(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        self.0.put_frame(mem, frame, offset, len)
    }
}

/// A source as the page cache wants it.
pub struct PageSource<'a>(pub &'a mut dyn ByteSource);

impl hive_vm::Source for PageSource<'_> {
    fn remaining(&self) -> usize {
        self.0.left()
    }
    fn get(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        self.0.get_frame(mem, frame, offset, len)
    }
}

/// The third argument of ioctl(2) and of such calls: a number that may be a user address.
pub trait UserArg {
    /// The argument itself.
    fn value(&self) -> usize;
    /// Copies in what it points to.
    fn read(&self, buf: &mut [u8]) -> Result<()>;
    /// Copies out to where it points.
    fn write(&self, data: &[u8]) -> Result<()>;
}

/// A kernel buffer as sink.
pub struct SliceSink<'a>(&'a mut [u8]);

impl<'a> SliceSink<'a> {
    /// Fills `buf` from the front.
    pub fn new(buf: &'a mut [u8]) -> Self {
        SliceSink(buf)
    }
}

impl ByteSink for SliceSink<'_> {
    fn left(&self) -> usize {
        self.0.len()
    }
    fn put_frame(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        hive_vm::Sink::put(&mut self.0, mem, frame, offset, len)
    }
    fn put(&mut self, data: &[u8]) -> Result<usize> {
        let n = data.len().min(self.0.len());
        let (head, tail) = core::mem::take(&mut self.0).split_at_mut(n);
        head.copy_from_slice(&data[..n]);
        self.0 = tail;
        Ok(n)
    }
}

/// A kernel buffer as source.
pub struct SliceSource<'a>(&'a [u8]);

impl<'a> SliceSource<'a> {
    /// Gives the bytes of `data` in order.
    pub fn new(data: &'a [u8]) -> Self {
        SliceSource(data)
    }
}

impl ByteSource for SliceSource<'_> {
    fn left(&self) -> usize {
        self.0.len()
    }
    fn get_frame(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        hive_vm::Source::get(&mut self.0, mem, frame, offset, len)
    }
    fn get(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = buf.len().min(self.0.len());
        let (head, tail) = self.0.split_at(n);
        buf[..n].copy_from_slice(head);
        self.0 = tail;
        Ok(n)
    }
}

/// A growing kernel buffer as sink, up to a limit.
pub struct VecSink {
    /// What came so far.
    pub data: Vec<u8>,
    limit: usize,
}

impl VecSink {
    /// Takes at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        VecSink { data: Vec::new(), limit }
    }
}

impl ByteSink for VecSink {
    fn left(&self) -> usize {
        self.limit - self.data.len()
    }
    fn put(&mut self, data: &[u8]) -> Result<usize> {
        let n = data.len().min(self.left());
        self.data.extend_from_slice(&data[..n]);
        Ok(n)
    }
}

/// A sink that passes on at most `left` bytes.
pub struct LimitSink<'a> {
    inner: &'a mut dyn ByteSink,
    left: usize,
}

impl<'a> LimitSink<'a> {
    /// The first `limit` bytes that `inner` has room for.
    pub fn new(inner: &'a mut dyn ByteSink, limit: usize) -> Self {
        LimitSink { inner, left: limit }
    }
}

impl ByteSink for LimitSink<'_> {
    fn left(&self) -> usize {
        self.left.min(self.inner.left())
    }
    fn put_frame(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let n = self.inner.put_frame(mem, frame, offset, len);
        self.left -= n;
        n
    }
    fn put(&mut self, data: &[u8]) -> Result<usize> {
        let n = self.inner.put(&data[..data.len().min(self.left)])?;
        self.left -= n;
        Ok(n)
    }
}

/// Puts all of `data`, or says how far it came; an error only if nothing went.
pub fn put_all(sink: &mut dyn ByteSink, data: &[u8]) -> Result<usize> {
    let mut done = 0;
    while done < data.len() && sink.left() > 0 {
        match sink.put(&data[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Puts the part of a whole text that starts at `offset`: how generated files are read.
pub fn put_from(sink: &mut dyn ByteSink, text: &[u8], offset: u64) -> Result<usize> {
    match usize::try_from(offset) {
        Ok(at) if at < text.len() => put_all(sink, &text[at..]),
        _ => Ok(0),
    }
}

/// Gets exactly `buf.len()` bytes or fails with `EFAULT`.
pub fn get_exact(source: &mut dyn ByteSource, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match source.get(&mut buf[done..])? {
            0 => return Err(Errno::EFAULT),
            n => done += n,
        }
    }
    Ok(())
}
