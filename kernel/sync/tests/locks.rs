//! The locks under real threads.

use hive_sync::{Lazy, Limit, Mutex, Once, Rank, SpinLock, WaitError, WaitQueue, now_ns};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

const ROUNDS: u64 = 2_000;
const THREADS: u64 = 4;

fn hammer(add: impl Fn() + Send + Sync + 'static) {
    let add = Arc::new(add);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let add = add.clone();
            thread::spawn(move || (0..ROUNDS).for_each(|_| add()))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn spin_lock_loses_no_update() {
    static N: SpinLock<u64> = SpinLock::new(0);
    hammer(|| *N.lock() += 1);
    assert_eq!(*N.lock(), ROUNDS * THREADS);
}

#[test]
fn mutex_loses_no_update_and_no_wakeup() {
    static N: Mutex<u64> = Mutex::new(0);
    hammer(|| {
        let mut n = N.lock();
        let old = *n;
        thread::yield_now();
        *n = old + 1;
    });
    assert_eq!(*N.lock(), ROUNDS * THREADS);
}

#[test]
fn bounded_queue_passes_everything_with_wake_one() {
    let queue = Arc::new((SpinLock::new(VecDeque::new()), WaitQueue::new(), WaitQueue::new()));
    let producers: Vec<_> = (0..3u64)
        .map(|p| {
            let q = queue.clone();
            thread::spawn(move || {
                for i in 0..ROUNDS {
                    q.1.wait_until(|| {
                        let mut items = q.0.lock();
                        (items.len() < 4).then(|| items.push_back(p * ROUNDS + i))
                    });
                    q.2.wake_one();
                }
            })
        })
        .collect();
    let consumers: Vec<_> = (0..3)
        .map(|_| {
            let q = queue.clone();
            thread::spawn(move || {
                (0..ROUNDS)
                    .map(|_| {
                        let item = q.2.wait_until(|| q.0.lock().pop_front());
                        q.1.wake_one();
                        item
                    })
                    .sum::<u64>()
            })
        })
        .collect();
    producers.into_iter().for_each(|t| t.join().unwrap());
    let sum: u64 = consumers.into_iter().map(|t| t.join().unwrap()).sum();
    let n = 3 * ROUNDS;
    assert_eq!(sum, n * (n - 1) / 2);
}

#[test]
fn deadline_ends_a_wait() {
    let queue = WaitQueue::new();
    let at = now_ns() + 2_000_000;
    let limit = Limit { deadline_ns: Some(at), ..Limit::default() };
    assert_eq!(queue.wait(limit, || None::<()>), Err(WaitError::TimedOut));
    assert!(now_ns() >= at);
    assert!(queue.is_empty());
}

#[test]
fn once_is_set_once() {
    static CELL: Once<u32> = Once::new();
    static LAZY: Lazy<u32> = Lazy::new(|| 7);
    assert_eq!(CELL.get(), None);
    assert_eq!(CELL.set(1), Ok(()));
    assert_eq!(CELL.set(2), Err(2));
    assert_eq!(*CELL.get_or_init(|| 3), 1);
    assert_eq!(*LAZY, 7);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "lock order")]
fn wrong_order_is_caught() {
    let low = SpinLock::ranked(Rank(1), ());
    let high = SpinLock::ranked(Rank(2), ());
    let _high = high.lock();
    let _low = low.lock();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "taken twice")]
fn self_deadlock_is_caught() {
    let lock = SpinLock::new(());
    let _a = lock.lock();
    let _b = lock.lock();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "sleeping with a spin lock held")]
fn sleeping_under_a_spin_lock_is_caught() {
    let lock = SpinLock::new(());
    let mutex = Mutex::new(());
    let _a = lock.lock();
    let _b = mutex.lock();
}

#[test]
fn locks_stand_in_blocks_of_their_own() {
    assert_eq!(align_of::<SpinLock<u8>>(), 64);
    assert_eq!(align_of::<Mutex<u8>>(), 64);
    assert_eq!(size_of::<SpinLock<[u8; 40]>>(), 64);
}

#[test]
fn guards_drop_in_any_order() {
    let a = SpinLock::new(1);
    let b = SpinLock::new(2);
    let ga = a.lock();
    let gb = b.lock();
    drop(ga);
    assert!(!hive_sync::hart::irq_is_on());
    drop(gb);
    assert!(hive_sync::hart::irq_is_on());
    assert!(a.try_lock().is_some());
}
