//! Structure type identifiers (Hive §4.1): the first word of every kernel object that another
//! cell may read. The allocator writes it, the deallocator replaces it by [`TypeTag::Free`].

/// Type of a published kernel object. The values are eight printable characters, so that a
/// memory dump shows them and no small integer or address is taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum TypeTag {
    /// Memory that holds no object any more.
    Free = u64::from_le_bytes(*b"hv:free:"),
    /// [`crate::page::CellInfo`].
    CellInfo = u64::from_le_bytes(*b"HIVECELL"),
    /// [`crate::death::DeathRecord`].
    DeathRecord = u64::from_le_bytes(*b"HIVEDIED"),
    /// A process.
    Process = u64::from_le_bytes(*b"hv:proc:"),
    /// A thread.
    Thread = u64::from_le_bytes(*b"hv:thrd:"),
    /// An address space map.
    AddressSpace = u64::from_le_bytes(*b"hv:aspc:"),
    /// One region of an address space map.
    Region = u64::from_le_bytes(*b"hv:regn:"),
    /// A page frame data structure.
    Pfdat = u64::from_le_bytes(*b"hv:pfda:"),
    /// A node of a copy-on-write tree.
    CowNode = u64::from_le_bytes(*b"hv:cown:"),
    /// An open file.
    File = u64::from_le_bytes(*b"hv:file:"),
    /// A file as the file system knows it.
    Vnode = u64::from_le_bytes(*b"hv:vnod:"),
    /// A pipe.
    Pipe = u64::from_le_bytes(*b"hv:pipe:"),
    /// A buffer passed by reference in an RPC.
    RpcBuffer = u64::from_le_bytes(*b"hv:rpcb:"),
}

impl TypeTag {
    /// The word that stands in memory.
    pub const fn word(self) -> u64 {
        self as u64
    }
}
