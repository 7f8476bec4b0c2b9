//! [`WaitQueue`]: sleep until a condition holds.
//!
//! A waiter links a node on its own stack into the queue, *then* tests its condition, then parks:
//! a waker that changes the condition first and wakes second is never missed. Wakers unpark under
//! the queue's lock, and a waiter leaves its frame only after unlinking under that lock, so a
//! node and its thread live as long as anyone can see them.

use crate::rank::WAIT_QUEUE;
use crate::sched::{self, ThreadId};
use crate::{SpinLock, hart};
use core::cell::Cell;
use core::ptr;

/// Why a wait ended without its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The thread was told to give up (a signal): EINTR or restart.
    Interrupted,
    /// The deadline came.
    TimedOut,
}

/// What may end a wait besides its condition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// Signals end the wait.
    pub interruptible: bool,
    /// Monotonic time ([`crate::now_ns`]) that ends the wait.
    pub deadline_ns: Option<u64>,
}

/// Threads that wait for something to change.
pub struct WaitQueue {
    list: SpinLock<List>,
}

struct List {
    head: *const Waiter,
    tail: *const Waiter,
}

// SAFETY: the nodes pointed to are touched only under the queue's lock.
unsafe impl Send for List {}

struct Waiter {
    thread: ThreadId,
    next: Cell<*const Waiter>,
    prev: Cell<*const Waiter>,
    linked: Cell<bool>,
    woken: Cell<bool>,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> WaitQueue {
        let list = List { head: ptr::null(), tail: ptr::null() };
        WaitQueue { list: SpinLock::ranked(WAIT_QUEUE, list) }
    }

    /// Sleeps until `condition` gives a value, whatever else happens.
    pub fn wait_until<T>(&self, condition: impl FnMut() -> Option<T>) -> T {
        match self.wait(Limit::default(), condition) {
            Ok(value) => value,
            Err(_) => unreachable!("a wait without limit ends with its condition"),
        }
    }

    /// Sleeps until `condition` gives a value or a signal is pending.
    pub fn wait_interruptible<T>(
        &self,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        self.wait(Limit { interruptible: true, deadline_ns: None }, condition)
    }

    /// Sleeps until `condition` gives a value or `limit` ends the wait. The condition is tested
    /// again after every wake; it may take spin locks that are dropped before it returns, and
    /// must not sleep.
    pub fn wait<T>(
        &self,
        limit: Limit,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        if let Some(value) = condition() {
            return Ok(value);
        }
        hart::assert_may_sleep();
        let scheduler = sched::get();
        let me = Waiter {
            thread: scheduler.current(),
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            linked: Cell::new(false),
            woken: Cell::new(false),
        };
        let result = loop {
            self.arm(&me);
            if let Some(value) = condition() {
                break Ok(value);
            }
            if limit.interruptible && scheduler.interrupted() {
                break Err(WaitError::Interrupted);
            }
            if limit.deadline_ns.is_some_and(|at| scheduler.now_ns() >= at) {
                break Err(WaitError::TimedOut);
            }
            scheduler.park(limit.deadline_ns);
        };
        let mut list = self.list.lock();
        list.unlink(&me);
        if me.woken.get() {
            // A wake since the last arm was not what ended this wait: another waiter needs it.
            list.wake_one();
        }
        result
    }

    /// Wakes the waiter that has waited longest and is not woken yet; false if there is none.
    pub fn wake_one(&self) -> bool {
        self.list.lock().wake_one()
    }

    /// Wakes every waiter.
    pub fn wake_all(&self) {
        let list = self.list.lock();
        while list.wake_one() {}
    }

    /// True if nobody waits (out of date as soon as it is known).
    pub fn is_empty(&self) -> bool {
        self.list.lock().head.is_null()
    }

    fn arm(&self, me: &Waiter) {
        let mut list = self.list.lock();
        me.woken.set(false);
        if !me.linked.get() {
            list.link(me);
        }
    }
}

impl List {
    fn link(&mut self, node: &Waiter) {
        node.linked.set(true);
        node.prev.set(self.tail);
        node.next.set(ptr::null());
        match self.node(self.tail) {
            Some(tail) => tail.next.set(node),
            None => self.head = node,
        }
        self.tail = node;
    }

    fn unlink(&mut self, node: &Waiter) {
        match self.node(node.prev.get()) {
            Some(prev) => prev.next.set(node.next.get()),
            None => self.head = node.next.get(),
        }
        match self.node(node.next.get()) {
            Some(next) => next.prev.set(node.prev.get()),
            None => self.tail = node.prev.get(),
        }
        node.linked.set(false);
    }

    fn wake_one(&self) -> bool {
        let mut at = self.head;
        while let Some(node) = self.node(at) {
            if !node.woken.replace(true) {
                sched::get().unpark(node.thread);
                return true;
            }
            at = node.next.get();
        }
        false
    }

    fn node(&self, at: *const Waiter) -> Option<&Waiter> {
        // SAFETY: a linked node lives until its owner unlinks it under the lock we hold.
        unsafe { at.as_ref() }
    }
}
