//! What cells, firmware and tools say to one another: every format that crosses a cell border is
//! written down here, once.
//!
//! Reading order: [`ids`] (who), [`message`] (the 128-byte line), [`membership`] and [`rpc`] (what
//! the lines carry), [`page`] (what a cell publishes in its memory), [`tag`] (how its objects are
//! recognized), [`death`] (what it leaves behind), [`event`] (what it shows to whoever watches:
//! marks and the time line on the console).
//!
//! Invariants: formats are little-endian words with pinned offsets; what comes from a peer is
//! checked by an `invalid()` or a `decode()` that names the reason before any field is used;
//! nothing here allocates, and nothing here touches hardware.
//!
//! Absent: version negotiation. All cells of a machine run the same image; a message of another
//! version is invalid.
#![no_std]

pub mod death;
pub mod event;
pub mod ids;
pub mod membership;
pub mod message;
pub mod page;
pub mod rpc;
pub mod tag;

pub use ids::{CellId, CellSet, Incarnation, Pid};
pub use message::{Invalid, Kind, Line, Message};
pub use tag::TypeTag;

/// Most cells a machine can be cut into: one per node.
pub const MAX_CELLS: usize = hive_platform::MAX_NODES;
