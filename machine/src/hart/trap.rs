//! Traps: interrupt selection, trap entry, MRET and SRET (privileged specification, "Machine-Level
//! ISA" and "Supervisor-Level ISA").

use super::csr::{envcfg, interrupt, status};
use super::{Hart, Trap};
use crate::platform::Privilege;

/// Interrupts by falling priority; the platform's local ones come last, lowest number first.
const PRIORITY: [u64; 6] = [
    interrupt::MEI,
    interrupt::MSI,
    interrupt::MTI,
    interrupt::SEI,
    interrupt::SSI,
    interrupt::STI,
];

const INTERRUPT: u64 = 1 << 63;

impl Hart {
    /// The interrupt to take now, as a cause number, if one is enabled and pending.
    pub(crate) fn pending_interrupt(&self, time: u64) -> Option<u64> {
        let pending = self.mip(time) & self.csr.mie;
        if pending == 0 {
            return None;
        }
        let to_machine = pending & !self.csr.mideleg;
        let to_supervisor = pending & self.csr.mideleg;
        let machine_on = self.privilege < Privilege::Machine || self.csr.status & status::MIE != 0;
        let supervisor_on = self.privilege < Privilege::Supervisor
            || (self.privilege == Privilege::Supervisor && self.csr.status & status::SIE != 0);
        let ready = match () {
            () if machine_on && to_machine != 0 => to_machine,
            () if supervisor_on && to_supervisor != 0 => to_supervisor,
            () => return None,
        };
        let first = PRIORITY.into_iter().find(|bit| ready & bit != 0).unwrap_or(ready);
        Some(u64::from(first.trailing_zeros()))
    }

    /// Enters the handler for an exception raised by the instruction at `self.pc`.
    pub(crate) fn take_exception(&mut self, trap: Trap) {
        let cause = trap.cause as u64;
        let delegated = self.csr.medeleg >> cause & 1 != 0;
        self.enter(cause, trap.value, delegated);
    }

    /// Enters the handler for interrupt `number` before the instruction at `self.pc`.
    pub(crate) fn take_interrupt(&mut self, number: u64) {
        let delegated = self.csr.mideleg >> number & 1 != 0;
        self.enter(INTERRUPT | number, 0, delegated);
    }

    fn enter(&mut self, cause: u64, value: u64, delegated: bool) {
        let s = self.csr.status;
        let vector = if delegated && self.privilege <= Privilege::Supervisor {
            self.csr.scause = cause;
            self.csr.sepc = self.pc;
            self.csr.stval = value;
            let spie = if s & status::SIE != 0 { status::SPIE } else { 0 };
            let spp = if self.privilege == Privilege::Supervisor { status::SPP } else { 0 };
            self.csr.status = s & !(status::SIE | status::SPIE | status::SPP) | spie | spp;
            self.privilege = Privilege::Supervisor;
            self.csr.stvec
        } else {
            self.csr.mcause = cause;
            self.csr.mepc = self.pc;
            self.csr.mtval = value;
            let mpie = if s & status::MIE != 0 { status::MPIE } else { 0 };
            let mpp = (self.privilege as u64) << status::MPP_SHIFT;
            self.csr.status = s & !(status::MIE | status::MPIE | status::MPP) | mpie | mpp;
            self.privilege = Privilege::Machine;
            self.csr.mtvec
        };
        let base = vector & !3;
        let vectored = vector & 1 != 0 && cause & INTERRUPT != 0;
        self.pc = if vectored { base.wrapping_add(4 * (cause & !INTERRUPT)) } else { base };
        self.reservation = None;
        self.waiting = false;
        self.update_context();
    }

    /// MRET, after its privilege check.
    pub(crate) fn return_from_machine(&mut self) {
        let s = self.csr.status;
        let to = privilege_of(s >> status::MPP_SHIFT & 3);
        let mie = if s & status::MPIE != 0 { status::MIE } else { 0 };
        let mut s = s & !(status::MIE | status::MPP) | status::MPIE | mie;
        if to != Privilege::Machine {
            s &= !status::MPRV;
        }
        self.finish_return(s, to, self.csr.mepc);
    }

    /// SRET, after its privilege check.
    pub(crate) fn return_from_supervisor(&mut self) {
        let s = self.csr.status;
        let to = if s & status::SPP != 0 { Privilege::Supervisor } else { Privilege::User };
        let sie = if s & status::SPIE != 0 { status::SIE } else { 0 };
        let s = s & !(status::SIE | status::SPP | status::MPRV) | status::SPIE | sie;
        self.finish_return(s, to, self.csr.sepc);
    }

    fn finish_return(&mut self, status: u64, to: Privilege, pc: u64) {
        self.csr.status = status;
        self.privilege = to;
        self.pc = pc;
        self.reservation = None;
        self.update_context();
    }

    /// Would a WFI end now, given the platform's interrupt lines and the time? Enabled in `mie` is
    /// enough: the global enables and delegation play no part.
    pub fn wakes(&self, lines: u64, time: u64) -> bool {
        let timer = self.timer().is_some_and(|at| time >= at);
        let own = self.csr.pending | if timer { interrupt::STI } else { 0 };
        (lines | own) & self.csr.mie != 0 || self.injected.is_some()
    }

    /// Time (`time` ticks) from which the hart's own timer (Sstc `stimecmp`) is pending, if it is
    /// on: the machine ends a slice there.
    pub fn timer(&self) -> Option<u64> {
        (self.csr.menvcfg & envcfg::STCE != 0).then_some(self.csr.stimecmp)
    }
}

/// The mode that a two-bit field names. The reserved value is never stored.
fn privilege_of(field: u64) -> Privilege {
    match field {
        0 => Privilege::User,
        1 => Privilege::Supervisor,
        _ => Privilege::Machine,
    }
}
