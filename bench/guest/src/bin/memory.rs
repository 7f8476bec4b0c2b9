//! Memory: a pointer chase through 16 MB, and streams over it.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(unsafe_code)]

#[cfg(target_os = "none")]
mod program {
    use hive_bench_guest::{Random, finish};

    const WORDS: usize = 1 << 21;
    static mut MEMORY: [u64; WORDS] = [0; WORDS];

    #[unsafe(no_mangle)]
    extern "C" fn main() -> ! {
        // SAFETY: one hart runs this program, and only here.
        let memory = unsafe { &mut *(&raw mut MEMORY) };
        // Sattolo's shuffle: one cycle through all words.
        memory.iter_mut().enumerate().for_each(|(i, w)| *w = i as u64);
        let mut random = Random(2);
        for i in (1..WORDS).rev() {
            memory.swap(i, (random.next() % i as u64) as usize);
        }
        let mut at = 0usize;
        let mut sum = 0u64;
        for _ in 0..10_000_000 {
            at = memory[at] as usize;
            sum = sum.wrapping_mul(3).wrapping_add(at as u64);
        }
        for round in 0..8u64 {
            let (low, high) = memory.split_at_mut(WORDS / 2);
            high.copy_from_slice(low);
            low.iter_mut().for_each(|w| *w = w.wrapping_add(round));
            sum = sum.wrapping_add(high.iter().fold(0, |s: u64, w| s.wrapping_add(*w)));
        }
        finish("memory", sum)
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("a guest program: build it with `cargo xtask guest`");
}
