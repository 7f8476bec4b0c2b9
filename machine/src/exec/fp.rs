//! The F and D extensions: operands, NaN boxing, rounding modes and flags around [`crate::float`].

use super::ILLEGAL;
use crate::decode::Insn;
use crate::hart::csr::status;
use crate::hart::{Hart, Trap};

/// Illegal while `mstatus.FS` is Off.
#[inline(always)]
pub(super) fn enabled(hart: &Hart) -> Result<(), Trap> {
    if hart.csr.status & status::FS == 0 { Err(ILLEGAL) } else { Ok(()) }
}

/// Writes a NaN-boxed single.
pub(super) fn set_single(hart: &mut Hart, rd: u8, value: u32) {
    hart.f[usize::from(rd & 31)] = u64::from(value) | 0xffff_ffff << 32;
    hart.csr.status |= status::FS;
}

pub(super) fn execute(hart: &mut Hart, insn: &Insn) -> Result<(), Trap> {
    let _ = (hart, insn);
    Err(ILLEGAL)
}
