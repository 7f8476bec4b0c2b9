//! Devices. Each is a state machine without access to anything but its own registers; the bus
//! hands it what else it needs (a [`Dma`] view of memory, the time) and carries its interrupt
//! line. A register access that a device does not define is [`None`]: the bus turns it into an
//! access fault or, where hardware ignores it, the device answers 0.

pub mod aclint;
pub mod disk;
pub mod plic;
pub mod rtc;
pub mod uart;
pub mod virtio;

/// Why a device could not reach memory: no memory there, failed node, cutoff, or firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaError;

/// Memory as a node's devices see it: every write is checked against the firewall as if one of
/// the node's harts had done it (DESIGN §3).
pub trait Dma {
    /// Reads `buf.len()` bytes at `address`.
    ///
    /// # Errors
    /// If any of them cannot be read; `buf` is then unspecified.
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), DmaError>;
    /// Writes `data` at `address`, page by page.
    ///
    /// # Errors
    /// At the first page that cannot be written; earlier pages stay written.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DmaError>;
}
