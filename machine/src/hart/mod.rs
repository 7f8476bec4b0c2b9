//! A hart: registers, privilege, control and status registers, and its translation cache.
//!
//! Nothing here knows how instructions are decoded or dispatched ([`crate::engine`]) or what
//! stands on the bus ([`crate::platform`]).

pub mod csr;
mod mmu;
mod pmp;
mod tlb;
mod trap;

use crate::platform::{Access, Privilege};
pub(crate) use csr::{Effect, Now};
pub(crate) use mmu::Place;
pub(crate) use tlb::{Context, Tlb};

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

/// Index in [`Hart::x`] that takes writes to `x0`.
pub(crate) const SINK: u8 = 32;

/// Architectural state of one hart, and its translation cache.
#[derive(Clone)]
pub struct Hart {
    pub(crate) id: usize,
    pub(crate) pc: u64,
    /// General registers; decoded writes to `x0` go to [`SINK`]. 64 long so that a masked index
    /// needs no bounds check.
    pub(crate) x: [u64; 64],
    pub(crate) f: [u64; 32],
    pub(crate) privilege: Privilege,
    /// Privilege of loads and stores (MPRV applied).
    pub(crate) data_privilege: Privilege,
    pub(crate) fetch_context: Context,
    pub(crate) data_context: Context,
    pub(crate) csr: csr::Csrs,
    pub(crate) pmp: pmp::Pmp,
    /// Instructions retired (`minstret`) up to the current block.
    pub(crate) instret: u64,
    /// Line reserved by LR, in `Frame::base` numbering.
    pub(crate) reservation: Option<u64>,
    pub(crate) waiting: bool,
    pub(crate) injected: Option<Trap>,
    pub(crate) tlb: Tlb,
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
            data_privilege: Privilege::Machine,
            fetch_context: Context::new(Privilege::Machine, false),
            data_context: Context::new(Privilege::Machine, false),
            csr: csr::Csrs::default(),
            pmp: pmp::Pmp::default(),
            instret: 0,
            reservation: None,
            waiting: false,
            injected: None,
            tlb: Tlb::new(),
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

    /// CSR `number` as a debugger sees it: no privilege check, no side effect; `time` and `cycle`
    /// are the platform's. `None`: no such CSR.
    pub fn csr(&self, number: u16, time: u64, cycle: u64) -> Option<u64> {
        self.read_csr(number, Now { cycle, time, instret: self.instret })
    }

    /// Writes CSR `number` from a debugger, with the register's own WARL rules. `None`: no such
    /// CSR.
    pub fn set_csr(&mut self, number: u16, value: u64) -> Option<()> {
        let now = Now { instret: self.instret.wrapping_sub(1), ..Now::default() };
        self.read_csr(number, now)?;
        self.write_csr(number, value, now);
        self.tlb.flush();
        self.update_context();
        Some(())
    }

    /// Would PMP grant loads (stores) of the whole page to data accesses now?
    pub(crate) fn pmp_grants(&self, page: u64, access: Access) -> bool {
        let privilege = self.effective(access);
        self.pmp.check(privilege, page, 4096, access) == pmp::Verdict::Granted
    }

    /// Current privilege mode.
    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    /// Sets the privilege mode (debugger, loader).
    pub fn set_privilege(&mut self, privilege: Privilege) {
        self.privilege = privilege;
        self.update_context();
    }

    /// Whether the hart waits in WFI.
    pub fn waiting(&self) -> bool {
        self.waiting
    }

    /// Instructions retired since reset, as `minstret` counts them.
    pub fn instret(&self) -> u64 {
        self.instret
    }

    /// Makes the hart take `trap` instead of its next instruction (fault injection, cause 19).
    pub fn inject(&mut self, trap: Trap) {
        self.injected = Some(trap);
        self.waiting = false;
    }

    /// Calls `word` with every 64-bit word of architectural state, in a fixed order, for hashes
    /// and comparison. Caches are no part of it.
    pub fn visit_state(&self, mut word: impl FnMut(u64)) {
        word(self.pc);
        self.x[1..32].iter().for_each(|v| word(*v));
        self.f.iter().for_each(|v| word(*v));
        word(self.privilege as u64);
        word(u64::from(self.waiting));
        word(self.instret);
        word(self.reservation.map_or(u64::MAX, |line| line));
        let c = &self.csr;
        [c.status, c.mie, c.pending, c.medeleg, c.mideleg, c.mtvec, c.mscratch, c.mepc, c.mcause]
            .into_iter()
            .for_each(&mut word);
        [c.mtval, c.mcounteren, c.menvcfg, c.stvec, c.sscratch, c.sepc, c.scause, c.stval]
            .into_iter()
            .for_each(&mut word);
        [c.scounteren, c.senvcfg, c.stimecmp, c.satp, c.cycle_offset]
            .into_iter()
            .for_each(&mut word);
        word(u64::from(c.frm) << 5 | u64::from(c.fflags));
        (0..2).for_each(|bank| word(self.pmp.config(bank)));
        (0..pmp::ENTRIES).for_each(|i| word(self.pmp.address(i)));
    }
}
