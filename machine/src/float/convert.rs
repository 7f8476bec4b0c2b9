//! Conversions: between formats, and between numbers and integers.

use super::soft::{self, Value, negative, round, rounds_up, unpack};
use super::{Double, Env, Format, Single, flag};

/// FCVT.D.S: exact.
pub(crate) fn widen(env: &mut Env, a: u64) -> u64 {
    convert::<Single, Double>(env, a)
}

/// FCVT.S.D.
pub(crate) fn narrow(env: &mut Env, a: u64) -> u64 {
    convert::<Double, Single>(env, a)
}

fn convert<From: Format, To: Format>(env: &mut Env, a: u64) -> u64 {
    let sign = if negative::<From>(a) { To::SIGN } else { 0 };
    match unpack::<From>(a) {
        Value::Zero => sign,
        Value::Infinity => sign | To::INFINITY,
        Value::QuietNan => To::NAN,
        Value::SignalingNan => {
            env.flags |= flag::NV;
            To::NAN
        }
        Value::Finite { exponent, significand } => {
            soft::round::<To>(env, sign != 0, exponent, significand.into())
        }
    }
}

/// FCVT.fmt.{W,WU,L,LU}: an integer of any of these types as a number.
pub(crate) fn from_integer<F: Format>(env: &mut Env, value: i128) -> u64 {
    if value == 0 { 0 } else { round::<F>(env, value < 0, 0, value.unsigned_abs()) }
}

/// FCVT.{W,WU,L,LU}.fmt: rounded to an integer in `least..=most`. Outside, and for NaN: NV and
/// the nearest bound (NaN counts as positive).
pub(crate) fn round_to_integer<F: Format>(env: &mut Env, a: u64, least: i128, most: i128) -> i128 {
    let sign = negative::<F>(a);
    let out_of_range = |env: &mut Env, negative: bool| {
        env.flags |= flag::NV;
        if negative { least } else { most }
    };
    let (exponent, significand) = match unpack::<F>(a) {
        Value::Zero => return 0,
        Value::QuietNan | Value::SignalingNan => return out_of_range(env, false),
        Value::Infinity => return out_of_range(env, sign),
        Value::Finite { exponent, significand } => (exponent, u128::from(significand)),
    };
    // 2^65 and more is out of every range; less than 2^-1 rounds like a small fraction.
    if exponent > 1 {
        return out_of_range(env, sign);
    }
    let (kept, rest, half) = match exponent {
        0.. => (significand << exponent, 0, 1),
        -65..0 => {
            let cut = exponent.unsigned_abs();
            (significand >> cut, significand & ((1 << cut) - 1), 1 << (cut - 1))
        }
        _ => (0, 1, 2),
    };
    let up = rounds_up(env.rounding, sign, kept & 1 != 0, rest, half);
    let magnitude = (kept + u128::from(up)) as i128;
    let value = if sign { -magnitude } else { magnitude };
    if value < least || value > most {
        return out_of_range(env, sign);
    }
    if rest != 0 {
        env.flags |= flag::NX;
    }
    value
}
