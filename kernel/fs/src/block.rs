//! Block devices: what a disk driver gives to a file system.

use crate::errno::Result;
use hive_vm::Frame;

/// Bytes of a sector, the unit of addresses and lengths.
pub const SECTOR: usize = 512;

/// A piece of a page frame that takes part in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The frame.
    pub frame: Frame,
    /// First byte in it, a multiple of [`SECTOR`].
    pub offset: usize,
    /// Bytes, a multiple of [`SECTOR`]; offset and length stay within the frame.
    pub len: usize,
}

/// A disk. Transfers sleep until they are done; a failed one is `EIO` and may have been done in
/// part. Many may be under way at once, in any order.
pub trait BlockDevice: Send + Sync {
    /// Size, sectors.
    fn sectors(&self) -> u64;
    /// Reads from `sector` on into the segments, in order (scatter).
    fn read(&self, sector: u64, to: &[Segment]) -> Result<()>;
    /// Writes the segments, in order, from `sector` on (gather). It may stay in the disk's cache.
    fn write(&self, sector: u64, from: &[Segment]) -> Result<()>;
    /// Everything written so far is on the medium when this returns.
    fn flush(&self) -> Result<()>;
}
