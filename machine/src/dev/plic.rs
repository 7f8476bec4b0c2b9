//! PLIC of one node: QEMU `virt` layout, M-mode context 2i and S-mode context 2i+1 of local
//! hart i. Inputs are levels; a claimed source stays quiet until its completion.

use hive_platform::map::PLIC_SOURCES;

const WORDS: usize = PLIC_SOURCES as usize / 32 + 1;
const PENDING: u64 = 0x1000;
const ENABLE: u64 = 0x2000;
const ENABLE_STRIDE: u64 = 0x80;
const CONTEXT: u64 = 0x20_0000;
const CONTEXT_STRIDE: u64 = 0x1000;
/// Priorities are 0 (never) to 7, as on QEMU's board.
const PRIORITY_MASK: u32 = 7;

#[derive(Clone, Debug, Default)]
struct Context {
    enable: [u32; WORDS],
    threshold: u32,
}

/// One PLIC.
#[derive(Clone, Debug)]
pub struct Plic {
    priority: [u32; PLIC_SOURCES as usize + 1],
    level: [u32; WORDS],
    claimed: [u32; WORDS],
    contexts: Vec<Context>,
}

impl Plic {
    /// The state after reset for `harts` harts.
    pub fn new(harts: usize) -> Plic {
        Plic {
            priority: [0; PLIC_SOURCES as usize + 1],
            level: [0; WORDS],
            claimed: [0; WORDS],
            contexts: vec![Context::default(); 2 * harts],
        }
    }

    /// Sets the level of input `source`.
    pub fn set_level(&mut self, source: u32, high: bool) {
        let (word, bit) = (source as usize / 32, 1 << (source % 32));
        if high { self.level[word] |= bit } else { self.level[word] &= !bit }
    }

    /// Whether external interrupt of `context` is pending.
    pub fn pending(&self, context: usize) -> bool {
        self.best(context) != 0
    }

    /// Highest-priority source that `context` may claim, lowest number first; 0 if none.
    fn best(&self, context: usize) -> u32 {
        let Some(ctx) = self.contexts.get(context) else { return 0 };
        let (mut best, mut best_priority) = (0, ctx.threshold);
        for word in 0..WORDS {
            let mut ready = self.level[word] & !self.claimed[word] & ctx.enable[word];
            while ready != 0 {
                let source = word as u32 * 32 + ready.trailing_zeros();
                ready &= ready - 1;
                if self.priority[source as usize] > best_priority {
                    (best, best_priority) = (source, self.priority[source as usize]);
                }
            }
        }
        best
    }

    /// Reads the 32-bit register at `offset`; undefined ones read 0.
    pub fn read(&mut self, offset: u64, size: usize) -> Option<u64> {
        if size != 4 {
            return None;
        }
        let value = match offset {
            0..PENDING => self.priority.get((offset / 4) as usize).copied().unwrap_or(0),
            PENDING..ENABLE => {
                let word = ((offset - PENDING) / 4) as usize;
                if word < WORDS { self.level[word] & !self.claimed[word] } else { 0 }
            }
            ENABLE..CONTEXT => self.enable_word(offset).map(|w| *w).unwrap_or(0),
            _ => {
                let context = ((offset - CONTEXT) / CONTEXT_STRIDE) as usize;
                match offset % CONTEXT_STRIDE {
                    0 => self.contexts.get(context).map(|c| c.threshold).unwrap_or(0),
                    4 => {
                        let source = self.best(context);
                        self.claimed[source as usize / 32] |=
                            u32::from(source != 0) << (source % 32);
                        source
                    }
                    _ => 0,
                }
            }
        };
        Some(value as u64)
    }

    /// Writes the 32-bit register at `offset`; undefined ones ignore it.
    pub fn write(&mut self, offset: u64, size: usize, value: u64) -> Option<()> {
        if size != 4 {
            return None;
        }
        let value = value as u32;
        match offset {
            0..PENDING => {
                let source = (offset / 4) as usize;
                if source != 0
                    && let Some(priority) = self.priority.get_mut(source)
                {
                    *priority = value & PRIORITY_MASK;
                }
            }
            PENDING..ENABLE => {}
            ENABLE..CONTEXT => {
                // Source 0 does not exist; sources past the last have no input.
                let first = (offset - ENABLE) % ENABLE_STRIDE == 0;
                if let Some(word) = self.enable_word(offset) {
                    *word = if first { value & !1 } else { value };
                }
            }
            _ => {
                let context = ((offset - CONTEXT) / CONTEXT_STRIDE) as usize;
                let Some(ctx) = self.contexts.get_mut(context) else { return Some(()) };
                match offset % CONTEXT_STRIDE {
                    0 => ctx.threshold = value & PRIORITY_MASK,
                    4 if value <= PLIC_SOURCES => {
                        let (word, bit) = (value as usize / 32, 1 << (value % 32));
                        if ctx.enable[word] & bit != 0 {
                            self.claimed[word] &= !bit;
                        }
                    }
                    _ => {}
                }
            }
        }
        Some(())
    }

    fn enable_word(&mut self, offset: u64) -> Option<&mut u32> {
        let context = ((offset - ENABLE) / ENABLE_STRIDE) as usize;
        let word = ((offset - ENABLE) % ENABLE_STRIDE / 4) as usize;
        self.contexts.get_mut(context)?.enable.get_mut(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_and_complete() {
        let mut p = Plic::new(1);
        p.write(4 * 10, 4, 1).unwrap();
        p.write(4 * 3, 4, 2).unwrap();
        p.write(ENABLE + ENABLE_STRIDE, 4, 1 << 10 | 1 << 3).unwrap();
        assert!(!p.pending(1));
        p.set_level(10, true);
        p.set_level(3, true);
        assert!(p.pending(1) && !p.pending(0));
        let claim = CONTEXT + CONTEXT_STRIDE + 4;
        assert_eq!(p.read(claim, 4), Some(3));
        assert_eq!(p.read(claim, 4), Some(10));
        assert_eq!(p.read(claim, 4), Some(0));
        p.set_level(3, false);
        p.write(claim, 4, 3).unwrap();
        p.write(claim, 4, 10).unwrap();
        assert_eq!(p.read(claim, 4), Some(10), "level still high");
        p.write(claim, 4, 10).unwrap();
        p.write(CONTEXT + CONTEXT_STRIDE, 4, 1).unwrap();
        assert!(!p.pending(1), "threshold masks priority 1");
    }

    #[test]
    fn no_offset_panics() {
        let mut p = Plic::new(2);
        for offset in (0..hive_platform::map::PLIC_SIZE).step_by(4) {
            p.write(offset, 4, u32::MAX as u64);
            p.read(offset, 4);
        }
        for source in 0..=PLIC_SOURCES {
            p.set_level(source, true);
        }
        assert!(p.pending(0) || !p.pending(0));
    }
}
