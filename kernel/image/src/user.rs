//! A user thread as a kernel loop: enter user mode, serve the trap, deal with signals at the
//! boundary, again. Also the gate at which recovery holds all user threads of the cell.
//!
//! Signals act only here, never in the middle of a system call: a call that waits ends with
//! [`Stop::Restart`] or `EINTR` and comes back to the boundary first.

use crate::process::{self, Thread, stand_while_stopped};
use crate::signal::{self, Context, Disposition, SIG_DFL, SigAction, SigInfo, SigSet, frame, sa};
use crate::syscall::Stop;
use crate::tree::Status;
use crate::{fault, sched, syscall};
use alloc::boxed::Box;
use alloc::sync::Arc;
use hive_fs::errno::Errno;
use hive_hal::memory::NoMemory;
use hive_hal::uaccess;
use hive_hal::user::{Trap, UserContext};
use hive_sync::{AtomicBool, AtomicU32, WaitQueue, now_ns};

/// Bytes of an `ecall`.
const ECALL: u64 = 4;

/// Holds user threads at the boundary while recovery needs them still (Hive §4.3). Kernel threads
/// are never held: recovery needs locks that they have.
pub mod gate {
    use super::*;

    static CLOSED: AtomicBool = AtomicBool::new(false);
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    static OPENED: WaitQueue = WaitQueue::new();
    static EMPTY: WaitQueue = WaitQueue::new();

    /// From now on no thread of this cell enters user mode. Never sleeps: for interrupt handlers.
    pub fn close() {
        CLOSED.store(true);
    }

    /// Sleeps until no thread of this cell is in user mode (at most a tick, unless harts died).
    pub fn wait_empty() {
        EMPTY.wait_until(|| (INSIDE.load() == 0).then_some(()));
    }

    /// Whether every thread of this cell is out of user mode.
    pub fn is_empty() -> bool {
        INSIDE.load() == 0
    }

    /// Lets them go on.
    pub fn open() {
        CLOSED.store(false);
        OPENED.wake_all();
    }

    pub(super) fn enter() {
        loop {
            INSIDE.fetch_add(1);
            if !CLOSED.load() {
                return;
            }
            leave();
            OPENED.wait_until(|| (!CLOSED.load()).then_some(()));
        }
    }

    pub(super) fn leave() {
        if INSIDE.fetch_sub(1) == 1 && CLOSED.load() {
            EMPTY.wake_all();
        }
    }
}

/// A system call that waits to be started again.
struct Again {
    /// What `a0` was.
    a0: u64,
    /// How.
    stop: Stop,
}

/// How a process ends: carried out of the depths by `?`, so that everything on the way is dropped.
type End = core::result::Result<(), Status>;

/// Starts `thread`, new and complete, in user mode with the registers `user`. `set_tid` is where
/// it stores its id first (`CLONE_CHILD_SETTID`).
pub fn start(
    thread: Arc<Thread>,
    user: UserContext,
    set_tid: Option<u64>,
) -> core::result::Result<(), NoMemory> {
    let name = alloc::format!("user {}", thread.tid);
    // Boxed: the closure is moved through frames that should not hold all registers.
    let mut user = Box::new(user);
    sched::try_spawn(&name, move || {
        let kernel = sched::current();
        kernel.set_local(thread.clone());
        if let Ok(space) = thread.process.space() {
            kernel.set_space(Some(space.page_table()));
        }
        let _ = thread.kernel.set(kernel);
        if let Some(at) = set_tid {
            // A bad address is the program's own loss.
            let _ = uaccess::copy_to_user(at, &thread.tid.to_le_bytes());
        }
        thread.settle();
        let status = run(&thread, &mut user);
        drop(user);
        process::end(thread, status);
    })?;
    Ok(())
}

/// Runs `thread` in user mode until its process ends.
fn run(thread: &Arc<Thread>, user: &mut UserContext) -> Status {
    let mut again = None;
    loop {
        if let Err(status) = boundary(thread, user, again.take()) {
            return status;
        }
        gate::enter();
        let start = now_ns();
        let trap = user.run();
        let end = now_ns();
        gate::leave();
        account(thread, end.saturating_sub(start));
        match trap {
            Trap::Syscall => match system_call(thread, user) {
                Ok(next) => again = next,
                Err(status) => return status,
            },
            Trap::Interrupt => {}
            other => fault::serve(thread, user, other),
        }
    }
}

/// Adds `user_ns` to the user time, and what else the thread ran to the system time.
fn account(thread: &Thread, user_ns: u64) {
    let Some(kernel) = thread.kernel.get() else { return };
    let ran = kernel.ran_ns();
    let mut usage = thread.process.usage.lock();
    // Without threads the process ran what its thread ran.
    usage.user_ns += user_ns;
    usage.system_ns = ran.saturating_sub(usage.user_ns);
}

fn system_call(
    thread: &Arc<Thread>,
    user: &mut UserContext,
) -> core::result::Result<Option<Again>, Status> {
    let a0 = user.regs().x[10];
    match syscall::dispatch(thread, user) {
        Ok(value) => user.regs_mut().x[10] = value as u64,
        Err(Stop::Errno(errno)) => user.regs_mut().x[10] = errno.as_ret() as u64,
        // The call has set every register itself (rt_sigreturn, execve).
        Err(Stop::Registers) => {}
        Err(Stop::Exit(status)) => return Err(status),
        Err(stop) => return Ok(Some(Again { a0, stop })),
    }
    Ok(None)
}

/// Starts a call again: the pc back on the `ecall`, the first argument as it was.
fn start_again(user: &mut UserContext, a0: u64) {
    let regs = user.regs_mut();
    regs.pc = regs.pc.wrapping_sub(ECALL);
    regs.x[10] = a0;
}

/// Everything that happens between a trap and the return to user mode.
fn boundary(thread: &Arc<Thread>, user: &mut UserContext, again: Option<Again>) -> End {
    if sched::should_yield() {
        sched::yield_now();
    }
    let process = &thread.process;
    let mut again = again;
    while again.is_some() || sched::current().interrupted() {
        if process.dying.load() {
            return Err(Status::Killed(signal::SIGKILL, false));
        }
        if process.stopped.load() {
            stand_while_stopped(process);
            continue;
        }
        let taken = thread.with_signals(|shared, own| {
            signal::take(&mut own.pending, &mut shared.pending, own.mask)
        });
        let Some(info) = taken else { break };
        act(thread, user, info, &mut again)?;
    }
    if let Some(Again { a0, stop }) = again {
        // No handler ran: the call goes on, a sleep until its old deadline.
        if let Stop::RestartUntil(deadline) = stop {
            *thread.resume_deadline.lock() = Some(deadline);
        }
        start_again(user, a0);
    }
    // A call with a temporary mask that no handler answered gets its own mask back.
    thread.with_signals(|_, own| {
        if let Some(mask) = own.saved_mask.take() {
            own.mask = mask;
        }
    });
    thread.settle();
    if sched::current().interrupted() {
        // The old mask lets something through that the temporary one did not.
        return boundary(thread, user, None);
    }
    Ok(())
}

fn act(
    thread: &Arc<Thread>,
    user: &mut UserContext,
    info: SigInfo,
    again: &mut Option<Again>,
) -> End {
    let process = &thread.process;
    let orphaned = SigSet::STOPS.has(info.signo) && {
        let tree = process::TREE.lock();
        tree.group(process.pid).is_ok_and(|group| tree.is_orphaned(group))
    };
    let disposition =
        thread.with_signals(|shared, _| shared.actions.disposition(info.signo, orphaned));
    match disposition {
        Disposition::Ignore => {}
        Disposition::Terminate { .. } if process.is_first() => {}
        Disposition::Terminate { core } => return Err(Status::Killed(info.signo, core)),
        Disposition::Stop => process::stop(process, info.signo),
        Disposition::Handle(action) => {
            if let Some(Again { a0, stop }) = again.take() {
                if matches!(stop, Stop::Restart) && action.flags & sa::RESTART != 0 {
                    start_again(user, a0);
                } else {
                    user.regs_mut().x[10] = Errno::EINTR.as_ret() as u64;
                }
            }
            if !enter_handler(thread, user, &info, &action) {
                // The stack cannot take the frame: as Linux, a fault that nothing catches.
                return Err(Status::Killed(signal::SIGSEGV, true));
            }
        }
    }
    Ok(())
}

fn context_of(user: &UserContext) -> Context {
    let (regs, fp) = (user.regs(), user.fp());
    let mut x = [0; 31];
    x.copy_from_slice(&regs.x[1..]);
    Context { pc: regs.pc, x, f: fp.f, fcsr: fp.fcsr as u32 }
}

/// Builds the frame and points `user` at the handler; false if the frame cannot be stored.
fn enter_handler(
    thread: &Thread,
    user: &mut UserContext,
    info: &SigInfo,
    action: &SigAction,
) -> bool {
    let (alt, mask) =
        thread.with_signals(|_, own| (own.alt, own.saved_mask.take().unwrap_or(own.mask)));
    let sp = user.regs().x[2];
    let Some(at) = frame::place(sp, &alt, action.flags & sa::ONSTACK != 0) else { return false };
    let bytes = frame::encode(info, &context_of(user), mask, &alt);
    if uaccess::copy_to_user(at, &bytes).is_err() {
        return false;
    }
    thread.with_signals(|_, own| {
        let mut blocked = own.mask.union(action.mask);
        if action.flags & sa::NODEFER == 0 {
            blocked.add(info.signo);
        }
        own.mask = blocked.without(SigSet::UNMASKABLE);
        if own.alt.flags & signal::AltStack::AUTODISARM != 0 {
            own.alt = signal::AltStack::default();
        }
    });
    let regs = user.regs_mut();
    regs.pc = action.handler;
    regs.x[1] = crate::space::TRAMPOLINE;
    regs.x[2] = at;
    regs.x[10] = info.signo as u64;
    regs.x[11] = at;
    regs.x[12] = at + frame::UCONTEXT as u64;
    true
}

/// rt_sigreturn(2): everything as the frame at the stack pointer says.
pub fn leave_handler(thread: &Thread, user: &mut UserContext) -> bool {
    let mut bytes = [0; frame::SIZE];
    if uaccess::copy_from_user(&mut bytes, user.regs().x[2]).is_err() {
        return false;
    }
    let Some((context, mask, alt)) = frame::decode(&bytes) else { return false };
    let regs = user.regs_mut();
    regs.pc = context.pc;
    regs.x[1..].copy_from_slice(&context.x);
    let fp = user.fp_mut();
    fp.f = context.f;
    fp.fcsr = context.fcsr as u64;
    thread.with_signals(|_, own| {
        own.mask = mask;
        if !own.alt.holds(context.x[1]) {
            own.alt = alt;
        }
    });
    thread.settle();
    true
}

/// A signal that the thread's own instruction caused: it cannot be blocked or ignored.
pub fn force(thread: &Thread, info: SigInfo) {
    thread.with_signals(|shared, own| {
        let action = shared.actions.get(info.signo);
        if action.handler <= signal::SIG_IGN || own.mask.has(info.signo) {
            shared.actions.set(info.signo, SigAction { handler: SIG_DFL, ..action });
            own.mask.remove(info.signo);
        }
        // Room is always: standard signals do not queue.
        let _ = own.pending.add(info);
    });
    if thread.process.is_first() {
        // Its own faults do end it: there is no way on.
        exit_first(info);
    }
    thread.settle();
}

fn exit_first(info: SigInfo) -> ! {
    panic!("the first process of the cell faulted: {info:?}")
}
