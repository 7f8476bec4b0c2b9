//! The lock order, written down. A hart may take a spin lock only if its rank is higher than that
//! of every ranked lock it holds; debug builds panic otherwise. Add your lock here, between the
//! locks that may be held when it is taken (above) and those taken while it is held (below).

/// Place of a spin lock in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8);

/// Not in the order yet: may be taken at any time (only taking it twice is caught).
pub const UNRANKED: Rank = Rank(0);
/// Locks of processes and signals.
pub const PROCESS: Rank = Rank(20);
/// Locks of address spaces and copy-on-write trees.
pub const ADDRESS_SPACE: Rank = Rank(40);
/// Locks of vnodes, pipes and terminals.
pub const FILE: Rank = Rank(60);
/// The page hash and pfdats.
pub const PAGE: Rank = Rank(80);
/// Queues of device drivers.
pub const DEVICE: Rank = Rank(100);
/// A page table.
pub const PAGE_TABLE: Rank = Rank(120);
/// The list inside a [`crate::WaitQueue`].
pub const WAIT_QUEUE: Rank = Rank(200);
/// Sleep queues with deadlines.
pub const SLEEP: Rank = Rank(210);
/// The slots that thread ids name.
pub const THREADS: Rank = Rank(212);
/// A thread's state.
pub const THREAD: Rank = Rank(215);
/// A hart's run queue.
pub const RUN_QUEUE: Rank = Rank(220);
/// Console output.
pub const CONSOLE: Rank = Rank(230);
/// The kernel heap.
pub const HEAP: Rank = Rank(235);
/// Free page frames: the heap grows from them.
pub const FRAMES: Rank = Rank(240);
