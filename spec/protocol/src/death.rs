//! The death record: what a cell that panics leaves in its memory. Fixed size, no allocation.
//!
//! Written field by field with plain stores; [`DeathRecord::tag`] last, so a record that was cut
//! short is not taken for a whole one. A panic inside the panic handler must not destroy the
//! first record: it only counts up [`DeathRecord::recursion`] (and, if the tag is not there yet,
//! completes the record as it stands). Readable from outside by physical address, by other cells
//! (until cutoff), by gdb and by the simulator's report.

use core::mem::{offset_of, size_of};

use crate::TypeTag;

/// Why a cell died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Cause {
    /// An assertion of our own failed, or a Rust panic.
    Panic = 1,
    /// A trap in the kernel outside careful reference and user copies.
    KernelTrap = 2,
    /// Kernel stack overflow.
    StackOverflow = 3,
    /// One of the cell's nodes or harts failed while others still run.
    PartFailed = 4,
    /// The others agreed that this cell has failed.
    Convicted = 5,
    /// Asked for (fault injection, administrator).
    Requested = 6,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 6] = [
        Cause::Panic,
        Cause::KernelTrap,
        Cause::StackOverflow,
        Cause::PartFailed,
        Cause::Convicted,
        Cause::Requested,
    ];

    /// The word used on consoles.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Panic => "panic",
            Cause::KernelTrap => "kernel-trap",
            Cause::StackOverflow => "stack-overflow",
            Cause::PartFailed => "part-failed",
            Cause::Convicted => "convicted",
            Cause::Requested => "requested",
        }
    }

    /// The cause with this number.
    pub fn from_number(n: u64) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| *cause as u64 == n)
    }

    /// The cause with this name.
    pub fn from_name(name: &str) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

/// Return addresses kept.
pub const BACKTRACE: usize = 16;
/// Bytes of message kept.
pub const MESSAGE: usize = 192;

/// The record, as it stands in the death page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DeathRecord {
    /// [`TypeTag::DeathRecord`] once the record is whole.
    pub tag: u64,
    /// [`crate::message::VERSION`].
    pub version: u64,
    /// The cell.
    pub cell: u64,
    /// Its life.
    pub incarnation: u64,
    /// The hart, machine-wide number.
    pub hart: u64,
    /// `time` CSR.
    pub time: u64,
    /// `cycle` CSR.
    pub cycle: u64,
    /// A [`Cause`].
    pub cause: u64,
    /// `scause` of the trap, or 0.
    pub scause: u64,
    /// `stval` of the trap, or 0.
    pub stval: u64,
    /// Epoch of the cell's live set.
    pub epoch: u64,
    /// Live set.
    pub live: u64,
    /// Process that ran on the hart, or 0.
    pub pid: u64,
    /// Further panics while handling this one.
    pub recursion: u64,
    /// `pc`, then x1 to x31.
    pub registers: [u64; 32],
    /// Return addresses, innermost first, 0-terminated.
    pub backtrace: [u64; BACKTRACE],
    /// What was to be said, cut to fit, zero-padded UTF-8.
    pub message: [u8; MESSAGE],
}

const _: () = {
    assert!(offset_of!(DeathRecord, registers) == 112);
    assert!(offset_of!(DeathRecord, backtrace) == 368);
    assert!(offset_of!(DeathRecord, message) == 496);
    assert!(size_of::<DeathRecord>() == 688);
    assert!(size_of::<DeathRecord>() <= hive_platform::PAGE_SIZE as usize);
};

impl DeathRecord {
    /// An empty record: no tag.
    pub const EMPTY: DeathRecord = DeathRecord {
        tag: 0,
        version: crate::message::VERSION as u64,
        cell: 0,
        incarnation: 0,
        hart: 0,
        time: 0,
        cycle: 0,
        cause: 0,
        scause: 0,
        stval: 0,
        epoch: 0,
        live: 0,
        pid: 0,
        recursion: 0,
        registers: [0; 32],
        backtrace: [0; BACKTRACE],
        message: [0; MESSAGE],
    };

    /// Reads a record from memory; `None` if there is none, or not a whole one.
    pub fn from_bytes(bytes: &[u8]) -> Option<DeathRecord> {
        let mut words = bytes.chunks_exact(8).map(|chunk| {
            let mut le = [0; 8];
            le.copy_from_slice(chunk);
            u64::from_le_bytes(le)
        });
        let mut next = || words.next();
        let mut record = DeathRecord::EMPTY;
        let head: [&mut u64; 14] = [
            &mut record.tag,
            &mut record.version,
            &mut record.cell,
            &mut record.incarnation,
            &mut record.hart,
            &mut record.time,
            &mut record.cycle,
            &mut record.cause,
            &mut record.scause,
            &mut record.stval,
            &mut record.epoch,
            &mut record.live,
            &mut record.pid,
            &mut record.recursion,
        ];
        for field in head.into_iter().chain(&mut record.registers).chain(&mut record.backtrace) {
            *field = next()?;
        }
        let start = offset_of!(DeathRecord, message);
        record.message.copy_from_slice(bytes.get(start..start + MESSAGE)?);
        let whole = record.tag == TypeTag::DeathRecord.word()
            && record.version == crate::message::VERSION as u64
            && Cause::from_number(record.cause).is_some();
        whole.then_some(record)
    }

    /// What was to be said, as far as it is text.
    pub fn message(&self) -> &str {
        let used = self.message.iter().position(|byte| *byte == 0).unwrap_or(MESSAGE);
        let text = self.message.get(..used).unwrap_or(&[]);
        match core::str::from_utf8(text) {
            Ok(text) => text,
            // Cut in the middle of a character.
            Err(e) => {
                core::str::from_utf8(text.get(..e.valid_up_to()).unwrap_or(&[])).unwrap_or("")
            }
        }
    }
}

/// Formats into a [`DeathRecord::message`] and drops what does not fit: usable in a panic.
pub struct MessageWriter<'a> {
    left: &'a mut [u8],
}

impl<'a> MessageWriter<'a> {
    /// Writes to the start of `message`.
    pub fn new(message: &'a mut [u8; MESSAGE]) -> Self {
        MessageWriter { left: message }
    }
}

impl core::fmt::Write for MessageWriter<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let fits = text.len().min(self.left.len());
        let (now, later) = core::mem::take(&mut self.left).split_at_mut(fits);
        now.copy_from_slice(text.as_bytes().get(..fits).unwrap_or(&[]));
        self.left = later;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn a_record_is_read_from_bytes_and_only_when_whole() {
        let mut bytes = [0u8; size_of::<DeathRecord>()];
        for (i, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&(i as u64).to_le_bytes());
        }
        bytes[..8].copy_from_slice(b"HIVEDIED");
        bytes[8] = crate::message::VERSION;
        bytes[7 * 8] = Cause::KernelTrap as u8;
        bytes[496..].fill(0);
        bytes[496..501].copy_from_slice(b"wild\xc3");
        let record = DeathRecord::from_bytes(&bytes).unwrap();
        assert_eq!((record.cell, record.recursion), (2, 13));
        assert_eq!((record.registers[0], record.backtrace[15]), (14, 61));
        assert_eq!(record.message(), "wild");
        assert_eq!(DeathRecord::from_bytes(&bytes[..400]), None);
        bytes[0] = 0;
        assert_eq!(DeathRecord::from_bytes(&bytes), None);
    }

    #[test]
    fn a_long_message_is_cut() {
        let mut record = DeathRecord::EMPTY;
        let mut writer = MessageWriter::new(&mut record.message);
        for _ in 0..100 {
            write!(writer, "0123456789").unwrap();
        }
        assert_eq!(record.message().len(), MESSAGE);
    }
}
