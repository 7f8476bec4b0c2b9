//! IEEE 754 arithmetic on bit patterns, exact on every host: what the F and D instructions mean.
//!
//! RISC-V's choices: results that are NaN are the canonical quiet NaN; tininess is detected after
//! rounding; conversions of NaN give the largest integer. Sources: unprivileged specification,
//! chapters F and D; IEEE 754-2008.
//!
//! [`soft`] defines every operation; the functions here first try the host's, under a guard that
//! makes the result and the flags the same on any host: round to nearest even, NX already set (so
//! inexactness adds nothing), and a finite result above the smallest normal number (so that no NaN,
//! overflow or underflow can be involved).
//!
//! Absent: half and quad precision.

mod convert;
mod soft;

pub(crate) use convert::{from_integer, narrow, round_to_integer, widen};
pub(crate) use soft::{class, equal, less, less_or_equal, max, min};

/// Exception flags, as in `fflags`.
pub(crate) mod flag {
    /// Inexact.
    pub(crate) const NX: u8 = 1;
    /// Underflow.
    pub(crate) const UF: u8 = 2;
    /// Overflow.
    pub(crate) const OF: u8 = 4;
    /// Division by zero.
    pub(crate) const DZ: u8 = 8;
    /// Invalid operation.
    pub(crate) const NV: u8 = 16;
}

/// Rounding modes, numbered as in `frm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    NearestEven,
    TowardZero,
    Down,
    Up,
    NearestAway,
}

impl Rounding {
    /// The mode with number `n`; 5, 6 and 7 are none.
    pub(crate) fn from_number(n: u8) -> Option<Rounding> {
        Some(match n {
            0 => Rounding::NearestEven,
            1 => Rounding::TowardZero,
            2 => Rounding::Down,
            3 => Rounding::Up,
            4 => Rounding::NearestAway,
            _ => return None,
        })
    }
}

/// A binary interchange format. Values are in the low bits of a `u64`.
pub(crate) trait Format {
    /// Bits of the exponent field.
    const EXP: u32;
    /// Bits of the fraction field.
    const FRAC: u32;

    const BIAS: i32 = (1 << (Self::EXP - 1)) - 1;
    const EXP_MAX: u64 = (1 << Self::EXP) - 1;
    const SIGN: u64 = 1 << (Self::EXP + Self::FRAC);
    const FRAC_MASK: u64 = (1 << Self::FRAC) - 1;
    const INFINITY: u64 = Self::EXP_MAX << Self::FRAC;
    const NAN: u64 = Self::INFINITY | 1 << (Self::FRAC - 1);

    /// The host's operations (any rounding of NaN; see the module head).
    fn host_add(a: u64, b: u64) -> u64;
    fn host_mul(a: u64, b: u64) -> u64;
    fn host_div(a: u64, b: u64) -> u64;
    fn host_sqrt(a: u64) -> u64;
    fn host_fma(a: u64, b: u64, c: u64) -> u64;
}

/// binary32.
pub(crate) struct Single;
/// binary64.
pub(crate) struct Double;

macro_rules! host_operations {
    ($float:ty, $bits:ty) => {
        fn host_add(a: u64, b: u64) -> u64 {
            (<$float>::from_bits(a as $bits) + <$float>::from_bits(b as $bits)).to_bits().into()
        }
        fn host_mul(a: u64, b: u64) -> u64 {
            (<$float>::from_bits(a as $bits) * <$float>::from_bits(b as $bits)).to_bits().into()
        }
        fn host_div(a: u64, b: u64) -> u64 {
            (<$float>::from_bits(a as $bits) / <$float>::from_bits(b as $bits)).to_bits().into()
        }
        fn host_sqrt(a: u64) -> u64 {
            <$float>::from_bits(a as $bits).sqrt().to_bits().into()
        }
        fn host_fma(a: u64, b: u64, c: u64) -> u64 {
            let c = <$float>::from_bits(c as $bits);
            <$float>::from_bits(a as $bits)
                .mul_add(<$float>::from_bits(b as $bits), c)
                .to_bits()
                .into()
        }
    };
}

impl Format for Single {
    const EXP: u32 = 8;
    const FRAC: u32 = 23;
    host_operations!(f32, u32);
}

impl Format for Double {
    const EXP: u32 = 11;
    const FRAC: u32 = 52;
    host_operations!(f64, u64);
}

/// Rounding mode and accrued flags of one operation.
pub(crate) struct Env {
    pub rounding: Rounding,
    pub flags: u8,
}

impl Env {
    /// The host's result, if the guard of the module head holds.
    #[inline(always)]
    fn host<F: Format>(&self, operation: impl FnOnce() -> u64) -> Option<u64> {
        if self.rounding != Rounding::NearestEven || self.flags & flag::NX == 0 {
            return None;
        }
        let result = operation();
        let exponent = result >> F::FRAC & F::EXP_MAX;
        (exponent >= 2 && exponent < F::EXP_MAX).then_some(result)
    }
}

/// a + b.
#[inline]
pub(crate) fn add<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    env.host::<F>(|| F::host_add(a, b)).unwrap_or_else(|| soft::add::<F>(env, a, b))
}

/// a - b.
#[inline]
pub(crate) fn sub<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    let negated = b ^ F::SIGN;
    env.host::<F>(|| F::host_add(a, negated)).unwrap_or_else(|| soft::sub::<F>(env, a, b))
}

/// a × b.
#[inline]
pub(crate) fn mul<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    env.host::<F>(|| F::host_mul(a, b)).unwrap_or_else(|| soft::mul::<F>(env, a, b))
}

/// a ÷ b.
#[inline]
pub(crate) fn div<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    env.host::<F>(|| F::host_div(a, b)).unwrap_or_else(|| soft::div::<F>(env, a, b))
}

/// √a.
#[inline]
pub(crate) fn sqrt<F: Format>(env: &mut Env, a: u64) -> u64 {
    env.host::<F>(|| F::host_sqrt(a)).unwrap_or_else(|| soft::sqrt::<F>(env, a))
}

/// a × b + c with one rounding.
#[inline]
pub(crate) fn fma<F: Format>(env: &mut Env, a: u64, b: u64, c: u64) -> u64 {
    env.host::<F>(|| F::host_fma(a, b, c)).unwrap_or_else(|| soft::fma::<F>(env, a, b, c))
}

#[cfg(test)]
mod tests;
