//! Readiness: who waits for a file to become readable or writable, and how it is told.
//!
//! A file that can block owns a [`PollHead`]. A reader that blocks waits on the head's own queue;
//! a poller that watches many files registers with the head of each through a [`PollTable`] and
//! sleeps on its own queue. Registration comes before the state is read, so no change is missed.
//! [`PollHead::notify`] may be called at interrupt level.

use crate::errno::{Errno, Result};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use hive_sync::{Limit, SpinLock, WaitError, WaitQueue, rank};

/// Data to read.
pub const POLLIN: u16 = 0x001;
/// Urgent data.
pub const POLLPRI: u16 = 0x002;
/// Room to write.
pub const POLLOUT: u16 = 0x004;
/// Error (reported whether asked or not).
pub const POLLERR: u16 = 0x008;
/// Hang-up (reported whether asked or not).
pub const POLLHUP: u16 = 0x010;
/// Not an open descriptor (reported whether asked or not).
pub const POLLNVAL: u16 = 0x020;
/// As POLLIN.
pub const POLLRDNORM: u16 = 0x040;
/// As POLLOUT.
pub const POLLWRNORM: u16 = 0x100;
/// The peer will not write any more.
pub const POLLRDHUP: u16 = 0x2000;

/// What a regular file always is.
pub const ALWAYS_READY: u16 = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;

impl From<WaitError> for Errno {
    /// A signal is `ERESTARTSYS`: the system call layer makes it `EINTR` or starts again.
    fn from(e: WaitError) -> Errno {
        match e {
            WaitError::Interrupted => Errno::ERESTARTSYS,
            WaitError::TimedOut => Errno::ETIMEDOUT,
        }
    }
}

/// Where a file tells of changes of its readiness.
#[derive(Default)]
pub struct PollHead {
    queue: WaitQueue,
    pollers: SpinLock<Vec<Weak<Poller>>>,
}

impl PollHead {
    /// A head nobody listens to.
    pub const fn new() -> PollHead {
        PollHead { queue: WaitQueue::new(), pollers: SpinLock::ranked(rank::FILE, Vec::new()) }
    }

    /// Something changed: wakes blocked readers and writers, and pollers. Call it after the
    /// change, with no lock of rank `FILE` held.
    pub fn notify(&self) {
        self.queue.wake_all();
        let mut i = 0;
        // One at a time: waking takes locks of its own.
        loop {
            let poller = match self.pollers.lock().get(i) {
                Some(p) => p.upgrade(),
                None => return,
            };
            if let Some(p) = poller {
                p.fire();
            }
            i += 1;
        }
    }

    /// Sleeps until `condition` (no sleeping inside) gives a value; a signal is `ERESTARTSYS`.
    pub fn wait<T>(&self, condition: impl FnMut() -> Option<T>) -> Result<T> {
        Ok(self.queue.wait_interruptible(condition)?)
    }

    /// As [`Self::wait`], but at most until `deadline_ns` (monotonic), then `Ok(None)`.
    pub fn wait_deadline<T>(
        &self,
        deadline_ns: Option<u64>,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        match self.queue.wait(Limit { interruptible: true, deadline_ns }, condition) {
            Ok(v) => Ok(Some(v)),
            Err(WaitError::TimedOut) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn add(&self, poller: &Arc<Poller>) {
        let mut list = self.pollers.lock();
        list.retain(|p| p.strong_count() > 0);
        list.push(Arc::downgrade(poller));
    }
}

/// One sleeping poll(2) call.
struct Poller {
    queue: WaitQueue,
    fired: SpinLock<bool>,
}

impl Poller {
    fn fire(&self) {
        *self.fired.lock() = true;
        self.queue.wake_all();
    }
}

/// The registrations of one poll(2) call; they end when it is dropped.
pub struct PollTable {
    poller: Arc<Poller>,
    registering: bool,
}

impl Default for PollTable {
    fn default() -> Self {
        Self::new()
    }
}

impl PollTable {
    /// No registrations yet.
    pub fn new() -> PollTable {
        let poller = Poller { queue: WaitQueue::new(), fired: SpinLock::ranked(rank::FILE, false) };
        PollTable { poller: Arc::new(poller), registering: true }
    }

    /// Called by a file's `poll` before it looks at its state.
    pub fn register(&mut self, head: &PollHead) {
        if self.registering {
            head.add(&self.poller);
        }
    }

    /// Polls with `scan` until it finds something ready (answers more than 0) or the deadline
    /// (monotonic ns; `Some(0)` never sleeps) comes, then `Ok(0)`. A signal is `EINTR`:
    /// poll(2) is never restarted.
    pub fn wait(
        deadline_ns: Option<u64>,
        mut scan: impl FnMut(&mut PollTable) -> usize,
    ) -> Result<usize> {
        let mut table = PollTable::new();
        table.registering = deadline_ns != Some(0);
        loop {
            let ready = scan(&mut table);
            if ready > 0 || deadline_ns == Some(0) {
                return Ok(ready);
            }
            table.registering = false;
            let Poller { queue, fired } = &*table.poller;
            let limit = Limit { interruptible: true, deadline_ns };
            let woken = queue.wait(limit, || core::mem::take(&mut *fired.lock()).then_some(()));
            match woken {
                Ok(()) => {}
                Err(WaitError::TimedOut) => return Ok(scan(&mut table)),
                Err(WaitError::Interrupted) => return Err(Errno::EINTR),
            }
        }
    }
}
