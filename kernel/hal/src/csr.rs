//! Supervisor CSRs.

/// Reads a CSR.
macro_rules! csr_read {
    ($csr:literal) => {{
        let value: u64;
        // SAFETY: reading a supervisor CSR changes nothing.
        unsafe {
            core::arch::asm!(concat!("csrr {}, ", $csr), out(reg) value, options(nostack));
        }
        value
    }};
}

/// Writes a CSR: an unsafe operation, as it may change what code means.
macro_rules! csr_write {
    ($csr:literal, $value:expr) => {
        core::arch::asm!(concat!("csrw ", $csr, ", {}"), in(reg) $value, options(nostack))
    };
}

/// Sets bits of a CSR.
macro_rules! csr_set {
    ($csr:literal, $bits:expr) => {
        core::arch::asm!(concat!("csrs ", $csr, ", {}"), in(reg) $bits, options(nostack))
    };
}

/// Clears bits of a CSR.
macro_rules! csr_clear {
    ($csr:literal, $bits:expr) => {
        core::arch::asm!(concat!("csrc ", $csr, ", {}"), in(reg) $bits, options(nostack))
    };
}

/// `sstatus`: interrupts on.
pub const SSTATUS_SIE: u64 = 1 << 1;
/// `sstatus`: interrupts on after SRET.
pub const SSTATUS_SPIE: u64 = 1 << 5;
/// `sstatus`: the trap came from S-mode.
pub const SSTATUS_SPP: u64 = 1 << 8;
/// `sstatus`: state of the floating-point registers.
pub const SSTATUS_FS: u64 = 3 << 13;
/// `sstatus.FS`: as the kernel holds it saved.
pub const SSTATUS_FS_CLEAN: u64 = 2 << 13;
/// `sstatus`: S-mode may touch user pages.
pub const SSTATUS_SUM: u64 = 1 << 18;

/// `sie`/`sip` bit of software interrupts.
pub const IRQ_SOFTWARE: u64 = 1;
/// `sie`/`sip` bit of timer interrupts.
pub const IRQ_TIMER: u64 = 5;
/// `sie`/`sip` bit of external interrupts.
pub const IRQ_EXTERNAL: u64 = 9;
