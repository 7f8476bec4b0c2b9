//! Kernel threads as the hardware sees them: a stack and a saved stack pointer.

use crate::hart::{self, PerHart};
use crate::memory::NoMemory;
use crate::stack::Stack;
use alloc::sync::Arc;
use core::arch::global_asm;
use core::cell::{Cell, UnsafeCell};
use hive_sync::AtomicBool;
use hive_sync::hart as irq;

/// A kernel thread's place in execution. While `busy` a hart runs it, or has not yet left its
/// stack.
pub struct KernelContext {
    sp: UnsafeCell<usize>,
    busy: AtomicBool,
    _stack: Option<Stack>,
}

// SAFETY: `sp` is written and read only by the hart that made `busy` true.
unsafe impl Sync for KernelContext {}
// SAFETY: a context that is not busy is plain data.
unsafe impl Send for KernelContext {}

/// Callee-saved registers on a stack that is not running.
#[repr(C)]
struct Frame {
    ra: usize,
    s: [usize; 12],
    pad: usize,
}

global_asm!(
    r#"
    .section .text
    // fn hal_switch(save: *mut usize, load: usize, from: *const KernelContext) -> from
    .global hal_switch
hal_switch:
    addi  sp, sp, -112
    sd    ra, 0(sp)
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11
    sd    s\n, (8 + \n * 8)(sp)
    .endr
    sd    sp, 0(a0)
    mv    sp, a1
    ld    ra, 0(sp)
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11
    ld    s\n, (8 + \n * 8)(sp)
    .endr
    addi  sp, sp, 112
    mv    a0, a2
    ret

    .global hal_thread_start
hal_thread_start:
    mv    a1, s1
    li    ra, 0
    tail  {start}
    "#,
    start = sym start,
);

unsafe extern "C" {
    fn hal_switch(save: *mut usize, load: usize, from: *const ()) -> *const ();
    static hal_thread_start: u8;
}

extern "C" fn start(from: *const (), f: extern "C" fn() -> !) -> ! {
    arrived(from);
    irq::set_irq_was_on(true);
    f()
}

impl KernelContext {
    /// A thread that will run `f` with interrupts off at depth 1: `f` settles what the switch
    /// left to settle and calls [`irq::irq_pop`].
    pub fn new(f: extern "C" fn() -> !) -> Result<KernelContext, NoMemory> {
        let stack = Stack::new()?;
        let sp = stack.top() - size_of::<Frame>();
        let mut s = [0; 12];
        s[1] = f as usize;
        // SAFETY: the address of a symbol.
        let ra = (&raw const hal_thread_start).addr();
        // SAFETY: the top of a stack that nobody else uses, aligned to 16.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<Frame>(sp).write(Frame { ra, s, pad: 0 });
        }
        Ok(KernelContext {
            sp: UnsafeCell::new(sp),
            busy: AtomicBool::new(false),
            _stack: Some(stack),
        })
    }

    /// True while a hart runs it or has not yet left its stack.
    pub fn is_busy(&self) -> bool {
        self.busy.load()
    }

    /// The context of the code that calls this: a hart's first, which becomes its idle thread.
    pub fn idle() -> KernelContext {
        KernelContext { sp: UnsafeCell::new(0), busy: AtomicBool::new(true), _stack: None }
    }
}

/// A thread, for this module: what has a context.
pub trait HasContext: Send + Sync {
    /// Its context.
    fn context(&self) -> &KernelContext;
}

/// The threads this hart keeps alive: the one it runs, and the one it is leaving.
struct Alive {
    running: Cell<Option<Arc<dyn HasContext>>>,
    leaving: Cell<Option<Arc<dyn HasContext>>>,
}

static ALIVE: PerHart<Alive> = PerHart::new(
    [const { Alive { running: Cell::new(None), leaving: Cell::new(None) } }; crate::MAX_HARTS],
);

/// Declares `idle`, whose context is made by [`KernelContext::idle`], to be what the hart is
/// running.
pub fn adopt(idle: Arc<dyn HasContext>) {
    hart::local().current.set(idle.context());
    ALIVE.with(|a| a.running.set(Some(idle)));
}

/// Leaves the running thread for `next`; returns when somebody switches back. Interrupts must be
/// off at depth exactly 1. Waits until the hart that ran `next` last has left it. The reference
/// is kept by the hart, not by the stack that is left: a thread that never comes back leaks none.
pub fn switch_to(next: Arc<dyn HasContext>) {
    assert!(irq::irq_depth() == 1, "switch inside an interrupt-off section");
    let here = hart::local();
    let from = here.current.get();
    let to: *const KernelContext = next.context();
    if core::ptr::eq(from, to) {
        return;
    }
    while next.context().busy.swap(true) {
        hive_sync::pause();
    }
    let was_on = irq::irq_was_on();
    here.current.set(to);
    ALIVE.with(|a| a.leaving.set(a.running.replace(Some(next))));
    // SAFETY: `from` is the running context and `to` the next: the hart keeps both alive. `to` was
    // not busy, so its sp is that of a stack nobody runs on.
    let from = unsafe { hal_switch((*from).sp.get(), *(*to).sp.get(), from.cast()) };
    // Another hart now, perhaps.
    arrived(from);
    irq::set_irq_was_on(was_on);
}

/// The first thing on a new stack: lets go of the thread that was left.
fn arrived(from: *const ()) {
    let from: *const KernelContext = from.cast();
    // SAFETY: `leaving` keeps what this hart ran before alive.
    unsafe { (*from).busy.store(false) };
    let left = ALIVE.with(|a| a.leaving.take());
    drop(left);
}

impl Drop for KernelContext {
    fn drop(&mut self) {
        while self.busy.load() {
            hive_sync::pause();
        }
    }
}
