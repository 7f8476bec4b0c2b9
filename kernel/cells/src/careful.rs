//! Careful reference (Hive §4.1), as far as it needs no hardware: a pointer into another cell's
//! memory is an allegation. [`Foreign`] has no `Deref`; it is made only from an address that is
//! aligned and lies in the DRAM of the cell it is said to belong to, and reading it copies the
//! object first and checks the copy.
//!
//! The copy itself, with recovery from access faults, is the hardware layer's: [`Memory`].

use core::marker::PhantomData;

use hive_protocol::membership::Reason;
use hive_protocol::rpc::Reference;
use hive_protocol::{CellId, TypeTag};

use crate::hint::Hint;

/// Reads physical memory of other cells between `careful_on` and `careful_off`.
pub trait Memory {
    /// Copies words from the 8-byte aligned physical address `from`.
    ///
    /// # Errors
    /// [`Fault`] if an access faulted; `to` then holds anything.
    fn copy(&self, from: u64, to: &mut [u64]) -> Result<(), Fault>;
}

/// An access to another cell's memory faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The physical address.
    pub address: u64,
}

/// The DRAM of a cell, from the device tree: never from what the cell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dram {
    /// Whose it is.
    pub cell: CellId,
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

impl Dram {
    /// Whether `length` bytes from `address` lie in it.
    pub const fn contains(&self, address: u64, length: u64) -> bool {
        match (address.checked_sub(self.base), address.checked_add(length)) {
            // The end of the range cannot pass the end of the DRAM, which does not wrap.
            (Some(offset), Some(_)) => offset <= self.size && length <= self.size - offset,
            _ => false,
        }
    }
}

/// Why a foreign object was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// An access faulted.
    Fault(Fault),
    /// The address is not aligned for the object.
    Unaligned,
    /// The address lies outside the DRAM of the expected cell.
    Outside,
    /// The object does not carry the tag of its type.
    Tag,
    /// A field of the copy is impossible.
    Value,
    /// A chain of pointers is longer than it can be: it has a loop.
    Endless,
}

impl Bad {
    /// The failure hint that it amounts to.
    pub const fn hint(self, accused: CellId) -> Hint {
        match self {
            Bad::Fault(Fault { address }) => Hint { accused, reason: Reason::BusError, address },
            _ => Hint { accused, reason: Reason::FailedCheck, address: 0 },
        }
    }
}

/// A kernel object that other cells may read. Its first word is its type tag.
pub trait Published: Sized {
    /// The tag.
    const TAG: TypeTag;
    /// Size in words, the tag included; at most [`MAX_WORDS`].
    const WORDS: usize;

    /// Makes the object from a copy whose tag was checked; `None` if a field is impossible.
    fn from_words(words: &[u64]) -> Option<Self>;
}

/// Largest published object in words: it is copied onto the stack.
pub const MAX_WORDS: usize = 64;

/// The address of a `T` in another cell's memory. Holding one proves that the address is aligned
/// and lies in that cell's DRAM, and nothing more.
#[derive(Debug, PartialEq, Eq)]
pub struct Foreign<T> {
    cell: CellId,
    address: u64,
    of: PhantomData<T>,
}

impl<T> Clone for Foreign<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Foreign<T> {}

impl<T: Published> Foreign<T> {
    /// Takes an address that some cell alleges to be that of a `T` of the cell that owns `dram`.
    ///
    /// # Errors
    /// [`Bad::Unaligned`], [`Bad::Outside`].
    pub const fn new(dram: &Dram, address: u64) -> Result<Self, Bad> {
        const { assert!(T::WORDS >= 1 && T::WORDS <= MAX_WORDS) };
        if !address.is_multiple_of(8) {
            return Err(Bad::Unaligned);
        }
        if !dram.contains(address, (T::WORDS * 8) as u64) {
            return Err(Bad::Outside);
        }
        Ok(Foreign { cell: dram.cell, address, of: PhantomData })
    }

    /// Whose memory it points into.
    pub const fn cell(self) -> CellId {
        self.cell
    }

    /// The physical address.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Copies the object, then checks the copy.
    ///
    /// # Errors
    /// [`Bad::Fault`], [`Bad::Tag`], [`Bad::Value`].
    pub fn read(self, memory: &impl Memory) -> Result<T, Bad> {
        let mut copy = [0; MAX_WORDS];
        let copy = &mut copy[..T::WORDS];
        memory.copy(self.address, copy).map_err(Bad::Fault)?;
        if copy.first() != Some(&T::TAG.word()) {
            return Err(Bad::Tag);
        }
        T::from_words(copy).ok_or(Bad::Value)
    }
}

/// Follows a chain of foreign objects of at most `limit` links: `next` says where to go on from
/// an object (an unchecked address and the DRAM it must lie in), or `None` at the end.
///
/// # Errors
/// Whatever is wrong with a link; [`Bad::Endless`] beyond `limit`. With the cell to blame.
pub fn walk<T: Published>(
    memory: &impl Memory,
    start: Foreign<T>,
    limit: usize,
    mut next: impl FnMut(&T) -> Option<(Dram, u64)>,
) -> Result<(), (CellId, Bad)> {
    let mut at = start;
    for _ in 0..limit {
        let object = at.read(memory).map_err(|bad| (at.cell, bad))?;
        let Some((dram, address)) = next(&object) else { return Ok(()) };
        // The cell that holds the pointer is to blame for where it points.
        at = Foreign::new(&dram, address).map_err(|bad| (at.cell, bad))?;
    }
    Err((at.cell, Bad::Endless))
}

/// Checks data passed by reference in an RPC against the sender's DRAM.
///
/// # Errors
/// [`Bad::Outside`]. Alignment and length were checked when the message was taken apart.
pub const fn reference(dram: &Dram, reference: Reference) -> Result<Reference, Bad> {
    if dram.contains(reference.address, reference.length) {
        Ok(reference)
    } else {
        Err(Bad::Outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    struct Ram {
        base: u64,
        words: Vec<u64>,
        broken: u64,
    }

    impl Memory for Ram {
        fn copy(&self, from: u64, to: &mut [u64]) -> Result<(), Fault> {
            for (i, word) in to.iter_mut().enumerate() {
                let address = from + 8 * i as u64;
                if address == self.broken {
                    return Err(Fault { address });
                }
                *word = self.words[((address - self.base) / 8) as usize];
            }
            Ok(())
        }
    }

    #[derive(Debug, PartialEq)]
    struct Node {
        next: u64,
    }

    impl Published for Node {
        const TAG: TypeTag = TypeTag::CowNode;
        const WORDS: usize = 2;
        fn from_words(words: &[u64]) -> Option<Node> {
            let [_, next] = *words else { return None };
            (next != 13).then_some(Node { next })
        }
    }

    const DRAM: Dram = Dram { cell: CellId::of(2), base: 0x9000_0000, size: 0x40 };

    fn ram(nexts: [u64; 4]) -> Ram {
        let words = nexts.into_iter().flat_map(|next| [TypeTag::CowNode.word(), next]).collect();
        Ram { base: DRAM.base, words, broken: 0 }
    }

    #[test]
    fn only_aligned_addresses_of_the_expected_cell_are_taken() {
        let new = |address| Foreign::<Node>::new(&DRAM, address).map(|f| f.address());
        assert_eq!(new(0x9000_0000), Ok(0x9000_0000));
        assert_eq!(new(0x9000_0030), Ok(0x9000_0030));
        assert_eq!(new(0x9000_0038), Err(Bad::Outside));
        assert_eq!(new(0x8fff_fff8), Err(Bad::Outside));
        assert_eq!(new(0x9000_0004), Err(Bad::Unaligned));
        assert_eq!(new(u64::MAX - 7), Err(Bad::Outside));
        assert_eq!(new(0), Err(Bad::Outside));
        let top = Dram { cell: CellId::of(0), base: u64::MAX - 0x3f, size: 0x40 };
        assert!(!top.contains(u64::MAX - 7, 16) && top.contains(u64::MAX - 0x17, 16));
    }

    #[test]
    fn tag_and_value_are_checked_on_the_copy() {
        let read = |ram: &Ram, at| Foreign::<Node>::new(&DRAM, at).unwrap().read(ram);
        let mut ram = ram([7, 13, 0, 0]);
        assert_eq!(read(&ram, 0x9000_0000), Ok(Node { next: 7 }));
        assert_eq!(read(&ram, 0x9000_0010), Err(Bad::Value));
        assert_eq!(read(&ram, 0x9000_0008), Err(Bad::Tag));
        ram.words[4] = TypeTag::Free.word();
        assert_eq!(read(&ram, 0x9000_0020), Err(Bad::Tag));
        ram.broken = 0x9000_0038;
        let fault = Bad::Fault(Fault { address: 0x9000_0038 });
        assert_eq!(read(&ram, 0x9000_0030), Err(fault));
        assert_eq!(fault.hint(DRAM.cell).reason, Reason::BusError);
        assert_eq!(fault.hint(DRAM.cell).address, 0x9000_0038);
        assert_eq!(Bad::Tag.hint(DRAM.cell).reason, Reason::FailedCheck);
    }

    #[test]
    fn chains_end_or_are_cut() {
        let node = |n: u64| DRAM.base + n * 16;
        let start = Foreign::<Node>::new(&DRAM, node(0)).unwrap();
        let go =
            |ram: &Ram| walk(ram, start, 5, |node| (node.next != 0).then_some((DRAM, node.next)));
        let straight = ram([node(1), node(2), node(3), 0]);
        assert_eq!(go(&straight), Ok(()));
        let looped = ram([node(1), node(2), node(1), 0]);
        assert_eq!(go(&looped), Err((DRAM.cell, Bad::Endless)));
        let itself = ram([node(0), 0, 0, 0]);
        assert_eq!(go(&itself), Err((DRAM.cell, Bad::Endless)));
        let one_off = ram([node(1) + 8, 0, 0, 0]);
        assert_eq!(go(&one_off), Err((DRAM.cell, Bad::Tag)));
        let wild = ram([0x8000_0000, 0, 0, 0]);
        assert_eq!(go(&wild), Err((DRAM.cell, Bad::Outside)));
    }
}
