//! virtio over MMIO, version 2 (virtio 1.2 §4.2.2), with one block or entropy device per slot.
//!
//! A notification does no work: the bus schedules [`Virtio::serve`] some simulated time later,
//! which handles one request. Absent: the legacy interface, indirect descriptors, event indexes,
//! packed rings (none is offered).

pub mod blk;
pub mod queue;

use super::Dma;
use super::disk::Disk;
use crate::seed::Random;
use queue::{Broken, Queue, SIZE_MAX};

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"HIVE");
/// VIRTIO_F_VERSION_1.
const VERSION_1: u64 = 1 << 32;
const STATUS_FEATURES_OK: u32 = 8;
const STATUS_DRIVER_OK: u32 = 4;
const STATUS_NEEDS_RESET: u32 = 0x40;
const INTERRUPT_USED: u32 = 1;
const INTERRUPT_CONFIG: u32 = 2;
/// Most bytes of entropy given to one request.
const ENTROPY_MAX: usize = 64 << 10;

/// What is in a slot.
#[derive(Clone)]
pub enum Device {
    /// Nothing (device id 0).
    Empty,
    /// A disk.
    Block(Disk),
    /// A source of entropy.
    Entropy(Box<Random>),
}

/// One slot.
#[derive(Clone)]
pub struct Virtio {
    device: Device,
    device_features_select: u32,
    driver_features_select: u32,
    driver_features: u64,
    status: u32,
    interrupt: u32,
    queue_select: u32,
    queue: Queue,
}

impl Virtio {
    /// A slot with `device` in it, in reset.
    pub fn new(device: Device) -> Virtio {
        Virtio {
            device,
            device_features_select: 0,
            driver_features_select: 0,
            driver_features: 0,
            status: 0,
            interrupt: 0,
            queue_select: 0,
            queue: Queue::default(),
        }
    }

    /// What is in the slot.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Puts something else into the slot; the transport is reset.
    pub fn set_device(&mut self, device: Device) {
        *self = Virtio::new(device);
    }

    /// Device reset: what is on the disk stays.
    pub fn reset(&mut self) {
        let device = std::mem::replace(&mut self.device, Device::Empty);
        *self = Virtio::new(device);
    }

    /// The interrupt line.
    pub fn interrupt(&self) -> bool {
        self.interrupt != 0
    }

    fn features(&self) -> u64 {
        VERSION_1 | if let Device::Block(_) = self.device { blk::FEATURES } else { 0 }
    }

    fn device_id(&self) -> u32 {
        match self.device {
            Device::Empty => 0,
            Device::Block(_) => 2,
            Device::Entropy(_) => 4,
        }
    }

    /// Reads `size` bytes at `offset` of the slot.
    pub fn read(&self, offset: u64, size: usize) -> Option<u64> {
        if offset >= 0x100 {
            let space = match &self.device {
                Device::Block(disk) => blk::config(disk),
                _ => [0; 24],
            };
            let mut value = [0; 8];
            for (i, byte) in value.iter_mut().enumerate().take(size) {
                *byte = space.get(offset as usize - 0x100 + i).copied().unwrap_or(0);
            }
            return Some(u64::from_le_bytes(value));
        }
        if size != 4 {
            return None;
        }
        let first_queue = self.queue_select == 0 && !matches!(self.device, Device::Empty);
        let value = match offset {
            0x000 => MAGIC,
            0x004 => VERSION,
            0x008 => self.device_id(),
            0x00c => VENDOR,
            0x010 => match self.device_features_select {
                0 => self.features() as u32,
                1 => (self.features() >> 32) as u32,
                _ => 0,
            },
            0x034 if first_queue => u32::from(SIZE_MAX),
            0x044 if first_queue => u32::from(self.queue.ready),
            0x060 => self.interrupt,
            0x070 => self.status,
            // No shared memory regions (all ones), configuration never changes.
            0x0b0 | 0x0b4 | 0x0b8 | 0x0bc => u32::MAX,
            _ => 0,
        };
        Some(u64::from(value))
    }

    /// Writes `size` bytes at `offset`; true if there may be requests to [`Virtio::serve`].
    pub fn write(&mut self, offset: u64, size: usize, value: u64) -> Option<bool> {
        if offset >= 0x100 {
            return Some(false);
        }
        if size != 4 {
            return None;
        }
        let value = value as u32;
        let first_queue = self.queue_select == 0;
        let halves = |register: &mut u64, high: bool| {
            if high {
                *register = *register & 0xffff_ffff | u64::from(value) << 32;
            } else {
                *register = *register & !0xffff_ffff | u64::from(value);
            }
        };
        match offset {
            0x014 => self.device_features_select = value,
            0x020 => match self.driver_features_select {
                0 => halves(&mut self.driver_features, false),
                1 => halves(&mut self.driver_features, true),
                _ => {}
            },
            0x024 => self.driver_features_select = value,
            0x030 => self.queue_select = value,
            0x038 if first_queue && !self.queue.ready => {
                self.queue.size = u16::try_from(value).unwrap_or(0);
            }
            0x044 if first_queue => self.queue.ready = value & 1 != 0,
            0x050 => return Some(value == 0 && self.running()),
            0x064 => self.interrupt &= !value,
            0x070 => self.set_status(value),
            0x080 | 0x084 if first_queue => halves(&mut self.queue.descriptors, offset & 4 != 0),
            0x090 | 0x094 if first_queue => halves(&mut self.queue.available, offset & 4 != 0),
            0x0a0 | 0x0a4 if first_queue => halves(&mut self.queue.used, offset & 4 != 0),
            _ => {}
        }
        Some(false)
    }

    fn set_status(&mut self, value: u32) {
        if value == 0 {
            self.reset();
            return;
        }
        self.status = value & !STATUS_NEEDS_RESET | self.status & STATUS_NEEDS_RESET;
        let unknown = self.driver_features & !self.features() != 0;
        if unknown || self.driver_features & VERSION_1 == 0 {
            self.status &= !STATUS_FEATURES_OK;
        }
    }

    fn running(&self) -> bool {
        self.status & (STATUS_DRIVER_OK | STATUS_NEEDS_RESET) == STATUS_DRIVER_OK
    }

    /// Serves one request, if there is one; true if there may be more.
    pub fn serve(&mut self, dma: &mut dyn Dma) -> bool {
        if !self.running() {
            return false;
        }
        match self.serve_one(dma) {
            Ok(more) => more,
            Err(Broken) => {
                self.status |= STATUS_NEEDS_RESET;
                self.interrupt |= INTERRUPT_CONFIG;
                false
            }
        }
    }

    fn serve_one(&mut self, dma: &mut dyn Dma) -> Result<bool, Broken> {
        let Some(chain) = self.queue.pop(dma)? else { return Ok(false) };
        let written = match &mut self.device {
            Device::Empty => 0,
            Device::Block(disk) => blk::serve(disk, dma, &chain),
            Device::Entropy(random) => {
                let mut total = 0;
                for buffer in chain.buffers.iter().filter(|b| b.writable) {
                    let n = (buffer.len as usize).min(ENTROPY_MAX - total);
                    let mut bytes = vec![0; n];
                    random.fill(&mut bytes);
                    dma.write(buffer.address, &bytes).map_err(|_| Broken)?;
                    total += n;
                }
                total as u32
            }
        };
        if self.queue.push(dma, chain.head, written)? {
            self.interrupt |= INTERRUPT_USED;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
