//! virtio block device over virtio-mmio, modern interface only (virtio 1.2, §4.2, §5.2).
//!
//! A request is a chain of descriptors: header, data, status. Several are in flight; a thread
//! sleeps until its own is done. Registers are touched by harts of the device's node only.
//!
//! Absent: indirect descriptors, event index, discard, several queues.

use crate::devicetree::Device;
use crate::memory::{self, NoMemory, PAGE, Pa};
use crate::mmio::Mmio;
use crate::plic;
use alloc::boxed::Box;
use alloc::vec::Vec;
use hive_sync::{AtomicU32, SpinLock, WaitQueue, fence, rank};

mod reg {
    pub const MAGIC: u64 = 0x000;
    pub const VERSION: u64 = 0x004;
    pub const DEVICE_ID: u64 = 0x008;
    pub const DEVICE_FEATURES: u64 = 0x010;
    pub const DEVICE_FEATURES_SEL: u64 = 0x014;
    pub const DRIVER_FEATURES: u64 = 0x020;
    pub const DRIVER_FEATURES_SEL: u64 = 0x024;
    pub const QUEUE_SEL: u64 = 0x030;
    pub const QUEUE_NUM_MAX: u64 = 0x034;
    pub const QUEUE_NUM: u64 = 0x038;
    pub const QUEUE_READY: u64 = 0x044;
    pub const QUEUE_NOTIFY: u64 = 0x050;
    pub const INTERRUPT_STATUS: u64 = 0x060;
    pub const INTERRUPT_ACK: u64 = 0x064;
    pub const STATUS: u64 = 0x070;
    pub const QUEUE_DESC: u64 = 0x080;
    pub const QUEUE_DRIVER: u64 = 0x090;
    pub const QUEUE_DEVICE: u64 = 0x0a0;
    pub const CONFIG: u64 = 0x100;
}

const MAGIC: u32 = 0x7472_6976;
const BLOCK: u32 = 2;
const ACKNOWLEDGE: u32 = 1;
const DRIVER: u32 = 2;
const DRIVER_OK: u32 = 4;
const FEATURES_OK: u32 = 8;
const F_VERSION_1: u64 = 1 << 32;
const F_RO: u64 = 1 << 5;
const F_FLUSH: u64 = 1 << 9;

/// Bytes of a sector: the unit of addresses, whatever the disk's block size.
pub const SECTOR: u64 = 512;
/// Descriptors of the queue: at three each, 21 requests of one piece in flight.
const QUEUE: u16 = 64;
/// Most pieces of memory in one request.
pub const PIECES: usize = 16;

const NEXT: u16 = 1;
const DEVICE_WRITES: u16 = 2;

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// The device says so, or it gave nonsense.
    Io,
    /// Beyond the end, or an odd length: the caller's mistake.
    Range,
    /// The disk is read-only, or does not do this.
    Unsupported,
}

/// What to do with the sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// From disk to memory.
    Read,
    /// From memory to disk.
    Write,
    /// Make all writes so far durable.
    Flush,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    addr: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// One page of memory that the device reads and writes too: descriptors, rings, headers, status.
#[repr(C, align(4096))]
struct Shared {
    descriptors: [Descriptor; QUEUE as usize],
    available_flags: u16,
    available_index: u16,
    available: [u16; QUEUE as usize],
    available_event: u16,
    pad: u16,
    used_flags: u16,
    used_index: u16,
    used: [(u32, u32); QUEUE as usize],
    used_event: u16,
    headers: [Header; QUEUE as usize],
    status: [u8; QUEUE as usize],
}
const _: () = assert!(size_of::<Shared>() <= PAGE as usize);
const _: () = assert!(core::mem::offset_of!(Shared, used_flags).is_multiple_of(4));

#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    kind: u32,
    reserved: u32,
    sector: u64,
}

const STATUS_PENDING: u8 = 0xff;

struct Queue {
    shared: *mut Shared,
    free: Vec<u16>,
    seen: u16,
}

// SAFETY: `shared` is reached under the queue's lock only, and by the device.
unsafe impl Send for Queue {}

/// Requests by head descriptor: 0 none, 1 in flight, 2 + status when done.
struct Done([AtomicU32; QUEUE as usize]);
const IN_FLIGHT: u32 = 1;
const DONE: u32 = 2;

/// A disk.
pub struct Disk {
    regs: Mmio,
    device: Device,
    sectors: u64,
    features: u64,
    queue: SpinLock<Queue>,
    done: Done,
    /// Waiting for a request to end.
    finished: WaitQueue,
    /// Waiting for descriptors.
    room: WaitQueue,
}

impl Disk {
    /// Starts the device in the slot `device`, of a node of this cell: `None` if the slot is
    /// empty, holds something else, or a legacy device.
    pub fn start(device: Device) -> Result<Option<&'static Disk>, NoMemory> {
        plic::call_on_node(device.node, move || Disk::start_here(device))
    }

    fn start_here(device: Device) -> Result<Option<&'static Disk>, NoMemory> {
        // SAFETY: the device tree says that a virtio-mmio slot is there.
        let regs = unsafe { Mmio::new(device.base, device.size) };
        if regs.read32(reg::MAGIC) != MAGIC || regs.read32(reg::DEVICE_ID) != BLOCK {
            return Ok(None);
        }
        if regs.read32(reg::VERSION) != 2 {
            crate::println!("disk at {:#x}: legacy virtio, not supported", device.base.0);
            return Ok(None);
        }
        regs.write32(reg::STATUS, 0);
        regs.write32(reg::STATUS, ACKNOWLEDGE | DRIVER);
        let features = negotiate(&regs);
        let Some(features) = features else { return Ok(None) };
        let shared = memory::alloc_zeroed()?;
        regs.write32(reg::QUEUE_SEL, 0);
        if regs.read32(reg::QUEUE_NUM_MAX) < QUEUE.into() {
            crate::println!("disk at {:#x}: queue too short", device.base.0);
            return Ok(None);
        }
        regs.write32(reg::QUEUE_NUM, QUEUE.into());
        let addresses = [
            (reg::QUEUE_DESC, 0),
            (reg::QUEUE_DRIVER, core::mem::offset_of!(Shared, available_flags)),
            (reg::QUEUE_DEVICE, core::mem::offset_of!(Shared, used_flags)),
        ];
        for (at, offset) in addresses {
            let address = shared.0 + offset as u64;
            regs.write32(at, address as u32);
            regs.write32(at + 4, (address >> 32) as u32);
        }
        regs.write32(reg::QUEUE_READY, 1);
        regs.write32(reg::STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
        let config = |at| u64::from(regs.read32(reg::CONFIG + at));
        let disk = Box::leak(Box::new(Disk {
            regs,
            device,
            sectors: config(0) | config(4) << 32,
            features,
            queue: SpinLock::ranked(
                rank::DEVICE,
                Queue {
                    shared: memory::direct(shared).cast(),
                    free: (0..QUEUE).rev().collect(),
                    seen: 0,
                },
            ),
            done: Done([const { AtomicU32::new(0) }; QUEUE as usize]),
            finished: WaitQueue::new(),
            room: WaitQueue::new(),
        }));
        plic::register_device(device, disk);
        Ok(Some(disk))
    }

    /// Sectors of the disk.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Node the disk belongs to.
    pub fn node(&self) -> usize {
        self.device.node
    }

    /// True if writes are refused.
    pub fn read_only(&self) -> bool {
        self.features & F_RO != 0
    }

    /// Moves whole sectors between the disk, from `sector` on, and the pieces of physical memory
    /// `(start, bytes)`, in order. Sleeps until it is done.
    ///
    /// # Safety
    /// For [`Op::Read`], the pieces must be memory that nobody else reads or writes meanwhile.
    pub unsafe fn transfer(
        &self,
        op: Op,
        sector: u64,
        pieces: &[(Pa, u32)],
    ) -> Result<(), DiskError> {
        self.check(op, sector, pieces)?;
        if op == Op::Flush && self.features & F_FLUSH == 0 {
            return Ok(()); // the device has no cache to flush
        }
        let need = pieces.len() + 2;
        let head = self.room.wait_until(|| {
            let mut queue = self.queue.lock();
            (queue.free.len() >= need).then(|| self.submit(&mut queue, op, sector, pieces))
        });
        self.notify();
        let slot = &self.done.0[usize::from(head)];
        let status = self.finished.wait_until(|| slot.load().checked_sub(DONE));
        slot.store(0);
        self.recycle(head);
        match status {
            0 => Ok(()),
            2 => Err(DiskError::Unsupported),
            _ => Err(DiskError::Io),
        }
    }

    /// Reads sectors into `buffer`, by way of a frame of its own.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let frame = memory::alloc_frame().map_err(|_| DiskError::Io)?;
        let mut at = sector;
        let mut result = Ok(());
        for chunk in buffer.chunks_mut(PAGE as usize) {
            // SAFETY: the frame is ours and no reference into it exists.
            result = unsafe { self.transfer(Op::Read, at, &[(frame, chunk.len() as u32)]) };
            if result.is_err() {
                break;
            }
            // SAFETY: as above; the device is done with it.
            unsafe {
                memory::with_frame(frame, |bytes| chunk.copy_from_slice(&bytes[..chunk.len()]));
            }
            at += chunk.len() as u64 / SECTOR;
        }
        memory::free_frame(frame);
        result
    }

    fn check(&self, op: Op, sector: u64, pieces: &[(Pa, u32)]) -> Result<(), DiskError> {
        let bytes: u64 = pieces.iter().map(|p| u64::from(p.1)).sum();
        let end = sector.checked_add(bytes / SECTOR).ok_or(DiskError::Range)?;
        let whole = bytes.is_multiple_of(SECTOR) && pieces.iter().all(|p| p.1 > 0);
        if pieces.len() > PIECES || !whole || end > self.sectors {
            return Err(DiskError::Range);
        }
        if op == Op::Write && self.read_only() {
            return Err(DiskError::Unsupported);
        }
        if (op == Op::Flush) == pieces.is_empty() { Ok(()) } else { Err(DiskError::Range) }
    }

    /// Builds the chain and makes it available. The queue has room.
    fn submit(&self, queue: &mut Queue, op: Op, sector: u64, pieces: &[(Pa, u32)]) -> u16 {
        let at = queue.free.len() - (pieces.len() + 2);
        let chain = queue.free.split_off(at);
        let head = chain[0];
        let h = usize::from(head);
        let shared = queue.shared;
        self.done.0[h].store(IN_FLIGHT);
        let kind = match op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush => 4,
        };
        // SAFETY: `shared` is a frame of ours; the descriptors and the slot `h` are free, so the
        // device does not look at them. Places are computed without making references.
        unsafe {
            let header = &raw mut (*shared).headers[h];
            header.write_volatile(Header { kind, reserved: 0, sector });
            let status = &raw mut (*shared).status[h];
            status.write_volatile(STATUS_PENDING);
            let base = memory::pa_of(shared.cast()).map_or(0, |pa| pa.0);
            let pa = |p: *const u8| base + (p.addr() - shared.addr()) as u64;
            let flags = if op == Op::Read { DEVICE_WRITES } else { 0 };
            let first = (pa(header.cast()), size_of::<Header>() as u32, 0);
            let last = (pa(status), 1, DEVICE_WRITES);
            let data = pieces.iter().map(|&(p, len)| (p.0, len, flags));
            let all = core::iter::once(first).chain(data).chain(core::iter::once(last));
            for (i, (addr, len, flags)) in all.enumerate() {
                let next = chain.get(i + 1).copied();
                let flags = flags | if next.is_some() { NEXT } else { 0 };
                let next = next.unwrap_or(0);
                (&raw mut (*shared).descriptors[usize::from(chain[i])])
                    .write_volatile(Descriptor { addr, len, flags, next });
            }
            let index = (&raw const (*shared).available_index).read_volatile();
            (&raw mut (*shared).available[usize::from(index % QUEUE)]).write_volatile(head);
            fence();
            (&raw mut (*shared).available_index).write_volatile(index.wrapping_add(1));
            fence();
        }
        head
    }

    fn notify(&self) {
        let regs = self.regs;
        plic::run_on_node(self.device.node, move || regs.write32(reg::QUEUE_NOTIFY, 0));
    }

    /// Gives the descriptors of the finished chain at `head` back.
    fn recycle(&self, head: u16) {
        let mut queue = self.queue.lock();
        let mut at = head;
        loop {
            queue.free.push(at);
            // SAFETY: the chain is ours until its descriptors are used again; only this driver
            // writes descriptors.
            let d = unsafe {
                (&raw const (*queue.shared).descriptors[usize::from(at)]).read_volatile()
            };
            if d.flags & NEXT == 0 {
                break;
            }
            at = d.next;
        }
        drop(queue);
        self.room.wake_all();
    }
}

impl plic::Interrupt for Disk {
    fn interrupt(&self) {
        // Acknowledge first: what comes after it interrupts again.
        let status = self.regs.read32(reg::INTERRUPT_STATUS);
        self.regs.write32(reg::INTERRUPT_ACK, status);
        let mut queue = self.queue.lock();
        let shared = queue.shared;
        loop {
            fence();
            // SAFETY: the used ring is written by the device, so read as volatile.
            let used = unsafe { (&raw const (*shared).used_index).read_volatile() };
            if used == queue.seen {
                break;
            }
            fence();
            let at = usize::from(queue.seen % QUEUE);
            // SAFETY: as above.
            let (head, _) = unsafe { (&raw const (*shared).used[at]).read_volatile() };
            queue.seen = queue.seen.wrapping_add(1);
            let Some(slot) = self.done.0.get(head as usize) else { continue };
            // SAFETY: as above; `head` is in range.
            let status = unsafe { (&raw const (*shared).status[head as usize]).read_volatile() };
            // A device that names a chain that is not in flight is ignored.
            let _ = slot.compare_exchange(IN_FLIGHT, DONE + u32::from(status));
        }
        drop(queue);
        self.finished.wake_all();
    }
}

/// Settles features; `None` (said on the console) if the device wants what we lack.
fn negotiate(regs: &Mmio) -> Option<u64> {
    let mut offered = 0;
    for half in 0..2u32 {
        regs.write32(reg::DEVICE_FEATURES_SEL, half);
        offered |= u64::from(regs.read32(reg::DEVICE_FEATURES)) << (half * 32);
    }
    let wanted = offered & (F_VERSION_1 | F_RO | F_FLUSH);
    for half in 0..2u32 {
        regs.write32(reg::DRIVER_FEATURES_SEL, half);
        regs.write32(reg::DRIVER_FEATURES, (wanted >> (half * 32)) as u32);
    }
    regs.write32(reg::STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK);
    let agreed = regs.read32(reg::STATUS) & FEATURES_OK != 0 && wanted & F_VERSION_1 != 0;
    if !agreed {
        crate::println!("disk: features {offered:#x} not acceptable");
    }
    agreed.then_some(wanted)
}
