//! Files whose home is another cell (design note: docs/internals/cells.md).
//!
//! Two ways lead to one. By name: a [`fs::RemoteFs`] is mounted at `/cells/N` or `/tmp`, and its
//! vnodes are *shadow vnodes* (Hive §5.2): each operation is a call to the home. By inheritance:
//! an open file that came with a process is a [`file::RemoteFile`], a handle at its home. The
//! [`server::Server`] of the home answers both.
//!
//! Reading order: [`wire`] (what is said), [`server`], [`client`] (the way to a peer), [`fs`],
//! [`file`].
//!
//! What each side may believe. The server hands out vnodes and handles and takes back only what
//! it handed to *that* client, so a lying client reaches nothing that it could not have opened.
//! The client checks what comes back before use; a lying home can lie about its own files only.
//! No call waits longer at the home than a disk does: what would block answers
//! [`wire::Reply::WouldBlock`] and one [`wire::Ready`] follows.
//!
//! Absent: sharing of pages (read and write copy; later `export`/`import` replace
//! [`fs`]'s pager), fifos and device nodes of another cell's tree (`ENXIO`), record locks across cells.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod client;
pub mod file;
pub mod fs;
pub mod server;
#[cfg(test)]
mod tests;
pub mod wire;

pub use client::Peer;
pub use server::Server;
