//! Signal calls. The set size that comes with every mask must be 8, as on Linux.

use super::time::{Timespec, deadline_after};
use super::{Answer, Call, Stop};
use crate::process::{Process, TREE, post};
use crate::signal::{AltStack, Detail, SIGCONT, SIGNALS, SigAction, SigInfo, SigSet, si};
use crate::user;
use alloc::sync::Arc;
use hive_fs::errno::Errno;
use hive_sync::{Limit, WaitError, WaitQueue};

/// Number of a signal argument; 0 only asks whether it could be sent.
fn signo(value: i32) -> Result<u32, Stop> {
    u32::try_from(value).ok().filter(|&s| s <= SIGNALS).ok_or(Errno::EINVAL.into())
}

fn check_size(call: &Call<'_>, at: usize) -> Result<(), Stop> {
    if call.args[at] == 8 { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

/// A mask at `address`.
pub fn read_set(call: &Call<'_>, address: u64) -> Result<SigSet, Stop> {
    Ok(SigSet(u64::from_le_bytes(call.read(address)?)))
}

fn from_caller(call: &Call<'_>, signo: u32, code: i32) -> SigInfo {
    let detail =
        Detail::Sender { pid: call.process().pid, uid: call.process().creds().uid.real, value: 0 };
    SigInfo { signo, code, detail }
}

/// Whether the caller may send `signo` to `target`.
fn may_send(call: &Call<'_>, target: &Process, signo: u32) -> bool {
    if signo == SIGCONT {
        let tree = TREE.lock();
        let session = tree.session(call.process().pid);
        if session.is_ok() && session == tree.session(target.pid) {
            return true;
        }
    }
    call.process().creds().may_signal(&target.creds())
}

fn send(call: &Call<'_>, target: &Arc<Process>, info: SigInfo) -> Result<(), Stop> {
    if !may_send(call, target, info.signo) {
        return Err(Errno::EPERM.into());
    }
    if info.signo != 0 {
        post(target, None, info)?;
    }
    Ok(())
}

/// kill(2)
pub fn kill(call: &mut Call<'_>) -> Answer {
    let (pid, signo) = (call.int(0), signo(call.int(1))?);
    let info = from_caller(call, signo, si::USER);
    if pid > 0 {
        let target = TREE.lock().get(pid);
        match target {
            Ok(target) => send(call, &target, info)?,
            Err(_) => crate::cell::process::signal(pid, signo)?,
        }
        return Ok(0);
    }
    let own = call.process().pid;
    let targets: alloc::vec::Vec<_> = {
        let tree = TREE.lock();
        match pid {
            0 => tree.members(tree.group(own)?),
            -1 => {
                let others = tree.pids().into_iter().filter(|&p| p != own && p != tree.reaper());
                others.filter_map(|p| tree.get(p).ok()).collect()
            }
            i32::MIN => return Err(Errno::ESRCH.into()),
            group => tree.members(-group),
        }
    };
    if targets.is_empty() {
        return Err(Errno::ESRCH.into());
    }
    let mut result = Err(Stop::Errno(Errno::EPERM));
    for target in &targets {
        match send(call, target, info) {
            Ok(()) => result = Ok(0),
            Err(e) if result.is_err() => result = Err(e),
            Err(_) => {}
        }
    }
    result
}

fn to_thread(call: &Call<'_>, group: Option<i32>, tid: i32, info: SigInfo) -> Answer {
    if tid <= 0 || group.is_some_and(|g| g <= 0) {
        return Err(Errno::EINVAL.into());
    }
    // Threads beside the leader will need an index of their own.
    let target = TREE.lock().get(tid)?;
    if group.is_some_and(|g| g != target.pid) {
        return Err(Errno::ESRCH.into());
    }
    if !may_send(call, &target, info.signo) {
        return Err(Errno::EPERM.into());
    }
    let thread = target.threads.lock().iter().find(|t| t.tid == tid).cloned();
    if let Some(thread) = thread
        && info.signo != 0
    {
        post(&target, Some(&thread), info)?;
    }
    Ok(0)
}

/// tkill(2)
pub fn tkill(call: &mut Call<'_>) -> Answer {
    let info = from_caller(call, signo(call.int(1))?, si::TKILL);
    to_thread(call, None, call.int(0), info)
}

/// tgkill(2)
pub fn tgkill(call: &mut Call<'_>) -> Answer {
    let info = from_caller(call, signo(call.int(2))?, si::TKILL);
    to_thread(call, Some(call.int(0)), call.int(1), info)
}

fn queued_info(call: &Call<'_>, signo: u32, address: u64) -> Result<SigInfo, Stop> {
    let bytes: [u8; 128] = call.read(address)?;
    let word = |at: usize| i32::from_le_bytes(core::array::from_fn(|i| bytes[at + i]));
    let value = u64::from_le_bytes(core::array::from_fn(|i| bytes[24 + i]));
    let code = word(8);
    // Codes from 0 up and TKILL are the kernel's to claim.
    if code >= 0 || code == si::TKILL {
        return Err(Errno::EPERM.into());
    }
    Ok(SigInfo {
        signo,
        code,
        detail: Detail::Sender { pid: word(16), uid: word(20) as u32, value },
    })
}

/// rt_sigqueueinfo(2)
pub fn rt_sigqueueinfo(call: &mut Call<'_>) -> Answer {
    let info = queued_info(call, signo(call.int(1))?, call.args[2])?;
    let target = TREE.lock().get(call.int(0))?;
    send(call, &target, info)?;
    Ok(0)
}

/// rt_tgsigqueueinfo(2)
pub fn rt_tgsigqueueinfo(call: &mut Call<'_>) -> Answer {
    let info = queued_info(call, signo(call.int(2))?, call.args[3])?;
    to_thread(call, Some(call.int(0)), call.int(1), info)
}

/// rt_sigaction(2)
pub fn rt_sigaction(call: &mut Call<'_>) -> Answer {
    check_size(call, 3)?;
    let signo = signo(call.int(0))?;
    if signo == 0 {
        return Err(Errno::EINVAL.into());
    }
    let new = match call.args[1] {
        0 => None,
        at => Some(SigAction::decode(&call.read(at)?)),
    };
    if new.is_some() && SigSet::UNMASKABLE.has(signo) {
        return Err(Errno::EINVAL.into());
    }
    let old = call.thread.with_signals(|shared, own| {
        let old = shared.actions.get(signo);
        if let Some(new) = new {
            shared.actions.set(signo, new);
            // What is ignored does not stay pending either.
            if shared.actions.ignores(signo) {
                let set = SigSet::of(&[signo]);
                shared.pending.discard(set);
                own.pending.discard(set);
            }
        }
        old
    });
    call.write_unless_null(call.args[2], &old.encode())?;
    Ok(0)
}

/// rt_sigprocmask(2)
pub fn rt_sigprocmask(call: &mut Call<'_>) -> Answer {
    check_size(call, 3)?;
    let old = call.thread.with_signals(|_, own| own.mask);
    if call.args[1] != 0 {
        let set = read_set(call, call.args[1])?;
        let new = match call.int(0) {
            0 => old.union(set),
            1 => old.without(set),
            2 => set,
            _ => return Err(Errno::EINVAL.into()),
        };
        call.thread.set_mask(new);
    }
    call.write_unless_null(call.args[2], &old.0.to_le_bytes())?;
    Ok(0)
}

/// rt_sigpending(2)
pub fn rt_sigpending(call: &mut Call<'_>) -> Answer {
    if call.args[1] > 8 {
        return Err(Errno::EINVAL.into());
    }
    let set = call.thread.with_signals(|shared, own| {
        SigSet(shared.pending.set().union(own.pending.set()).0 & own.mask.0)
    });
    let bytes = set.0.to_le_bytes();
    call.write(call.args[0], &bytes[..call.len(1)])?;
    Ok(0)
}

/// rt_sigreturn(2)
pub fn rt_sigreturn(call: &mut Call<'_>) -> Answer {
    if !user::leave_handler(call.thread, call.user) {
        let detail = Detail::Fault(call.user.regs().x[2]);
        user::force(
            call.thread,
            SigInfo { signo: crate::signal::SIGSEGV, code: si::SEGV_MAPERR, detail },
        );
    }
    Err(Stop::Registers)
}

/// Makes `mask` the mask until the boundary has dealt with what it lets through.
pub fn mask_for_now(call: &Call<'_>, mask: SigSet) {
    call.thread.with_signals(|_, own| {
        own.saved_mask = Some(own.mask);
        own.mask = mask.without(SigSet::UNMASKABLE);
    });
    call.thread.settle();
}

/// A queue that nobody wakes: only signals and deadlines end a wait on it.
static NOTHING: WaitQueue = WaitQueue::new();

/// Sleeps until a signal comes or the deadline (ns since boot) does.
pub fn wait_for_signal(deadline_ns: Option<u64>) -> WaitError {
    let limit = Limit { interruptible: true, deadline_ns };
    match NOTHING.wait(limit, || None::<()>) {
        Ok(()) => WaitError::TimedOut,
        Err(why) => why,
    }
}

/// rt_sigsuspend(2)
pub fn rt_sigsuspend(call: &mut Call<'_>) -> Answer {
    check_size(call, 1)?;
    let mask = read_set(call, call.args[0])?;
    mask_for_now(call, mask);
    wait_for_signal(None);
    Err(Stop::RestartWithoutHandler)
}

/// rt_sigtimedwait(2)
pub fn rt_sigtimedwait(call: &mut Call<'_>) -> Answer {
    check_size(call, 3)?;
    let wanted = read_set(call, call.args[0])?.without(SigSet::UNMASKABLE);
    let deadline = match call.args[2] {
        0 => None,
        at => Some(deadline_after(Timespec::read(call, at)?.nanoseconds()?)),
    };
    let take = || {
        call.thread.with_signals(|shared, own| {
            own.pending.take(wanted).or_else(|| shared.pending.take(wanted))
        })
    };
    let mut info = take();
    if info.is_none() {
        // While it waits the wanted signals wake it, though they are blocked.
        let old = call.thread.with_signals(|_, own| {
            own.awaited = wanted;
            let old = own.mask;
            own.mask = own.mask.without(wanted);
            old
        });
        call.thread.settle();
        let why = wait_for_signal(deadline);
        call.thread.with_signals(|_, own| {
            own.awaited = SigSet::EMPTY;
            own.mask = old;
        });
        info = take();
        call.thread.settle();
        if info.is_none() {
            return Err(match why {
                WaitError::TimedOut => Errno::EAGAIN.into(),
                WaitError::Interrupted => Errno::EINTR.into(),
            });
        }
    }
    let Some(info) = info else { return Err(Errno::EAGAIN.into()) };
    call.write_unless_null(call.args[1], &info.encode())?;
    Ok(info.signo as usize)
}

/// sigaltstack(2)
pub fn sigaltstack(call: &mut Call<'_>) -> Answer {
    let sp = call.user.regs().x[2];
    let old = call.thread.with_signals(|_, own| own.alt);
    if call.args[0] != 0 {
        let bytes: [u8; AltStack::SIZE] = call.read(call.args[0])?;
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| bytes[at + i]));
        let flags = word(8) as u32;
        if old.holds(sp) {
            return Err(Errno::EPERM.into());
        }
        let new = match flags & !AltStack::AUTODISARM {
            AltStack::DISABLE => AltStack::default(),
            0 | AltStack::ONSTACK => {
                AltStack { base: word(0), size: word(16), flags: flags & AltStack::AUTODISARM }
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        if flags & AltStack::DISABLE == 0 && new.size < AltStack::MIN {
            return Err(Errno::ENOMEM.into());
        }
        call.thread.with_signals(|_, own| own.alt = new);
    }
    call.write_unless_null(call.args[1], &old.encode(sp))?;
    Ok(0)
}

/// restart_syscall(2): nothing here needs it; what is restarted starts from its own number.
pub fn restart_syscall(_: &mut Call<'_>) -> Answer {
    Err(Errno::EINTR.into())
}
