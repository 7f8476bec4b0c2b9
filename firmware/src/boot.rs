//! From reset to the kernel.
//!
//! Every hart sets itself up. Local hart 0 of a node also readies the node (firewall). The first
//! hart of the partition then waits until every other hart of it answers, copies the kernel from
//! flash and enters it; the others stay in the HSM state "stopped".

use crate::hart::{Boot, Hart, State};
use crate::hw::{self, Controller};
use crate::mailbox::{self, Request};
use crate::partition::Partition;
use hive_platform::flash::FLAG_FIREWALL;
use hive_platform::{PAGE_SIZE, controller, map};

/// `fw_dynamic` hand-over block: "OSBI", then version, next address, next mode (OpenSBI).
const HAND_OVER_MAGIC: u64 = 0x4942_534f;

/// Called by the entry code on every hart, on that hart's stack.
pub fn start(boot: Boot, controller: Controller) -> ! {
    let partition = Partition::find(&controller);
    let local = boot.hart_id - partition.node * partition.harts_per_node;
    let hart = Hart {
        boot,
        controller,
        local,
        partition,
        state: State::Stopped,
        sequence: 0,
        mute: [0; hive_platform::MAX_HARTS / 64],
    };
    hw::on_hart_stack(hart, run)
}

/// Readies this hart, and what it is responsible for; never returns.
fn run(hart: &'static mut Hart) -> ! {
    hw::set_up(hart);
    if hart.local == 0 {
        ready_node(hart);
    }
    // A node that the others voted down is not theirs to boot: it waits to be told.
    let voted = hart.controller.read(controller::RESET_CAUSE) == controller::RESET_VOTED;
    if hart.boot.hart_id == hart.partition.boot_hart()
        && !voted
        && let Some(entry) = load_kernel(hart)
    {
        for other in hart.partition.harts() {
            if other != hart.boot.hart_id {
                await_ready(hart, other);
            }
        }
        hart.state = State::Starting { entry, argument: hart.boot.device_tree as u64 };
    }
    stopped(hart)
}

/// Waits in the firmware until another hart's `hart_start`, then enters S-mode.
pub fn stopped(hart: &mut Hart) -> ! {
    loop {
        if let State::Starting { entry, argument } = hart.state {
            hart.state = State::Started;
            if hart.local == 0 {
                hart.controller.write(controller::READY, 1);
            }
            hw::enter_supervisor(entry, hart.boot.hart_id as u64, argument);
        }
        mailbox::serve(hart);
        if hart.state == State::Stopped {
            hw::suspend(false);
        }
    }
}

/// Longest wait at boot for another hart of the partition, in [`mailbox::PATIENCE_TICKS`]: it may
/// have the firewall of a large memory to set first.
const BOOT_PATIENCE: usize = 100;

/// Waits until `other` answers, which it does once its node is ready; a dead one is left behind.
fn await_ready(hart: &mut Hart, other: usize) {
    for _ in 0..BOOT_PATIENCE {
        hart.set_mute(other, false);
        if mailbox::call(hart, other, Request::Status).is_some() {
            return;
        }
    }
}

/// Opens the node's memory to its partition and closes it to everyone else.
fn ready_node(hart: &Hart) {
    let Some(header) = hart.partition.flash else { return };
    if header.flags & FLAG_FIREWALL == 0 {
        return;
    }
    // One node alone: the vectors already name its harts and nobody else.
    if hart.partition.end - hart.partition.first > 1 {
        let vector = hart.partition.firewall_vector();
        let pages = hart.controller.read(controller::DRAM_SIZE) / PAGE_SIZE;
        for page in 0..pages {
            hart.controller.write(controller::FIREWALL + page * 8, vector);
        }
    }
    hart.controller.write(controller::FIREWALL_ON, 1);
}

/// Puts the kernel in place; its entry, or `None` if there is none to boot.
fn load_kernel(hart: &Hart) -> Option<u64> {
    if let Some(header) = hart.partition.flash {
        let entry = hart.controller.read(controller::DRAM_BASE) + map::KERNEL_OFFSET;
        let from = map::flash(hart.partition.node) + header.kernel_offset;
        hw::copy_image(from, entry, header.kernel_size.next_multiple_of(8));
        return Some(entry);
    }
    let block = hart.boot.hand_over as u64;
    (block != 0 && hw::rom_read(block) == HAND_OVER_MAGIC).then(|| hw::rom_read(block + 16))
}
