//! A split virtqueue seen from the device (virtio 1.2 §2.7). The rings are the guest's and may
//! hold anything: a walk is bounded by the queue size, every address goes through [`Dma`], and
//! what makes no sense is [`Broken`], on which the device asks to be reset.

use crate::dev::Dma;

/// Most entries of a queue.
pub const SIZE_MAX: u16 = 256;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const NO_INTERRUPT: u16 = 1;

/// The rings cannot be used: bad address, index or chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// One piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Guest address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Whether it is for the device to write.
    pub writable: bool,
}

/// A request: its first descriptor's index and its pieces in order.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Index to give back in the used ring.
    pub head: u16,
    /// At most the queue size of them.
    pub buffers: Vec<Buffer>,
}

/// Registers and positions of one queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Entries (QueueNum).
    pub size: u16,
    /// QueueReady.
    pub ready: bool,
    /// Address of the descriptor table.
    pub descriptors: u64,
    /// Address of the available ring.
    pub available: u64,
    /// Address of the used ring.
    pub used: u64,
    next_available: u16,
    next_used: u16,
}

fn read<const N: usize>(dma: &mut dyn Dma, address: u64) -> Result<[u8; N], Broken> {
    let mut bytes = [0; N];
    dma.read(address, &mut bytes).map_err(|_| Broken)?;
    Ok(bytes)
}

fn read_u16(dma: &mut dyn Dma, address: u64) -> Result<u16, Broken> {
    read(dma, address).map(u16::from_le_bytes)
}

impl Queue {
    /// Whether the registers describe a queue that can be walked.
    pub fn valid(&self) -> bool {
        self.size != 0 && self.size <= SIZE_MAX && self.size.is_power_of_two()
    }

    /// Takes the next request, if there is one.
    ///
    /// # Errors
    /// If the rings make no sense.
    pub fn pop(&mut self, dma: &mut dyn Dma) -> Result<Option<Chain>, Broken> {
        if !self.ready {
            return Ok(None);
        }
        if !self.valid() {
            return Err(Broken);
        }
        let index = read_u16(dma, self.available.checked_add(2).ok_or(Broken)?)?;
        let waiting = index.wrapping_sub(self.next_available);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.size {
            return Err(Broken);
        }
        let slot = u64::from(self.next_available % self.size);
        let head = read_u16(dma, self.available.checked_add(4 + 2 * slot).ok_or(Broken)?)?;
        let mut buffers = Vec::new();
        let mut at = head;
        loop {
            if at >= self.size || buffers.len() >= usize::from(self.size) {
                return Err(Broken);
            }
            let entry = self.descriptors.checked_add(u64::from(at) * 16).ok_or(Broken)?;
            let raw: [u8; 16] = read(dma, entry)?;
            let field = u128::from_le_bytes(raw);
            let flags = (field >> 96) as u16;
            if flags & INDIRECT != 0 {
                return Err(Broken);
            }
            buffers.push(Buffer {
                address: field as u64,
                len: (field >> 64) as u32,
                writable: flags & WRITE != 0,
            });
            if flags & NEXT == 0 {
                break;
            }
            at = (field >> 112) as u16;
        }
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(Chain { head, buffers }))
    }

    /// Gives request `head` back with `written` bytes; true if the guest wants an interrupt.
    ///
    /// # Errors
    /// If the used ring cannot be written.
    pub fn push(&mut self, dma: &mut dyn Dma, head: u16, written: u32) -> Result<bool, Broken> {
        let slot = u64::from(self.next_used % self.size.max(1));
        let mut entry = [0; 8];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&written.to_le_bytes());
        let at = self.used.checked_add(4 + 8 * slot).ok_or(Broken)?;
        dma.write(at, &entry).map_err(|_| Broken)?;
        self.next_used = self.next_used.wrapping_add(1);
        let at = self.used.checked_add(2).ok_or(Broken)?;
        dma.write(at, &self.next_used.to_le_bytes()).map_err(|_| Broken)?;
        Ok(read_u16(dma, self.available)? & NO_INTERRUPT == 0)
    }
}
