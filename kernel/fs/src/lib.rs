//! Files of a cell: vnodes, the name space, ext2, pipes, terminals.
//!
//! Reading order: [`errno`] and [`abi`] (Linux's numbers), [`io`] (where bytes go), [`vnode`]
//! (what a file is), [`name`] (how it is found), [`file`] (how it is used), [`poll`] (how to
//! wait), then the file systems and the streams. The chapter is `docs/internals/files.md`.
//!
//! No unsafe, no hardware: everything here runs on the host too.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod abi;
pub mod block;
pub mod cred;
pub mod devfs;
pub mod errno;
pub mod ext2;
pub mod file;
pub mod io;
pub mod name;
pub mod pipe;
pub mod poll;
pub mod procfs;
#[cfg(test)]
mod testing;
pub mod tmpfs;
pub mod tty;
pub mod vnode;

pub use cred::Cred;
pub use errno::{Errno, Result};
pub use file::{FdTable, FileOps, OpenFile};
pub use name::{At, Namespace, Place};
pub use vnode::{FileSystem, Vnode, VnodeId, VnodeRef};
