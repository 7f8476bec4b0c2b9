//! The machine's one source of chance: ChaCha8 streams keyed by the seed. Each user has a stream
//! of its own, so that using one never shifts another.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Streams by purpose; the node or fault number goes into the low half.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Stream {
    /// virtio-rng of a node.
    Entropy = 1 << 32,
    /// `rng-seed` in the device tree.
    DeviceTree = 2 << 32,
    /// Which lines a failing node loses.
    LostLines = 3 << 32,
    /// Addresses and values of a wild-write storm.
    Storm = 4 << 32,
    /// What a scenario around the machine leaves open: which node a fault strikes, and when.
    Scenario = 5 << 32,
}

/// Numbers that depend on (seed, stream, index) only.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Stream `stream` number `index` of `seed`.
    pub fn new(seed: u64, stream: Stream, index: u64) -> Random {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream as u64 | index & 0xffff_ffff);
        Random(rng)
    }

    /// 64 uniform bits.
    #[allow(clippy::should_implement_trait)] // never ends: an `Option` would only be noise
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform below `n` (0 if `n` is 0). The bias, below n / 2^64, is accepted for stability.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() as u128 * n as u128 >> 64) as u64
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_apart_and_stable() {
        let mut a = Random::new(1, Stream::Entropy, 0);
        let mut b = Random::new(1, Stream::Entropy, 1);
        let mut c = Random::new(1, Stream::Entropy, 0);
        let first = a.next();
        assert_ne!(first, b.next());
        assert_eq!(first, c.next());
        assert!((0..1000).all(|_| a.below(7) < 7));
    }
}
