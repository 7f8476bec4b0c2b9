//! [`Pager`]: what the page cache asks of a vnode or a block device.

use crate::types::{Error, Frame, Tag};

/// The backing store of an object whose pages are cached: vnodes and block devices implement it.
///
/// Lock rule: the page cache calls every method with none of its own locks held, but its callers
/// may hold whatever lock makes read, write and truncate of the object exclusive, and a page
/// fault may come in the middle of a write to the same file. So no method may take that lock.
pub trait Pager: Send + Sync {
    /// The object's tag, with its present generation. Constant time, never sleeps.
    fn tag(&self) -> Tag;
    /// Bytes of the object now. Constant time, never sleeps.
    fn size(&self) -> u64;
    /// Fills `frames` with pages `index`, `index + 1`, ... of the object; bytes beyond its size
    /// are set to zero. All or nothing. May sleep.
    fn page_in(&self, index: u64, frames: &[Frame]) -> Result<(), Error>;
    /// Writes `frames`, pages `index`, `index + 1`, ..., to the store; what lies beyond the
    /// object's size is not written. All or nothing. May sleep. The frames may change during the
    /// call, and are then written again later.
    fn page_out(&self, index: u64, frames: &[Frame]) -> Result<(), Error>;
    /// Before `[offset, offset + len)` becomes dirty through a shared mapping: find room for it.
    /// (Before a `write` the vnode does so itself.) May sleep.
    fn prepare_write(&self, _offset: u64, _len: usize) -> Result<(), Error> {
        Ok(())
    }
    /// Bytes up to `end` have been written to the cache: raise the size to `end` if it is less.
    fn extend(&self, end: u64);
    /// Dirty pages of the object have been discarded because a failed cell could have damaged
    /// them: grow the generation of the tag (Hive §4.2). Never sleeps.
    fn discarded(&self);
}
