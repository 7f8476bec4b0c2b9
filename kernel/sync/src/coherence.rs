//! Hooks for memory that hardware does not keep coherent (`shared-memory-clusters.txt` §3).
//!
//! Every acquire, release and lockless read of shared kernel data passes through here. On a
//! coherent machine, the only kind supported so far, each is empty and compiles to nothing.
//! On an `smc` machine `acquire` drops the block's lines and `release` writes them back.

/// After a lock is taken: lines of `[at, at + len)` may be stale.
#[inline(always)]
pub fn acquire(_at: *const u8, _len: usize) {}

/// Before a lock is given back: lines of `[at, at + len)` may be dirty.
#[inline(always)]
pub fn release(_at: *const u8, _len: usize) {}

/// Before a lockless read whose answer may be out of date, but not for ever.
#[inline(always)]
pub fn advisory(_at: *const u8, _len: usize) {}
