//! Properties of agreement, exhaustively for up to four cells and by seeded search beyond.

use super::explore::{Budget, explore, wander};
use super::world::Event;
use super::*;

const NONE: Budget = Budget { kills: 0, halts: 0, mistakes: 0, lies: 0, any_time: true };

fn holds<const N: usize>(liars: u64, budget: Budget) {
    let t = std::time::SystemTime::now();
    match explore::<N>(CellSet(liars), budget) {
        Ok(states) => std::println!(
            "{N} cells, liars {liars:#b}, {budget:?}: {states} states {:?}",
            t.elapsed()
        ),
        Err((broken, path)) => fail::<N>(liars, budget, &broken, &path),
    }
}

fn fail<const N: usize>(
    liars: u64,
    budget: Budget,
    broken: &impl core::fmt::Debug,
    path: &[Event],
) {
    for event in path {
        std::println!("  {event:?}");
    }
    panic!("{N} cells, liars {liars:#b}, {budget:?}: {broken:?}");
}

#[test]
fn two_cells() {
    holds::<2>(0, Budget { kills: 1, mistakes: 2, ..NONE });
    holds::<2>(1, Budget { kills: 1, lies: 4, ..NONE });
}

#[test]
fn three_cells() {
    holds::<3>(0, Budget { kills: 2, ..NONE });
    holds::<3>(0, Budget { kills: 1, halts: 1, ..NONE });
    holds::<3>(0, Budget { kills: 1, mistakes: 1, ..NONE });
    holds::<3>(0, Budget { halts: 1, mistakes: 1, ..NONE });
    holds::<3>(1, Budget { kills: 1, lies: 1, ..NONE });
    holds::<3>(1, Budget { lies: 2, ..NONE });
}

const TIMED: Budget = Budget { any_time: false, ..NONE };

#[test]
fn four_cells() {
    holds::<4>(0, Budget { kills: 3, ..TIMED });
    holds::<4>(0, Budget { halts: 1, kills: 1, ..TIMED });
    holds::<4>(0, Budget { halts: 2, ..TIMED });
    holds::<4>(0, Budget { mistakes: 1, ..TIMED });
}
#[test]
fn four_cells2() {
    holds::<4>(1, Budget { lies: 1, kills: 1, ..TIMED });
    holds::<4>(1, Budget { lies: 1, halts: 1, ..TIMED });
}

fn search<const N: usize>(runs: u64, liars: u64, budget: Budget, losses: usize) {
    let t = std::time::SystemTime::now();
    for seed in 1..=runs {
        if let Err((broken, path)) = wander::<N>(CellSet(liars), budget, losses, seed) {
            fail::<N>(liars, budget, &(seed, broken), &path);
        }
    }
    std::println!("{N} {budget:?} {:?}", t.elapsed());
}

#[test]
fn many_cells() {
    search::<4>(3000, 0, Budget { kills: 2, mistakes: 3, ..NONE }, 0);
    search::<4>(3000, 0, Budget { halts: 2, mistakes: 3, ..NONE }, 0);
    search::<4>(3000, 1, Budget { lies: 6, ..NONE }, 0);
    search::<4>(3000, 1, Budget { lies: 6, kills: 1, mistakes: 1, ..NONE }, 0);
    search::<6>(500, 0b11, Budget { lies: 6, kills: 1, mistakes: 1, ..NONE }, 0);
    search::<9>(200, 0b1111, Budget { lies: 6, kills: 1, mistakes: 1, ..NONE }, 0);
    search::<16>(50, 0b1111, Budget { lies: 6, kills: 3, halts: 2, mistakes: 1, ..NONE }, 0);
    search::<4>(100, 0, Budget { kills: 2, mistakes: 3, ..NONE }, 2);
    search::<4>(50, 0, Budget { halts: 2, mistakes: 3, ..NONE }, 2);
}
