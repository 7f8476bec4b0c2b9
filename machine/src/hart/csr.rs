//! Control and status registers: numbers, fields, and what a read or write of each does.
//!
//! Where the specification leaves a choice (WARL), values behave as on QEMU's `virt` rv64 board.
//! Absent: hpm counters (read-only zero), Smepmp, Smstateen, the H extension.

use super::Hart;
use crate::platform::Privilege;

/// CSR numbers used in more than one place.
#[allow(missing_docs)]
pub mod number {
    pub const FFLAGS: u16 = 0x001;
    pub const FRM: u16 = 0x002;
    pub const FCSR: u16 = 0x003;
    pub const CYCLE: u16 = 0xc00;
    pub const TIME: u16 = 0xc01;
    pub const INSTRET: u16 = 0xc02;
    pub const SSTATUS: u16 = 0x100;
    pub const SIE: u16 = 0x104;
    pub const STVEC: u16 = 0x105;
    pub const SCOUNTEREN: u16 = 0x106;
    pub const SENVCFG: u16 = 0x10a;
    pub const SSCRATCH: u16 = 0x140;
    pub const SEPC: u16 = 0x141;
    pub const SCAUSE: u16 = 0x142;
    pub const STVAL: u16 = 0x143;
    pub const SIP: u16 = 0x144;
    pub const STIMECMP: u16 = 0x14d;
    pub const SATP: u16 = 0x180;
    pub const MVENDORID: u16 = 0xf11;
    pub const MARCHID: u16 = 0xf12;
    pub const MIMPID: u16 = 0xf13;
    pub const MHARTID: u16 = 0xf14;
    pub const MCONFIGPTR: u16 = 0xf15;
    pub const MSTATUS: u16 = 0x300;
    pub const MISA: u16 = 0x301;
    pub const MEDELEG: u16 = 0x302;
    pub const MIDELEG: u16 = 0x303;
    pub const MIE: u16 = 0x304;
    pub const MTVEC: u16 = 0x305;
    pub const MCOUNTEREN: u16 = 0x306;
    pub const MENVCFG: u16 = 0x30a;
    pub const MCOUNTINHIBIT: u16 = 0x320;
    pub const MSCRATCH: u16 = 0x340;
    pub const MEPC: u16 = 0x341;
    pub const MCAUSE: u16 = 0x342;
    pub const MTVAL: u16 = 0x343;
    pub const MIP: u16 = 0x344;
    pub const PMPCFG0: u16 = 0x3a0;
    pub const PMPCFG2: u16 = 0x3a2;
    pub const PMPADDR0: u16 = 0x3b0;
    pub const MCYCLE: u16 = 0xb00;
    pub const MINSTRET: u16 = 0xb02;
}
use number::*;

/// Fields of `mstatus`.
#[allow(missing_docs)]
pub(crate) mod status {
    pub const SIE: u64 = 1 << 1;
    pub const MIE: u64 = 1 << 3;
    pub const SPIE: u64 = 1 << 5;
    pub const MPIE: u64 = 1 << 7;
    pub const SPP: u64 = 1 << 8;
    pub const MPP: u64 = 3 << 11;
    pub const MPP_SHIFT: u32 = 11;
    pub const FS: u64 = 3 << 13;
    pub const MPRV: u64 = 1 << 17;
    pub const SUM: u64 = 1 << 18;
    pub const MXR: u64 = 1 << 19;
    pub const TVM: u64 = 1 << 20;
    pub const TW: u64 = 1 << 21;
    pub const TSR: u64 = 1 << 22;
    pub const UXL_SXL_64: u64 = 2 << 32 | 2 << 34;
    pub const UXL_64: u64 = 2 << 32;
    pub const SD: u64 = 1 << 63;
    /// What S-mode may write through `sstatus`.
    pub const SUPERVISOR: u64 = SIE | SPIE | SPP | FS | SUM | MXR;
    /// What M-mode may write.
    pub const WRITABLE: u64 = SUPERVISOR | MIE | MPIE | MPP | MPRV | TVM | TW | TSR;
}

/// Interrupt numbers' bits in `mip`, `mie`, `mideleg`.
#[allow(missing_docs)]
pub(crate) mod interrupt {
    pub const SSI: u64 = 1 << 1;
    pub const MSI: u64 = 1 << 3;
    pub const STI: u64 = 1 << 5;
    pub const MTI: u64 = 1 << 7;
    pub const SEI: u64 = 1 << 9;
    pub const MEI: u64 = 1 << 11;
    /// Local interrupts of the platform.
    pub const LOCAL: u64 = {
        let [a, b, c] = hive_platform::map::SIPS_INTERRUPT;
        1 << a | 1 << b | 1 << c
    };
    pub const SUPERVISOR: u64 = SSI | STI | SEI | LOCAL;
    pub const ALL: u64 = SUPERVISOR | MSI | MTI | MEI;
}

/// Fields of `menvcfg` and `senvcfg`.
pub(crate) mod envcfg {
    pub const CBIE_SHIFT: u32 = 4;
    pub const CBCFE: u64 = 1 << 6;
    pub const CBZE: u64 = 1 << 7;
    pub const STCE: u64 = 1 << 63;
    /// FIOM, CBIE, CBCFE, CBZE.
    pub const SUPERVISOR: u64 = 0xf1;
    pub const MACHINE: u64 = SUPERVISOR | STCE;
}

/// Causes that may be delegated: every exception of M/S/U but the call from M-mode, and 19.
const DELEGABLE: u64 = 0xb3ff | 1 << 19;
/// RV64IMAFDC with S and U.
const MISA_VALUE: u64 =
    2 << 62 | 1 << 0 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 12 | 1 << 18 | 1 << 20;
/// Bits of `satp` that select the mode; 0 (bare) and 8 (Sv39) exist.
const SATP_MODE_SHIFT: u32 = 60;
pub(crate) const SATP_SV39: u64 = 8;

/// The registers that are plain words, with their reset values.
#[derive(Clone, Default)]
pub(crate) struct Csrs {
    pub status: u64,
    pub mie: u64,
    /// Pending bits that software holds: SSIP, SEIP, and STIP while Sstc is off.
    pub pending: u64,
    /// The platform's lines as last read.
    pub lines: u64,
    pub medeleg: u64,
    pub mideleg: u64,
    pub mtvec: u64,
    pub mscratch: u64,
    pub mepc: u64,
    pub mcause: u64,
    pub mtval: u64,
    pub mcounteren: u64,
    pub menvcfg: u64,
    pub mcountinhibit: u64,
    pub stvec: u64,
    pub sscratch: u64,
    pub sepc: u64,
    pub scause: u64,
    pub stval: u64,
    pub scounteren: u64,
    pub senvcfg: u64,
    pub stimecmp: u64,
    pub satp: u64,
    pub fflags: u8,
    pub frm: u8,
    /// `minstret` when the hart's own count was zero.
    pub cycle_offset: u64,
}

/// Counters at the instruction that reads or writes them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Now {
    pub cycle: u64,
    pub time: u64,
    pub instret: u64,
}

/// What else must happen after a CSR write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Interrupts may have become deliverable, or the effective privilege changed.
    Status,
    /// Cached translations are void.
    Translation,
    /// The hart's own timer moved.
    Timer,
}

impl Hart {
    /// `mip`: software bits, the platform's lines, and the Sstc comparison.
    pub(crate) fn mip(&self, time: u64) -> u64 {
        let mip = self.csr.pending | self.csr.lines;
        if self.csr.menvcfg & envcfg::STCE == 0 {
            mip
        } else {
            mip & !interrupt::STI | if time >= self.csr.stimecmp { interrupt::STI } else { 0 }
        }
    }

    /// Does the current mode have access to CSR `number` at all? (Existence is [`Hart::read_csr`]'s
    /// affair.)
    pub(crate) fn may_access_csr(&self, number: u16, write: bool) -> bool {
        let read_only = number >> 10 == 3;
        let level = number >> 8 & 3;
        if (write && read_only) || (self.privilege as u16) < level {
            return false;
        }
        match number {
            FFLAGS..=FCSR => self.csr.status & status::FS != 0,
            SATP => self.privilege == Privilege::Machine || self.csr.status & status::TVM == 0,
            STIMECMP => {
                self.privilege == Privilege::Machine
                    || (self.csr.menvcfg & envcfg::STCE != 0 && self.csr.mcounteren & 2 != 0)
            }
            0xc00..=0xc1f => {
                let bit = 1 << (number & 31);
                (self.privilege == Privilege::Machine || self.csr.mcounteren & bit != 0)
                    && (self.privilege != Privilege::User || self.csr.scounteren & bit != 0)
            }
            _ => true,
        }
    }

    /// Value of CSR `number`; `None` if there is none.
    pub(crate) fn read_csr(&self, number: u16, now: Now) -> Option<u64> {
        let c = &self.csr;
        Some(match number {
            FFLAGS => u64::from(c.fflags),
            FRM => u64::from(c.frm),
            FCSR => u64::from(c.frm) << 5 | u64::from(c.fflags),
            CYCLE | MCYCLE => now.cycle.wrapping_add(c.cycle_offset),
            TIME => now.time,
            INSTRET | MINSTRET => now.instret,
            0xc03..=0xc1f | 0xb03..=0xb1f | 0x323..=0x33f => 0,
            SSTATUS => self.status_read() & (status::SUPERVISOR | status::UXL_64 | status::SD),
            SIE => c.mie & c.mideleg,
            SIP => self.mip(now.time) & c.mideleg,
            STVEC => c.stvec,
            SCOUNTEREN => c.scounteren,
            SENVCFG => c.senvcfg,
            SSCRATCH => c.sscratch,
            SEPC => c.sepc,
            SCAUSE => c.scause,
            STVAL => c.stval,
            STIMECMP => c.stimecmp,
            SATP => c.satp,
            MVENDORID | MARCHID | MIMPID | MCONFIGPTR => 0,
            MHARTID => self.id as u64,
            MSTATUS => self.status_read(),
            MISA => MISA_VALUE,
            MEDELEG => c.medeleg,
            MIDELEG => c.mideleg,
            MIE => c.mie,
            MIP => self.mip(now.time),
            MTVEC => c.mtvec,
            MCOUNTEREN => c.mcounteren,
            MENVCFG => c.menvcfg,
            MCOUNTINHIBIT => c.mcountinhibit,
            MSCRATCH => c.mscratch,
            MEPC => c.mepc,
            MCAUSE => c.mcause,
            MTVAL => c.mtval,
            PMPCFG0 => self.pmp.config(0),
            PMPCFG2 => self.pmp.config(1),
            0x3b0..=0x3bf => self.pmp.address(usize::from(number - PMPADDR0)),
            _ => return None,
        })
    }

    /// Writes CSR `number`, which exists and is writable, under its WARL rules.
    pub(crate) fn write_csr(&mut self, number: u16, value: u64, now: Now) -> Effect {
        let c = &mut self.csr;
        match number {
            FFLAGS | FRM | FCSR => {
                match number {
                    FFLAGS => c.fflags = value as u8 & 31,
                    FRM => c.frm = value as u8 & 7,
                    _ => (c.fflags, c.frm) = (value as u8 & 31, (value >> 5) as u8 & 7),
                }
                c.status |= status::FS;
            }
            MCYCLE => c.cycle_offset = value.wrapping_sub(now.cycle),
            // The write is done instead of this instruction's increment.
            MINSTRET => {
                self.instret = self.instret.wrapping_add(value).wrapping_sub(now.instret + 1)
            }
            SSTATUS => return self.write_status(value, status::SUPERVISOR),
            MSTATUS => return self.write_status(value, status::WRITABLE),
            SIE => {
                c.mie = c.mie & !c.mideleg | value & c.mideleg;
                return Effect::Status;
            }
            MIE => {
                c.mie = value & interrupt::ALL;
                return Effect::Status;
            }
            SIP => {
                let mask = interrupt::SSI & c.mideleg;
                c.pending = c.pending & !mask | value & mask;
                return Effect::Status;
            }
            MIP => {
                let timer = if c.menvcfg & envcfg::STCE == 0 { interrupt::STI } else { 0 };
                let mask = interrupt::SSI | interrupt::SEI | timer;
                c.pending = c.pending & !mask | value & mask;
                return Effect::Status;
            }
            STVEC => c.stvec = vector(value, c.stvec),
            MTVEC => c.mtvec = vector(value, c.mtvec),
            SCOUNTEREN => c.scounteren = value & 0xffff_ffff,
            MCOUNTEREN => c.mcounteren = value & 0xffff_ffff,
            MCOUNTINHIBIT => c.mcountinhibit = 0,
            SENVCFG => c.senvcfg = legal_envcfg(value, c.senvcfg) & envcfg::SUPERVISOR,
            MENVCFG => {
                c.menvcfg = legal_envcfg(value, c.menvcfg) & envcfg::MACHINE;
                return Effect::Timer;
            }
            STIMECMP => {
                c.stimecmp = value;
                return Effect::Timer;
            }
            SSCRATCH => c.sscratch = value,
            MSCRATCH => c.mscratch = value,
            SEPC => c.sepc = value & !1,
            MEPC => c.mepc = value & !1,
            SCAUSE => c.scause = value,
            MCAUSE => c.mcause = value,
            STVAL => c.stval = value,
            MTVAL => c.mtval = value,
            SATP => {
                let mode = value >> SATP_MODE_SHIFT;
                if (mode == 0 || mode == SATP_SV39) && c.satp != value {
                    c.satp = value;
                    return Effect::Translation;
                }
            }
            MEDELEG => c.medeleg = value & DELEGABLE,
            MIDELEG => {
                c.mideleg = value & interrupt::SUPERVISOR;
                return Effect::Status;
            }
            PMPCFG0 => {
                self.pmp.set_config(0, value);
                return Effect::Translation;
            }
            PMPCFG2 => {
                self.pmp.set_config(1, value);
                return Effect::Translation;
            }
            0x3b0..=0x3bf => {
                self.pmp.set_address(usize::from(number - PMPADDR0), value);
                return Effect::Translation;
            }
            _ => {}
        }
        Effect::None
    }

    fn status_read(&self) -> u64 {
        let s = self.csr.status;
        let dirty = if s & status::FS == status::FS { status::SD } else { 0 };
        s | status::UXL_SXL_64 | dirty
    }

    fn write_status(&mut self, value: u64, mask: u64) -> Effect {
        let old = self.csr.status;
        let mut new = old & !mask | value & mask;
        if new & status::MPP == 2 << status::MPP_SHIFT {
            new = new & !status::MPP | old & status::MPP;
        }
        self.csr.status = new;
        self.update_context();
        if (old ^ new) & status::MXR != 0 { Effect::Translation } else { Effect::Status }
    }
}

/// `mtvec` and `stvec`: modes 0 and 1 exist, a write of another is ignored.
fn vector(value: u64, old: u64) -> u64 {
    if value & 3 < 2 { value } else { old }
}

/// CBIE = 2 is reserved: the field keeps its value.
fn legal_envcfg(value: u64, old: u64) -> u64 {
    let field = 3 << envcfg::CBIE_SHIFT;
    if value & field == 2 << envcfg::CBIE_SHIFT { value & !field | old & field } else { value }
}
