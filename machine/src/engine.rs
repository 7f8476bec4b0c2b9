//! What executes instructions.
//!
//! An engine is shared by all harts of a machine and holds nothing but caches: dropping it, or
//! replacing it with another one, changes no result. Decoded code is keyed by frame, so that
//! `sfence.vma`, traps and address-space switches keep it, and always coherent: a store to a line
//! that holds decoded instructions takes effect on the next instruction (`fence.i` has nothing
//! left to do). That rule is architecture, because an engine must not show in a result.
//!
//! [`Engine::run`] executes *exactly* the budget unless something in [`Why`] ends it sooner.

use crate::hart::Hart;
use crate::platform::Platform;
use crate::ram::Ram;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The budget is used up.
    Budget,
    /// The hart waits (WFI): [`Hart::waiting`] until an interrupt that it enabled is pending.
    Wait,
    /// The hart executed PAUSE: it gives up its slice.
    Pause,
    /// [`Platform::stop`] said so.
    Stop,
    /// The hart's own timer ([`Hart::timer`]) changed: the next event may be nearer.
    Timer,
}

/// Result of [`Engine::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Instructions begun, at most the budget. One that trapped counts; taking an interrupt does
    /// not. In `fast` timing this is the number of cycles.
    pub executed: u64,
    /// Why the run ended.
    pub why: Why,
}

/// The interpreter over decoded blocks.
#[derive(Default)]
pub struct Engine {}

impl Engine {
    /// An engine with empty caches.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Runs `hart` for at most `budget` instructions.
    pub fn run<P: Platform>(
        &mut self,
        hart: &mut Hart,
        ram: &mut Ram,
        platform: &mut P,
        budget: u64,
    ) -> Outcome {
        let _ = (hart, ram, platform);
        Outcome { executed: budget, why: Why::Budget }
    }
}
