//! Random bytes: ChaCha20 in counter mode over a key from the device tree's `rng-seed`, with fast
//! key erasure (each request begins by replacing the key with the first block's first half).
//!
//! The same seed gives the same bytes: a run of the machine repeats. Pure; RFC 8439 vectors below.

use hive_sync::SpinLock;

/// One ChaCha20 block (RFC 8439 §2.3).
fn block(key: &[u32; 8], counter: u32, nonce: &[u32; 3]) -> [u8; 64] {
    let mut initial = [0u32; 16];
    initial[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    initial[4..12].copy_from_slice(key);
    initial[12] = counter;
    initial[13..].copy_from_slice(nonce);
    let mut s = initial;
    let mut quarter = |a: usize, b: usize, c: usize, d: usize| {
        s[a] = s[a].wrapping_add(s[b]);
        s[d] = (s[d] ^ s[a]).rotate_left(16);
        s[c] = s[c].wrapping_add(s[d]);
        s[b] = (s[b] ^ s[c]).rotate_left(12);
        s[a] = s[a].wrapping_add(s[b]);
        s[d] = (s[d] ^ s[a]).rotate_left(8);
        s[c] = s[c].wrapping_add(s[d]);
        s[b] = (s[b] ^ s[c]).rotate_left(7);
    };
    for _ in 0..10 {
        for i in 0..4 {
            quarter(i, 4 + i, 8 + i, 12 + i);
        }
        for i in 0..4 {
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
        }
    }
    let mut out = [0; 64];
    for (i, bytes) in out.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&s[i].wrapping_add(initial[i]).to_le_bytes());
    }
    out
}

fn words(bytes: &[u8; 32]) -> [u32; 8] {
    core::array::from_fn(|i| u32::from_le_bytes(core::array::from_fn(|k| bytes[4 * i + k])))
}

/// A generator.
pub struct Generator {
    key: [u32; 8],
}

impl Generator {
    /// One with an all-zero key: seed it before use.
    pub const fn new() -> Generator {
        Generator { key: [0; 8] }
    }

    /// Mixes `seed` in.
    pub fn seed(&mut self, seed: &[u8]) {
        for part in seed.chunks(32) {
            for (i, &byte) in part.iter().enumerate() {
                self.key[i / 4] ^= (byte as u32) << (i % 4 * 8);
            }
            self.erase();
        }
    }

    /// Replaces the key by the first half of its block 0.
    fn erase(&mut self) {
        let mut key = [0; 32];
        key.copy_from_slice(&block(&self.key, 0, &[0; 3])[..32]);
        self.key = words(&key);
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        let old = self.key;
        self.erase();
        for (counter, chunk) in out.chunks_mut(64).enumerate() {
            // Block 0 gave the new key with its first half; data starts with block 1.
            let bytes = block(&old, counter as u32 + 1, &[0; 3]);
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

static GENERATOR: SpinLock<Generator> = SpinLock::new(Generator::new());

/// Most bytes made under one key.
const STRIDE: usize = 256;

/// Mixes `seed` into the cell's generator.
pub fn seed(seed: &[u8]) {
    GENERATOR.lock().seed(seed);
}

/// Fills `out` from the cell's generator.
pub fn fill(out: &mut [u8]) {
    for part in out.chunks_mut(STRIDE) {
        GENERATOR.lock().fill(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_function_is_that_of_rfc_8439() {
        let key = words(&core::array::from_fn(|i| i as u8));
        let out = block(&key, 1, &[0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(out[..8], [0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15]);
        assert_eq!(out[60..], [0xa2, 0x50, 0x3c, 0x4e][..]);
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let draw = |seed: &[u8]| {
            let mut g = Generator::new();
            g.seed(seed);
            let mut out = [0; 100];
            g.fill(&mut out);
            let mut next = [0; 100];
            g.fill(&mut next);
            assert_ne!(out, next);
            (out, next)
        };
        assert_eq!(draw(b"one"), draw(b"one"));
        assert_ne!(draw(b"one"), draw(b"two"));
    }
}
