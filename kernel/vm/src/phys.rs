//! Access to the bytes of frames, and the two ends of a copy between a frame and a caller.

use crate::types::{Error, Frame, PAGE_SIZE};

/// The bytes of this cell's frames. The kernel implements it over its direct map, host tests over
/// a `Vec`. Offsets and lengths stay within one frame; an implementation panics otherwise.
/// Nothing here orders accesses: a page that two harts write at once holds a mix, as in any kernel.
pub trait PhysMem: Send + Sync {
    /// Copies `frame[offset..][..dst.len()]` to `dst`.
    fn read(&self, frame: Frame, offset: usize, dst: &mut [u8]);
    /// Copies `src` to `frame[offset..][..src.len()]`.
    fn write(&self, frame: Frame, offset: usize, src: &[u8]);
    /// Zeroes `frame[offset..][..len]`.
    fn zero(&self, frame: Frame, offset: usize, len: usize);
    /// Copies the whole of `from` to `to`.
    fn copy(&self, from: Frame, to: Frame);
}

/// Where bytes go that are read from pages: a kernel slice here, user memory in the kernel image.
pub trait Sink {
    /// Bytes still wanted.
    fn remaining(&self) -> usize;
    /// Takes `frame[offset..][..len]`, `len <= remaining()`. Returns how many bytes it took; fewer
    /// than `len` ends the transfer (a user page is missing). May fault pages in: called with no
    /// lock of this crate held.
    fn put(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize;
}

/// Where bytes come from that are written to pages.
pub trait Source {
    /// Bytes still to give.
    fn remaining(&self) -> usize;
    /// Fills `frame[offset..][..len]`; otherwise as [`Sink::put`].
    fn get(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize;
}

/// A kernel slice as [`Sink`].
impl Sink for &mut [u8] {
    fn remaining(&self) -> usize {
        self.len()
    }
    fn put(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let (now, later) = core::mem::take(self).split_at_mut(len);
        mem.read(frame, offset, now);
        *self = later;
        len
    }
}

/// A kernel slice as [`Source`].
impl Source for &[u8] {
    fn remaining(&self) -> usize {
        self.len()
    }
    fn get(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let (now, later) = self.split_at(len);
        mem.write(frame, offset, now);
        *self = later;
        len
    }
}

/// Walks `[offset, offset + len)` page by page, calling `copy(page index, offset in page, bytes)`
/// until it moves less than asked. Returns the bytes moved, or the error if there were none.
pub(crate) fn by_page(
    offset: u64,
    len: usize,
    mut copy: impl FnMut(u64, usize, usize) -> Result<usize, Error>,
) -> Result<usize, Error> {
    let mut done = 0;
    while done < len {
        let at = offset.checked_add(done as u64).ok_or(Error::Invalid)?;
        let within = (at % PAGE_SIZE as u64) as usize;
        let want = (PAGE_SIZE - within).min(len - done);
        match copy(at / PAGE_SIZE as u64, within, want) {
            Ok(moved) => {
                done += moved;
                if moved < want {
                    return if done == 0 { Err(Error::BadAddress) } else { Ok(done) };
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
