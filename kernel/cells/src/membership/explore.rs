//! A small explicit-state explorer: every order of deliveries, finished probes, ticks, faults,
//! mistakes and lies within a [`Budget`], each state once.

use core::hash::{Hash, Hasher};
use std::vec::Vec;

use super::world::{Broken, Event, Health, World};
use super::*;

/// What may go wrong in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub kills: usize,
    pub halts: usize,
    pub mistakes: usize,
    pub lies: usize,
}

/// Ticks in which every run must have come to its end after the last thing went wrong.
const PATIENCE: u64 = 40;

/// Two independent 64-bit fingerprints of a state.
#[derive(Default)]
struct Print(u64, u64);

impl Hasher for Print {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut le = [0; 8];
            le[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(le));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.1 = (self.1.rotate_left(29) ^ word).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// The states seen: an open-addressing table of fingerprints.
struct Seen {
    slots: Vec<(u64, u64)>,
    used: usize,
}

impl Seen {
    fn new() -> Self {
        Seen { slots: std::vec![(0, 0); 1 << 16], used: 0 }
    }

    fn insert(&mut self, state: &impl Hash) -> bool {
        let mut print = Print::default();
        state.hash(&mut print);
        let key = (print.finish() | 1, print.1);
        if 2 * self.used > self.slots.len() {
            let old = core::mem::take(&mut self.slots);
            self.slots = std::vec![(0, 0); old.len() * 2];
            for key in old.into_iter().filter(|key| *key != (0, 0)) {
                self.place(key);
            }
        }
        let new = self.place(key);
        self.used += usize::from(new);
        new
    }

    fn place(&mut self, key: (u64, u64)) -> bool {
        let mask = self.slots.len() - 1;
        let mut i = (key.0 ^ key.1 >> 17) as usize & mask;
        loop {
            if self.slots[i] == key {
                return false;
            }
            if self.slots[i] == (0, 0) {
                self.slots[i] = key;
                return true;
            }
            i = (i + 1) & mask;
        }
    }
}

/// Explores everything within `budget`.
///
/// # Errors
/// What broke, and the events that led to it.
pub fn explore<const N: usize>(
    liars: CellSet,
    budget: Budget,
) -> Result<usize, (Broken, Vec<Event>)> {
    let mut seen = Seen::new();
    // How each visited state was reached: (index of the state before, event).
    let mut reached: Vec<(usize, Event)> = Vec::new();
    let mut stack = std::vec![(World::<N>::new(liars), budget, usize::MAX)];
    let mut events = Vec::new();
    while let Some((world, budget, from)) = stack.pop() {
        events.clear();
        choices(&world, budget, &mut events);
        for event in &events {
            let (mut next, mut left) = (world.clone(), budget);
            spend(&mut left, &mut next, *event);
            let mut broken = next.apply(*event).err();
            if next.ticks > PATIENCE {
                broken = Some(Broken::Endless);
            }
            reached.push((from, *event));
            if let Some(broken) = broken {
                return Err((broken, path(&reached)));
            }
            if seen.insert(&(&next, left)) {
                stack.push((next, left, reached.len() - 1));
            } else {
                reached.pop();
            }
        }
    }
    Ok(seen.used)
}

/// The events that led to the last state reached.
fn path(reached: &[(usize, Event)]) -> Vec<Event> {
    let mut path = Vec::new();
    let mut at = reached.len() - 1;
    while let Some((from, event)) = reached.get(at) {
        path.push(*event);
        at = *from;
    }
    path.reverse();
    path
}

/// All that can happen next; nothing once all is well and there is nothing left to spend.
fn choices<const N: usize>(world: &World<N>, budget: Budget, out: &mut Vec<Event>) {
    world.pending(out);
    let settled = out.is_empty() && world.quiet() && world.finished().is_ok();
    if !settled && world.drained() {
        out.push(Event::Tick);
    }
    for cell in 0..N {
        let (up, correct) = (world.nodes[cell].health == Health::Up, world.correct(cell));
        if up && budget.kills > 0 {
            out.push(Event::Kill(cell));
        }
        if correct && budget.halts > 0 {
            out.push(Event::Halt(cell));
        }
        for other in (0..N).filter(|other| *other != cell) {
            if correct && budget.mistakes > 0 {
                let reason = Reason::RpcTimeout;
                out.push(Event::Mistake { by: cell, about: other, reason });
            }
            if up && !correct && budget.lies > 0 && world.correct(other) {
                for script in 0..World::<N>::SCRIPTS {
                    out.push(Event::Lie { from: cell, to: other, script });
                }
            }
        }
        if up && !correct && budget.lies > 0 {
            out.push(Event::LieVote { from: cell });
        }
    }
}

fn spend<const N: usize>(budget: &mut Budget, world: &mut World<N>, event: Event) {
    match event {
        Event::Kill(_) => budget.kills -= 1,
        Event::Halt(_) => budget.halts -= 1,
        Event::Mistake { .. } => budget.mistakes -= 1,
        Event::Lie { .. } | Event::LieVote { .. } => budget.lies -= 1,
        _ => return,
    }
    // Patience counts from the last thing that went wrong.
    world.ticks = 0;
}
