//! What a hart carries for this crate: the depth of interrupt-off sections and, in debug builds,
//! the spin locks it holds. On the target `tp` points at a [`HartSync`] (the first field of the
//! HAL's per-hart block) from the first instruction of Rust on; on the host it is thread-local.

use crate::rank::Rank;
use core::cell::Cell;

/// Most spin locks a hart may hold at once: the deepest path is process, map, page, wait queue,
/// run queue, heap, console; the rest is room for interrupt handlers.
pub const HELD_MAX: usize = 16;

/// Per-hart state of this crate; see the module. `repr(C)`: `tp` points at it.
#[repr(C)]
pub struct HartSync {
    irq_depth: Cell<u32>,
    irq_was_on: Cell<bool>,
    held: Cell<usize>,
    stack: [Cell<(Rank, usize)>; HELD_MAX],
}

impl Default for HartSync {
    fn default() -> Self {
        Self::new()
    }
}

impl HartSync {
    /// A hart that holds nothing, interrupts as they are.
    pub const fn new() -> HartSync {
        HartSync {
            irq_depth: Cell::new(0),
            irq_was_on: Cell::new(false),
            held: Cell::new(0),
            stack: [const { Cell::new((Rank(0), 0)) }; HELD_MAX],
        }
    }
}

#[cfg(target_os = "none")]
mod arch {
    use super::HartSync;
    use core::arch::asm;

    const SSTATUS_SIE: usize = 2;

    #[inline(always)]
    pub fn with<R>(f: impl FnOnce(&HartSync) -> R) -> R {
        let tp: *const HartSync;
        // SAFETY: reads a register. The entry code points tp at this hart's block before any
        // Rust runs, and the block lives for ever.
        let this = unsafe {
            asm!("mv {}, tp", out(reg) tp, options(nomem, nostack, preserves_flags));
            &*tp
        };
        f(this)
    }

    /// Turns interrupts off; true if they were on.
    #[inline(always)]
    pub fn irq_off() -> bool {
        let old: usize;
        // SAFETY: clearing SIE only delays interrupts.
        unsafe { asm!("csrrci {}, sstatus, 2", out(reg) old, options(nostack)) };
        old & SSTATUS_SIE != 0
    }

    #[inline(always)]
    pub fn irq_on() {
        // SAFETY: called at depth 0 by a hart whose trap vector is installed.
        unsafe { asm!("csrsi sstatus, 2", options(nostack)) };
    }

    pub fn irq_is_on() -> bool {
        let now: usize;
        // SAFETY: reads a CSR.
        unsafe { asm!("csrr {}, sstatus", out(reg) now, options(nostack)) };
        now & SSTATUS_SIE != 0
    }
}

#[cfg(not(target_os = "none"))]
mod arch {
    use super::HartSync;

    std::thread_local!(static HART: HartSync = const { HartSync::new() });

    pub fn with<R>(f: impl FnOnce(&HartSync) -> R) -> R {
        HART.with(f)
    }
    pub fn irq_off() -> bool {
        true
    }
    pub fn irq_on() {}
    pub fn irq_is_on() -> bool {
        with(|h| h.irq_depth.get() == 0)
    }
}

/// Turns interrupts off until the matching [`irq_pop`]; nests.
#[inline(always)]
pub fn irq_push() {
    let was_on = arch::irq_off();
    arch::with(|h| {
        if h.irq_depth.get() == 0 {
            h.irq_was_on.set(was_on);
        }
        h.irq_depth.set(h.irq_depth.get() + 1);
    });
}

/// Ends the innermost interrupt-off section; at the outermost, interrupts are as before it.
#[inline(always)]
pub fn irq_pop() {
    let on = arch::with(|h| {
        debug_assert!(h.irq_depth.get() > 0, "irq_pop without irq_push");
        h.irq_depth.set(h.irq_depth.get() - 1);
        h.irq_depth.get() == 0 && h.irq_was_on.get()
    });
    if on {
        arch::irq_on();
    }
}

/// Runs `f` with interrupts off.
#[inline(always)]
pub fn without_irq<R>(f: impl FnOnce() -> R) -> R {
    irq_push();
    let result = f();
    irq_pop();
    result
}

/// Depth of interrupt-off sections on this hart (call with interrupts off to have it mean much).
pub fn irq_depth() -> u32 {
    arch::with(|h| h.irq_depth.get())
}

/// True if interrupts are on.
pub fn irq_is_on() -> bool {
    arch::irq_is_on()
}

/// For the scheduler, at depth 1 around a context switch: whether interrupts were on outside the
/// section belongs to the thread, not to the hart.
pub fn irq_was_on() -> bool {
    arch::with(|h| h.irq_was_on.get())
}

/// The other half of [`irq_was_on`].
pub fn set_irq_was_on(on: bool) {
    arch::with(|h| h.irq_was_on.set(on));
}

/// Panics (debug builds) unless this hart may sleep now.
#[inline(always)]
pub fn assert_may_sleep() {
    if cfg!(debug_assertions) {
        arch::with(|h| {
            assert!(h.held.get() == 0 && h.irq_depth.get() == 0, "sleeping with a spin lock held")
        });
    }
}

/// Before a spin lock at `address` is taken: checks the order (debug builds).
#[inline(always)]
pub(crate) fn check_order(rank: Rank, address: usize) {
    if cfg!(debug_assertions) {
        arch::with(|h| {
            for held in h.stack.iter().take(h.held.get()) {
                let (held_rank, held_address) = held.get();
                assert!(held_address != address, "spin lock {address:#x} taken twice by this hart");
                assert!(
                    rank.0 == 0 || held_rank < rank,
                    "lock order: rank {} wanted while rank {} is held",
                    rank.0,
                    held_rank.0
                );
            }
        });
    }
}

#[inline(always)]
pub(crate) fn note_taken(rank: Rank, address: usize) {
    if cfg!(debug_assertions) {
        arch::with(|h| {
            let n = h.held.get();
            assert!(n < HELD_MAX, "too many spin locks held");
            if let Some(slot) = h.stack.get(n) {
                slot.set((rank, address));
            }
            h.held.set(n + 1);
        });
    }
}

#[inline(always)]
pub(crate) fn note_released(address: usize) {
    if cfg!(debug_assertions) {
        arch::with(|h| {
            let n = h.held.get();
            // Guards may be dropped in any order: close the gap.
            let held = h.stack.get(..n).unwrap_or(&[]);
            let at = held.iter().position(|s| s.get().1 == address);
            let at = at.expect("released spin lock is held");
            for i in at..n - 1 {
                h.stack[i].set(h.stack[i + 1].get());
            }
            h.held.set(n - 1);
        });
    }
}
