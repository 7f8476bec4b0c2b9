//! The operations on bit patterns. A finite number is unpacked to sign, exponent and a 64-bit
//! significand whose top bit is set; results come as a 128-bit significand whose lowest bit may
//! stand for everything below it, and [`round`] turns them into the nearest number.

use super::{Env, Format, Rounding, flag};

/// A number taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Zero,
    /// ± significand × 2^exponent, top bit of the significand set.
    Finite {
        exponent: i32,
        significand: u64,
    },
    Infinity,
    QuietNan,
    SignalingNan,
}

use Value::{Finite, Infinity, QuietNan, SignalingNan, Zero};

impl Value {
    pub(super) fn is_nan(self) -> bool {
        matches!(self, QuietNan | SignalingNan)
    }
}

pub(super) fn negative<F: Format>(bits: u64) -> bool {
    bits & F::SIGN != 0
}

pub(super) fn unpack<F: Format>(bits: u64) -> Value {
    let exponent = bits >> F::FRAC & F::EXP_MAX;
    let fraction = bits & F::FRAC_MASK;
    if exponent == F::EXP_MAX {
        return match fraction {
            0 => Infinity,
            _ if fraction >> (F::FRAC - 1) != 0 => QuietNan,
            _ => SignalingNan,
        };
    }
    let (significand, exponent) = match exponent {
        0 => (fraction, 1),
        _ => (fraction | 1 << F::FRAC, exponent as i32),
    };
    if significand == 0 {
        return Zero;
    }
    let shift = significand.leading_zeros();
    let exponent = exponent - F::BIAS - F::FRAC as i32 - shift as i32;
    Finite { exponent, significand: significand << shift }
}

fn signed<F: Format>(sign: bool, magnitude: u64) -> u64 {
    if sign { magnitude | F::SIGN } else { magnitude }
}

/// Raises NV and gives the canonical NaN.
fn invalid<F: Format>(env: &mut Env) -> u64 {
    env.flags |= flag::NV;
    F::NAN
}

/// The NaN result of an operation with a NaN operand.
fn propagate<F: Format>(env: &mut Env, operands: &[Value]) -> u64 {
    if operands.contains(&SignalingNan) { invalid::<F>(env) } else { F::NAN }
}

/// Shifts right; a one that falls off stays behind in the lowest bit.
fn shift_jam(value: u128, by: u32) -> u128 {
    match by {
        0 => value,
        1..128 => value >> by | u128::from(value << (128 - by) != 0),
        _ => u128::from(value != 0),
    }
}

/// Does rounding a magnitude away from zero follow from what is cut off, `rest` of `2 × half`?
pub(super) fn rounds_up(mode: Rounding, sign: bool, odd: bool, rest: u128, half: u128) -> bool {
    match mode {
        Rounding::NearestEven => rest > half || (rest == half && odd),
        Rounding::NearestAway => rest >= half,
        Rounding::TowardZero => false,
        Rounding::Down => sign && rest != 0,
        Rounding::Up => !sign && rest != 0,
    }
}

/// The number nearest to ± significand × 2^exponent (significand not zero), with flags.
pub(super) fn round<F: Format>(env: &mut Env, sign: bool, exponent: i32, significand: u128) -> u64 {
    let shift = significand.leading_zeros();
    let mut significand = significand << shift;
    // The value is 1.f × 2^top.
    let top = exponent - shift as i32 + 127;
    let least = 1 - F::BIAS;
    let normal_cut = 127 - F::FRAC;
    let split = |significand: u128, cut: u32| {
        (significand >> cut, significand & ((1 << cut) - 1), 1u128 << (cut - 1))
    };
    let mut cut = normal_cut;
    let mut tiny = false;
    if top < least {
        // Tiny unless rounding with unbounded exponent would reach the least normal number.
        let (kept, rest, half) = split(significand, normal_cut);
        let up = rounds_up(env.rounding, sign, kept & 1 != 0, rest, half);
        tiny = !(top == least - 1 && up && kept + 1 == 1 << (F::FRAC + 1));
        let below = (least - top) as u32;
        significand = shift_jam(significand, (normal_cut + below).saturating_sub(127));
        cut = (normal_cut + below).min(127);
    }
    let (kept, rest, half) = split(significand, cut);
    let up = rounds_up(env.rounding, sign, kept & 1 != 0, rest, half);
    if rest != 0 {
        env.flags |= flag::NX | if tiny { flag::UF } else { 0 };
    }
    let kept = kept as u64 + u64::from(up);
    // The hidden bit of `kept` adds one to the exponent field; so does a carry out of rounding.
    let field = if top < least { 0 } else { i64::from(top + F::BIAS - 1) };
    if field >= F::EXP_MAX as i64 {
        return overflow::<F>(env, sign);
    }
    let magnitude = ((field as u64) << F::FRAC) + kept;
    if magnitude >= F::INFINITY { overflow::<F>(env, sign) } else { signed::<F>(sign, magnitude) }
}

fn overflow<F: Format>(env: &mut Env, sign: bool) -> u64 {
    env.flags |= flag::OF | flag::NX;
    let to_infinity = match env.rounding {
        Rounding::NearestEven | Rounding::NearestAway => true,
        Rounding::TowardZero => false,
        Rounding::Down => sign,
        Rounding::Up => !sign,
    };
    signed::<F>(sign, if to_infinity { F::INFINITY } else { F::INFINITY - 1 })
}

/// The zero that an exact sum of opposite numbers gives.
fn cancelled<F: Format>(env: &Env) -> u64 {
    signed::<F>(env.rounding == Rounding::Down, 0)
}

/// A term of a sum: sign, exponent, significand with its top bit at 126 or 125.
type Term = (bool, i32, u128);

/// The sum of two terms.
fn add_terms<F: Format>(env: &mut Env, a: Term, b: Term) -> u64 {
    let (high, low) = if a.1 >= b.1 { (a, b) } else { (b, a) };
    // Bits that matter are lost only if `low` is so much smaller that they cannot cancel.
    let low_significand = shift_jam(low.2, (high.1 - low.1) as u32);
    if high.0 == low.0 {
        return round::<F>(env, high.0, high.1, high.2 + low_significand);
    }
    match high.2.cmp(&low_significand) {
        std::cmp::Ordering::Greater => round::<F>(env, high.0, high.1, high.2 - low_significand),
        std::cmp::Ordering::Less => round::<F>(env, low.0, high.1, low_significand - high.2),
        std::cmp::Ordering::Equal => cancelled::<F>(env),
    }
}

fn term(sign: bool, exponent: i32, significand: u64) -> Term {
    (sign, exponent - 62, u128::from(significand) << 62)
}

pub(super) fn add<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    let (sign_a, sign_b) = (negative::<F>(a), negative::<F>(b));
    match (unpack::<F>(a), unpack::<F>(b)) {
        (x, y) if x.is_nan() || y.is_nan() => propagate::<F>(env, &[x, y]),
        (Infinity, Infinity) if sign_a != sign_b => invalid::<F>(env),
        (Infinity, _) => a,
        (_, Infinity) => b,
        (Zero, Zero) if sign_a == sign_b => a,
        (Zero, Zero) => cancelled::<F>(env),
        (Zero, _) => b,
        (_, Zero) => a,
        (Finite { exponent: ea, significand: sa }, Finite { exponent: eb, significand: sb }) => {
            add_terms::<F>(env, term(sign_a, ea, sa), term(sign_b, eb, sb))
        }
        // NaNs were the first arm.
        _ => F::NAN,
    }
}

pub(super) fn sub<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    add::<F>(env, a, b ^ F::SIGN)
}

pub(super) fn mul<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    let sign = negative::<F>(a) != negative::<F>(b);
    match (unpack::<F>(a), unpack::<F>(b)) {
        (x, y) if x.is_nan() || y.is_nan() => propagate::<F>(env, &[x, y]),
        (Infinity, Zero) | (Zero, Infinity) => invalid::<F>(env),
        (Infinity, _) | (_, Infinity) => signed::<F>(sign, F::INFINITY),
        (Finite { exponent: ea, significand: sa }, Finite { exponent: eb, significand: sb }) => {
            round::<F>(env, sign, ea + eb, u128::from(sa) * u128::from(sb))
        }
        _ => signed::<F>(sign, 0),
    }
}

pub(super) fn div<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    let sign = negative::<F>(a) != negative::<F>(b);
    match (unpack::<F>(a), unpack::<F>(b)) {
        (x, y) if x.is_nan() || y.is_nan() => propagate::<F>(env, &[x, y]),
        (Infinity, Infinity) | (Zero, Zero) => invalid::<F>(env),
        (Infinity, _) => signed::<F>(sign, F::INFINITY),
        (_, Infinity) | (Zero, _) => signed::<F>(sign, 0),
        (_, Zero) => {
            env.flags |= flag::DZ;
            signed::<F>(sign, F::INFINITY)
        }
        (Finite { exponent: ea, significand: sa }, Finite { exponent: eb, significand: sb }) => {
            let (dividend, divisor) = (u128::from(sa) << 63, u128::from(sb));
            let sticky = u128::from(dividend % divisor != 0);
            round::<F>(env, sign, ea - eb - 64, (dividend / divisor) << 1 | sticky)
        }
        _ => F::NAN,
    }
}

pub(super) fn sqrt<F: Format>(env: &mut Env, a: u64) -> u64 {
    match unpack::<F>(a) {
        QuietNan => F::NAN,
        SignalingNan => invalid::<F>(env),
        Zero => a,
        _ if negative::<F>(a) => invalid::<F>(env),
        Infinity => a,
        Finite { exponent, significand } => {
            // Scaled to an even exponent; the root then has 63 or 64 bits.
            let odd = exponent & 1;
            let scaled = u128::from(significand) << (62 + odd);
            let root = scaled.isqrt();
            let sticky = u128::from(root * root != scaled);
            round::<F>(env, false, (exponent - 62 - odd) / 2 - 1, root << 1 | sticky)
        }
    }
}

pub(super) fn fma<F: Format>(env: &mut Env, a: u64, b: u64, c: u64) -> u64 {
    let (x, y, z) = (unpack::<F>(a), unpack::<F>(b), unpack::<F>(c));
    let sign = negative::<F>(a) != negative::<F>(b);
    let sign_c = negative::<F>(c);
    match (x, y, z) {
        // Invalid even if the addend is a quiet NaN.
        (Infinity, Zero, _) | (Zero, Infinity, _) => invalid::<F>(env),
        _ if x.is_nan() || y.is_nan() || z.is_nan() => propagate::<F>(env, &[x, y, z]),
        (Infinity, _, Infinity) | (_, Infinity, Infinity) if sign != sign_c => invalid::<F>(env),
        (Infinity, _, _) | (_, Infinity, _) => signed::<F>(sign, F::INFINITY),
        (_, _, Infinity) => c,
        (Finite { exponent: ea, significand: sa }, Finite { exponent: eb, significand: sb }, _) => {
            let product = u128::from(sa) * u128::from(sb);
            let Finite { exponent: ec, significand: sc } = z else {
                return round::<F>(env, sign, ea + eb, product);
            };
            // Significands have at most 53 bits, so the product's lowest bit is zero.
            add_terms::<F>(env, (sign, ea + eb + 1, product >> 1), term(sign_c, ec, sc))
        }
        (_, _, Zero) if sign == sign_c => c,
        (_, _, Zero) => cancelled::<F>(env),
        _ => c,
    }
}

/// Less than, for numbers: sign and magnitude.
fn number_less<F: Format>(a: u64, b: u64) -> bool {
    match (negative::<F>(a), negative::<F>(b)) {
        (false, false) => a < b,
        (true, true) => a > b,
        (sign, _) => sign && (a | b) & !F::SIGN != 0,
    }
}

/// FEQ: quiet.
pub(crate) fn equal<F: Format>(env: &mut Env, a: u64, b: u64) -> bool {
    let (x, y) = (unpack::<F>(a), unpack::<F>(b));
    if x.is_nan() || y.is_nan() {
        propagate::<F>(env, &[x, y]);
        return false;
    }
    a == b || (a | b) & !F::SIGN == 0
}

/// FLT: signaling.
pub(crate) fn less<F: Format>(env: &mut Env, a: u64, b: u64) -> bool {
    if unpack::<F>(a).is_nan() || unpack::<F>(b).is_nan() {
        invalid::<F>(env);
        return false;
    }
    number_less::<F>(a, b)
}

/// FLE: signaling.
pub(crate) fn less_or_equal<F: Format>(env: &mut Env, a: u64, b: u64) -> bool {
    if unpack::<F>(a).is_nan() || unpack::<F>(b).is_nan() {
        invalid::<F>(env);
        return false;
    }
    !number_less::<F>(b, a)
}

/// FMIN: a NaN loses against a number, -0 is less than +0.
pub(crate) fn min<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    pick::<F>(env, a, b, |a, b| {
        number_less::<F>(a, b) || (a != b && negative::<F>(a) && both_zero::<F>(a, b))
    })
}

/// FMAX.
pub(crate) fn max<F: Format>(env: &mut Env, a: u64, b: u64) -> u64 {
    pick::<F>(env, a, b, |a, b| {
        number_less::<F>(b, a) || (a != b && negative::<F>(b) && both_zero::<F>(a, b))
    })
}

fn both_zero<F: Format>(a: u64, b: u64) -> bool {
    (a | b) & !F::SIGN == 0
}

fn pick<F: Format>(env: &mut Env, a: u64, b: u64, first: impl Fn(u64, u64) -> bool) -> u64 {
    let (x, y) = (unpack::<F>(a), unpack::<F>(b));
    if x == SignalingNan || y == SignalingNan {
        env.flags |= flag::NV;
    }
    match (x.is_nan(), y.is_nan()) {
        (true, true) => F::NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            if first(a, b) {
                a
            } else {
                b
            }
        }
    }
}

/// FCLASS: one bit of ten.
pub(crate) fn class<F: Format>(a: u64) -> u64 {
    let sign = negative::<F>(a);
    let bit = match unpack::<F>(a) {
        Infinity => {
            if sign {
                0
            } else {
                7
            }
        }
        Zero => {
            if sign {
                3
            } else {
                4
            }
        }
        SignalingNan => 8,
        QuietNan => 9,
        Finite { .. } => match (a >> F::FRAC & F::EXP_MAX == 0, sign) {
            (false, true) => 1,
            (true, true) => 2,
            (true, false) => 5,
            (false, false) => 6,
        },
    };
    1 << bit
}
