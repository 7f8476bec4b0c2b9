//! Virtual memory of a cell: page frames, the page cache, copy-on-write trees, address spaces
//! (Hive SOSP'95 §5).
//!
//! Reading order: [`types`] (names), [`pfdat`] (the table of page frames and the hash of logical
//! pages), [`memory`] (that table behind its lock, with references that count), [`pager`] and
//! [`cache`] (files), [`cow`] (anonymous memory), [`map`] (address spaces and faults), [`elf`] and
//! [`stack`] (what exec needs).
//!
//! Invariants and lock order are in `docs/internals/memory.md`.
//!
//! Absent: swap (anonymous pages stay until their last owner goes), reverse maps (a truncated
//! page stays with those who have it mapped), sharing between cells: extended pfdats, export and
//! import, loans. Their places are kept: a tag names its data home, a pfdat keeps logical and
//! physical state apart, allocation says which cells may supply the frame.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cache;
pub mod cow;
pub mod elf;
pub mod map;
pub mod memory;
pub mod pager;
pub mod pfdat;
pub mod phys;
mod ranges;
pub mod stack;
pub mod table;
#[cfg(test)]
mod testing;
pub mod types;

pub use cache::Cache;
pub use map::AddressSpace;
pub use memory::{Memory, PageRef};
pub use pager::Pager;
pub use pfdat::{Request, Use};
pub use phys::{PhysMem, Sink, Source};
pub use table::PageTable;
pub use types::{CellNumber, Error, Frame, Kind, LogicalId, PAGE_SHIFT, PAGE_SIZE, Prot, Tag};
