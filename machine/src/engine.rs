//! What executes instructions.
//!
//! An engine is shared by all harts of a machine and holds nothing but caches: dropping it, or
//! replacing it with another one, changes no result. Decoded code is keyed by frame, so that
//! `sfence.vma`, traps and address-space switches keep it, and always coherent: a store to a line
//! that holds decoded instructions takes effect on the next instruction (`fence.i` has nothing
//! left to do). That rule is architecture, because an engine must not show in a result.
//!
//! [`Engine::run`] executes *exactly* the budget unless something in [`Why`] ends it sooner.

use crate::block::Blocks;
use crate::exec::{self, Bus};
use crate::hart::{Hart, Trap};
use crate::platform::Platform;
use crate::ram::{PAGE, Ram};

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
pub struct Engine {
    blocks: Blocks,
    /// [`Ram::epoch`] that the blocks were decoded under.
    epoch: u64,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine::new()
    }
}

impl Engine {
    /// An engine with empty caches.
    pub fn new() -> Engine {
        Engine { blocks: Blocks::new(), epoch: 0 }
    }

    /// Runs `hart` for at most `budget` instructions. Interrupts are taken before the first
    /// instruction if one is due.
    pub fn run<P: Platform>(
        &mut self,
        hart: &mut Hart,
        ram: &mut Ram,
        platform: &mut P,
        budget: u64,
    ) -> Outcome {
        let mut bus = Bus { ram, platform, base: 0, index: 0, at: 0, attention: true, end: None };
        let why = match self.begin(hart, &mut bus) {
            Some(why) => why,
            None => self.execute(hart, &mut bus, budget),
        };
        bus.ram.reserve(hart.id, hart.reservation);
        Outcome { executed: bus.base, why }
    }

    /// Takes over what happened while the hart did not run.
    fn begin<P: Platform>(&mut self, hart: &mut Hart, bus: &mut Bus<P>) -> Option<Why> {
        let epoch = bus.ram.epoch();
        if self.epoch != epoch {
            self.epoch = epoch;
            self.blocks.clear();
        }
        if hart.tlb.epoch != epoch {
            hart.tlb.epoch = epoch;
            hart.tlb.flush();
        }
        if bus.ram.reservation(hart.id) != hart.reservation {
            hart.reservation = None;
        }
        if hart.waiting {
            let lines = bus.platform.lines(hart.id);
            let time = bus.platform.time(hart.id, 0);
            if !hart.wakes(lines, time) {
                return Some(Why::Wait);
            }
            hart.waiting = false;
        }
        None
    }

    fn execute<P: Platform>(&mut self, hart: &mut Hart, bus: &mut Bus<P>, budget: u64) -> Why {
        loop {
            if bus.attention
                && let Some(why) = self.attend(hart, bus)
            {
                return why;
            }
            if bus.base >= budget {
                return Why::Budget;
            }
            if hart.injected.is_some() {
                // An injected exception takes the place of one instruction.
                if let Some(trap) = hart.injected.take() {
                    hart.take_exception(trap);
                }
                bus.base += 1;
                bus.attention = true;
                continue;
            }
            self.step(hart, bus, budget);
        }
    }

    /// Executes from the hart's pc up to `budget`, or until something needs attention.
    fn step<P: Platform>(&mut self, hart: &mut Hart, bus: &mut Bus<P>, budget: u64) {
        let pc = hart.pc;
        let frame = match hart.tlb.fetch(hart.fetch_context, pc) {
            Some(frame) => frame,
            None => match exec::fetch_frame(hart, bus, pc) {
                Ok(Some(frame)) => frame,
                Ok(None) => return step_one(hart, bus),
                Err(trap) => return fetch_trap(hart, bus, trap),
            },
        };
        let offset = pc as usize % PAGE;
        let address = frame.base() + offset as u64;
        if self.blocks.get(address).is_none() && !self.blocks.decode(bus.ram, frame, offset) {
            return step_one(hart, bus);
        }
        let Some(insns) = self.blocks.get(address) else { return };
        let ran = exec::run_blocks(hart, bus, Some(&self.blocks), insns, address, budget);
        if let Some(trap) = ran.trap {
            let bits = bus.ram.read_code(ran.address + u64::from(ran.at));
            take_exception(hart, bus, trap, bits);
        }
    }

    /// Looks at everything that may have changed under the hart; takes an interrupt if one is due.
    fn attend<P: Platform>(&mut self, hart: &mut Hart, bus: &mut Bus<P>) -> Option<Why> {
        bus.attention = false;
        for frame in bus.ram.take_evicted(hart.id).into_iter().flatten() {
            hart.tlb.evict(frame);
        }
        for frame in bus.ram.take_stale_code().into_iter().flatten() {
            self.blocks.forget(frame);
        }
        hart.csr.lines = bus.platform.lines(hart.id);
        // Only the hart's own timer makes its interrupts a matter of time.
        let time = hart.timer().map_or(0, |_| bus.platform.time(hart.id, bus.base));
        if bus.platform.stop(hart.id) {
            return Some(Why::Stop);
        }
        if let Some(why) = bus.end.take() {
            if why == Why::Wait && hart.wakes(hart.csr.lines, time) {
                hart.waiting = false;
            } else {
                return Some(why);
            }
        }
        if let Some(number) = hart.pending_interrupt(time) {
            hart.take_interrupt(number);
        }
        None
    }
}

/// Executes one instruction that is not in the block cache.
#[cold]
fn step_one<P: Platform>(hart: &mut Hart, bus: &mut Bus<P>) {
    match exec::fetch_one(hart, bus, hart.pc) {
        Ok((insn, bits)) => {
            let budget = bus.base + 1;
            let ran = exec::run_blocks(hart, bus, None, &[insn], 0, budget);
            if let Some(trap) = ran.trap {
                take_exception(hart, bus, trap, bits);
            }
        }
        Err(trap) => fetch_trap(hart, bus, trap),
    }
}

/// A fetch that traps takes an instruction's time.
fn fetch_trap<P: Platform>(hart: &mut Hart, bus: &mut Bus<P>, trap: Trap) {
    bus.base += 1;
    take_exception(hart, bus, trap, 0);
}

/// Enters the handler of the instruction at the hart's pc, whose bits an illegal-instruction trap
/// shows.
fn take_exception<P: Platform>(hart: &mut Hart, bus: &mut Bus<P>, mut trap: Trap, bits: u32) {
    if trap == exec::ILLEGAL {
        trap.value = bits.into();
    }
    hart.take_exception(trap);
    bus.attention = true;
}
