//! A hart: registers, privilege, control and status registers, and its translation cache.
//!
//! Nothing here knows how instructions are decoded or dispatched ([`crate::engine`]) or what
//! stands on the bus ([`crate::platform`]).

use crate::platform::Privilege;

/// Exceptions by cause number (privileged specification, table of `mcause`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Exception {
    /// Fetch from a misaligned address (cannot happen with C).
    InstructionMisaligned = 0,
    /// Fetch denied by PMP or by the bus.
    InstructionAccess = 1,
    /// Undefined, disabled or unprivileged instruction.
    IllegalInstruction = 2,
    /// EBREAK.
    Breakpoint = 3,
    /// Misaligned LR.
    LoadMisaligned = 4,
    /// Load denied by PMP or by the bus.
    LoadAccess = 5,
    /// Misaligned SC or AMO.
    StoreMisaligned = 6,
    /// Store denied by PMP, by the bus or by the firewall.
    StoreAccess = 7,
    /// ECALL from U-mode.
    CallFromUser = 8,
    /// ECALL from S-mode.
    CallFromSupervisor = 9,
    /// ECALL from M-mode.
    CallFromMachine = 11,
    /// No translation for a fetch.
    InstructionPage = 12,
    /// No translation for a load.
    LoadPage = 13,
    /// No translation for a store.
    StorePage = 15,
    /// Poisoned memory.
    HardwareError = 19,
}

/// A trap about to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Its cause.
    pub cause: Exception,
    /// What goes into `mtval` or `stval`.
    pub value: u64,
}

/// Architectural state of one hart.
#[derive(Clone)]
pub struct Hart {
    id: usize,
    pc: u64,
    x: [u64; 64],
    f: [u64; 32],
    privilege: Privilege,
    waiting: bool,
    injected: Option<Trap>,
}

impl Hart {
    /// A hart in the state after reset with `pc` = 0; see [`Hart::reset`].
    pub fn new(id: usize) -> Hart {
        Hart {
            id,
            pc: 0,
            x: [0; 64],
            f: [0; 32],
            privilege: Privilege::Machine,
            waiting: false,
            injected: None,
        }
    }

    /// Back to the reset state, in M-mode at `pc`. General registers are zero: the caller sets
    /// what a boot protocol wants in `a0`, `a1`.
    pub fn reset(&mut self, pc: u64) {
        *self = Hart::new(self.id);
        self.pc = pc;
    }

    /// Machine-wide id (`mhartid`).
    pub fn id(&self) -> usize {
        self.id
    }

    /// Address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.pc
    }

    /// Sets the address of the next instruction (debugger, loader).
    pub fn set_pc(&mut self, pc: u64) {
        self.pc = pc & !1;
    }

    /// General register `n` (0 to 31).
    pub fn x(&self, n: usize) -> u64 {
        self.x[n & 31]
    }

    /// Sets general register `n`; `x0` stays zero.
    pub fn set_x(&mut self, n: usize, value: u64) {
        if n & 31 != 0 {
            self.x[n & 31] = value;
        }
    }

    /// Floating-point register `n`, all 64 bits.
    pub fn f(&self, n: usize) -> u64 {
        self.f[n & 31]
    }

    /// Sets floating-point register `n`.
    pub fn set_f(&mut self, n: usize, value: u64) {
        self.f[n & 31] = value;
    }

    /// CSR `number` as a debugger sees it: no privilege check, no side effect. `None`: no such CSR.
    pub fn csr(&self, number: u16) -> Option<u64> {
        let _ = number;
        None
    }

    /// Writes CSR `number` from a debugger, with the register's own WARL rules.
    pub fn set_csr(&mut self, number: u16, value: u64) -> Option<()> {
        let _ = (number, value);
        None
    }

    /// Current privilege mode.
    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    /// Whether the hart waits in WFI.
    pub fn waiting(&self) -> bool {
        self.waiting
    }

    /// Would a WFI end now, given the platform's interrupt lines and the time?
    pub fn wakes(&self, lines: u64, time: u64) -> bool {
        let _ = (lines, time);
        true
    }

    /// Time (`time` ticks) at which the hart's own timer (Sstc `stimecmp`) is or becomes pending,
    /// if it is enabled: the machine ends a slice there.
    pub fn timer(&self) -> Option<u64> {
        None
    }

    /// Makes the hart take `trap` instead of its next instruction (fault injection, cause 19).
    pub fn inject(&mut self, trap: Trap) {
        self.injected = Some(trap);
    }

    /// Calls `word` with every 64-bit word of architectural state, in a fixed order, for hashes.
    pub fn visit_state(&self, mut word: impl FnMut(u64)) {
        word(self.pc);
        self.x[1..32].iter().for_each(|v| word(*v));
        self.f.iter().for_each(|v| word(*v));
        word(self.privilege as u64);
        word(u64::from(self.waiting));
    }
}
