//! The devices of one node and their interrupt wires.

use crate::config::Config;
use crate::dev::aclint::Aclint;
use crate::dev::disk::Disk;
use crate::dev::plic::Plic;
use crate::dev::uart::Uart;
use crate::dev::virtio::{Device, Virtio};
use crate::seed::{Random, Stream};
use hive_platform::map;

/// Slot of the disk.
pub const DISK_SLOT: usize = 0;
/// Slot of the entropy source.
pub const ENTROPY_SLOT: usize = 2;

/// Devices of a node.
#[derive(Clone)]
pub struct NodeDevices {
    /// Console.
    pub uart: Uart,
    /// Interrupt controller.
    pub plic: Plic,
    /// Timers and software interrupts.
    pub aclint: Aclint,
    /// virtio slots.
    pub virtio: Vec<Virtio>,
    /// Per slot: a request is being served.
    pub busy: Vec<bool>,
    /// Counts resets: what was scheduled in an earlier life is void.
    pub life: u64,
    harts: usize,
}

impl NodeDevices {
    /// Devices at power-on, with `disk` in its slot.
    pub fn new(config: &Config, node: usize, disk: Option<Disk>) -> NodeDevices {
        let mut virtio = vec![Virtio::new(Device::Empty); map::VIRTIO_SLOTS];
        if let Some(disk) = disk {
            virtio[DISK_SLOT].set_device(Device::Block(disk));
        }
        let random = Random::new(config.seed, Stream::Entropy, node as u64);
        virtio[ENTROPY_SLOT].set_device(Device::Entropy(Box::new(random)));
        NodeDevices {
            uart: Uart::default(),
            plic: Plic::new(config.harts_per_node),
            aclint: Aclint::new(config.harts_per_node),
            virtio,
            busy: vec![false; map::VIRTIO_SLOTS],
            life: 0,
            harts: config.harts_per_node,
        }
    }

    /// Resets every device; disk contents stay.
    pub fn reset(&mut self) {
        self.uart.reset();
        self.plic = Plic::new(self.harts);
        self.aclint = Aclint::new(self.harts);
        self.virtio.iter_mut().for_each(Virtio::reset);
        self.cancel();
    }

    /// Whatever the devices were doing never completes.
    pub fn cancel(&mut self) {
        self.busy.fill(false);
        self.life += 1;
    }

    /// Carries the devices' interrupt lines to the PLIC.
    pub fn wire(&mut self) {
        self.plic.set_level(map::UART_IRQ, self.uart.interrupt());
        for (slot, device) in self.virtio.iter().enumerate() {
            self.plic.set_level(map::virtio_irq(slot), device.interrupt());
        }
    }

    /// The node's disk, if it has one.
    pub fn disk(&self) -> Option<&Disk> {
        match self.virtio[DISK_SLOT].device() {
            Device::Block(disk) => Some(disk),
            _ => None,
        }
    }
}
