//! Floating point: n bodies, a matrix product, square roots, single precision.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(unsafe_code)]

#[cfg(target_os = "none")]
mod program {
    use core::arch::asm;
    use hive_bench_guest::{Random, finish};

    fn sqrt(x: f64) -> f64 {
        let root;
        // SAFETY: computes in registers.
        unsafe { asm!("fsqrt.d {0}, {1}", out(freg) root, in(freg) x, options(pure, nomem)) };
        root
    }

    const N: usize = 96;
    static mut MATRICES: [[[f64; N]; N]; 3] = [[[0.0; N]; N]; 3];

    fn bodies(steps: usize) -> f64 {
        let mut random = Random(3);
        let mut unit = || (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let mut position = [[0.0f64; 3]; 8];
        let mut velocity = [[0.0f64; 3]; 8];
        position.iter_mut().flatten().for_each(|x| *x = unit());
        for _ in 0..steps {
            for i in 0..8 {
                for j in 0..8 {
                    if i != j {
                        let mut d = [0.0; 3];
                        let mut r2 = 0.01;
                        for k in 0..3 {
                            d[k] = position[j][k] - position[i][k];
                            r2 += d[k] * d[k];
                        }
                        let force = 1e-4 / (r2 * sqrt(r2));
                        for k in 0..3 {
                            velocity[i][k] += d[k] * force;
                        }
                    }
                }
            }
            for i in 0..8 {
                for k in 0..3 {
                    position[i][k] += velocity[i][k] * 0.01;
                }
            }
        }
        position.iter().flatten().sum()
    }

    fn single(rounds: u32) -> f32 {
        let (mut x, mut y) = (0.5f32, 0.25f32);
        for i in 1..rounds {
            x = x * 0.999 + y / i as f32;
            y = (y + x) * 0.5;
        }
        x + y
    }

    #[unsafe(no_mangle)]
    extern "C" fn main() -> ! {
        // SAFETY: one hart runs this program, and only here.
        let [a, b, c] = unsafe { &mut *(&raw mut MATRICES) };
        let mut random = Random(4);
        for row in a.iter_mut().chain(b.iter_mut()) {
            row.iter_mut().for_each(|x| *x = (random.next() >> 40) as f64 / 1e6);
        }
        for _ in 0..6 {
            for i in 0..N {
                for j in 0..N {
                    c[i][j] = (0..N).fold(0.0, |sum, k| sum + a[i][k] * b[k][j]);
                }
            }
            core::mem::swap(a, c);
            a.iter_mut().flatten().for_each(|x| *x *= 1e-7);
        }
        let sum: f64 = a.iter().flatten().sum();
        let bits =
            sum.to_bits() ^ bodies(40_000).to_bits() ^ u64::from(single(4_000_000).to_bits());
        finish("float", bits)
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("a guest program: build it with `cargo xtask guest`");
}
