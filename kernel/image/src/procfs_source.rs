//! What /proc tells: [`hive_fs::procfs::ProcSource`] over processes, memory and scheduler.
//!
//! Told as 0 because nothing counts it: peaks, shared and file-backed parts of the resident set,
//! load averages, interrupts, switches by thread.

use crate::process::{self, FORKS, Process, TREE, ticks};
use crate::signal::{SIG_DFL, SIG_IGN, SIGNALS, SigSet};
use crate::space::memory_bytes;
use crate::syscall::info;
use crate::{cell, console, frames, random, sched};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use hive_fs::errno::{Errno, Result};
use hive_fs::procfs::{
    Activity, CellInfo, HartInfo, MemoryInfo, ProcSource, ProcessInfo, SystemNames,
};
use hive_fs::{OpenFile, Place};
use hive_hal::devicetree::{Machine, machine};
use hive_protocol::CellId;
use hive_sync::{Once, now_ns};
use hive_vm::map::Role;

/// The kernel as /proc sees it.
pub struct Kernel;

/// Most bytes of a command line or environment that /proc reads.
const STRINGS_MAX: u64 = 128 << 10;

fn find(pid: i32) -> Result<Arc<Process>> {
    TREE.lock().get(pid)
}

/// Bytes `(start, end)` of `process`'s memory.
fn strings(process: &Process, (start, end): (u64, u64)) -> Result<Vec<u8>> {
    let Ok(space) = process.space() else { return Ok(Vec::new()) };
    let mut bytes = alloc::vec![0; end.saturating_sub(start).min(STRINGS_MAX) as usize];
    space.copy_in(start, &mut bytes).map_err(|_| Errno::EIO)?;
    Ok(bytes)
}

/// The state letter of proc(5).
fn letter(process: &Process) -> char {
    if let Some(letter) = TREE.lock().letter(process.pid) {
        return letter as char;
    }
    let leader = process.threads.lock().first().cloned();
    let runs = leader.and_then(|t| t.kernel.get().map(|k| k.is_runnable()));
    if runs.unwrap_or(false) { 'R' } else { 'S' }
}

/// Masks of pending (thread, process), blocked, ignored and caught signals.
fn signals(process: &Process) -> [u64; 5] {
    let signals = process.signals.lock();
    let own = signals.threads.first();
    let mut ignored = SigSet::EMPTY;
    let mut caught = SigSet::EMPTY;
    for signo in 1..=SIGNALS {
        match signals.shared.actions.get(signo).handler {
            SIG_DFL => {}
            SIG_IGN => ignored.add(signo),
            _ => caught.add(signo),
        }
    }
    [
        own.map_or(0, |t| t.pending.set().0),
        signals.shared.pending.set().0,
        own.map_or(0, |t| t.mask.0),
        ignored.0,
        caught.0,
    ]
}

fn describe(process: &Process, tid: i32) -> Result<ProcessInfo> {
    let pid = process.pid;
    let (ppid, pgrp, session) = {
        let tree = TREE.lock();
        (tree.parent(pid)?, tree.group(pid)?, tree.session(pid)?)
    };
    let (tty, tpgid) = console::told(session);
    let usage = process.usage();
    let children = *process.child_usage.lock();
    let creds = process.creds();
    let identity = process.identity.lock().clone();
    let [signals_pending, signals_shared, signals_blocked, signals_ignored, signals_caught] =
        signals(process);
    let mut info = ProcessInfo {
        pid,
        tid,
        comm: String::from_utf8_lossy(&identity.comm).into_owned(),
        state: letter(process),
        ppid,
        pgrp,
        session,
        tty,
        tpgid,
        minor_faults: usage.faults,
        utime: ticks(usage.user_ns) as u64,
        stime: ticks(usage.system_ns) as u64,
        children_utime: ticks(children.user_ns) as u64,
        children_stime: ticks(children.system_ns) as u64,
        nice: *process.nice.lock(),
        threads: process.threads.lock().len().max(1) as u32,
        start_time: ticks(process.start_ns) as u64,
        rss_limit: u64::MAX,
        arg_start: identity.arguments.0,
        arg_end: identity.arguments.1,
        env_start: identity.environment.0,
        env_end: identity.environment.1,
        exit_signal: process.exit_signal as i32,
        uid: [creds.uid.real, creds.uid.effective, creds.uid.saved, creds.uid.fs],
        gid: [creds.gid.real, creds.gid.effective, creds.gid.saved, creds.gid.fs],
        groups: creds.groups.to_vec(),
        umask: process.context.lock().umask,
        signals_pending,
        signals_shared,
        signals_blocked,
        signals_ignored,
        signals_caught,
        cell: cell::id().index() as u16,
        ..ProcessInfo::default()
    };
    info.priority = 20 + info.nice;
    let leader = process.threads.lock().first().cloned();
    if let Some(kernel) = leader.as_ref().and_then(|t| t.kernel.get()) {
        info.hart = kernel.hart() as u32;
    }
    if let Ok(files) = process.files() {
        info.fd_slots = files.list().last().map_or(0, |(fd, _)| *fd as u32 + 1);
    }
    if let Ok(space) = process.space() {
        let (resident, pages) = space.usage();
        let page = hive_vm::PAGE_SIZE as u64;
        info.rss = resident as u64 * page;
        info.vm_size = pages * page;
        for region in space.regions() {
            let bytes = region.end - region.start;
            match region.role {
                Role::Stack => {
                    info.stack += bytes;
                    info.start_stack = identity.arguments.0;
                }
                Role::Heap => {
                    info.data += bytes;
                    info.start_brk = region.start;
                }
                _ if region.prot.contains(hive_vm::Prot::EXEC) => info.text += bytes,
                _ if region.prot.contains(hive_vm::Prot::WRITE) => info.data += bytes,
                _ => {}
            }
        }
    }
    Ok(info)
}

impl ProcSource for Kernel {
    fn current(&self) -> (i32, i32) {
        process::current().map_or((0, 0), |thread| (thread.process.pid, thread.tid))
    }

    fn pids(&self) -> Vec<i32> {
        TREE.lock().pids()
    }

    fn tids(&self, pid: i32) -> Result<Vec<i32>> {
        let tids: Vec<i32> = find(pid)?.threads.lock().iter().map(|t| t.tid).collect();
        Ok(if tids.is_empty() { alloc::vec![pid] } else { tids })
    }

    fn process(&self, pid: i32, tid: i32) -> Result<ProcessInfo> {
        describe(&*find(pid)?, tid)
    }

    fn cmdline(&self, pid: i32) -> Result<Vec<u8>> {
        let process = find(pid)?;
        let range = process.identity.lock().arguments;
        strings(&process, range)
    }

    fn environ(&self, pid: i32) -> Result<Vec<u8>> {
        let process = find(pid)?;
        let range = process.identity.lock().environment;
        strings(&process, range)
    }

    fn maps(&self, pid: i32) -> Result<Vec<u8>> {
        let Ok(space) = find(pid)?.space() else { return Ok(Vec::new()) };
        let mut text = String::new();
        for region in space.regions() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{region}");
        }
        Ok(text.into_bytes())
    }

    fn limits(&self, pid: i32) -> Result<Vec<u8>> {
        let limits = *find(pid)?.limits.lock();
        Ok(limits.text().into_bytes())
    }

    fn exe(&self, pid: i32) -> Result<Place> {
        find(pid)?.identity.lock().exe.clone().ok_or(Errno::ENOENT)
    }

    fn cwd(&self, pid: i32) -> Result<Place> {
        Ok(find(pid)?.context.lock().cwd.clone())
    }

    fn root(&self, pid: i32) -> Result<Place> {
        Ok(find(pid)?.context.lock().root.clone())
    }

    fn files(&self, pid: i32) -> Result<Vec<(i32, Arc<OpenFile>)>> {
        Ok(find(pid)?.files()?.list())
    }

    fn memory(&self) -> MemoryInfo {
        let (total, available) = memory_bytes();
        let counts = frames::memory().counts();
        let bytes = |frames: usize| (frames * hive_vm::PAGE_SIZE) as u64;
        MemoryInfo {
            total,
            free: bytes(counts.free),
            available,
            cached: bytes(counts.cached + counts.dirty),
            dirty: bytes(counts.dirty),
            ..MemoryInfo::default()
        }
    }

    fn harts(&self) -> Vec<HartInfo> {
        let machine: &Machine = machine();
        let idle = sched::idle_ns();
        let up = now_ns();
        let own = machine.harts.iter().filter(|h| h.ours);
        own.enumerate()
            .map(|(i, hart)| {
                let idle = idle.get(i).copied().unwrap_or(0);
                let mut info = HartInfo {
                    hart: hart.id as u32,
                    isa: "rv64imafdc".into(),
                    mmu: "sv39".into(),
                    ..HartInfo::default()
                };
                info.times.idle = ticks(idle) as u64;
                // What is not idle is told as user time: nothing splits it by hart.
                info.times.user = ticks(up.saturating_sub(idle)) as u64;
                info
            })
            .collect()
    }

    fn activity(&self) -> Activity {
        let up = now_ns();
        let (pids, states) = {
            let tree = TREE.lock();
            let pids = tree.pids();
            let all: Vec<_> = pids.iter().filter_map(|&pid| tree.get(pid).ok()).collect();
            (pids, all)
        };
        let running = states.iter().filter(|p| letter(p) == 'R').count() as u32;
        Activity {
            uptime_ns: up,
            idle_ns: sched::idle_ns().iter().sum(),
            boot_time: crate::time::wall_ns().saturating_sub(up) / 1_000_000_000,
            running,
            threads: pids.len() as u32,
            last_pid: process::last_pid(),
            context_switches: sched::SWITCHES.advisory(),
            forks: FORKS.advisory(),
            ..Activity::default()
        }
    }

    fn names(&self) -> SystemNames {
        let hostname = info::hostname();
        let release = info::RELEASE;
        SystemNames {
            sysname: "Linux".into(),
            nodename: hostname,
            release: release.into(),
            version: info::VERSION.into(),
            domainname: "(none)".into(),
            banner: alloc::format!("Linux version {release} (hive) {}", info::VERSION),
            command_line: machine().bootargs.clone(),
            boot_id: boot_id().into(),
        }
    }

    fn cell(&self) -> u16 {
        cell::id().index() as u16
    }

    fn cells(&self) -> Vec<CellInfo> {
        let cells = cell::place().cells;
        (0..cells as u16)
            .map(|cell| CellInfo {
                cell,
                incarnation: 0,
                live: cell::live().contains(CellId::of(cell.into())),
            })
            .collect()
    }
}

/// A random UUID, the same for the life of the cell.
fn boot_id() -> &'static str {
    static ID: Once<String> = Once::new();
    ID.get_or_init(|| {
        let mut b = [0u8; 16];
        random::fill(&mut b);
        b[6] = b[6] & 0x0f | 0x40;
        b[8] = b[8] & 0x3f | 0x80;
        let mut text = String::new();
        for (i, byte) in b.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            let _ = write!(text, "{byte:02x}");
        }
        text
    })
}
