//! What makes independent kernels one system, as far as it needs no hart: failure hints,
//! agreement on the live set, the order of recovery, RPC framing, placement, and the checks of
//! careful reference. The kernel feeds these machines with what happened and does what they put
//! out; host tests drive the very same code.
//!
//! Reading order: [`limits`] (times and sizes, and how they hang together), [`hint`] (who suspects
//! whom), [`membership`] (who lives), [`recovery`] (what follows), [`rpc`], [`careful`],
//! [`placement`].
//!
//! Invariants: no unsafe, no allocation, no clock but the ticks that are passed in; nothing that a
//! peer sent is used before it is checked.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod careful;
pub mod hint;
pub mod limits;
pub mod membership;
pub mod placement;
pub mod recovery;
pub mod rpc;
