//! Calls that tell or set something about process or system.
//!
//! Partial: scheduling classes (everything is SCHED_OTHER), nice values and affinity are kept and
//! told but not acted on; `syslog` has the sizes only; `personality` is Linux's own.

use super::{Answer, Call};
use crate::creds::{Limit, rlimit};
use crate::process::{Process, TREE, Usage};
use crate::sched;
use alloc::string::String;
use alloc::sync::Arc;
use hive_fs::errno::Errno;
use hive_sync::{SpinLock, now_ns};

/// Release that uname tells: new enough for Debian's glibc.
pub const RELEASE: &str = "6.12.0-hive";

/// Version that uname tells.
pub const VERSION: &str = "#1 SMP Hive cell kernel";

/// Node name; "hive" and the cell's number unless sethostname changed it.
static HOSTNAME: SpinLock<[u8; NAME_MAX]> = SpinLock::new([0; NAME_MAX]);
/// Bytes of a field of `struct utsname`.
const NAME_MAX: usize = 65;

/// Names the cell.
pub fn set_hostname(name: &[u8]) -> Result<(), Errno> {
    if name.len() >= NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let mut field = [0; NAME_MAX];
    field[..name.len()].copy_from_slice(name);
    *HOSTNAME.lock() = field;
    Ok(())
}

/// The cell's name.
pub fn hostname() -> String {
    let name = *HOSTNAME.lock();
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// uname(2)
pub fn uname(call: &mut Call<'_>) -> Answer {
    let mut b = [0; 6 * NAME_MAX];
    let hostname = *HOSTNAME.lock();
    let fields: [&[u8]; 6] =
        [b"Linux", &hostname, RELEASE.as_bytes(), VERSION.as_bytes(), b"riscv64", b"(none)"];
    for (slot, field) in b.chunks_exact_mut(NAME_MAX).zip(fields) {
        slot[..field.len()].copy_from_slice(field);
    }
    call.write(call.args[0], &b)?;
    Ok(0)
}

/// sethostname(2)
pub fn sethostname(call: &mut Call<'_>) -> Answer {
    if !call.process().creds().is_root() {
        return Err(Errno::EPERM.into());
    }
    let mut name = [0; NAME_MAX];
    let length = call.len(1);
    let room = name.get_mut(..length).filter(|n| n.len() < NAME_MAX).ok_or(Errno::EINVAL)?;
    hive_hal::uaccess::copy_from_user(room, call.args[0])?;
    set_hostname(&name[..length])?;
    Ok(0)
}

/// sysinfo(2)
pub fn sysinfo(call: &mut Call<'_>) -> Answer {
    let (total, free) = crate::space::memory_bytes();
    let processes = TREE.lock().pids().len();
    let mut b = [0; 112];
    let mut word = |at: usize, v: u64| b[at..at + 8].copy_from_slice(&v.to_le_bytes());
    word(0, now_ns() / 1_000_000_000);
    word(32, total);
    word(40, free);
    word(80, processes as u64 & 0xffff);
    b[104..108].copy_from_slice(&1u32.to_le_bytes());
    call.write(call.args[0], &b)?;
    Ok(0)
}

/// `struct rusage` of `usage`.
pub fn rusage(usage: Usage) -> [u8; 144] {
    let mut b = [0; 144];
    let mut word = |i: usize, v: u64| b[8 * i..8 * i + 8].copy_from_slice(&v.to_le_bytes());
    for (i, ns) in [usage.user_ns, usage.system_ns].into_iter().enumerate() {
        word(2 * i, ns / 1_000_000_000);
        word(2 * i + 1, ns % 1_000_000_000 / 1000);
    }
    word(8, usage.faults);
    b
}

/// getrusage(2)
pub fn getrusage(call: &mut Call<'_>) -> Answer {
    let usage = match call.int(0) {
        0 | 1 => call.process().usage(),
        -1 => *call.process().child_usage.lock(),
        _ => return Err(Errno::EINVAL.into()),
    };
    call.write(call.args[1], &rusage(usage))?;
    Ok(0)
}

/// The process a call names; 0 is the caller.
fn target(call: &Call<'_>, pid: i32) -> Result<Arc<Process>, Errno> {
    if pid == 0 { Ok(call.process().clone()) } else { TREE.lock().get(pid) }
}

fn limits(call: &Call<'_>, pid: i32, which: u64, new: u64, old: u64) -> Answer {
    let process = target(call, pid)?;
    let own = call.process();
    if !Arc::ptr_eq(&process, own) && !own.creds().may_signal(&process.creds()) {
        return Err(Errno::EPERM.into());
    }
    let which = which as u32 as usize;
    let before = process.limits.lock().get(which)?;
    if new != 0 {
        let [soft, hard] = call.words(new)?;
        let privileged = own.creds().is_root();
        process.limits.lock().set(which, Limit { soft, hard }, privileged)?;
        if which == rlimit::NOFILE {
            process.files()?.set_limit(soft as usize);
        }
    }
    if old != 0 {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&before.soft.to_le_bytes());
        b[8..].copy_from_slice(&before.hard.to_le_bytes());
        call.write(old, &b)?;
    }
    Ok(0)
}

/// prlimit64(2)
pub fn prlimit64(call: &mut Call<'_>) -> Answer {
    limits(call, call.int(0), call.args[1], call.args[2], call.args[3])
}

/// getrlimit(2)
pub fn getrlimit(call: &mut Call<'_>) -> Answer {
    if call.args[1] == 0 {
        return Err(Errno::EFAULT.into());
    }
    limits(call, 0, call.args[0], 0, call.args[1])
}

/// setrlimit(2)
pub fn setrlimit(call: &mut Call<'_>) -> Answer {
    if call.args[1] == 0 {
        return Err(Errno::EFAULT.into());
    }
    limits(call, 0, call.args[0], call.args[1], 0)
}

/// getrandom(2)
pub fn getrandom(call: &mut Call<'_>) -> Answer {
    const FLAGS: u32 = 7;
    if call.uint(2) & !FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let length = call.len(1).min(super::TRANSFER_MAX);
    let mut done = 0;
    let mut part = [0; 256];
    while done < length {
        let n = part.len().min(length - done);
        crate::random::fill(&mut part[..n]);
        let at = call.args[0].checked_add(done as u64).ok_or(Errno::EFAULT)?;
        match call.write(at, &part[..n]) {
            Ok(()) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
        if sched::current().interrupted() {
            break;
        }
    }
    Ok(done)
}

/// getcpu(2)
pub fn getcpu(call: &mut Call<'_>) -> Answer {
    let hart = (sched::hart_index() as u32).to_le_bytes();
    call.write_unless_null(call.args[0], &hart)?;
    call.write_unless_null(call.args[1], &[0; 4])?;
    Ok(0)
}

/// sched_yield(2)
pub fn sched_yield(_: &mut Call<'_>) -> Answer {
    sched::yield_now();
    Ok(0)
}

/// Bit per hart of the cell.
fn all_harts() -> u64 {
    let harts = sched::hart_count();
    if harts >= 64 { u64::MAX } else { (1 << harts) - 1 }
}

/// sched_getaffinity(2): the bytes stored.
pub fn sched_getaffinity(call: &mut Call<'_>) -> Answer {
    let process = target(call, call.int(0))?;
    if call.len(1) < 8 || call.len(1) % 8 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let leader = process.threads.lock().first().cloned().ok_or(Errno::ESRCH)?;
    let mask = leader.affinity.load() & all_harts();
    call.write(call.args[2], &mask.to_le_bytes())?;
    Ok(8)
}

/// sched_setaffinity(2)
pub fn sched_setaffinity(call: &mut Call<'_>) -> Answer {
    let process = target(call, call.int(0))?;
    let mut bytes = [0; 8];
    let n = call.len(1).min(8);
    hive_hal::uaccess::copy_from_user(&mut bytes[..n], call.args[2])?;
    let mask = u64::from_le_bytes(bytes) & all_harts();
    if mask == 0 {
        return Err(Errno::EINVAL.into());
    }
    let leader = process.threads.lock().first().cloned().ok_or(Errno::ESRCH)?;
    leader.affinity.store(mask);
    Ok(0)
}

/// sched_getscheduler(2): SCHED_OTHER.
pub fn sched_getscheduler(call: &mut Call<'_>) -> Answer {
    target(call, call.int(0))?;
    Ok(0)
}

/// sched_getparam(2): priority 0.
pub fn sched_getparam(call: &mut Call<'_>) -> Answer {
    target(call, call.int(0))?;
    call.write(call.args[1], &[0; 4])?;
    Ok(0)
}

/// sched_setscheduler(2): SCHED_OTHER with priority 0 only.
pub fn sched_setscheduler(call: &mut Call<'_>) -> Answer {
    target(call, call.int(0))?;
    let priority: [u8; 4] = call.read(call.args[2])?;
    if call.int(1) == 0 && priority == [0; 4] { Ok(0) } else { Err(Errno::EINVAL.into()) }
}

fn priority_range(call: &Call<'_>, real_time: usize) -> Answer {
    match call.int(0) {
        0 | 3 | 5 => Ok(0),
        1 | 2 => Ok(real_time),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// sched_get_priority_max(2)
pub fn sched_get_priority_max(call: &mut Call<'_>) -> Answer {
    priority_range(call, 99)
}

/// sched_get_priority_min(2)
pub fn sched_get_priority_min(call: &mut Call<'_>) -> Answer {
    priority_range(call, 1)
}

/// getpriority(2) of a process: 20 less the nice value, as the kernel tells it.
pub fn getpriority(call: &mut Call<'_>) -> Answer {
    if call.int(0) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let nice = *target(call, call.int(1))?.nice.lock();
    Ok((20 - nice) as usize)
}

/// setpriority(2) of a process.
pub fn setpriority(call: &mut Call<'_>) -> Answer {
    if call.int(0) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let process = target(call, call.int(1))?;
    let own = call.process().creds();
    if !own.may_signal(&process.creds()) {
        return Err(Errno::EPERM.into());
    }
    let new = call.int(2).clamp(-20, 19);
    let mut nice = process.nice.lock();
    if new < *nice && !own.is_root() {
        return Err(Errno::EACCES.into());
    }
    *nice = new;
    Ok(0)
}

/// personality(2): Linux, whatever is asked.
pub fn personality(call: &mut Call<'_>) -> Answer {
    match call.uint(0) {
        0 | u32::MAX => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// syslog(2): the sizes of an empty log.
pub fn syslog(call: &mut Call<'_>) -> Answer {
    const SIZE_UNREAD: i32 = 9;
    const SIZE_BUFFER: i32 = 10;
    match call.int(0) {
        SIZE_UNREAD | SIZE_BUFFER => Ok(0),
        _ => Err(Errno::EPERM.into()),
    }
}

/// reboot(2). Power-off takes the exit code of the machine from the fourth argument, by value:
/// Linux ignores that argument there.
pub fn reboot(call: &mut Call<'_>) -> Answer {
    const MAGIC: u32 = 0xfee1_dead;
    const MAGIC2: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
    const RESTART: u32 = 0x0123_4567;
    const HALT: u32 = 0xcdef_0123;
    const POWER_OFF: u32 = 0x4321_fedc;
    const CAD_ON: u32 = 0x89ab_cdef;
    const CAD_OFF: u32 = 0;
    if !call.process().creds().is_root() {
        return Err(Errno::EPERM.into());
    }
    if call.uint(0) != MAGIC || !MAGIC2.contains(&call.uint(1)) {
        return Err(Errno::EINVAL.into());
    }
    match call.uint(2) {
        CAD_ON | CAD_OFF => Ok(0),
        POWER_OFF | HALT => crate::files::power_off(call.args[3] as u8),
        RESTART => crate::files::restart(),
        _ => Err(Errno::EINVAL.into()),
    }
}
