//! The machine: a deterministic RISC-V shared-memory multiprocessor with a fault model.
//!
//! Reading order: [`ram`] (page storage and page attributes), [`platform`] (what a hart asks of
//! everything that is not plain memory), [`hart`] (architectural state, translation, traps),
//! [`engine`] (what executes instructions), [`bus`] with [`dev`] and [`controller`] (everything
//! around the harts), [`machine`] (who runs when; boot, resets, faults), [`env`] (the outside).
//!
//! The machine does not know Hive: it knows the RISC-V specifications and `hive-platform`.
//! Nothing here reads host time, uses threads or iterates a randomly seeded map.

mod block;
pub mod bus;
pub mod config;
pub mod controller;
pub mod decode;
pub mod dev;
pub mod devtree;
pub mod engine;
pub mod env;
pub mod error;
mod exec;
pub mod fault;
pub mod fdt;
mod float;
pub mod hart;
pub mod loader;
pub mod machine;
pub mod platform;
pub mod ram;
pub mod seed;
