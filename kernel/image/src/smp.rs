//! The other harts of the cell.

use crate::{sched, time};
use hive_hal::devicetree::Machine;
use hive_hal::{entry, hart, plic, println, trap};

/// Starts every hart of the cell but this one.
pub fn start_others(machine: &Machine) {
    let me = hart::local().id();
    let others = machine.harts.iter().filter(|h| h.ours && h.id != me);
    for (i, other) in others.enumerate() {
        let index = i + 1;
        if index >= hive_hal::MAX_HARTS {
            println!("smp: hart {} left out: a cell has at most {index} harts", other.id);
            continue;
        }
        if let Err(e) = entry::start_hart(index, other.id, other.node) {
            panic!("hart {} of this cell does not start: {e:?}", other.id);
        }
    }
}

/// What each hart does, once it can take interrupts: ticks and idles. Interrupts off at depth 1.
pub fn run() -> ! {
    plic::init_hart();
    sched::adopt_idle();
    trap::enable_interrupts();
    time::start();
    sched::idle()
}

/// Entry of every hart but the first.
pub fn hart_main() -> ! {
    run()
}
