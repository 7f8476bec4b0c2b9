//! POSIX record locks (fcntl F_SETLK, F_SETLKW, F_GETLK): byte ranges owned by a process.
//!
//! Kept per cell, keyed by [`VnodeId`]: processes of one cell see each other's locks, also on
//! shadow vnodes. Absent: locks between cells, deadlock detection of F_SETLKW.

use crate::errno::{Errno, Result};
use crate::poll::PollHead;
use crate::vnode::VnodeId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hive_sync::{SpinLock, rank};

/// Kind of a record lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// F_RDLCK.
    Read,
    /// F_WRLCK.
    Write,
}

/// Bytes `start..end` of a file; `end` is `u64::MAX` for "to the end, however far it grows".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
}

/// A held lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordLock {
    /// Bytes.
    pub range: LockRange,
    /// Kind.
    pub kind: LockKind,
    /// The owning descriptor table ([`super::FdTable::lock_owner`]).
    pub owner: u64,
    /// Process id told by F_GETLK.
    pub pid: i32,
}

static LOCKS: SpinLock<BTreeMap<VnodeId, Vec<RecordLock>>> =
    SpinLock::ranked(rank::FILE, BTreeMap::new());
static FREED: PollHead = PollHead::new();

/// The first lock of another owner that keeps `want` from being taken.
pub fn get_lock(file: VnodeId, want: &RecordLock) -> Option<RecordLock> {
    LOCKS.lock().get(&file).and_then(|l| conflict(l, want))
}

fn conflict(locks: &[RecordLock], want: &RecordLock) -> Option<RecordLock> {
    let clash = |l: &&RecordLock| {
        l.owner != want.owner
            && l.range.start < want.range.end
            && want.range.start < l.range.end
            && (l.kind == LockKind::Write || want.kind == LockKind::Write)
    };
    locks.iter().find(clash).copied()
}

/// F_SETLK (`wait` false: `EAGAIN` if another holds it) and F_SETLKW; replaces what the owner
/// held in the range. `unlock` gives the range back instead.
pub fn set_lock(file: VnodeId, lock: RecordLock, unlock: bool, wait: bool) -> Result<()> {
    let attempt = || {
        let mut all = LOCKS.lock();
        let locks = all.entry(file).or_default();
        let free = unlock || conflict(locks, &lock).is_none();
        if free {
            replace(locks, &lock, unlock);
        }
        if locks.is_empty() {
            all.remove(&file);
        }
        free.then_some(())
    };
    if wait {
        FREED.wait(attempt)?;
    } else {
        attempt().ok_or(Errno::EAGAIN)?;
    }
    FREED.notify();
    Ok(())
}

/// Drops every lock of `owner` on `file`: any close of it.
pub fn drop_locks(file: VnodeId, owner: u64) {
    let mut all = LOCKS.lock();
    let Some(locks) = all.get_mut(&file) else { return };
    locks.retain(|l| l.owner != owner);
    if locks.is_empty() {
        all.remove(&file);
    }
    drop(all);
    FREED.notify();
}

/// Cuts the owner's locks out of the range, then adds the new one.
fn replace(locks: &mut Vec<RecordLock>, new: &RecordLock, unlock: bool) {
    let mut kept = Vec::with_capacity(locks.len() + 2);
    for l in locks.iter() {
        let apart = l.range.end <= new.range.start || new.range.end <= l.range.start;
        if l.owner != new.owner || apart {
            kept.push(*l);
            continue;
        }
        if l.range.start < new.range.start {
            kept.push(RecordLock { range: LockRange { end: new.range.start, ..l.range }, ..*l });
        }
        if l.range.end > new.range.end {
            kept.push(RecordLock { range: LockRange { start: new.range.end, ..l.range }, ..*l });
        }
    }
    if !unlock {
        kept.push(*new);
    }
    *locks = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vnode::FsId;

    #[test]
    fn ranges_split_conflict_and_go_on_close() {
        let file = VnodeId { fs: FsId(77), ino: 1, generation: 0 };
        let lock = |owner, start, end, kind| RecordLock {
            range: LockRange { start, end },
            kind,
            owner,
            pid: owner as i32,
        };
        set_lock(file, lock(1, 0, 100, LockKind::Write), false, false).unwrap();
        set_lock(file, lock(1, 40, 50, LockKind::Write), true, false).unwrap();
        set_lock(file, lock(2, 42, 48, LockKind::Write), false, false).unwrap();
        let clash = lock(2, 50, 51, LockKind::Read);
        assert_eq!(set_lock(file, clash, false, false), Err(Errno::EAGAIN));
        assert_eq!(get_lock(file, &clash).unwrap().pid, 1);
        set_lock(file, lock(1, 50, 100, LockKind::Read), false, false).unwrap();
        set_lock(file, clash, false, false).unwrap();
        drop_locks(file, 1);
        assert_eq!(get_lock(file, &lock(3, 0, 42, LockKind::Write)), None);
        drop_locks(file, 2);
        assert!(!LOCKS.lock().contains_key(&file));
    }
}
