//! Ticks and deadlines.
//!
//! Every hart ticks, idle or not: its clock word is what other cells watch (Hive §4.3). A deadline
//! is kept by the hart its thread slept on, whose timer is programmed for the earlier of tick and
//! first deadline.

use crate::{cell, sched};
use alloc::collections::BTreeSet;
use core::cell::Cell;
use hive_hal::hart::{self, PerHart};
use hive_hal::{MAX_HARTS, time};
use hive_sync::{SpinLock, ThreadId, rank};

pub use time::{set_wall_ns, wall_ns};

/// Ticks per second.
pub const HZ: u64 = 250;
/// Nanoseconds of a tick.
pub const TICK_NS: u64 = 1_000_000_000 / HZ;
/// Most functions called on each tick.
const HANDLERS_MAX: usize = 8;

static NEXT_TICK: PerHart<Cell<u64>> = PerHart::new([const { Cell::new(0) }; MAX_HARTS]);
static SLEEPERS: [SpinLock<BTreeSet<(u64, usize)>>; MAX_HARTS] =
    [const { SpinLock::ranked(rank::SLEEP, BTreeSet::new()) }; MAX_HARTS];
static HANDLERS: SpinLock<[Option<fn()>; HANDLERS_MAX]> = SpinLock::new([None; HANDLERS_MAX]);

/// Calls `f` at interrupt level on each tick of each hart, from now on.
pub fn on_tick(f: fn()) {
    let mut handlers = HANDLERS.lock();
    let slot = handlers.iter_mut().find(|h| h.is_none());
    *slot.expect("HANDLERS_MAX covers all tick handlers") = Some(f);
}

/// Starts the ticks of this hart.
pub fn start() {
    NEXT_TICK.with(|next| next.set(time::now_ns() + TICK_NS));
    program();
}

/// The timer interrupt.
pub fn interrupt() {
    let now = time::now_ns();
    let ticked = NEXT_TICK.with(|next| {
        let due = now >= next.get();
        if due {
            // A hart that was held up does not catch up: the word counts ticks it lived through.
            next.set((next.get() + TICK_NS).max(now));
        }
        due
    });
    if ticked {
        cell::clock(hart::index()).fetch_add(1);
        sched::tick();
        let handlers = *HANDLERS.lock();
        handlers.iter().flatten().for_each(|f| f());
    }
    while let Some(thread) = expired(now) {
        sched::unpark(thread);
    }
    program();
}

fn expired(now: u64) -> Option<ThreadId> {
    let mut sleepers = SLEEPERS[hart::index()].lock();
    let first = *sleepers.first()?;
    if first.0 > now {
        return None;
    }
    sleepers.remove(&first);
    Some(ThreadId(first.1))
}

fn program() {
    let tick = NEXT_TICK.with(|next| next.get());
    let first = SLEEPERS[hart::index()].lock().first().map_or(u64::MAX, |s| s.0);
    time::set_timer(tick.min(first));
}

/// A deadline being watched.
pub struct Timer {
    hart: usize,
    key: (u64, usize),
}

/// Unparks `thread` when `at_ns` has come.
pub fn arm(at_ns: u64, thread: ThreadId) -> Timer {
    hive_sync::hart::without_irq(|| {
        let (hart, key) = (hart::index(), (at_ns, thread.0));
        SLEEPERS[hart].lock().insert(key);
        program();
        Timer { hart, key }
    })
}

/// Stops watching.
pub fn disarm(timer: Timer) {
    SLEEPERS[timer.hart].lock().remove(&timer.key);
}
