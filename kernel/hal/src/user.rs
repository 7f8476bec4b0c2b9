//! The way out to user mode and back: a user thread is a kernel loop around
//! [`UserContext::run`].

pub use crate::Access;
use crate::csr::*;
use crate::hart;
use crate::trap::{self, INTERRUPT, fault_access};
use core::arch::asm;
use core::cell::Cell;
use core::mem::offset_of;
use core::ptr;
use hive_sync::hart as irq;

/// General registers of a user thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UserRegs {
    /// `x[0]` is ignored.
    pub x: [u64; 32],
    /// Program counter.
    pub pc: u64,
}

/// Floating-point registers of a user thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FpRegs {
    /// `f0` to `f31`.
    pub f: [u64; 32],
    /// `fcsr`.
    pub fcsr: u64,
}

/// All that user mode leaves behind when it traps.
#[repr(C, align(64))]
pub struct UserContext {
    regs: UserRegs,
    status: u64,
    kernel_sp: u64,
    kernel_tp: u64,
    fp: FpRegs,
    /// Hart whose FP registers hold `fp`, if any: compared with the hart's own idea.
    fp_hart: Cell<usize>,
}

pub(crate) const REGS_AT: usize = offset_of!(UserContext, regs);
pub(crate) const STATUS_AT: usize = offset_of!(UserContext, status);
pub(crate) const KERNEL_SP_AT: usize = offset_of!(UserContext, kernel_sp);
pub(crate) const KERNEL_TP_AT: usize = offset_of!(UserContext, kernel_tp);
const _: () = assert!(REGS_AT == 0 && offset_of!(UserRegs, x) == 0);

const NO_HART: usize = usize::MAX;

/// Why user mode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// ECALL; `pc` is past it.
    Syscall,
    /// No translation allows the access.
    PageFault {
        /// Virtual address.
        addr: u64,
        /// What it wanted.
        access: Access,
    },
    /// The translation is good and the memory did not answer: bus error, firewall, dead node.
    AccessFault {
        /// Virtual address.
        addr: u64,
        /// What it wanted.
        access: Access,
    },
    /// An unaligned access that the hart does not do.
    Misaligned {
        /// Virtual address.
        addr: u64,
        /// What it wanted.
        access: Access,
    },
    /// Not an instruction for user mode.
    Illegal {
        /// Its bits, where the hart tells.
        instruction: u64,
    },
    /// EBREAK; `pc` is at it.
    Breakpoint,
    /// An interrupt, served already.
    Interrupt,
    /// Anything else.
    Unknown {
        /// `scause`.
        cause: u64,
        /// `stval`.
        value: u64,
    },
}

impl Clone for UserContext {
    fn clone(&self) -> Self {
        UserContext {
            regs: self.regs,
            status: self.status,
            kernel_sp: 0,
            kernel_tp: 0,
            fp: self.fp,
            fp_hart: Cell::new(NO_HART),
        }
    }
}

impl UserContext {
    /// A thread about to run `pc` on the stack `sp`; all else zero.
    pub fn new(pc: u64, sp: u64) -> UserContext {
        let mut x = [0; 32];
        x[2] = sp;
        UserContext {
            regs: UserRegs { x, pc },
            status: SSTATUS_SPIE | SSTATUS_FS_CLEAN,
            kernel_sp: 0,
            kernel_tp: 0,
            fp: FpRegs { f: [0; 32], fcsr: 0 },
            fp_hart: Cell::new(NO_HART),
        }
    }

    /// General registers.
    pub fn regs(&self) -> &UserRegs {
        &self.regs
    }

    /// General registers, to change.
    pub fn regs_mut(&mut self) -> &mut UserRegs {
        &mut self.regs
    }

    /// Floating-point registers as of the last trap.
    pub fn fp(&self) -> &FpRegs {
        &self.fp
    }

    /// Floating-point registers, to change.
    pub fn fp_mut(&mut self) -> &mut FpRegs {
        self.fp_hart.set(NO_HART);
        &mut self.fp
    }

    /// Runs user mode until it traps. An interrupt is served before this returns.
    pub fn run(&mut self) -> Trap {
        irq::assert_may_sleep();
        irq::irq_push();
        self.load_fp();
        self.status = (self.status & !(SSTATUS_FS | SSTATUS_SPP)) | SSTATUS_SPIE | SSTATUS_FS_CLEAN;
        // SAFETY: the context is ours alone until the trap returns here, on this stack and hart.
        unsafe { trap::hal_enter_user(self) };
        let (cause, value) = (csr_read!("scause"), csr_read!("stval"));
        self.save_fp();
        if cause & INTERRUPT != 0 {
            trap::interrupt(cause);
        }
        irq::irq_pop();
        self.reason(cause, value)
    }

    fn reason(&mut self, cause: u64, value: u64) -> Trap {
        let access = fault_access(cause);
        match cause {
            8 => {
                self.regs.pc = self.regs.pc.wrapping_add(4);
                Trap::Syscall
            }
            0 | 4 | 6 => Trap::Misaligned { addr: value, access },
            1 | 5 | 7 => Trap::AccessFault { addr: value, access },
            12 | 13 | 15 => Trap::PageFault { addr: value, access },
            2 => Trap::Illegal { instruction: value },
            3 => Trap::Breakpoint,
            _ if cause & INTERRUPT != 0 => Trap::Interrupt,
            _ => Trap::Unknown { cause, value },
        }
    }

    /// Brings the thread's FP registers into the hart, unless they are there.
    fn load_fp(&self) {
        let here = hart::local();
        let me = ptr::from_ref(self);
        if here.fp_owner.get() == me && self.fp_hart.get() == hart::index() {
            return;
        }
        here.fp_owner.set(me);
        self.fp_hart.set(hart::index());
        // SAFETY: the kernel uses no FP registers; FS is on for these instructions only.
        unsafe {
            csr_set!("sstatus", SSTATUS_FS);
            asm!(
                "ld t0, 256({0})", "fscsr t0",
                ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                "fld f\\n, (\\n * 8)({0})",
                ".endr",
                in(reg) &raw const self.fp, out("t0") _, options(nostack)
            );
            csr_clear!("sstatus", SSTATUS_FS);
        }
    }

    /// Saves the FP registers if user mode wrote them.
    fn save_fp(&mut self) {
        if self.status & SSTATUS_FS == SSTATUS_FS {
            // SAFETY: as above.
            unsafe {
                csr_set!("sstatus", SSTATUS_FS);
                asm!(
                    "frcsr t0", "sd t0, 256({0})",
                    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
                    "fsd f\\n, (\\n * 8)({0})",
                    ".endr",
                    in(reg) &raw mut self.fp, out("t0") _, options(nostack)
                );
            }
        }
        // SAFETY: the kernel uses no FP registers; one that tries dies at once.
        unsafe { csr_clear!("sstatus", SSTATUS_FS) };
    }
}

const _: () = assert!(offset_of!(FpRegs, f) == 0 && offset_of!(FpRegs, fcsr) == 256);
