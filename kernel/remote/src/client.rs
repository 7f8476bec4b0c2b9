//! The way to a peer, as the image provides it over RPC.

use crate::wire::{self, Caller, Reply, Request};
use alloc::vec::Vec;
use hive_fs::{Errno, Result};
use hive_protocol::CellId;
use hive_protocol::rpc::Op;

/// Carries calls between cells. Calls sleep; they end at the latest when the peer is declared dead.
pub trait Peer: Send + Sync {
    /// Asks `to`; `EIO` if it is dead or its answer was unusable, `EAGAIN` never.
    fn call(&self, to: CellId, op: Op, request: &[u8]) -> Result<Vec<u8>>;
    /// Who the current thread acts for.
    fn caller(&self) -> Caller;
}

/// Asks `to` and unpacks the answer; an error number that is none of ours becomes `EIO`.
pub fn ask(peer: &dyn Peer, to: CellId, request: &Request<'_>) -> Result<Reply> {
    let answer = peer.call(to, request.op(), &wire::encode(request))?;
    match wire::decode(&answer) {
        Some(Reply::Error(code)) => Err(Errno::from_code(code).unwrap_or(Errno::EIO)),
        Some(reply) => Ok(reply),
        None => Err(Errno::EIO),
    }
}

/// Takes the expected kind of reply apart; anything else is a peer that talks nonsense.
macro_rules! expected {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply {
            $pattern => Ok($value),
            _ => Err(hive_fs::Errno::EIO),
        }
    };
}
pub(crate) use expected;
