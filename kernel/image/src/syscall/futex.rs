//! futex(2): WAIT, WAKE, their bit set forms, and REQUEUE as a wake of everyone, which the
//! callers of it must expect anyway (a spurious wake-up). Other operations are `ENOSYS`.

use super::time::{Timespec, deadline_after, wall_ns};
use super::{Answer, Call};
use crate::futex::{self, ALL_BITS};
use hive_fs::errno::Errno;
use hive_sync::now_ns;

/// futex(2)
pub fn futex(call: &mut Call<'_>) -> Answer {
    const WAIT: u32 = 0;
    const WAKE: u32 = 1;
    const REQUEUE: u32 = 3;
    const CMP_REQUEUE: u32 = 4;
    const WAIT_BITSET: u32 = 9;
    const WAKE_BITSET: u32 = 10;
    const PRIVATE: u32 = 128;
    const REALTIME: u32 = 256;
    let (address, op, value) = (call.args[0], call.uint(1), call.uint(2));
    let space = call.process().space()?;
    let command = op & !(PRIVATE | REALTIME);
    match command {
        WAIT | WAIT_BITSET => {
            let deadline = match call.args[3] {
                0 => None,
                at => {
                    let ns = Timespec::read(call, at)?.nanoseconds()?;
                    Some(match (command, op & REALTIME) {
                        (WAIT, _) => deadline_after(ns),
                        (_, 0) => ns,
                        _ => now_ns().saturating_add(ns.saturating_sub(wall_ns())),
                    })
                }
            };
            let bits = if command == WAIT { ALL_BITS } else { call.uint(5) };
            futex::wait(&space, address, value, bits, deadline)?;
            Ok(0)
        }
        WAKE => Ok(futex::wake(&space, address, value as usize, ALL_BITS)?),
        WAKE_BITSET => Ok(futex::wake(&space, address, value as usize, call.uint(5))?),
        REQUEUE | CMP_REQUEUE => {
            if command == CMP_REQUEUE && u32::from_le_bytes(call.read(address)?) != call.uint(5) {
                return Err(Errno::EAGAIN.into());
            }
            let most = (value as usize).saturating_add(call.uint(3) as usize);
            Ok(futex::wake(&space, address, most, ALL_BITS)?)
        }
        _ => Err(Errno::ENOSYS.into()),
    }
}
