//! What a boot flash holds: a header, then the kernel image. The firmware of the first node of
//! each partition copies the kernel to [`crate::map::KERNEL_OFFSET`] in its own DRAM and enters
//! it in S-mode with `a0` = hart id, `a1` = address of the device tree in the boot ROM.

/// Value of [`Header::magic`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"HIVEBOOT");

/// First bytes of a boot flash; little-endian, every field 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Number of partitions: node n belongs to partition `cell_of_node(n, nodes, partitions)`.
    pub partitions: u64,
    /// Bytes from the start of the flash to the kernel image.
    pub kernel_offset: u64,
    /// Bytes of the kernel image.
    pub kernel_size: u64,
    /// [`FLAG_FIREWALL`] and further flags.
    pub flags: u64,
}

/// Firmware turns the firewall on before it enters the kernel.
pub const FLAG_FIREWALL: u64 = 1;

/// Bytes of a [`Header`] in flash.
pub const HEADER_SIZE: usize = core::mem::size_of::<Header>();
const _: () = assert!(HEADER_SIZE == 40);

impl Header {
    /// The header as it stands in flash.
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let words = [self.magic, self.partitions, self.kernel_offset, self.kernel_size, self.flags];
        let mut out = [0; HEADER_SIZE];
        for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Reads a header; `None` if the magic is wrong.
    pub fn from_bytes(bytes: &[u8; HEADER_SIZE]) -> Option<Header> {
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_le_bytes(w)
        };
        let header = Header {
            magic: word(0),
            partitions: word(1),
            kernel_offset: word(2),
            kernel_size: word(3),
            flags: word(4),
        };
        (header.magic == MAGIC).then_some(header)
    }
}
