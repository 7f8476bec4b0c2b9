//! A small explicit-state explorer: every order of deliveries, finished probes, ticks, faults,
//! mistakes and lies within a [`Budget`], each state once.

use core::hash::{Hash, Hasher};
use std::vec::Vec;

use super::world::{Broken, Event, Health, World};
use super::*;
use crate::limits::MUTE_TICKS;

/// What may go wrong in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub kills: usize,
    pub halts: usize,
    pub mistakes: usize,
    pub lies: usize,
    /// Probes finish at any time, not only at the ticks that bound them.
    pub any_time: bool,
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
    world.pending(budget.any_time, out);
    let settled = world.quiet() && world.finished().is_ok();
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

/// xorshift64*: the same search for the same seed, everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

/// One random run within `budget`: clocks of any phase, `losses` lines lost, faults at any moment.
/// Returns the world at the end.
///
/// # Errors
/// What broke, and the events that led to it.
pub fn wander<const N: usize>(
    liars: CellSet,
    mut budget: Budget,
    mut losses: usize,
    seed: u64,
) -> Result<World<N>, (Broken, Vec<Event>)> {
    // A line lost at a bad moment may cost an alert, which is then kept quiet for a while.
    let patience = if losses > 0 { PATIENCE + MUTE_TICKS } else { PATIENCE };
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::<N>::new(liars);
    let (mut path, mut events) = (Vec::new(), Vec::new());
    // Cells whose clock has ticked in this period.
    let mut ticked = CellSet::EMPTY;
    loop {
        events.clear();
        choices(&world, budget, &mut events);
        let faults = events.iter().position(|e| !is_progress(e)).unwrap_or(events.len());
        let (progress, faults) = events.split_at(faults);
        let event = if !faults.is_empty() && random.below(40) == 0 {
            faults[random.below(faults.len())]
        } else if matches!(progress, [] | [.., Event::Tick]) && random.below(4) > 0
            || progress.is_empty()
        {
            let left: Vec<usize> = (0..N).filter(|c| !ticked.contains(CellId::of(*c))).collect();
            let cell = left[random.below(left.len())];
            ticked = ticked.with(CellId::of(cell));
            Event::TickOf(cell)
        } else {
            match progress[random.below(progress.len())] {
                Event::Tick => continue,
                Event::Deliver { from, to } if losses > 0 && random.below(30) == 0 => {
                    losses -= 1;
                    Event::Lose { from, to }
                }
                event => event,
            }
        };
        path.push(event);
        spend(&mut budget, &mut world, event);
        if let Err(broken) = world.apply(event) {
            return Err((broken, path));
        }
        if ticked.len() == N {
            ticked = CellSet::EMPTY;
            world.ticks += 1;
            if world.ticks > patience {
                if world.quiet() {
                    return match world.finished() {
                        Ok(()) => Ok(world),
                        Err(broken) => Err((broken, path)),
                    };
                }
                if world.ticks > patience + 2 * PATIENCE {
                    return Err((Broken::Endless, path));
                }
            }
        }
    }
}

fn is_progress(event: &Event) -> bool {
    matches!(event, Event::Deliver { .. } | Event::ProbeDone { .. } | Event::Tick)
}
