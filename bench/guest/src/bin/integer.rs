//! Integer work: a sieve, a table-less CRC-32, a sort, a string of divisions.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(unsafe_code)]

#[cfg(target_os = "none")]
mod program {
    use hive_bench_guest::{Random, finish};

    static mut SIEVE: [bool; 1 << 20] = [false; 1 << 20];
    static mut WORDS: [u32; 1 << 17] = [0; 1 << 17];

    fn sieve(composite: &mut [bool]) -> u64 {
        composite.fill(false);
        let mut primes = 0;
        for n in 2..composite.len() {
            if !composite[n] {
                primes += 1;
                for multiple in (n * 2..composite.len()).step_by(n) {
                    composite[multiple] = true;
                }
            }
        }
        primes
    }

    fn crc32(words: &[u32]) -> u32 {
        let mut crc = !0u32;
        for byte in words.iter().flat_map(|w| w.to_le_bytes()) {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = crc >> 1 ^ 0xedb8_8320 & (crc & 1).wrapping_neg();
            }
        }
        crc
    }

    #[unsafe(no_mangle)]
    extern "C" fn main() -> ! {
        // SAFETY: one hart runs this program, and only here.
        let (composite, words) = unsafe { (&mut *(&raw mut SIEVE), &mut *(&raw mut WORDS)) };
        let mut random = Random(1);
        let mut sum = 0u64;
        for round in 0..4u64 {
            sum = sum.wrapping_mul(31).wrapping_add(sieve(composite));
            words.iter_mut().for_each(|w| *w = random.next() as u32);
            sum = sum.wrapping_mul(31).wrapping_add(crc32(words).into());
            words.sort_unstable();
            for pair in words.windows(2) {
                sum =
                    sum.wrapping_add(u64::from(pair[1]) * 1000 / (u64::from(pair[0]) | 1 + round));
            }
        }
        finish("integer", sum)
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("a guest program: build it with `cargo xtask guest`");
}
