//! The trace hash: one number that two runs share only if they are the same run.

use super::Machine;
use crate::ram::PAGE;

/// Bytes of memory hashed at a time.
const PIECE: usize = 1 << 20;

/// Running hash of a machine.
#[derive(Clone)]
pub struct Trace {
    hasher: blake3::Hasher,
    next_cycle: u64,
}

impl Trace {
    /// Nothing seen yet.
    pub fn new() -> Trace {
        Trace { hasher: blake3::Hasher::new(), next_cycle: 0 }
    }

    /// Adds an event from the environment.
    pub fn event(&mut self, cycle: u64, what: &[u8]) {
        self.hasher.update(&cycle.to_le_bytes());
        self.hasher.update(&(what.len() as u64).to_le_bytes());
        self.hasher.update(what);
    }
}

impl Machine {
    /// Adds all harts' registers if a sample is due. Sampling cuts no slice: it happens at the
    /// first slice end at or after its cycle.
    pub(super) fn sample(&mut self) {
        if self.now < self.trace.next_cycle {
            return;
        }
        let interval = self.bus.config.trace_interval_cycles;
        self.trace.next_cycle = (self.now / interval + 1).saturating_mul(interval);
        let mut words = Vec::with_capacity(128 * self.harts.len());
        words.push(self.now);
        for (hart, clock) in self.harts.iter().zip(&self.bus.clock) {
            words.push(*clock);
            hart.visit_state(|word| words.push(word));
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.trace.hasher.update(&bytes);
    }

    /// The hash over everything so far: registers at each interval, inputs, and memory and disks
    /// as they now are. In hexadecimal. Costs a walk over all memory in use.
    pub fn trace_hash(&self) -> String {
        let mut hasher = self.trace.hasher.clone();
        hasher.update(&self.now.to_le_bytes());
        hasher.update(&self.instructions.to_le_bytes());
        for hart in &self.harts {
            hart.visit_state(|word| {
                hasher.update(&word.to_le_bytes());
            });
        }
        let mut page = [0; PAGE];
        // The hash is quicker on large pieces than on pages.
        let mut piece = Vec::with_capacity(PIECE + 2 * PAGE);
        for frame in self.ram.touched() {
            // A touched frame is memory, and one of zeros is like an untouched one.
            if self.ram.read(frame.base(), &mut page).is_some() && page != [0; PAGE] {
                piece.extend_from_slice(&frame.0.to_le_bytes());
                piece.extend_from_slice(&page);
                if piece.len() >= PIECE {
                    hasher.update(&piece);
                    piece.clear();
                }
            }
        }
        hasher.update(&piece);
        for disk in self.bus.nodes.iter().filter_map(|n| n.disk()) {
            disk.hash_overlay(&mut hasher);
        }
        hasher.finalize().to_hex()[..32].to_string()
    }
}
