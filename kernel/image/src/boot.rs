//! The order of boot, on one screen.

use crate::{cell, sched, selftest, smp, start, trap};
use hive_hal::entry::Boot;
use hive_hal::{console, platform, println};

/// The boot hart, interrupts off, on the kernel's page tables.
pub fn main(boot: Boot) -> ! {
    let machine = boot.machine;
    console::init(machine);
    println!(
        "hive: {} harts of {}, nodes {:?}, {} MB, image at {:#x}",
        machine.harts.iter().filter(|h| h.ours).count(),
        machine.harts.len(),
        machine.cell_nodes,
        machine.cell_memory() >> 20,
        boot.image.0,
    );
    platform::init(machine);
    cell::init();
    trap::install();
    sched::install();
    smp::start_others(machine);
    sched::spawn_kernel("init", move || first_thread(machine));
    smp::run()
}

/// What needs threads: devices, then processes.
fn first_thread(machine: &'static hive_hal::devicetree::Machine) {
    if machine.argument("selftest").is_some() {
        selftest::run(machine);
    }
    start::main(machine);
}
