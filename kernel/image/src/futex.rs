//! Futexes: sleep on a word of user memory until someone says that it changed.
//!
//! A futex is named by address space and address; a word in shared memory is thus only found by
//! threads of one address space. Absent: futexes shared between address spaces, requeue to
//! priority-inheriting futexes, robust lists.

use crate::process::Thread;
use crate::space::Space;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::errno::Errno;
use hive_hal::uaccess;
use hive_sync::{AtomicBool, Limit, Mutex, WaitError, WaitQueue};

/// Chains of waiters; which one is chosen by the address.
const CHAINS: usize = 64;

struct Waiter {
    space: usize,
    address: u64,
    bits: u32,
    woken: AtomicBool,
    queue: WaitQueue,
}

type Chain = Mutex<Vec<Arc<Waiter>>>;

static TABLE: [Chain; CHAINS] = [const { Mutex::new(Vec::new()) }; CHAINS];

fn chain(address: u64) -> &'static Chain {
    &TABLE[(address >> 2) as usize % CHAINS]
}

fn name(space: &Arc<Space>) -> usize {
    Arc::as_ptr(space).addr()
}

/// All bits of a bit set.
pub const ALL_BITS: u32 = u32::MAX;

/// Sleeps while the word at `address` is `expected`, until a wake with a common bit.
pub fn wait(
    space: &Arc<Space>,
    address: u64,
    expected: u32,
    bits: u32,
    deadline_ns: Option<u64>,
) -> Result<(), Errno> {
    if address % 4 != 0 || bits == 0 {
        return Err(Errno::EINVAL);
    }
    let waiter = Arc::new(Waiter {
        space: name(space),
        address,
        bits,
        woken: AtomicBool::new(false),
        queue: WaitQueue::new(),
    });
    let chain = chain(address);
    {
        // The word is read under the chain's lock: a waker that changed it before comes after.
        let mut list = chain.lock();
        let mut word = [0; 4];
        uaccess::copy_from_user(&mut word, address).map_err(|_| Errno::EFAULT)?;
        if u32::from_le_bytes(word) != expected {
            return Err(Errno::EAGAIN);
        }
        list.push(waiter.clone());
    }
    let limit = Limit { interruptible: true, deadline_ns };
    let result = waiter.queue.wait(limit, || waiter.woken.load().then_some(()));
    chain.lock().retain(|w| !Arc::ptr_eq(w, &waiter));
    match result {
        _ if waiter.woken.load() => Ok(()),
        Ok(()) => Ok(()),
        Err(WaitError::TimedOut) => Err(Errno::ETIMEDOUT),
        Err(WaitError::Interrupted) => Err(Errno::ERESTARTSYS),
    }
}

/// Wakes at most `count` waiters of the word that have a bit of `bits`; how many.
pub fn wake(space: &Arc<Space>, address: u64, count: usize, bits: u32) -> Result<usize, Errno> {
    if address % 4 != 0 || bits == 0 {
        return Err(Errno::EINVAL);
    }
    let space = name(space);
    let mut woken = 0;
    chain(address).lock().retain(|w| {
        let hit = woken < count && w.space == space && w.address == address && w.bits & bits != 0;
        if hit {
            woken += 1;
            w.woken.store(true);
            w.queue.wake_all();
        }
        !hit
    });
    Ok(woken)
}

/// At a thread's end: stores zero where it asked and wakes who waits there.
pub fn clear_tid(thread: &Thread) {
    let address = thread.clear_tid.swap(0);
    let Ok(space) = thread.process.space() else { return };
    if address != 0 && uaccess::copy_to_user(address, &[0; 4]).is_ok() {
        let _ = wake(&space, address, 1, ALL_BITS);
    }
}
