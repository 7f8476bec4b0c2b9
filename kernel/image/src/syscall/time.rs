//! Clocks, sleeps and the interval timer.
//!
//! Clocks: real time (boot's wall clock plus monotonic time), monotonic and boot time (the same
//! here: nothing suspends), their coarse and raw forms, processor time of the process.
//! Absent: setting the clock, ITIMER_VIRTUAL and ITIMER_PROF (`EINVAL`), timers with ids.

use super::{Answer, Call, Stop};
use crate::process::{Process, TREE, post, ticks};
use crate::signal::{SIGALRM, SigInfo};
use alloc::sync::Arc;
use hive_fs::errno::Errno;
use hive_sync::{Limit, SpinLock, WaitError, WaitQueue, now_ns};

const SECOND_NS: u64 = 1_000_000_000;

/// A `struct timespec` as the caller gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: i64,
}

impl Timespec {
    /// Bytes.
    pub const SIZE: usize = 16;

    /// The one at `address`.
    pub fn read(call: &Call<'_>, address: u64) -> Result<Timespec, Stop> {
        let [sec, nsec] = call.words(address)?;
        Ok(Timespec { sec: sec as i64, nsec: nsec as i64 })
    }

    /// From nanoseconds.
    pub const fn of_ns(ns: u64) -> Timespec {
        Timespec { sec: (ns / SECOND_NS) as i64, nsec: (ns % SECOND_NS) as i64 }
    }

    /// As nanoseconds, saturating; `EINVAL` if negative or not normal.
    pub fn nanoseconds(self) -> Result<u64, Stop> {
        if self.sec < 0 || !(0..SECOND_NS as i64).contains(&self.nsec) {
            return Err(Errno::EINVAL.into());
        }
        Ok((self.sec as u64).saturating_mul(SECOND_NS).saturating_add(self.nsec as u64))
    }

    /// Its bytes.
    pub fn encode(self) -> [u8; Timespec::SIZE] {
        let mut b = [0; Timespec::SIZE];
        b[..8].copy_from_slice(&self.sec.to_le_bytes());
        b[8..].copy_from_slice(&self.nsec.to_le_bytes());
        b
    }
}

/// Now plus `ns`, saturating.
pub fn deadline_after(ns: u64) -> u64 {
    now_ns().saturating_add(ns)
}

/// Wall clock, ns since 1970.
pub fn wall_ns() -> u64 {
    crate::time::wall_ns()
}

const REALTIME: i32 = 0;
const MONOTONIC: i32 = 1;

fn clock(call: &Call<'_>, id: i32) -> Result<u64, Stop> {
    match id {
        REALTIME | 5 | 11 => Ok(wall_ns()),
        MONOTONIC | 4 | 6 | 7 => Ok(now_ns()),
        2 | 3 => {
            let usage = call.process().usage();
            Ok(usage.user_ns + usage.system_ns)
        }
        // Per-process clocks of clock_getcpuclockid: only the caller's own.
        id if id < 0 && id & 3 == 2 && (!(id >> 3) == 0 || !(id >> 3) == call.process().pid) => {
            let usage = call.process().usage();
            Ok(usage.user_ns + usage.system_ns)
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

/// clock_gettime(2)
pub fn clock_gettime(call: &mut Call<'_>) -> Answer {
    let ns = clock(call, call.int(0))?;
    call.write(call.args[1], &Timespec::of_ns(ns).encode())?;
    Ok(0)
}

/// clock_getres(2)
pub fn clock_getres(call: &mut Call<'_>) -> Answer {
    clock(call, call.int(0))?;
    let tick = SECOND_NS / hive_platform::TIMEBASE_HZ;
    call.write_unless_null(call.args[1], &Timespec::of_ns(tick).encode())?;
    Ok(0)
}

/// gettimeofday(2)
pub fn gettimeofday(call: &mut Call<'_>) -> Answer {
    let now = Timespec::of_ns(wall_ns());
    let micro = Timespec { nsec: now.nsec / 1000, ..now };
    call.write_unless_null(call.args[0], &micro.encode())?;
    call.write_unless_null(call.args[1], &[0; 8])?;
    Ok(0)
}

/// Sleeps until `deadline` (ns since boot); `remainder` is the user's place for what was left,
/// or 0.
fn sleep(call: &Call<'_>, deadline: u64, remainder: u64) -> Answer {
    match super::signal::wait_for_signal(Some(deadline)) {
        WaitError::TimedOut => Ok(0),
        WaitError::Interrupted => {
            let left = Timespec::of_ns(deadline.saturating_sub(now_ns()));
            call.write_unless_null(remainder, &left.encode())?;
            Err(Stop::RestartUntil(deadline))
        }
    }
}

/// The deadline of a sleep that was stopped and continued, or else now plus `ns`.
fn resumed_or(call: &Call<'_>, ns: u64) -> u64 {
    call.thread.resume_deadline.lock().take().unwrap_or_else(|| deadline_after(ns))
}

/// nanosleep(2)
pub fn nanosleep(call: &mut Call<'_>) -> Answer {
    let ns = Timespec::read(call, call.args[0])?.nanoseconds()?;
    sleep(call, resumed_or(call, ns), call.args[1])
}

/// clock_nanosleep(2)
pub fn clock_nanosleep(call: &mut Call<'_>) -> Answer {
    const TIMER_ABSTIME: u64 = 1;
    let id = call.int(0);
    if !matches!(id, REALTIME | MONOTONIC | 7 | 11) {
        return Err(if id == 2 { Errno::EOPNOTSUPP } else { Errno::EINVAL }.into());
    }
    let ns = Timespec::read(call, call.args[2])?.nanoseconds()?;
    if call.args[1] & TIMER_ABSTIME == 0 {
        return sleep(call, resumed_or(call, ns), call.args[3]);
    }
    let left = ns.saturating_sub(clock(call, id)?);
    sleep(call, deadline_after(left), 0).map_err(|stop| match stop {
        Stop::RestartUntil(_) => Stop::RestartWithoutHandler,
        other => other,
    })
}

/// times(2)
pub fn times(call: &mut Call<'_>) -> Answer {
    let own = call.process().usage();
    let children = *call.process().child_usage.lock();
    let mut b = [0; 32];
    let values = [own.user_ns, own.system_ns, children.user_ns, children.system_ns];
    for (slot, ns) in b.chunks_exact_mut(8).zip(values) {
        slot.copy_from_slice(&ticks(ns).to_le_bytes());
    }
    call.write_unless_null(call.args[0], &b)?;
    Ok(ticks(now_ns()) as usize)
}

// ---- the interval timer ----

/// Processes with an alarm set, and the clerk that rings them.
static ALARMS: SpinLock<bool> = SpinLock::new(false);
static CHANGED: WaitQueue = WaitQueue::new();

/// Starts the kernel thread that sends SIGALRM. Once, at boot.
pub fn start_alarm_clerk() {
    crate::sched::spawn_kernel("alarm", || {
        loop {
            let next = ring();
            let limit = Limit { interruptible: false, deadline_ns: next };
            // Either way: look again.
            let _ = CHANGED.wait(limit, || core::mem::take(&mut *ALARMS.lock()).then_some(()));
        }
    });
}

/// Rings every alarm that is due; when the next one is.
fn ring() -> Option<u64> {
    let all: alloc::vec::Vec<Arc<Process>> = {
        let tree = TREE.lock();
        tree.pids().into_iter().filter_map(|pid| tree.get(pid).ok()).collect()
    };
    let mut next = None;
    for process in all {
        let now = now_ns();
        let mut alarm = process.alarm.lock();
        let (at, interval) = *alarm;
        let due = at != 0 && at <= now;
        if due {
            alarm.0 = if interval == 0 { 0 } else { now.saturating_add(interval) };
        }
        let at = alarm.0;
        drop(alarm);
        if at != 0 {
            next = Some(next.map_or(at, |n: u64| n.min(at)));
        }
        if due {
            let _ = post(&process, None, SigInfo::kernel(SIGALRM));
        }
    }
    next
}

fn encode_timer((at, interval): (u64, u64)) -> [u8; 32] {
    let left = if at == 0 { 0 } else { at.saturating_sub(now_ns()).max(1000) };
    let mut b = [0; 32];
    for (i, ns) in [interval, left].into_iter().enumerate() {
        let t = Timespec::of_ns(ns);
        let micro = Timespec { nsec: t.nsec / 1000, ..t };
        b[16 * i..16 * i + 16].copy_from_slice(&micro.encode());
    }
    b
}

/// getitimer(2)
pub fn getitimer(call: &mut Call<'_>) -> Answer {
    if call.int(0) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let alarm = *call.process().alarm.lock();
    call.write(call.args[1], &encode_timer(alarm))?;
    Ok(0)
}

/// setitimer(2)
pub fn setitimer(call: &mut Call<'_>) -> Answer {
    if call.int(0) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut ns = [0; 2];
    if call.args[1] != 0 {
        let words: [u64; 4] = call.words(call.args[1])?;
        for (i, slot) in ns.iter_mut().enumerate() {
            let (sec, usec) = (words[2 * i] as i64, words[2 * i + 1] as i64);
            if !(0..1_000_000).contains(&usec) {
                return Err(Errno::EINVAL.into());
            }
            *slot = Timespec { sec, nsec: usec * 1000 }.nanoseconds()?;
        }
    }
    let [interval, first] = ns;
    let new = if first == 0 { (0, 0) } else { (deadline_after(first), interval) };
    let old = core::mem::replace(&mut *call.process().alarm.lock(), new);
    *ALARMS.lock() = true;
    CHANGED.wake_all();
    call.write_unless_null(call.args[2], &encode_timer(old))?;
    Ok(0)
}
