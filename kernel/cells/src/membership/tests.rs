//! Properties of agreement, exhaustively for up to four cells and by seeded search beyond.

use super::explore::{Budget, explore};
use super::*;

fn holds<const N: usize>(liars: u64, budget: Budget) {
    match explore::<N>(CellSet(liars), budget) {
        Ok(states) => std::println!("{N} cells, liars {liars:#b}, {budget:?}: {states} states"),
        Err((broken, path)) => {
            for event in &path {
                std::println!("  {event:?}");
            }
            panic!("{N} cells, {budget:?}: {broken:?}");
        }
    }
}

#[test]
fn small_machines_agree() {
    let b = Budget::default();
    holds::<2>(0, Budget { kills: 1, ..b });
    holds::<3>(0, Budget { kills: 1, ..b });
    holds::<3>(0, Budget { kills: 2, ..b });
    holds::<3>(0, Budget { halts: 1, ..b });
    holds::<3>(0, Budget { mistakes: 1, ..b });
    holds::<3>(0, Budget { mistakes: 1, kills: 1, ..b });
    holds::<4>(0, Budget { kills: 1, ..b });
    holds::<4>(0, Budget { kills: 2, ..b });
    holds::<3>(1, Budget { lies: 1, ..b });
    holds::<3>(1, Budget { lies: 2, ..b });
    holds::<3>(1, Budget { lies: 1, kills: 1, ..b });
    holds::<2>(1, Budget { lies: 2, kills: 1, ..b });
}
