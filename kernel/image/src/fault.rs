//! Traps of user mode that are not system calls: a page to be found, or a signal.

use crate::process::Thread;
use crate::signal::{self, Detail, SigInfo, si};
use crate::user;
use alloc::sync::Arc;
use hive_hal::Access;
use hive_hal::user::{Trap, UserContext};
use hive_vm::map::{self, Fault};

/// Serves `trap`.
pub fn serve(thread: &Arc<Thread>, context: &mut UserContext, trap: Trap) {
    let info = match trap {
        Trap::Syscall | Trap::Interrupt => return,
        Trap::PageFault { addr, access } => match page(thread, addr, access) {
            Ok(()) => return,
            Err(Fault::NotMapped) => fault(signal::SIGSEGV, si::SEGV_MAPERR, addr),
            Err(Fault::Protection) => fault(signal::SIGSEGV, si::SEGV_ACCERR, addr),
            Err(Fault::Bus(_)) => fault(signal::SIGBUS, si::BUS_ADRERR, addr),
            Err(Fault::NoMemory) => SigInfo::kernel(signal::SIGKILL),
        },
        // A bus error, a denied store, or the memory of a dead node.
        Trap::AccessFault { addr, .. } => fault(signal::SIGBUS, si::BUS_ADRERR, addr),
        Trap::Misaligned { addr, .. } => fault(signal::SIGBUS, si::BUS_ADRALN, addr),
        Trap::Illegal { .. } => fault(signal::SIGILL, si::ILL_ILLOPC, context.regs().pc),
        Trap::Breakpoint => fault(signal::SIGTRAP, si::TRAP_BRKPT, context.regs().pc),
        Trap::Unknown { .. } => SigInfo::kernel(signal::SIGILL),
    };
    user::force(thread, info);
}

fn fault(signo: u32, code: i32, address: u64) -> SigInfo {
    SigInfo { signo, code, detail: Detail::Fault(address) }
}

/// Finds the page at `address` for an access of the current thread.
pub fn page(thread: &Thread, address: u64, access: Access) -> Result<(), Fault> {
    thread.process.usage.lock().faults += 1;
    let space = thread.process.space().map_err(|_| Fault::NotMapped)?;
    let access = match access {
        Access::Read => map::Access::Read,
        Access::Write => map::Access::Write,
        Access::Execute => map::Access::Exec,
    };
    space.fault(address, access)
}
