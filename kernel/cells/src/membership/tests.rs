//! Properties of agreement, exhaustively for up to four cells and by seeded search beyond: correct
//! cells never hold different live sets for one epoch, no correct cell is removed or reset, every
//! dead cell is removed (a halted one where the votes of correct cells suffice), and all comes to
//! rest with users running.
//!
//! Each was seen to fail while the machine did not yet keep these rules:
//!
//! | rule broken | test | broken property |
//! |---|---|---|
//! | what is heard is passed on within a tick | `three_cells`, 2 lies | innocent removed |
//! | whoever is late is told before anyone else is accused of it | `three_cells`, 1 lie | innocent removed |
//! | what a cell holds for dead counts whatever its round | `four_cells`, 1 lie, 1 death | innocent removed |
//! | old votes do not clear a cell accused anew | `three_cells`, mistake and halt | never ends |
//! | an open round joins a later one | `three_cells`, mistake and halt | never ends |
//! | a vote once cast stands | `many_cells`, 6 cells, 2 liars | innocent removed |
//! | a claimed death is looked at even while a probe is under way | `many_cells`, 6 cells | innocent removed |

use super::explore::{Budget, explore, wander};
use super::world::{Event, Health, World};
use super::*;
use std::vec::Vec;

const NONE: Budget = Budget { kills: 0, halts: 0, mistakes: 0, lies: 0, any_time: true };
/// For four cells probes finish at the ticks that bound them: every order of messages, but not of
/// probes within a tick.
const TIMED: Budget = Budget { any_time: false, ..NONE };

fn holds<const N: usize>(liars: u64, budget: Budget) {
    match explore::<N>(CellSet(liars), budget) {
        Ok(states) => std::println!("{N} cells, liars {liars:#b}, {budget:?}: {states} states"),
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

#[test]
fn four_cells() {
    holds::<4>(0, Budget { kills: 3, ..TIMED });
    holds::<4>(0, Budget { halts: 1, kills: 1, ..TIMED });
    holds::<4>(0, Budget { mistakes: 1, ..TIMED });
    holds::<4>(1, Budget { lies: 1, kills: 1, ..TIMED });
}

#[test]
fn four_cells_with_halts() {
    holds::<4>(0, Budget { halts: 2, ..TIMED });
    holds::<4>(1, Budget { lies: 1, halts: 1, ..TIMED });
}

fn search<const N: usize>(runs: u64, liars: u64, budget: Budget, losses: usize) {
    for seed in 1..=runs {
        if let Err((broken, path)) = wander::<N>(CellSet(liars), budget, losses, seed) {
            fail::<N>(liars, budget, &(seed, broken), &path);
        }
    }
}

#[test]
fn many_cells() {
    search::<4>(1000, 0, Budget { kills: 2, mistakes: 3, ..NONE }, 0);
    search::<4>(1000, 0, Budget { halts: 2, mistakes: 3, ..NONE }, 0);
    search::<4>(2000, 1, Budget { lies: 6, kills: 1, mistakes: 1, ..NONE }, 0);
    search::<6>(500, 0b11, Budget { lies: 6, kills: 1, mistakes: 1, ..NONE }, 0);
    search::<9>(200, 0b1111, Budget { lies: 6, kills: 1, mistakes: 1, ..NONE }, 0);
    search::<16>(50, 0b1111, Budget { lies: 6, kills: 3, halts: 2, mistakes: 1, ..NONE }, 0);
}

/// SIPS loses nothing, but a full queue does.
#[test]
fn lost_lines() {
    search::<4>(50, 0, Budget { kills: 2, mistakes: 3, ..NONE }, 2);
    search::<4>(50, 0, Budget { halts: 2, mistakes: 3, ..NONE }, 2);
}

#[test]
fn the_rule() {
    // By number of voters (live cells without the accused): votes that it takes.
    let least = |voters| (0..=voters).find(|votes| is_conviction(*votes, voters));
    let table: Vec<_> = (1..=7).map(least).collect();
    assert_eq!(table, [None, Some(2), Some(2), Some(3), Some(3), Some(4), Some(4)]);
}

/// Lets a world come to rest; the ticks until the last live set changed.
fn settle<const N: usize>(world: &mut World<N>) -> u64 {
    let start = world.ticks;
    let epochs = |world: &World<N>| world.nodes.clone().map(|node| node.machine.epoch());
    let (mut last, mut changed) = (epochs(world), start);
    let mut events = Vec::new();
    while world.ticks < start + 60 {
        events.clear();
        world.pending(false, &mut events);
        let event = match events.first() {
            Some(event) => *event,
            None if world.quiet() && world.finished().is_ok() => break,
            None => Event::Tick,
        };
        world.apply(event).unwrap();
        if epochs(world) != last {
            (last, changed) = (epochs(world), world.ticks);
        }
    }
    changed - start
}

#[test]
fn death_is_agreed_at_once_and_a_halt_within_its_probes() {
    let mut world = World::<4>::new(CellSet::EMPTY);
    world.apply(Event::Kill(2)).unwrap();
    assert_eq!(settle(&mut world), 1);
    world.apply(Event::Halt(3)).unwrap();
    assert!(settle(&mut world) <= PROBE_TICKS + 1);
    assert_eq!(world.nodes[0].machine.live(), CellSet(0b0011));
    assert_eq!(world.nodes[1].machine.epoch(), 2);
}

#[test]
fn of_two_cells_only_hardware_convicts() {
    let mut world = World::<2>::new(CellSet::EMPTY);
    world.apply(Event::Halt(1)).unwrap();
    for _ in 0..40 {
        world.apply(Event::Tick).unwrap();
    }
    assert_eq!(world.nodes[0].machine.live(), CellSet(0b11));
    assert!(!world.nodes[0].suspended);
    world.apply(Event::Kill(1)).unwrap();
    settle(&mut world);
    assert_eq!(world.nodes[0].machine.live(), CellSet(0b01));
}

#[test]
fn whoever_repeats_an_alert_is_convicted() {
    let mut world = World::<4>::new(CellSet(0b0001));
    let alert = |world: &mut World<4>| {
        // The script puts the lie into the round after the latest: all three are made first.
        for to in 1..4 {
            world.apply(Event::Lie { from: 0, to, script: 1 }).unwrap();
        }
        settle(world);
    };
    alert(&mut world);
    assert_eq!(world.nodes[1].machine.live(), CellSet(0b1111), "once may be a mistake");
    assert!(!world.nodes[1].suspended);
    alert(&mut world);
    assert_eq!(world.nodes[1].machine.live(), CellSet(0b1110));
    assert_eq!(world.nodes[0].health, Health::Dead);
}
