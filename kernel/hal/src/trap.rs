//! Both ways into the kernel: one vector, told apart by `sscratch`, which is zero in the kernel
//! and the address of the running [`crate::user::UserContext`] in user mode.
//!
//! A trap from user mode ends [`crate::user::UserContext::run`]. A trap from the kernel is an
//! interrupt, an access in the exception table, or the death of the cell. Interrupt handlers run
//! with interrupts off and do not nest.
//!
//! A kernel stack has bit 15 of every address in use set (see [`crate::stack`]): an overflow is
//! told by that bit before anything is stored.

use crate::csr::*;
use crate::user::{REGS_AT, STATUS_AT, UserContext};
use crate::{Access, uaccess};
use core::arch::global_asm;
use core::mem::offset_of;
use hive_platform::map::SIPS_INTERRUPT;
use hive_platform::sips::Class;
use hive_sync::Once;

/// Registers of the kernel at a trap.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct KernelFrame {
    /// General registers; `x[0]` is unused.
    pub x: [u64; 32],
    /// Where the trap happened.
    pub pc: u64,
    /// `sstatus` at the trap.
    pub status: u64,
}

const FRAME: usize = size_of::<KernelFrame>();
const _: () = assert!(FRAME.is_multiple_of(16) && offset_of!(KernelFrame, x) == 0);

global_asm!(
    r#"
    .macro ALL_BUT_SP_A0 op, base
    .irp n, 1,3,5,6,7,8,9,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    \op x\n, (\n * 8)(\base)
    .endr
    .endm

    .section .text
    .balign 4
    .global hal_trap_vector
hal_trap_vector:
    csrrw a0, sscratch, a0
    bnez  a0, 1f

    addi  sp, sp, -{frame}
    slli  a0, sp, 63 - 15
    bgez  a0, 2f
    csrrw a0, sscratch, zero
    ALL_BUT_SP_A0 sd, sp
    sd    x10, 80(sp)
    sd    x4, 32(sp)
    addi  t0, sp, {frame}
    sd    t0, 16(sp)
    csrr  t0, sepc
    sd    t0, {frame_pc}(sp)
    csrr  t0, sstatus
    sd    t0, {frame_status}(sp)
    mv    a0, sp
    call  {kernel}
    ld    t0, {frame_status}(sp)
    csrw  sstatus, t0
    ld    t0, {frame_pc}(sp)
    csrw  sepc, t0
    // Not tp: a thread that slept in a fault handler may be on another hart now.
    ALL_BUT_SP_A0 ld, sp
    ld    x10, 80(sp)
    addi  sp, sp, {frame}
    sret

1:  // From user mode: a0 = context, sscratch = the user's a0.
    ALL_BUT_SP_A0 sd, a0
    sd    x2, 16(a0)
    sd    x4, 32(a0)
    csrrw t0, sscratch, zero
    sd    t0, 80(a0)
    csrr  t0, sepc
    sd    t0, {user_pc}(a0)
    csrr  t0, sstatus
    sd    t0, {user_status}(a0)
    ld    sp, {kernel_sp}(a0)
    ld    tp, {kernel_tp}(a0)
    ld    ra, 0(sp)
    ld    s0, 8(sp)
    .irp n, 1,2,3,4,5,6,7,8,9,10,11
    ld    s\n, (8 + \n * 8)(sp)
    .endr
    addi  sp, sp, 112
    ret

2:  // Stack overflow: die on the spare stack, with the stack pointer that did it.
    csrrw a0, sscratch, zero
    addi  a0, sp, {frame}
    lla   sp, HAL_OVERFLOW_STACK
    li    t0, {overflow_size}
    add   sp, sp, t0
    call  {overflow}

    // fn hal_enter_user(context: *mut UserContext), interrupts off.
    .global hal_enter_user
hal_enter_user:
    addi  sp, sp, -112
    sd    ra, 0(sp)
    sd    s0, 8(sp)
    .irp n, 1,2,3,4,5,6,7,8,9,10,11
    sd    s\n, (8 + \n * 8)(sp)
    .endr
    sd    sp, {kernel_sp}(a0)
    sd    tp, {kernel_tp}(a0)
    ld    t0, {user_status}(a0)
    csrw  sstatus, t0
    ld    t0, {user_pc}(a0)
    csrw  sepc, t0
    csrw  sscratch, a0
    ALL_BUT_SP_A0 ld, a0
    ld    x2, 16(a0)
    ld    x4, 32(a0)
    ld    x10, 80(a0)
    sret
    "#,
    frame = const FRAME,
    frame_pc = const offset_of!(KernelFrame, pc),
    frame_status = const offset_of!(KernelFrame, status),
    user_pc = const REGS_AT + offset_of!(crate::user::UserRegs, pc),
    user_status = const STATUS_AT,
    kernel_sp = const crate::user::KERNEL_SP_AT,
    kernel_tp = const crate::user::KERNEL_TP_AT,
    overflow_size = const OVERFLOW_STACK,
    kernel = sym kernel_trap,
    overflow = sym overflow,
);

const OVERFLOW_STACK: usize = 8192;
#[repr(C, align(16))]
struct Overflow([u8; OVERFLOW_STACK]);
#[unsafe(no_mangle)]
static mut HAL_OVERFLOW_STACK: Overflow = Overflow([0; OVERFLOW_STACK]);

unsafe extern "C" {
    /// Enters user mode; returns at the next trap with the context filled in.
    pub(crate) fn hal_enter_user(context: *mut UserContext);
}

/// What the kernel does about traps; installed once at boot.
pub trait Hooks: Sync {
    /// The timer interrupt came: count, wake, and program the next one ([`crate::time::set_timer`]).
    fn timer(&self);
    /// Another hart of the cell sent a software interrupt.
    fn ipi(&self);
    /// A SIPS queue of this node holds messages; the interrupt stays until it is empty.
    fn sips(&self, class: Class);
    /// The kernel touched user memory that is not mapped so: true once it is worth trying again.
    /// Interrupts are as they were at the access, and this may sleep if they were on.
    fn user_fault(&self, address: u64, access: Access) -> bool;
    /// The cell dies: leave the record. No allocation, no locks.
    fn die(&self, death: &crate::panic::Death);
}

static HOOKS: Once<&'static dyn Hooks> = Once::new();

/// Plugs the kernel's handlers in; panics if called twice.
pub fn install(hooks: &'static dyn Hooks) {
    assert!(HOOKS.set(hooks).is_ok(), "trap hooks are installed already");
}

pub(crate) fn hooks() -> Option<&'static dyn Hooks> {
    HOOKS.get().copied()
}

/// A hart's first state: no interrupt enabled, no floating point, no access to user pages.
pub(crate) fn quiet() {
    // SAFETY: interrupts stay off until `enable_interrupts`; the kernel uses no FP registers.
    unsafe {
        csr_write!("sie", 0u64);
        csr_clear!("sstatus", SSTATUS_FS | SSTATUS_SUM | SSTATUS_SIE);
    }
}

/// Lets this hart take software, timer, external and SIPS interrupts.
pub fn enable_interrupts() {
    let sips = SIPS_INTERRUPT.iter().fold(0, |bits, n| bits | 1u64 << n);
    let bits = 1 << IRQ_SOFTWARE | 1 << IRQ_TIMER | 1 << IRQ_EXTERNAL | sips;
    // SAFETY: the vector is set and the hooks are installed.
    unsafe { csr_set!("sie", bits) };
}

/// Masks the SIPS interrupt of `class` on this hart, or lets it through again.
pub fn mask_sips(class: Class, masked: bool) {
    let bit = 1u64 << SIPS_INTERRUPT[class as usize];
    // SAFETY: only delays or allows an interrupt that is handled.
    unsafe {
        if masked {
            csr_clear!("sie", bit);
        } else {
            csr_set!("sie", bit);
        }
    }
}

/// The interrupt bit of `scause`.
pub(crate) const INTERRUPT: u64 = 1 << 63;

/// Serves the interrupt `scause`; interrupts are off.
pub(crate) fn interrupt(scause: u64) {
    let number = scause & !INTERRUPT;
    let Some(hooks) = hooks() else { panic!("interrupt {number} before the hooks are installed") };
    match number {
        IRQ_TIMER => hooks.timer(),
        IRQ_SOFTWARE => {
            // SAFETY: clears the pending bit of the interrupt being served.
            unsafe { csr_clear!("sip", 1u64 << IRQ_SOFTWARE) };
            hooks.ipi();
        }
        IRQ_EXTERNAL => crate::plic::serve(),
        _ => match Class::ALL.iter().find(|&&c| u64::from(SIPS_INTERRUPT[c as usize]) == number) {
            Some(&class) => hooks.sips(class),
            None => panic!("unknown interrupt {number}"),
        },
    }
}

/// `scause` of a fault, as what the access wanted.
pub(crate) fn fault_access(cause: u64) -> Access {
    match cause {
        0 | 1 | 12 => Access::Execute,
        4 | 5 | 13 => Access::Read,
        _ => Access::Write,
    }
}

extern "C" fn kernel_trap(frame: &mut KernelFrame) {
    let (cause, value) = (csr_read!("scause"), csr_read!("stval"));
    // SAFETY: takes a right away; SRET restores it from the frame.
    unsafe { csr_clear!("sstatus", SSTATUS_SUM) };
    if cause & INTERRUPT != 0 {
        // The section is entered so that locks taken inside leave interrupts off.
        hive_sync::hart::irq_push();
        interrupt(cause);
        hive_sync::hart::irq_pop();
        return;
    }
    let page_fault = matches!(cause, 12 | 13 | 15);
    match uaccess::lookup(frame.pc) {
        Some(entry) => {
            if page_fault && entry.user && ask_user_fault(frame, value, fault_access(cause)) {
                return;
            }
            frame.pc = entry.fixup;
        }
        None if page_fault && crate::paging::spurious(value, fault_access(cause)) => {}
        None => crate::panic::kernel_fault(frame, cause, value),
    }
}

/// Asks the kernel to make user memory good, with interrupts as they were at the access.
fn ask_user_fault(frame: &KernelFrame, address: u64, access: Access) -> bool {
    let Some(hooks) = hooks() else { return false };
    if frame.status & SSTATUS_SPIE == 0 {
        return hooks.user_fault(address, access);
    }
    // SAFETY: interrupts were on at the access; the frame has all that SRET needs.
    unsafe { csr_set!("sstatus", SSTATUS_SIE) };
    let again = hooks.user_fault(address, access);
    // SAFETY: off again, for the way out.
    unsafe { csr_clear!("sstatus", SSTATUS_SIE) };
    again
}

extern "C" fn overflow(sp: u64) -> ! {
    crate::panic::stack_overflow(sp, csr_read!("sepc"), csr_read!("scause"))
}
