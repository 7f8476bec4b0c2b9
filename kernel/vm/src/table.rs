//! [`PageTable`]: what an address space asks of the hardware's page tables.

use crate::types::{Error, Frame, Prot};

/// The page table of one address space. The kernel implements it over Sv39, host tests over a map.
/// Addresses are virtual, in bytes, multiples of the page size, below 2^38.
/// The address space calls it under its own lock, so calls never overlap; harts that run the
/// process walk the table all the time.
///
/// No right goes stale unseen: after [`PageTable::take`], [`PageTable::restrict`], or a
/// [`PageTable::map`] over an entry that is there, harts may still use the old entry until
/// [`PageTable::flush`] of that address returns; frames are reused only after that.
pub trait PageTable: Send {
    /// Maps the page at `va` to `frame`, whatever was there. The entry is marked accessed, and
    /// dirty if writable, from the start (Svade: the walker would fault otherwise). Rights are
    /// never empty; WRITE comes with READ.
    ///
    /// Error: [`Error::NoMemory`] if a table needs a frame and there is none; nothing changed.
    fn map(&mut self, va: u64, frame: Frame, prot: Prot) -> Result<(), Error>;

    /// The entry at `va`.
    fn get(&self, va: u64) -> Option<(Frame, Prot)>;

    /// Removes the first entry in `[from, to)` and returns its address, frame and rights. Skips
    /// what is not there quickly: ranges may be the whole address space.
    fn take(&mut self, from: u64, to: u64) -> Option<(u64, Frame, Prot)>;

    /// Takes the rights that are not in `allow` from every entry in `[from, to)`. `allow` has READ.
    fn restrict(&mut self, from: u64, to: u64, allow: Prot);

    /// Returns when no hart uses an old entry of `[from, to)` any more.
    fn flush(&mut self, from: u64, to: u64);
}
