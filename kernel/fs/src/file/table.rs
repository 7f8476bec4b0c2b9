//! The table of file descriptors of a process.
//!
//! Dropping an open file may block, so nothing is dropped under the table's lock.

use super::{OpenFile, drop_locks};
use crate::errno::{Errno, Result};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_sync::{AtomicU64, SpinLock, rank};

/// Most descriptors a table can be given room for (Linux `fs.nr_open` is larger; this bounds the
/// kernel memory a process can take).
pub const OPEN_MAX: usize = 65536;

/// Default soft limit of descriptors.
const DEFAULT_LIMIT: usize = 1024;

static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);

#[derive(Clone)]
struct Slot {
    file: Arc<OpenFile>,
    cloexec: bool,
}

struct Slots {
    list: Vec<Option<Slot>>,
    limit: usize,
}

/// File descriptors; shared by the threads of a process.
pub struct FdTable {
    slots: SpinLock<Slots>,
    /// Who owns record locks taken through this table (POSIX: the process).
    owner: u64,
}

impl Default for FdTable {
    fn default() -> Self {
        Self::new()
    }
}

impl FdTable {
    /// No descriptors.
    pub fn new() -> FdTable {
        Self::with(Slots { list: Vec::new(), limit: DEFAULT_LIMIT })
    }

    fn with(slots: Slots) -> FdTable {
        FdTable { slots: SpinLock::ranked(rank::FILE, slots), owner: NEXT_OWNER.fetch_add(1) }
    }

    /// The copy that fork makes: same open files, own descriptors, no record locks.
    pub fn fork(&self) -> FdTable {
        let slots = self.slots.lock();
        let copy = Slots { list: slots.list.clone(), limit: slots.limit };
        drop(slots);
        Self::with(copy)
    }

    /// The owner of record locks taken through this table.
    pub fn lock_owner(&self) -> u64 {
        self.owner
    }

    /// RLIMIT_NOFILE: descriptors stay below `limit`.
    pub fn set_limit(&self, limit: usize) {
        self.slots.lock().limit = limit.min(OPEN_MAX);
    }

    /// The open file behind `fd`: `EBADF` if none.
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>> {
        self.slots.lock().slot(fd).map(|s| s.file.clone())
    }

    /// As [`Self::get`], but refuses O_PATH files too.
    pub fn get_io(&self, fd: i32) -> Result<Arc<OpenFile>> {
        self.get(fd).and_then(|f| if f.is_path() { Err(Errno::EBADF) } else { Ok(f) })
    }

    /// Puts `file` behind the lowest free descriptor not below `min`; `EMFILE` if there is none
    /// below the limit.
    pub fn install(&self, file: Arc<OpenFile>, cloexec: bool, min: i32) -> Result<i32> {
        let min = usize::try_from(min).map_err(|_| Errno::EINVAL)?;
        let mut slots = self.slots.lock();
        if min >= slots.limit {
            return Err(Errno::EINVAL);
        }
        let free = slots.list.iter().skip(min).position(Option::is_none).map(|i| i + min);
        let at = free.unwrap_or(slots.list.len().max(min));
        if at >= slots.limit {
            drop(slots); // `file` is dropped after the lock
            return Err(Errno::EMFILE);
        }
        slots.set(at, Slot { file, cloexec });
        Ok(at as i32)
    }

    /// dup, F_DUPFD, F_DUPFD_CLOEXEC.
    pub fn dup(&self, fd: i32, min: i32, cloexec: bool) -> Result<i32> {
        self.install(self.get(fd)?, cloexec, min)
    }

    /// dup3: closes what was behind `new`. `EINVAL` if both are the same (dup2 handles that).
    pub fn dup3(&self, old: i32, new: i32, cloexec: bool) -> Result<i32> {
        let file = self.get(old)?;
        if old == new {
            return Err(Errno::EINVAL);
        }
        let at = usize::try_from(new).map_err(|_| Errno::EBADF)?;
        let mut slots = self.slots.lock();
        if at >= slots.limit {
            return Err(Errno::EBADF);
        }
        let before = slots.set(at, Slot { file, cloexec });
        drop(slots);
        self.closed(before);
        Ok(new)
    }

    /// close(2).
    pub fn close(&self, fd: i32) -> Result<()> {
        let slot = {
            let mut slots = self.slots.lock();
            slots.slot(fd)?;
            slots.list.get_mut(fd as usize).and_then(Option::take)
        };
        self.closed(slot);
        Ok(())
    }

    /// close_range(2): closes `first..=last`, or marks them close-on-exec.
    pub fn close_range(&self, first: u32, last: u32, mark_cloexec: bool) -> Result<()> {
        if first > last {
            return Err(Errno::EINVAL);
        }
        let in_range = |i: usize| i >= first as usize && i <= last as usize;
        if mark_cloexec {
            let mut slots = self.slots.lock();
            let marked = slots.list.iter_mut().enumerate().filter(|(i, _)| in_range(*i));
            marked.filter_map(|(_, s)| s.as_mut()).for_each(|s| s.cloexec = true);
        } else {
            self.close_where(|i, _| in_range(i));
        }
        Ok(())
    }

    /// F_GETFD: true if close-on-exec.
    pub fn cloexec(&self, fd: i32) -> Result<bool> {
        self.slots.lock().slot(fd).map(|s| s.cloexec)
    }

    /// F_SETFD.
    pub fn set_cloexec(&self, fd: i32, on: bool) -> Result<()> {
        let mut slots = self.slots.lock();
        slots.slot(fd)?;
        if let Some(Some(s)) = slots.list.get_mut(fd as usize) {
            s.cloexec = on;
        }
        Ok(())
    }

    /// Closes what exec closes.
    pub fn close_on_exec(&self) {
        self.close_where(|_, s| s.cloexec);
    }

    /// Closes everything: exit.
    pub fn close_all(&self) {
        self.close_where(|_, _| true);
    }

    /// Every descriptor with its file, in order.
    pub fn list(&self) -> Vec<(i32, Arc<OpenFile>)> {
        let slots = self.slots.lock();
        let open = slots.list.iter().enumerate();
        open.filter_map(|(i, s)| Some((i as i32, s.as_ref()?.file.clone()))).collect()
    }

    fn close_where(&self, which: impl Fn(usize, &Slot) -> bool) {
        let mut taken = Vec::new();
        {
            let mut slots = self.slots.lock();
            for (i, s) in slots.list.iter_mut().enumerate() {
                if s.as_ref().is_some_and(|s| which(i, s)) {
                    taken.push(s.take());
                }
            }
        }
        taken.into_iter().for_each(|s| self.closed(s));
    }

    /// Any close of a file drops the process's record locks on it (POSIX).
    fn closed(&self, slot: Option<Slot>) {
        if let Some(s) = slot {
            drop_locks(s.file.vnode().id(), self.owner);
        }
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        self.close_all();
    }
}

impl Slots {
    fn slot(&self, fd: i32) -> Result<&Slot> {
        let at = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.list.get(at).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    fn set(&mut self, at: usize, slot: Slot) -> Option<Slot> {
        if at >= self.list.len() {
            self.list.resize(at + 1, None);
        }
        self.list.get_mut(at).and_then(|s| s.replace(slot))
    }
}
