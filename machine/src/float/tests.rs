//! Berkeley softfloat, in its RISC-V specialisation, as the oracle: every operation, all five
//! rounding modes, random and special operands. The fast path is covered by running each case with
//! NX already set too. Where the oracle does not build, fixed cases stand alone.

use super::*;

fn env(rounding: Rounding) -> Env {
    Env { rounding, flags: 0 }
}

#[test]
fn fixed_cases() {
    let one = 1f64.to_bits();
    let third = div::<Double>(&mut env(Rounding::NearestEven), one, 3f64.to_bits());
    assert_eq!(third, (1f64 / 3.0).to_bits());
    let mut e = env(Rounding::NearestEven);
    assert_eq!(div::<Double>(&mut e, one, 0), Double::INFINITY);
    assert_eq!(e.flags, flag::DZ);
    let mut e = env(Rounding::NearestEven);
    assert_eq!(fma::<Double>(&mut e, Double::INFINITY, 0, Double::NAN), Double::NAN);
    assert_eq!(e.flags, flag::NV);
    assert_eq!(min::<Single>(&mut env(Rounding::NearestEven), 0, Single::SIGN), Single::SIGN);
    assert_eq!(max::<Single>(&mut env(Rounding::NearestEven), Single::SIGN, 0), 0);
    assert_eq!(class::<Single>(1), 1 << 5);
    // A result that is the least normal number only after rounding is not tiny.
    let mut e = env(Rounding::NearestEven);
    let least = 1u64 << 52;
    let below = mul::<Double>(&mut e, least, one - 1);
    assert_eq!((below, e.flags), (least, flag::UF | flag::NX));
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod against_berkeley {
    use super::*;
    use softfloat_wrapper::{ExceptionFlags, F32, F64, Float, RoundingMode};

    const MODES: [(Rounding, RoundingMode); 5] = [
        (Rounding::NearestEven, RoundingMode::TiesToEven),
        (Rounding::TowardZero, RoundingMode::TowardZero),
        (Rounding::Down, RoundingMode::TowardNegative),
        (Rounding::Up, RoundingMode::TowardPositive),
        (Rounding::NearestAway, RoundingMode::TiesToAway),
    ];
    /// Operand tuples for each operation and rounding mode.
    const CASES: usize = 60_000;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }

        /// Bits of a number: any, special, near one, near subnormal, few significant bits.
        fn number<F: Format>(&mut self) -> u64 {
            let bits = self.next() & (F::SIGN | (F::SIGN - 1));
            let exponent = |e: u64| bits & !F::INFINITY | e << F::FRAC;
            match self.next() % 8 {
                0 => {
                    let specials = [
                        0,
                        1,
                        F::FRAC_MASK,
                        1 << F::FRAC,
                        F::INFINITY,
                        F::INFINITY - 1,
                        F::NAN,
                        F::INFINITY | 1,
                        (F::BIAS as u64) << F::FRAC,
                        ((F::BIAS as u64) << F::FRAC) - 1,
                    ];
                    specials[self.next() as usize % specials.len()] | bits & F::SIGN
                }
                1 | 2 => exponent(F::BIAS as u64 - 4 + self.next() % 8),
                3 => exponent(self.next() % 4),
                4 => exponent(F::EXP_MAX - 3 + self.next() % 3),
                5 => exponent(F::BIAS as u64 + self.next() % 70) & !(F::FRAC_MASK >> 4),
                6 => exponent((F::BIAS as u64 - F::FRAC as u64 + self.next() % 60).max(1)),
                _ => bits,
            }
        }
    }

    /// Runs both sides on the same operands and compares result and flags.
    fn check(
        name: &str,
        operands: &[u64],
        ours: impl Fn(&mut Env) -> u64,
        berkeley: impl Fn(RoundingMode) -> u64,
    ) {
        for (mode, their_mode) in MODES {
            let mut flags = ExceptionFlags::default();
            flags.set();
            let theirs = berkeley(their_mode);
            flags.get();
            for before in [0, flag::NX] {
                let mut env = Env { rounding: mode, flags: before };
                let result = ours(&mut env);
                assert!(
                    result == theirs && env.flags == flags.to_bits() | before,
                    "{name} {operands:x?} {mode:?}, flags before {before:#x}: ours {result:#x} \
                     flags {:#x}, Berkeley {theirs:#x} flags {:#x}",
                    env.flags,
                    flags.to_bits()
                );
            }
        }
    }

    macro_rules! arithmetic {
        ($name:ident, $format:ty, $float:ty, $bits:ty) => {
            #[test]
            fn $name() {
                let f = |bits: u64| <$float>::from_bits(bits as $bits);
                let mut random = Random(1);
                for _ in 0..CASES {
                    let [a, b, c] = [(); 3].map(|()| random.number::<$format>());
                    check(
                        "add",
                        &[a, b],
                        |e| add::<$format>(e, a, b),
                        |m| f(a).add(f(b), m).to_bits().into(),
                    );
                    check(
                        "sub",
                        &[a, b],
                        |e| sub::<$format>(e, a, b),
                        |m| f(a).sub(f(b), m).to_bits().into(),
                    );
                    check(
                        "mul",
                        &[a, b],
                        |e| mul::<$format>(e, a, b),
                        |m| f(a).mul(f(b), m).to_bits().into(),
                    );
                    check(
                        "div",
                        &[a, b],
                        |e| div::<$format>(e, a, b),
                        |m| f(a).div(f(b), m).to_bits().into(),
                    );
                    check(
                        "sqrt",
                        &[a],
                        |e| sqrt::<$format>(e, a),
                        |m| f(a).sqrt(m).to_bits().into(),
                    );
                    check(
                        "fma",
                        &[a, b, c],
                        |e| fma::<$format>(e, a, b, c),
                        |m| f(a).fused_mul_add(f(b), f(c), m).to_bits().into(),
                    );
                    // Products near the addend, so that they cancel.
                    let product =
                        mul::<$format>(&mut env(Rounding::NearestEven), a, b) ^ <$format>::SIGN;
                    let near = product ^ random.next() & 7;
                    check(
                        "fma",
                        &[a, b, near],
                        |e| fma::<$format>(e, a, b, near),
                        |m| f(a).fused_mul_add(f(b), f(near), m).to_bits().into(),
                    );
                    check(
                        "eq",
                        &[a, b],
                        |e| equal::<$format>(e, a, b).into(),
                        |_| f(a).eq(f(b)).into(),
                    );
                    check(
                        "lt",
                        &[a, b],
                        |e| less::<$format>(e, a, b).into(),
                        |_| f(a).lt(f(b)).into(),
                    );
                    check(
                        "le",
                        &[a, b],
                        |e| less_or_equal::<$format>(e, a, b).into(),
                        |_| f(a).le(f(b)).into(),
                    );
                }
            }
        };
    }
    arithmetic!(single, Single, F32, u32);
    arithmetic!(double, Double, F64, u64);

    #[test]
    fn conversions() {
        let single = |bits: u64| F32::from_bits(bits as u32);
        let double = |bits: u64| F64::from_bits(bits);
        let to = |e: &mut Env, d: bool, a: u64, least: i128, most: i128| {
            let value = if d {
                round_to_integer::<Double>(e, a, least, most)
            } else {
                round_to_integer::<Single>(e, a, least, most)
            };
            value as u64
        };
        let mut random = Random(2);
        for _ in 0..CASES {
            let (s, d) = (random.number::<Single>(), random.number::<Double>());
            let n = random.next() >> (random.next() % 64);
            let n = if random.next() & 1 == 0 { n } else { n.wrapping_neg() };
            check("widen", &[s], |e| widen(e, s), |m| single(s).to_f64(m).to_bits());
            check("narrow", &[d], |e| narrow(e, d), |m| double(d).to_f32(m).to_bits().into());
            for (is_double, a) in [(false, s), (true, d)] {
                check(
                    "to i32",
                    &[a],
                    |e| to(e, is_double, a, i32::MIN.into(), i32::MAX.into()),
                    |m| {
                        (if is_double {
                            double(a).to_i32(m, true)
                        } else {
                            single(a).to_i32(m, true)
                        }) as u64
                    },
                );
                check(
                    "to u32",
                    &[a],
                    |e| to(e, is_double, a, 0, u32::MAX.into()),
                    |m| {
                        (if is_double {
                            double(a).to_u32(m, true)
                        } else {
                            single(a).to_u32(m, true)
                        })
                        .into()
                    },
                );
                check(
                    "to i64",
                    &[a],
                    |e| to(e, is_double, a, i64::MIN.into(), i64::MAX.into()),
                    |m| {
                        (if is_double {
                            double(a).to_i64(m, true)
                        } else {
                            single(a).to_i64(m, true)
                        }) as u64
                    },
                );
                check(
                    "to u64",
                    &[a],
                    |e| to(e, is_double, a, 0, u64::MAX.into()),
                    |m| {
                        if is_double {
                            double(a).to_u64(m, true)
                        } else {
                            single(a).to_u64(m, true)
                        }
                    },
                );
            }
            check(
                "i32 to single",
                &[n],
                |e| from_integer::<Single>(e, (n as i32).into()),
                |m| F32::from_i32(n as i32, m).to_bits().into(),
            );
            check(
                "u32 to single",
                &[n],
                |e| from_integer::<Single>(e, (n as u32).into()),
                |m| F32::from_u32(n as u32, m).to_bits().into(),
            );
            check(
                "i64 to single",
                &[n],
                |e| from_integer::<Single>(e, (n as i64).into()),
                |m| F32::from_i64(n as i64, m).to_bits().into(),
            );
            check(
                "u64 to single",
                &[n],
                |e| from_integer::<Single>(e, n.into()),
                |m| F32::from_u64(n, m).to_bits().into(),
            );
            check(
                "i64 to double",
                &[n],
                |e| from_integer::<Double>(e, (n as i64).into()),
                |m| F64::from_i64(n as i64, m).to_bits(),
            );
            check(
                "u64 to double",
                &[n],
                |e| from_integer::<Double>(e, n.into()),
                |m| F64::from_u64(n, m).to_bits(),
            );
        }
    }
}
