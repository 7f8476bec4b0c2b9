//! ppoll(2) and pselect6(2).

use super::signal::{mask_for_now, read_set};
use super::time::{Timespec, deadline_after};
use super::{Answer, Call, Stop};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::OpenFile;
use hive_fs::errno::Errno;
use hive_fs::poll::*;
use hive_sync::now_ns;

/// A deadline from a relative `struct timespec` at `address`; a zero time never sleeps.
fn deadline(call: &Call<'_>, address: u64) -> Result<Option<u64>, Stop> {
    Ok(match address {
        0 => None,
        at => match Timespec::read(call, at)?.nanoseconds()? {
            0 => Some(0),
            ns => Some(deadline_after(ns)),
        },
    })
}

/// Stores what is left of the time, as Linux does for both calls.
fn store_left(call: &Call<'_>, address: u64, deadline: Option<u64>) -> Result<(), Stop> {
    match deadline {
        Some(at) if address != 0 => {
            call.write(address, &Timespec::of_ns(at.saturating_sub(now_ns())).encode())
        }
        _ => Ok(()),
    }
}

/// A poll that a signal ended is never restarted after a handler, but after a stop.
fn interrupted(result: Result<usize, Errno>) -> Answer {
    match result {
        Err(Errno::EINTR | Errno::ERESTARTSYS) => Err(Stop::RestartWithoutHandler),
        other => Ok(other?),
    }
}

/// One descriptor that is watched.
struct Watch {
    file: Option<Arc<OpenFile>>,
    want: u16,
    got: u16,
}

fn scan(watches: &mut [Watch], table: &mut PollTable) -> usize {
    let mut ready = 0;
    for watch in watches.iter_mut() {
        let Some(file) = &watch.file else {
            ready += (watch.got != 0) as usize;
            continue;
        };
        watch.got = file.poll(table) & (watch.want | POLLERR | POLLHUP);
        ready += (watch.got != 0) as usize;
    }
    ready
}

/// ppoll(2)
pub fn ppoll(call: &mut Call<'_>) -> Answer {
    let count = call.len(1);
    let files = call.process().files()?;
    if count as u64 > call.process().limits.lock().soft(crate::creds::rlimit::NOFILE) {
        return Err(Errno::EINVAL.into());
    }
    let deadline = deadline(call, call.args[2])?;
    let address = |i: usize| call.args[0].checked_add(8 * i as u64).ok_or(Errno::EFAULT);
    let mut watches = Vec::with_capacity(count);
    for i in 0..count {
        let entry: [u8; 8] = call.read(address(i)?)?;
        let fd = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let want = u16::from_le_bytes([entry[4], entry[5]]);
        let file = if fd < 0 { None } else { files.get_io(fd).ok() };
        let got = if fd >= 0 && file.is_none() { POLLNVAL } else { 0 };
        watches.push(Watch { file, want, got });
    }
    if call.args[3] != 0 {
        if call.args[4] != 8 {
            return Err(Errno::EINVAL.into());
        }
        mask_for_now(call, read_set(call, call.args[3])?);
    }
    let result = PollTable::wait(deadline, |table| scan(&mut watches, table));
    store_left(call, call.args[2], deadline)?;
    let ready = interrupted(result)?;
    for (i, watch) in watches.iter().enumerate() {
        call.write(address(i)? + 6, &watch.got.to_le_bytes())?;
    }
    Ok(ready)
}

/// Most descriptors of a `fd_set` that is looked at.
const SET_MAX: usize = hive_fs::file::OPEN_MAX;

/// pselect6(2)
pub fn pselect6(call: &mut Call<'_>) -> Answer {
    let count = call.int(0);
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?.min(SET_MAX);
    let files = call.process().files()?;
    let deadline = deadline(call, call.args[4])?;
    // Readable, writable, exceptional: what each asks and what counts as it.
    const ASK: [u16; 3] = [POLLIN | POLLRDNORM, POLLOUT | POLLWRNORM, POLLPRI];
    const COUNTS: [u16; 3] =
        [POLLIN | POLLRDNORM | POLLHUP | POLLERR, POLLOUT | POLLWRNORM | POLLERR, POLLPRI];
    let bytes = count.div_ceil(64) * 8;
    let mut sets: [Vec<u8>; 3] = Default::default();
    for (i, set) in sets.iter_mut().enumerate() {
        set.resize(bytes, 0);
        if call.args[1 + i] != 0 {
            hive_hal::uaccess::copy_from_user(set, call.args[1 + i])?;
        }
    }
    let has = |set: &[u8], fd: usize| set[fd / 8] >> (fd % 8) & 1 == 1;
    let mut watches = Vec::new();
    let mut fds = Vec::new();
    for fd in 0..count {
        let want = (0..3).filter(|&i| has(&sets[i], fd)).fold(0, |w, i| w | ASK[i]);
        if want != 0 {
            watches.push(Watch { file: Some(files.get_io(fd as i32)?), want, got: 0 });
            fds.push(fd);
        }
    }
    if call.args[5] != 0 {
        let [mask, size] = call.words(call.args[5])?;
        if mask != 0 {
            if size != 8 {
                return Err(Errno::EINVAL.into());
            }
            mask_for_now(call, read_set(call, mask)?);
        }
    }
    let result = PollTable::wait(deadline, |table| scan(&mut watches, table));
    store_left(call, call.args[4], deadline)?;
    interrupted(result)?;
    let mut total = 0;
    for (i, set) in sets.iter_mut().enumerate() {
        let asked = core::mem::replace(set, alloc::vec![0; bytes]);
        for (&fd, watch) in fds.iter().zip(&watches) {
            if has(&asked, fd) && watch.got & COUNTS[i] != 0 {
                set[fd / 8] |= 1 << (fd % 8);
                total += 1;
            }
        }
        if call.args[1 + i] != 0 {
            call.write(call.args[1 + i], set)?;
        }
    }
    Ok(total)
}
