//! Receive queues: SIPS slots of a node (Hive §6), mailboxes of a hart.
//!
//! Invariant: `arrived` of a class lists each pending slot once, in order of arrival; the slots
//! of one sender are used in turn, so its pending ones are consecutive from `first`.

use hive_platform::MAX_NODES;
use hive_platform::controller::SIPS_DEPTH;
use hive_platform::sips::{CLASSES, LINE};
use std::collections::VecDeque;

/// A SIPS line as registers.
pub type Line = [u64; LINE / 8];

#[derive(Clone, Default)]
struct Ring {
    slots: [Line; SIPS_DEPTH],
    first: usize,
    pending: usize,
}

/// SIPS receive queues of one node.
#[derive(Clone, Default)]
pub struct Receive {
    rings: Vec<Ring>,
    arrived: [VecDeque<u64>; CLASSES],
}

/// Number of the ring of a class and sender, as in [`hive_platform::controller::rx_id`].
fn ring_of(id: u64) -> usize {
    id as usize / SIPS_DEPTH
}

impl Receive {
    /// Stores a line from `sender`; false if its slots of that class are all taken.
    pub fn push(&mut self, class: usize, sender: usize, line: &Line) -> bool {
        let ring_number = class * MAX_NODES + sender;
        if self.rings.len() <= ring_number {
            self.rings.resize(ring_number + 1, Ring::default());
        }
        let ring = &mut self.rings[ring_number];
        if ring.pending == SIPS_DEPTH {
            return false;
        }
        let slot = (ring.first + ring.pending) % SIPS_DEPTH;
        ring.slots[slot] = *line;
        ring.pending += 1;
        self.arrived[class].push_back((ring_number * SIPS_DEPTH + slot) as u64);
        true
    }

    /// Id of the message of `class` that arrived first.
    pub fn first(&self, class: usize) -> Option<u64> {
        self.arrived.get(class)?.front().copied()
    }

    /// Frees slot `id` if it is its sender's oldest pending one of `class`.
    pub fn release(&mut self, class: usize, id: u64) {
        if ring_of(id) / MAX_NODES != class {
            return;
        }
        let Some(ring) = self.rings.get_mut(ring_of(id)) else { return };
        if ring.pending == 0 || id as usize % SIPS_DEPTH != ring.first {
            return;
        }
        ring.first = (ring.first + 1) % SIPS_DEPTH;
        ring.pending -= 1;
        self.arrived[class].retain(|pending| *pending != id);
    }

    /// Eight bytes of the slots: word `index` counted from the first slot. Slots never used
    /// read 0.
    pub fn word(&self, index: usize) -> u64 {
        let words = LINE / 8;
        let id = index / words;
        let Some(ring) = self.rings.get(id / SIPS_DEPTH) else { return 0 };
        ring.slots[id % SIPS_DEPTH][index % words]
    }
}

/// A mailbox message: sender's hart id and three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Sender's hart id.
    pub from: usize,
    /// What it says.
    pub words: [u64; 3],
}

/// Messages to one hart, oldest first, at most one of each sender.
#[derive(Clone, Default)]
pub struct Mailbox(VecDeque<Letter>);

impl Mailbox {
    /// Stores a letter; false if one of that sender is pending.
    pub fn push(&mut self, letter: Letter) -> bool {
        if self.0.iter().any(|l| l.from == letter.from) {
            return false;
        }
        self.0.push_back(letter);
        true
    }

    /// The oldest letter.
    pub fn first(&self) -> Option<&Letter> {
        self.0.front()
    }

    /// Drops the oldest letter.
    pub fn release(&mut self) {
        self.0.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hive_platform::controller::rx_id;
    use hive_platform::sips::Class;

    #[test]
    fn a_flood_fills_only_its_own_slots() {
        let mut r = Receive::default();
        for n in 0..SIPS_DEPTH as u64 {
            assert!(r.push(0, 1, &[n; 16]));
        }
        assert!(!r.push(0, 1, &[9; 16]));
        assert!(r.push(0, 2, &[77; 16]));
        assert!(r.push(1, 1, &[78; 16]));
        assert_eq!(r.first(0), Some(rx_id(Class::Request, 1, 0)));
        assert_eq!(r.first(1), Some(rx_id(Class::Reply, 1, 0)));
        // Not the oldest of its sender: ignored. Another class: ignored.
        r.release(0, rx_id(Class::Request, 1, 1));
        r.release(1, rx_id(Class::Request, 1, 0));
        r.release(7, u64::MAX);
        r.release(0, rx_id(Class::Request, 2, 0));
        assert!(!r.push(0, 1, &[9; 16]));
        r.release(0, rx_id(Class::Request, 1, 0));
        assert_eq!(r.first(0), Some(rx_id(Class::Request, 1, 1)));
        assert!(r.push(0, 1, &[9; 16]));
        let id = rx_id(Class::Request, 1, 0) as usize;
        assert_eq!(r.word(id * 16 + 3), 9);
        for n in 0..SIPS_DEPTH {
            r.release(0, rx_id(Class::Request, 1, (n + 1) % SIPS_DEPTH));
        }
        assert_eq!(r.first(0), None);
    }

    #[test]
    fn one_letter_per_pair() {
        let mut m = Mailbox::default();
        assert!(m.push(Letter { from: 3, words: [1, 2, 3] }));
        assert!(!m.push(Letter { from: 3, words: [4, 5, 6] }));
        assert!(m.push(Letter { from: 4, words: [7, 8, 9] }));
        m.release();
        assert_eq!(m.first().unwrap().from, 4);
        m.release();
        m.release();
        assert!(m.first().is_none());
    }
}
