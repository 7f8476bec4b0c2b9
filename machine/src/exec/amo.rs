//! The A extension: LR, SC and AMOs.
//!
//! The reservation set is the 64-byte line. SC checks store permission first; then it succeeds if
//! the line is still reserved. A misaligned address traps. Reservations are broken by any other
//! hart's or device's store to the line; also by a trap, xRET or device access of the own hart.

use super::Bus;
use super::mem::{self, Atomic};
use crate::decode::{Insn, Op};
use crate::hart::{Exception, Hart, Trap};
use crate::platform::Platform;

pub(super) fn execute<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    insn: &Insn,
) -> Result<(), Trap> {
    let va = hart.x[usize::from(insn.rs1 & 63)];
    let rs2 = hart.x[usize::from(insn.rs2 & 63)];
    let value = match insn.op {
        Op::LrW => load_reserved(hart, bus, va, 4)? as i32 as u64,
        Op::LrD => load_reserved(hart, bus, va, 8)?,
        Op::ScW => store_conditional(hart, bus, va, (rs2 as u32).to_le_bytes())?,
        Op::ScD => store_conditional(hart, bus, va, rs2.to_le_bytes())?,
        op if op < Op::AmoSwapD => {
            let new =
                |old: [u8; 4]| combine_word(op, u32::from_le_bytes(old), rs2 as u32).to_le_bytes();
            i32::from_le_bytes(modify(hart, bus, va, new)?) as u64
        }
        op => {
            let new = |old: [u8; 8]| combine_double(op, u64::from_le_bytes(old), rs2).to_le_bytes();
            u64::from_le_bytes(modify(hart, bus, va, new)?)
        }
    };
    hart.x[usize::from(insn.rd & 63)] = value;
    Ok(())
}

fn load_reserved<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
) -> Result<u64, Trap> {
    if va & (size as u64 - 1) != 0 {
        return Err(Trap { cause: Exception::LoadMisaligned, value: va });
    }
    let (value, line) = mem::load_reserved(hart, bus, va, size)?;
    hart.reservation = Some(line);
    Ok(value)
}

/// 0 if stored, 1 if not.
fn store_conditional<P: Platform, const N: usize>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    bytes: [u8; N],
) -> Result<u64, Trap> {
    check_aligned::<N>(va)?;
    let at = Atomic::open::<P, N>(hart, bus, va, false)?;
    let reserved = hart.reservation.take() == Some(at.line());
    if reserved {
        at.store(hart, bus, bytes);
    }
    Ok(u64::from(!reserved))
}

/// Replaces the word at `va` by `new` of it and returns the old one.
fn modify<P: Platform, const N: usize>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    new: impl Fn([u8; N]) -> [u8; N],
) -> Result<[u8; N], Trap> {
    check_aligned::<N>(va)?;
    let at = Atomic::open::<P, N>(hart, bus, va, true)?;
    let old = at.load(bus);
    at.store(hart, bus, new(old));
    Ok(old)
}

fn check_aligned<const N: usize>(va: u64) -> Result<(), Trap> {
    if va & (N as u64 - 1) == 0 {
        Ok(())
    } else {
        Err(Trap { cause: Exception::StoreMisaligned, value: va })
    }
}

fn combine_word(op: Op, old: u32, rs2: u32) -> u32 {
    match op {
        Op::AmoSwapW => rs2,
        Op::AmoAddW => old.wrapping_add(rs2),
        Op::AmoXorW => old ^ rs2,
        Op::AmoAndW => old & rs2,
        Op::AmoOrW => old | rs2,
        Op::AmoMinW => (old as i32).min(rs2 as i32) as u32,
        Op::AmoMaxW => (old as i32).max(rs2 as i32) as u32,
        Op::AmoMinuW => old.min(rs2),
        _ => old.max(rs2),
    }
}

fn combine_double(op: Op, old: u64, rs2: u64) -> u64 {
    match op {
        Op::AmoSwapD => rs2,
        Op::AmoAddD => old.wrapping_add(rs2),
        Op::AmoXorD => old ^ rs2,
        Op::AmoAndD => old & rs2,
        Op::AmoOrD => old | rs2,
        Op::AmoMinD => (old as i64).min(rs2 as i64) as u64,
        Op::AmoMaxD => (old as i64).max(rs2 as i64) as u64,
        Op::AmoMinuD => old.min(rs2),
        _ => old.max(rs2),
    }
}
