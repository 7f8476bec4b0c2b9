//! Making, ending and waiting for processes, and their kinship.
//!
//! Partial: `clone` makes processes, not threads (`CLONE_THREAD` is `EINVAL`), and knows no name
//! spaces; `prctl` has names and what asks for nothing; `set_robust_list` is `ENOSYS` in effect
//! (glibc then goes without), because no futex is shared between processes.

use super::{Answer, Call, Stop};
use crate::process::{self, Loan, Process, TREE, Usage};
use crate::signal::{Detail, SIGCHLD, SIGNALS, SigInfo, si};
use crate::tree::{Events, Pid, Status, Whom};
use crate::{cell, exec, user};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::errno::Errno;

/// clone(2) flags (linux/sched.h).
mod flag {
    pub const SIGNAL: u64 = 0xff;
    pub const VM: u64 = 0x100;
    pub const FS: u64 = 0x200;
    pub const FILES: u64 = 0x400;
    pub const SIGHAND: u64 = 0x800;
    pub const VFORK: u64 = 0x4000;
    pub const PARENT: u64 = 0x8000;
    pub const THREAD: u64 = 0x1_0000;
    pub const SETTLS: u64 = 0x8_0000;
    pub const PARENT_SETTID: u64 = 0x10_0000;
    pub const CHILD_CLEARTID: u64 = 0x20_0000;
    pub const DETACHED: u64 = 0x40_0000;
    pub const UNTRACED: u64 = 0x80_0000;
    pub const CHILD_SETTID: u64 = 0x100_0000;
    pub const SYSVSEM: u64 = 0x4_0000;
    /// What is done, or means nothing for processes without threads.
    pub const KNOWN: u64 = SIGNAL
        | VM
        | FILES
        | VFORK
        | SETTLS
        | PARENT_SETTID
        | CHILD_CLEARTID
        | DETACHED
        | UNTRACED
        | CHILD_SETTID
        | SYSVSEM;
    /// What would take sharing that is not there.
    pub const ABSENT: u64 = FS | SIGHAND | PARENT | THREAD;
}

/// clone(2): flags, stack, parent's tid address, TLS, child's tid address (riscv order).
pub fn clone(call: &mut Call<'_>) -> Answer {
    let [flags, stack, parent_tid, tls, child_tid, _] = call.args;
    if flags & flag::ABSENT != 0 || flags & !flag::KNOWN != 0 {
        return Err(Errno::EINVAL.into());
    }
    // A shared address space is lent, not shared: the parent must wait for it.
    if flags & flag::VM != 0 && flags & flag::VFORK == 0 {
        return Err(Errno::EINVAL.into());
    }
    let exit_signal = (flags & flag::SIGNAL) as u32;
    if exit_signal > SIGNALS {
        return Err(Errno::EINVAL.into());
    }
    let own = call.process();
    let parent_space = own.space()?;
    let space = if flags & flag::VM != 0 { parent_space } else { parent_space.fork()? };
    let files = own.files()?;
    let files = if flags & flag::FILES != 0 { files } else { Arc::new(files.fork()) };
    let child = Process::fork(call.thread, exit_signal, space.clone(), files)?;
    let pid = child.tid;
    let mut context = call.user.clone();
    let regs = context.regs_mut();
    regs.x[10] = 0;
    if stack != 0 {
        regs.x[2] = stack;
    }
    if flags & flag::SETTLS != 0 {
        regs.x[4] = tls;
    }
    if flags & flag::PARENT_SETTID != 0 {
        // As on Linux, a bad address here is the caller's loss.
        let _ = call.write(parent_tid, &pid.to_le_bytes());
    }
    if flags & flag::CHILD_CLEARTID != 0 {
        child.clear_tid.store(child_tid);
    }
    let loan = (flags & flag::VFORK != 0).then(|| Arc::new(Loan::default()));
    *child.process.loan.lock() = loan.clone();
    let set_tid = (flags & flag::CHILD_SETTID != 0).then_some(child_tid);
    if user::start(child, context, set_tid).is_err() {
        TREE.lock().unfork(pid);
        return Err(Errno::EAGAIN.into());
    }
    if let Some(loan) = loan {
        loan.wait();
    }
    Ok(pid as usize)
}

/// execve(2)
pub fn execve(call: &mut Call<'_>) -> Answer {
    let path = call.path(call.args[0])?;
    let arguments = exec::read_strings(call, call.args[1])?;
    let environment = exec::read_strings(call, call.args[2])?;
    let moved = cell::process::run_elsewhere(call.thread, &path, &arguments, &environment);
    if let Some(status) = moved {
        return Err(Stop::Exit(status));
    }
    exec::execve(call.thread, call.user, &path, arguments, environment)?;
    Err(Stop::Registers)
}

/// exit(2): of the only thread.
pub fn exit(call: &mut Call<'_>) -> Answer {
    exit_group(call)
}

/// exit_group(2)
pub fn exit_group(call: &mut Call<'_>) -> Answer {
    Err(Stop::Exit(Status::Exited(call.args[0] as u8)))
}

const WNOHANG: u32 = 1;
const WUNTRACED: u32 = 2;
const WEXITED: u32 = 4;
const WCONTINUED: u32 = 8;
const WNOWAIT: u32 = 0x100_0000;
/// `__WNOTHREAD`, `__WALL`, `__WCLONE`: without threads all the same.
const W_KINDS: u32 = 0xe000_0000;

/// A child as wait tells of it: the sum of its usage and its children's.
type Waited = (Pid, Status, Arc<Process>, Usage);

fn wait_for(
    call: &Call<'_>,
    whom: Whom,
    events: Events,
    hang: bool,
) -> Result<Option<Waited>, Stop> {
    let own = call.process();
    let look = || match TREE.lock().wait(own.pid, whom, events) {
        Ok(None) => None,
        Ok(Some(found)) => Some(Ok(found)),
        Err(e) => Some(Err(e)),
    };
    let found = match (look(), hang) {
        (Some(found), _) => found,
        (None, false) => return Ok(None),
        (None, true) => own.child_event.wait_interruptible(look).map_err(Errno::from)?,
    };
    let (pid, status, child) = found?;
    let mut usage = child.usage();
    usage.add(*child.child_usage.lock());
    if matches!(status, Status::Exited(_) | Status::Killed(..)) && !events.keep {
        own.child_usage.lock().add(usage);
    }
    Ok(Some((pid, status, child, usage)))
}

/// wait4(2)
pub fn wait4(call: &mut Call<'_>) -> Answer {
    let options = call.uint(2);
    if options & !(WNOHANG | WUNTRACED | WCONTINUED | W_KINDS) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let whom = match call.int(0) {
        -1 => Whom::Any,
        0 => Whom::Group(TREE.lock().group(call.process().pid)?),
        i32::MIN => return Err(Errno::ESRCH.into()),
        pid if pid < 0 => Whom::Group(-pid),
        pid => Whom::Pid(pid),
    };
    let events = Events {
        exited: true,
        stopped: options & WUNTRACED != 0,
        continued: options & WCONTINUED != 0,
        keep: false,
    };
    let waited = wait_for(call, whom, events, options & WNOHANG == 0)?;
    let Some((pid, status, _child, usage)) = waited else { return Ok(0) };
    call.write_unless_null(call.args[1], &status.word().to_le_bytes())?;
    call.write_unless_null(call.args[3], &super::info::rusage(usage))?;
    Ok(pid as usize)
}

/// waitid(2)
pub fn waitid(call: &mut Call<'_>) -> Answer {
    let options = call.uint(3);
    let known = WNOHANG | WUNTRACED | WEXITED | WCONTINUED | WNOWAIT | W_KINDS;
    if options & !known != 0 || options & (WUNTRACED | WEXITED | WCONTINUED) == 0 {
        return Err(Errno::EINVAL.into());
    }
    let id = call.int(1);
    let whom = match (call.int(0), id) {
        (0, _) => Whom::Any,
        (1, 1..) => Whom::Pid(id),
        (2, 0) => Whom::Group(TREE.lock().group(call.process().pid)?),
        (2, 1..) => Whom::Group(id),
        _ => return Err(Errno::EINVAL.into()),
    };
    let events = Events {
        exited: options & WEXITED != 0,
        stopped: options & WUNTRACED != 0,
        continued: options & WCONTINUED != 0,
        keep: options & WNOWAIT != 0,
    };
    let waited = wait_for(call, whom, events, options & WNOHANG == 0)?;
    let Some((pid, status, child, usage)) = waited else {
        call.write_unless_null(call.args[2], &[0; 128])?;
        return Ok(0);
    };
    let (code, value) = match status {
        Status::Exited(code) => (si::CLD_EXITED, code as i32),
        Status::Killed(signal, core) => {
            (if core { si::CLD_DUMPED } else { si::CLD_KILLED }, signal as i32)
        }
        Status::Stopped(signal) => (si::CLD_STOPPED, signal as i32),
        Status::Continued => (si::CLD_CONTINUED, crate::signal::SIGCONT as i32),
    };
    let uid = child.creds().uid.real;
    let detail = Detail::Child { pid, uid, status: value, utime: 0, stime: 0 };
    let info = SigInfo { signo: SIGCHLD, code, detail };
    call.write_unless_null(call.args[2], &info.encode())?;
    call.write_unless_null(call.args[4], &super::info::rusage(usage))?;
    Ok(0)
}

/// getpid(2)
pub fn getpid(call: &mut Call<'_>) -> Answer {
    Ok(call.process().pid as usize)
}

/// gettid(2)
pub fn gettid(call: &mut Call<'_>) -> Answer {
    Ok(call.thread.tid as usize)
}

/// getppid(2)
pub fn getppid(call: &mut Call<'_>) -> Answer {
    Ok(TREE.lock().parent(call.process().pid)? as usize)
}

/// Process argument `i`, 0 being the caller.
fn pid_or_own(call: &Call<'_>, i: usize) -> Pid {
    match call.int(i) {
        0 => call.process().pid,
        pid => pid,
    }
}

/// getpgid(2)
pub fn getpgid(call: &mut Call<'_>) -> Answer {
    Ok(TREE.lock().group(pid_or_own(call, 0))? as usize)
}

/// getsid(2)
pub fn getsid(call: &mut Call<'_>) -> Answer {
    Ok(TREE.lock().session(pid_or_own(call, 0))? as usize)
}

/// setpgid(2)
pub fn setpgid(call: &mut Call<'_>) -> Answer {
    TREE.lock().set_group(call.process().pid, call.int(0), call.int(1))?;
    Ok(0)
}

/// setsid(2)
pub fn setsid(call: &mut Call<'_>) -> Answer {
    Ok(TREE.lock().set_session(call.process().pid)? as usize)
}

/// set_tid_address(2)
pub fn set_tid_address(call: &mut Call<'_>) -> Answer {
    call.thread.clear_tid.store(call.args[0]);
    Ok(call.thread.tid as usize)
}

/// set_robust_list(2)
pub fn set_robust_list(_: &mut Call<'_>) -> Answer {
    Err(Errno::ENOSYS.into())
}

/// prctl(2)
pub fn prctl(call: &mut Call<'_>) -> Answer {
    const PR_SET_PDEATHSIG: u32 = 1;
    const PR_GET_PDEATHSIG: u32 = 2;
    const PR_GET_DUMPABLE: u32 = 3;
    const PR_SET_DUMPABLE: u32 = 4;
    const PR_SET_NAME: u32 = 15;
    const PR_GET_NAME: u32 = 16;
    const PR_CAPBSET_READ: u32 = 23;
    const PR_GET_NO_NEW_PRIVS: u32 = 39;
    const CAP_LAST: u64 = 40;
    match call.uint(0) {
        PR_SET_NAME => {
            let mut name = [0; process::COMM_MAX];
            let n = hive_hal::uaccess::string_from_user(&mut name, call.args[1])?;
            let name: Vec<u8> = name[..n.unwrap_or(process::COMM_MAX)].to_vec();
            call.process().identity.lock().comm = name;
            Ok(0)
        }
        PR_GET_NAME => {
            let comm = call.process().identity.lock().comm.clone();
            let mut name = [0; process::COMM_MAX + 1];
            let n = comm.len().min(process::COMM_MAX);
            name[..n].copy_from_slice(&comm[..n]);
            call.write(call.args[1], &name)?;
            Ok(0)
        }
        // A process has every capability or none; the bounding set is never cut.
        PR_CAPBSET_READ if call.args[1] <= CAP_LAST => Ok(1),
        PR_GET_DUMPABLE | PR_GET_NO_NEW_PRIVS => Ok(0),
        PR_SET_DUMPABLE if call.args[1] == 0 => Ok(0),
        PR_SET_PDEATHSIG if call.args[1] == 0 => Ok(0),
        PR_GET_PDEATHSIG => {
            call.write(call.args[1], &[0; 4])?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL.into()),
    }
}
