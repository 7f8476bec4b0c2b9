//! The per-hart block. `tp` points at the running hart's block in the kernel, from the first
//! instruction of Rust on; its first field belongs to `hive-sync`.

use crate::MAX_HARTS;
use crate::context::KernelContext;
use crate::user::UserContext;
use core::cell::Cell;
use core::ptr;
use hive_sync::AtomicUsize;
use hive_sync::hart::HartSync;

/// What a hart keeps for itself. Others may read the atomics only.
#[repr(C, align(128))]
pub struct Hart {
    sync: HartSync,
    /// SBI hart id.
    id: AtomicUsize,
    /// Node the hart belongs to.
    node: AtomicUsize,
    pub(crate) current: Cell<*const KernelContext>,
    pub(crate) fp_owner: Cell<*const UserContext>,
}

// SAFETY: the cells are touched by the hart that `tp` names only, with interrupts off.
unsafe impl Sync for Hart {}

impl Hart {
    const fn new() -> Hart {
        Hart {
            sync: HartSync::new(),
            id: AtomicUsize::new(usize::MAX),
            node: AtomicUsize::new(0),
            current: Cell::new(ptr::null()),
            fp_owner: Cell::new(ptr::null()),
        }
    }

    /// SBI hart id, as in the device tree and in firewall vectors.
    pub fn id(&self) -> usize {
        self.id.load()
    }

    /// Node the hart belongs to.
    pub fn node(&self) -> usize {
        self.node.load()
    }

    pub(crate) fn set(&self, id: usize, node: usize) {
        self.id.store(id);
        self.node.store(node);
    }
}

/// The blocks, by index in the cell: 0 is the hart that booted it.
pub static HARTS: [Hart; MAX_HARTS] = [const { Hart::new() }; MAX_HARTS];

static COUNT: AtomicUsize = AtomicUsize::new(1);

pub(crate) fn set_count(count: usize) {
    COUNT.store(count);
}

/// Harts of this cell.
pub fn count() -> usize {
    COUNT.load()
}

/// The harts of this cell in order of index.
pub fn all() -> &'static [Hart] {
    HARTS.get(..count()).unwrap_or(&HARTS)
}

/// The running hart's block. Meaningful for as long as the thread cannot move: with interrupts
/// off, or where any hart will do.
#[inline(always)]
pub fn local() -> &'static Hart {
    let tp: *const Hart;
    // SAFETY: reads a register that the entry code points at an element of HARTS.
    unsafe {
        core::arch::asm!("mv {}, tp", out(reg) tp, options(nomem, nostack, preserves_flags));
        &*tp
    }
}

/// Index of the running hart in its cell; see [`local`].
#[inline(always)]
pub fn index() -> usize {
    (ptr::from_ref(local()).addr() - HARTS.as_ptr().addr()) / size_of::<Hart>()
}

/// Index of the hart with SBI id `id`.
pub fn index_of(id: usize) -> Option<usize> {
    all().iter().position(|h| h.id() == id)
}

/// One value for each hart, touched only by its own hart with interrupts off.
pub struct PerHart<T> {
    values: [T; MAX_HARTS],
}

// SAFETY: a value is reached by its own hart only, with interrupts off, through `with`.
unsafe impl<T: Send> Sync for PerHart<T> {}

impl<T> PerHart<T> {
    /// One value for each hart, given in order.
    pub const fn new(values: [T; MAX_HARTS]) -> PerHart<T> {
        PerHart { values }
    }

    /// Runs `f` on the running hart's value, with interrupts off.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        hive_sync::hart::without_irq(|| f(&self.values[index()]))
    }
}

/// Waits for an interrupt, which is taken before this returns. Call with interrupts off at depth
/// 1, after a last look at the queues: an interrupt that came since then ends the wait at once.
pub fn wait_for_interrupt() {
    // SAFETY: WFI resumes on any pending enabled interrupt, SIE or not.
    unsafe { core::arch::asm!("wfi", options(nostack)) };
    hive_sync::hart::set_irq_was_on(true);
    hive_sync::hart::irq_pop();
    hive_sync::hart::irq_push();
}
