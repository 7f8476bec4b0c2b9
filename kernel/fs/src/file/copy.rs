//! sendfile(2) and copy_file_range(2): a loop over a kernel buffer of one page.

use super::OpenFile;
use crate::abi::FileType;
use crate::errno::{Errno, Result};
use crate::io::{SliceSink, SliceSource};

const BUFFER: usize = 4096;

/// Copies up to `count` bytes from `from`, at `*offset` (which moves) or at its own offset.
/// `EINVAL` if `from` is a stream.
pub fn sendfile(
    out: &OpenFile,
    from: &OpenFile,
    mut offset: Option<&mut u64>,
    count: usize,
) -> Result<usize> {
    if from.is_stream() {
        return Err(Errno::EINVAL);
    }
    copy(count, |buf, at| {
        let n = match &offset {
            Some(o) => from.pread(**o + at, &mut SliceSink::new(buf))?,
            None => from.read(&mut SliceSink::new(buf))?,
        };
        let wrote = out.write(&mut SliceSource::new(buf.get(..n).unwrap_or(buf)));
        let short = n - *wrote.as_ref().unwrap_or(&0);
        if offset.is_none() && short > 0 {
            from.lseek(-(short as i64), crate::abi::seek::SEEK_CUR)?;
        }
        wrote
    })
    .inspect(|n| {
        if let Some(o) = &mut offset {
            **o += *n as u64;
        }
    })
}

/// Copies up to `count` bytes between regular files; offsets as in [`sendfile`].
pub fn copy_file_range(
    from: &OpenFile,
    mut from_offset: Option<&mut u64>,
    to: &OpenFile,
    mut to_offset: Option<&mut u64>,
    count: usize,
) -> Result<usize> {
    for f in [from, to] {
        match f.vnode().kind() {
            FileType::Regular => {}
            FileType::Dir => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
    }
    if to.flags() & crate::abi::oflag::O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    copy(count, |buf, at| {
        let n = match &from_offset {
            Some(o) => from.pread(**o + at, &mut SliceSink::new(buf))?,
            None => from.read(&mut SliceSink::new(buf))?,
        };
        let mut data = SliceSource::new(buf.get(..n).unwrap_or(buf));
        match &to_offset {
            Some(o) => to.pwrite(**o + at, &mut data),
            None => to.write(&mut data),
        }
    })
    .inspect(|n| {
        if let Some(o) = &mut from_offset {
            **o += *n as u64;
        }
        if let Some(o) = &mut to_offset {
            **o += *n as u64;
        }
    })
}

/// Runs `step(buffer, bytes done)` until `count` is done or it answers less than it was given;
/// an error only if nothing was copied.
fn copy(count: usize, mut step: impl FnMut(&mut [u8], u64) -> Result<usize>) -> Result<usize> {
    let mut buf = alloc::vec![0; BUFFER.min(count)];
    let mut done = 0;
    while done < count {
        let want = buf.len().min(count - done);
        match step(&mut buf[..want], done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}
