//! The F and D extensions: operands, NaN boxing, rounding modes and flags around [`crate::float`].

use super::ILLEGAL;
use crate::decode::{Insn, Op, RM_SHIFT};
use crate::float::{self, Double, Env, Format, Rounding, Single};
use crate::hart::csr::status;
use crate::hart::{Hart, Trap};

/// Illegal while `mstatus.FS` is Off.
#[inline(always)]
pub(super) fn enabled(hart: &Hart) -> Result<(), Trap> {
    if hart.csr.status & status::FS == 0 { Err(ILLEGAL) } else { Ok(()) }
}

/// Writes a NaN-boxed single.
#[inline(always)]
pub(super) fn set_single(hart: &mut Hart, rd: u8, value: u32) {
    Single::write(hart, rd, value.into());
}

/// How a format lives in the 64-bit registers.
trait Boxed: Format {
    /// Reads register `n`; a single that is not boxed is the canonical NaN.
    fn read(hart: &Hart, n: u8) -> u64;
    /// The register contents that mean `value`.
    fn boxed(value: u64) -> u64;

    fn write(hart: &mut Hart, n: u8, value: u64) {
        hart.f[usize::from(n & 31)] = Self::boxed(value);
        hart.csr.status |= status::FS;
    }
}

impl Boxed for Single {
    fn read(hart: &Hart, n: u8) -> u64 {
        let bits = hart.f[usize::from(n & 31)];
        if bits >> 32 == 0xffff_ffff { bits & 0xffff_ffff } else { Single::NAN }
    }

    fn boxed(value: u64) -> u64 {
        value | 0xffff_ffff << 32
    }
}

impl Boxed for Double {
    fn read(hart: &Hart, n: u8) -> u64 {
        hart.f[usize::from(n & 31)]
    }

    fn boxed(value: u64) -> u64 {
        value
    }
}

/// Rounding mode of the instruction (7: the dynamic one) and the flags so far.
fn env(hart: &Hart, insn: &Insn) -> Result<Env, Trap> {
    let mode = (insn.imm >> RM_SHIFT & 7) as u8;
    let mode = if mode == 7 { hart.csr.frm } else { mode };
    let rounding = Rounding::from_number(mode).ok_or(ILLEGAL)?;
    Ok(Env { rounding, flags: hart.csr.fflags })
}

fn accrue(hart: &mut Hart, env: Env) {
    hart.csr.fflags = env.flags;
    hart.csr.status |= status::FS;
}

fn unary<F: Boxed>(
    hart: &mut Hart,
    insn: &Insn,
    operation: fn(&mut Env, u64) -> u64,
) -> Result<(), Trap> {
    let mut env = env(hart, insn)?;
    let result = operation(&mut env, F::read(hart, insn.rs1));
    accrue(hart, env);
    F::write(hart, insn.rd, result);
    Ok(())
}

#[inline(always)]
fn binary<F: Boxed>(
    hart: &mut Hart,
    insn: &Insn,
    operation: impl FnOnce(&mut Env, u64, u64) -> u64,
) -> Result<(), Trap> {
    let mut env = env(hart, insn)?;
    let result = operation(&mut env, F::read(hart, insn.rs1), F::read(hart, insn.rs2));
    accrue(hart, env);
    F::write(hart, insn.rd, result);
    Ok(())
}

/// ±(rs1 × rs2) ± rs3.
#[inline(always)]
fn fused<F: Boxed>(
    hart: &mut Hart,
    insn: &Insn,
    negate_product: bool,
    negate_addend: bool,
) -> Result<(), Trap> {
    let mut env = env(hart, insn)?;
    let flip = |on: bool| if on { F::SIGN } else { 0 };
    let a = F::read(hart, insn.rs1) ^ flip(negate_product);
    let b = F::read(hart, insn.rs2);
    let c = F::read(hart, (insn.imm & 31) as u8) ^ flip(negate_addend);
    let result = float::fma::<F>(&mut env, a, b, c);
    accrue(hart, env);
    F::write(hart, insn.rd, result);
    Ok(())
}

/// Sign injection: the sign of the result is `sign(rs1, rs2)`, given in place.
fn inject<F: Boxed>(hart: &mut Hart, insn: &Insn, sign: fn(u64, u64) -> u64) {
    let (a, b) = (F::read(hart, insn.rs1), F::read(hart, insn.rs2));
    F::write(hart, insn.rd, a & !F::SIGN | sign(a, b) & F::SIGN);
}

fn compare<F: Boxed>(hart: &mut Hart, insn: &Insn, relation: fn(&mut Env, u64, u64) -> bool) {
    let mut env = Env { rounding: Rounding::NearestEven, flags: hart.csr.fflags };
    let result = relation(&mut env, F::read(hart, insn.rs1), F::read(hart, insn.rs2));
    if env.flags != hart.csr.fflags {
        accrue(hart, env);
    }
    set_x(hart, insn, result.into());
}

/// Minimum and maximum do not round.
fn select<F: Boxed>(hart: &mut Hart, insn: &Insn, choose: fn(&mut Env, u64, u64) -> u64) {
    let mut env = Env { rounding: Rounding::NearestEven, flags: hart.csr.fflags };
    let result = choose(&mut env, F::read(hart, insn.rs1), F::read(hart, insn.rs2));
    accrue(hart, env);
    F::write(hart, insn.rd, result);
}

/// To an integer of type `T`, sign-extended to the register.
fn to_integer<F: Boxed, T: Integer>(hart: &mut Hart, insn: &Insn) -> Result<(), Trap> {
    let mut env = env(hart, insn)?;
    let value = float::round_to_integer::<F>(&mut env, F::read(hart, insn.rs1), T::LEAST, T::MOST);
    accrue(hart, env);
    set_x(hart, insn, T::register(value));
    Ok(())
}

fn from_integer<F: Boxed, T: Integer>(hart: &mut Hart, insn: &Insn) -> Result<(), Trap> {
    let mut env = env(hart, insn)?;
    let value = T::value(hart.x[usize::from(insn.rs1 & 63)]);
    let result = float::from_integer::<F>(&mut env, value);
    accrue(hart, env);
    F::write(hart, insn.rd, result);
    Ok(())
}

/// The integer types of FCVT.
trait Integer {
    const LEAST: i128;
    const MOST: i128;
    /// The value that a register holds.
    fn value(register: u64) -> i128;
    /// The register that holds a value of the type: 32-bit ones are sign-extended.
    fn register(value: i128) -> u64;
}

macro_rules! integer {
    ($t:ty, $signed:ty) => {
        impl Integer for $t {
            const LEAST: i128 = <$t>::MIN as i128;
            const MOST: i128 = <$t>::MAX as i128;
            fn value(register: u64) -> i128 {
                i128::from(register as $t)
            }
            fn register(value: i128) -> u64 {
                value as $signed as u64
            }
        }
    };
}
integer!(i32, i32);
integer!(u32, i32);
integer!(i64, i64);
integer!(u64, i64);

fn set_x(hart: &mut Hart, insn: &Insn, value: u64) {
    hart.x[usize::from(insn.rd & 63)] = value;
}

#[inline(never)]
pub(super) fn execute(hart: &mut Hart, insn: &Insn) -> Result<(), Trap> {
    enabled(hart)?;
    match insn.op {
        Op::FaddS => binary::<Single>(hart, insn, float::add::<Single>)?,
        Op::FsubS => binary::<Single>(hart, insn, float::sub::<Single>)?,
        Op::FmulS => binary::<Single>(hart, insn, float::mul::<Single>)?,
        Op::FdivS => binary::<Single>(hart, insn, float::div::<Single>)?,
        Op::FsqrtS => unary::<Single>(hart, insn, float::sqrt::<Single>)?,
        Op::FmaddS => fused::<Single>(hart, insn, false, false)?,
        Op::FmsubS => fused::<Single>(hart, insn, false, true)?,
        Op::FnmsubS => fused::<Single>(hart, insn, true, false)?,
        Op::FnmaddS => fused::<Single>(hart, insn, true, true)?,
        Op::FaddD => binary::<Double>(hart, insn, float::add::<Double>)?,
        Op::FsubD => binary::<Double>(hart, insn, float::sub::<Double>)?,
        Op::FmulD => binary::<Double>(hart, insn, float::mul::<Double>)?,
        Op::FdivD => binary::<Double>(hart, insn, float::div::<Double>)?,
        Op::FsqrtD => unary::<Double>(hart, insn, float::sqrt::<Double>)?,
        Op::FmaddD => fused::<Double>(hart, insn, false, false)?,
        Op::FmsubD => fused::<Double>(hart, insn, false, true)?,
        Op::FnmsubD => fused::<Double>(hart, insn, true, false)?,
        Op::FnmaddD => fused::<Double>(hart, insn, true, true)?,

        Op::FsgnjS => inject::<Single>(hart, insn, |_, b| b),
        Op::FsgnjnS => inject::<Single>(hart, insn, |_, b| !b),
        Op::FsgnjxS => inject::<Single>(hart, insn, |a, b| a ^ b),
        Op::FsgnjD => inject::<Double>(hart, insn, |_, b| b),
        Op::FsgnjnD => inject::<Double>(hart, insn, |_, b| !b),
        Op::FsgnjxD => inject::<Double>(hart, insn, |a, b| a ^ b),
        Op::FminS => select::<Single>(hart, insn, float::min::<Single>),
        Op::FmaxS => select::<Single>(hart, insn, float::max::<Single>),
        Op::FminD => select::<Double>(hart, insn, float::min::<Double>),
        Op::FmaxD => select::<Double>(hart, insn, float::max::<Double>),
        Op::FleS => compare::<Single>(hart, insn, float::less_or_equal::<Single>),
        Op::FltS => compare::<Single>(hart, insn, float::less::<Single>),
        Op::FeqS => compare::<Single>(hart, insn, float::equal::<Single>),
        Op::FleD => compare::<Double>(hart, insn, float::less_or_equal::<Double>),
        Op::FltD => compare::<Double>(hart, insn, float::less::<Double>),
        Op::FeqD => compare::<Double>(hart, insn, float::equal::<Double>),
        Op::FclassS => set_x(hart, insn, float::class::<Single>(Single::read(hart, insn.rs1))),
        Op::FclassD => set_x(hart, insn, float::class::<Double>(Double::read(hart, insn.rs1))),

        // Moves take the register's low bits as they are, boxed or not.
        Op::FmvXW => set_x(hart, insn, hart.f[usize::from(insn.rs1 & 31)] as i32 as u64),
        Op::FmvXD => set_x(hart, insn, hart.f[usize::from(insn.rs1 & 31)]),
        Op::FmvWX => set_single(hart, insn.rd, hart.x[usize::from(insn.rs1 & 63)] as u32),
        Op::FmvDX => Double::write(hart, insn.rd, hart.x[usize::from(insn.rs1 & 63)]),

        Op::FcvtWS => to_integer::<Single, i32>(hart, insn)?,
        Op::FcvtWuS => to_integer::<Single, u32>(hart, insn)?,
        Op::FcvtLS => to_integer::<Single, i64>(hart, insn)?,
        Op::FcvtLuS => to_integer::<Single, u64>(hart, insn)?,
        Op::FcvtWD => to_integer::<Double, i32>(hart, insn)?,
        Op::FcvtWuD => to_integer::<Double, u32>(hart, insn)?,
        Op::FcvtLD => to_integer::<Double, i64>(hart, insn)?,
        Op::FcvtLuD => to_integer::<Double, u64>(hart, insn)?,
        Op::FcvtSW => from_integer::<Single, i32>(hart, insn)?,
        Op::FcvtSWu => from_integer::<Single, u32>(hart, insn)?,
        Op::FcvtSL => from_integer::<Single, i64>(hart, insn)?,
        Op::FcvtSLu => from_integer::<Single, u64>(hart, insn)?,
        Op::FcvtDW => from_integer::<Double, i32>(hart, insn)?,
        Op::FcvtDWu => from_integer::<Double, u32>(hart, insn)?,
        Op::FcvtDL => from_integer::<Double, i64>(hart, insn)?,
        Op::FcvtDLu => from_integer::<Double, u64>(hart, insn)?,
        Op::FcvtSD => {
            let mut env = env(hart, insn)?;
            let result = float::narrow(&mut env, Double::read(hart, insn.rs1));
            accrue(hart, env);
            Single::write(hart, insn.rd, result);
        }
        Op::FcvtDS => {
            let mut env = env(hart, insn)?;
            let result = float::widen(&mut env, Single::read(hart, insn.rs1));
            accrue(hart, env);
            Double::write(hart, insn.rd, result);
        }
        _ => return Err(ILLEGAL),
    }
    Ok(())
}
