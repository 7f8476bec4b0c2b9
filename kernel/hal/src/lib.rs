//! The unsafe surface of the kernel (guest only): everything that touches a CSR, an address or a
//! device register is here, behind safe interfaces where the hardware allows.
//!
//! Reading order: [`entry`] (first instructions, early page tables), [`hart`] (the per-hart block
//! behind `tp`), [`trap`] (both ways into the kernel), [`user`] (the way out), [`context`] (kernel
//! threads' stacks and switching), [`uaccess`] (memory that may not answer), [`paging`], [`memory`]
//! (early frames, heap), [`devicetree`], then the devices: [`console`], [`plic`], [`virtio_blk`],
//! [`platform`] (coherence controller), [`sbi`], [`time`], [`panic`].
//!
//! Invariants: kernel text is never writable nor data executable at the link address; the direct
//! map is never executable; a fault in kernel mode outside the exception table kills the cell.
//!
//! Absent: policy. Who runs when, what a frame holds and what a fault means is decided above.
#![cfg(target_os = "none")]
#![no_std]
#![allow(unsafe_code)] // one of the two crates that are the kernel's unsafe surface

extern crate alloc;

#[macro_use]
pub mod csr;
pub mod console;
pub mod context;
pub mod devicetree;
pub mod entry;
pub mod hart;
pub mod memory;
pub mod mmio;
pub mod paging;
pub mod panic;
pub mod platform;
pub mod plic;
pub mod sbi;
pub mod stack;
pub mod time;
pub mod trap;
pub mod uaccess;
pub mod user;
pub mod virtio_blk;

pub use memory::Pa;

/// Most harts one cell may have: one bit each in a hart mask.
pub const MAX_HARTS: usize = 64;

/// What an access wanted to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store, AMO or SC.
    Write,
    /// An instruction fetch.
    Execute,
}

/// Mark codes that [`mark`] takes.
pub const MARKS: u16 = 128;

core::arch::global_asm!(
    r#"
    .section .text
    .option push
    .option norvc
    // a0 = value, a1 = code: into a table of HINT and return.
    .global hal_mark
hal_mark:
    slli  a1, a1, 3
    lla   t0, 1f
    add   t0, t0, a1
    jr    t0
1:  .set  n, 0
    .rept {marks}
    .word {mark} + (n << 20)
    ret
    .set  n, n + 1
    .endr
    .option pop
    "#,
    marks = const MARKS,
    mark = const hive_platform::mark::instruction(0),
);

unsafe extern "C" {
    fn hal_mark(value: u64, code: u64);
}

/// Shows event `code` with `value` to whoever watches the machine ([`hive_platform::mark`]).
pub fn mark(code: u16, value: u64) {
    assert!(code < MARKS);
    // SAFETY: a HINT changes nothing; the code is in the table.
    unsafe { hal_mark(value, code.into()) };
}
