//! Contention: four harts on one counter, one spin lock (LR/SC) and one ticket lock.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(unsafe_code)]

#[cfg(target_os = "none")]
mod program {
    use core::arch::asm;
    use core::sync::atomic::{AtomicU64, Ordering::*};
    use hive_bench_guest::finish;

    const HARTS: u64 = 4;
    const ROUNDS: u64 = 20_000;

    static COUNTER: AtomicU64 = AtomicU64::new(0);
    static SPIN: AtomicU64 = AtomicU64::new(0);
    static GUARDED: AtomicU64 = AtomicU64::new(0);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static SERVING: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicU64 = AtomicU64::new(0);

    fn bump() {
        GUARDED.store(GUARDED.load(Relaxed) + 1, Relaxed);
    }

    #[unsafe(no_mangle)]
    extern "C" fn main() -> ! {
        let hart: u64;
        // SAFETY: reads the hart id.
        unsafe { asm!("csrr {0}, mhartid", out(reg) hart, options(nomem, nostack)) };
        if hart < HARTS {
            for _ in 0..ROUNDS {
                COUNTER.fetch_add(1, Relaxed);
                while SPIN.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
                    core::hint::spin_loop();
                }
                bump();
                SPIN.store(0, Release);
                let ticket = NEXT.fetch_add(1, Relaxed);
                while SERVING.load(Acquire) != ticket {
                    core::hint::spin_loop();
                }
                bump();
                SERVING.store(ticket + 1, Release);
            }
            DONE.fetch_add(1, Release);
        }
        if hart == 0 {
            while DONE.load(Acquire) != HARTS {
                core::hint::spin_loop();
            }
            // The two locks guard the same word apart from each other, so only the counter and
            // the tickets are exact; a lost ticket or count shows.
            finish("contention", COUNTER.load(Relaxed) << 32 | SERVING.load(Relaxed))
        }
        loop {
            // SAFETY: waits; no effect on memory.
            unsafe { asm!("wfi", options(nomem, nostack)) };
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("a guest program: build it with `cargo xtask guest`");
}
