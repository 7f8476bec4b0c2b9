//! Recovery (Hive §4.3): the thread that does what [`hive_cells::recovery`] orders.
//!
//! User processes stand at the gate meanwhile; kernel threads run on, because the work here takes
//! locks that they hold. The work may be asked for again after a further death, so each part is
//! harmless when repeated.

use super::{member, peers, show};
use crate::user::gate;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hive_protocol::CellSet;
use hive_protocol::event::Event;
use hive_sync::{SpinLock, WaitQueue, rank};

/// What the thread is to do.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Drop translations and remote mappings.
    Flush {
        /// For [`member::work_done`].
        epoch: u32,
    },
    /// Revoke, discard, kill.
    CleanUp {
        /// For [`member::work_done`].
        epoch: u32,
        /// After whom.
        dead: CellSet,
    },
    /// Recovery master: look at the hardware of the dead.
    Diagnose {
        /// Who died.
        dead: CellSet,
    },
}

/// Clean-up after dead cells that a part of the kernel has to do.
pub type CleanUp = fn(dead: CellSet);

static WORK: SpinLock<VecDeque<Work>> = SpinLock::ranked(rank::WAIT_QUEUE, VecDeque::new());
static WAKE: WaitQueue = WaitQueue::new();
static PARTS: SpinLock<Vec<CleanUp>> = SpinLock::new(Vec::new());

/// Has `part` called on the recovery thread after each death, in the order of registration.
pub fn on_clean_up(part: CleanUp) {
    PARTS.lock().push(part);
}

/// Asks for work. Interrupt level, under the lock of [`member`].
pub(super) fn queue(work: Work) {
    WORK.lock().push_back(work);
    WAKE.wake_all();
}

/// Starts the thread.
pub(super) fn start() {
    crate::sched::spawn_kernel("recovery", || {
        loop {
            let work = WAKE.wait_until(|| WORK.lock().pop_front());
            carry_out(work);
            while member::look_at_barrier() {
                crate::sched::yield_now();
                if let Some(work) = WORK.lock().pop_front() {
                    carry_out(work);
                }
            }
        }
    });
}

fn carry_out(work: Work) {
    match work {
        Work::Flush { epoch } => {
            gate::wait_empty();
            // No page of another cell is mapped in this stage: what is cached of their addresses
            // is only what the direct map gave to careful reads.
            hive_hal::paging::flush_users();
            member::work_done(epoch);
        }
        Work::CleanUp { epoch, dead } => {
            // No write permission is granted to other cells in this stage, hence none to revoke
            // and no page to discard: kernel and user pages alike are writable by this cell only.
            let parts = PARTS.lock().clone();
            parts.iter().for_each(|part| part(dead));
            member::work_done(epoch);
        }
        Work::Diagnose { dead } => {
            for cell in dead.iter() {
                // Memory that answers after the reset by vote can be booted again.
                let usable = peers::peer(cell).is_some_and(|peer| peer.touch(0).is_ok());
                show(Event::Diagnosed { cell, usable });
            }
        }
    }
}
