//! Processes on other cells (docs/internals/cells.md): execve is where one may move.
//!
//! The *home* keeps the process, with its pid, parent, group and session; its own thread stays
//! there as a proxy that sleeps until the *host* reports the end, and passes signals on. The host
//! runs the program in a guest process of the same pid, adopted by its first process. So wait, kill
//! and job control at the home work as ever, and either death is found by the one that lives.
//!
//! A process moves only if nothing binds it: it is at home, has no children, and holds no pipe
//! and no file that it writes (it stays with its data and its pipeline).
//!
//! Absent: getppid of a guest names the host's first process; its record locks are its host's.

use super::{files, id, live, rpc, show};
use crate::creds::{Credentials, Ids};
use crate::process::{self, FsContext, Process, TREE, Thread, ThreadSignals};
use crate::signal::{self, SIG_IGN, SIGKILL, SIGNALS, SigInfo, SigSet};
use crate::tree::{Pid, Status};
use crate::{exec, sched, user};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_cells::placement::Placement;
use hive_fs::abi::FileType;
use hive_fs::{At, Errno, FdTable, Result};
use hive_hal::user::UserContext;
use hive_protocol::event::{Event, Lost};
use hive_protocol::page::LOAD_OFFSET;
use hive_protocol::rpc::{MAX_REFERENCE, Op};
use hive_protocol::{CellId, CellSet};
use hive_remote::wire::{self, Travelling};
use hive_sync::{SpinLock, WaitQueue, now_ns, rank};
use serde::{Deserialize, Serialize};

/// High byte of the process operations of [`Op`].
const SUBSYSTEM: usize = 1;

/// A process on its way to its host.
#[derive(Serialize, Deserialize)]
struct Spawn {
    pid: Pid,
    group: Pid,
    session: Pid,
    uid: [u32; 4],
    gid: [u32; 4],
    groups: Vec<u32>,
    umask: u32,
    nice: i32,
    mask: u64,
    ignored: u64,
    cwd: Vec<u8>,
    path: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    files: Vec<(i32, Travelling)>,
}

/// What a host tells the home of a guest.
#[derive(Serialize, Deserialize)]
struct Report {
    pid: Pid,
    /// 0 exited, 1 killed, 2 killed with core, 3 stopped, 4 continued; and code or signal.
    change: (u8, u32),
    user_ns: u64,
    system_ns: u64,
}

/// A process of ours that runs elsewhere.
struct Away {
    host: CellId,
    end: SpinLock<Option<Status>>,
    changed: WaitQueue,
}

static AWAY: SpinLock<BTreeMap<Pid, Arc<Away>>> = SpinLock::new(BTreeMap::new());
/// Reports on their way to homes: they are made under locks and sent by a thread.
static REPORTS: SpinLock<VecDeque<(CellId, Report)>> =
    SpinLock::ranked(rank::DEVICE, VecDeque::new());
static REPORTED: WaitQueue = WaitQueue::new();
/// With the time at which loads were last read.
static PLACEMENT: SpinLock<Option<(Placement, u64)>> = SpinLock::new(None);

/// Begins to take processes in. Before this cell says that it is up.
pub(super) fn start() {
    rpc::serve(SUBSYSTEM, serve, |_, _, _| {});
    super::on_clean_up(clean_up);
    sched::spawn_kernel("reports", || {
        loop {
            let (home, report) = REPORTED.wait_until(|| REPORTS.lock().pop_front());
            // A dead home has nobody to tell.
            let _ = rpc::call(home, Op::ExitNotify, &wire::encode(&report));
        }
    });
}

fn serve(from: CellId, op: Op, request: &[u8]) -> Result<Vec<u8>> {
    match op {
        Op::Spawn => take_in(from, wire::decode(request).ok_or(Errno::EINVAL)?),
        Op::ExitNotify => {
            let report: Report = wire::decode(request).ok_or(Errno::EINVAL)?;
            told(from, report);
            Ok(())
        }
        Op::Signal => {
            let (pid, signo): (Pid, u32) = wire::decode(request).ok_or(Errno::EINVAL)?;
            if signo > SIGNALS {
                return Err(Errno::EINVAL);
            }
            let process = TREE.lock().get(pid)?;
            if signo == 0 { Ok(()) } else { process::post(&process, None, SigInfo::kernel(signo)) }
        }
        _ => Err(Errno::ENOSYS),
    }
    .map(|()| Vec::new())
}

/// Sends `signo` to `pid` of another cell; `ESRCH` if it is none of another cell's.
pub fn signal(pid: Pid, signo: u32) -> Result<()> {
    let named = hive_protocol::Pid::from_raw(pid).ok_or(Errno::ESRCH)?;
    let home = named.cell();
    if home == id() || !live().contains(home) {
        return Err(Errno::ESRCH);
    }
    rpc::call(home, Op::Signal, &wire::encode(&(pid, signo))).map(drop)
}

// ------------------------------------------------------------------------------- home

/// Runs the program on another cell if that is better: `Some` with the end of the process when it
/// is over, `None` if it is to be executed here.
pub fn run_elsewhere(
    thread: &Thread,
    path: &[u8],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
) -> Option<Status> {
    let process = &thread.process;
    let host = may_move(process).then(choose).flatten()?;
    let mut spawn = describe(thread, path, arguments, environment)?;
    let mut bytes = Vec::new();
    let exported = export(process, host, &mut spawn).map(|()| bytes = wire::encode(&spawn));
    let away = Arc::new(Away { host, end: SpinLock::new(None), changed: WaitQueue::new() });
    AWAY.lock().insert(process.pid, away.clone());
    let fits = exported.is_ok() && bytes.len() as u64 <= MAX_REFERENCE;
    if !fits || rpc::call(host, Op::Spawn, &bytes).is_err() {
        AWAY.lock().remove(&process.pid);
        files::withdraw(host, spawn.files.iter().map(|(_, file)| file));
        return None;
    }
    leave(thread, path);
    let status = wait_for_end(thread, &away);
    AWAY.lock().remove(&process.pid);
    Some(status)
}

/// Whether nothing binds `process` to this cell.
fn may_move(process: &Process) -> bool {
    if super::place().cells == 1 || process.is_first() || process.home.get().is_some() {
        return false;
    }
    if TREE.lock().has_children(process.pid) {
        return false;
    }
    let Ok(table) = process.files() else { return false };
    table.list().iter().all(|(fd, file)| {
        let bound = match file.vnode().kind() {
            FileType::Fifo | FileType::Socket => true,
            FileType::Regular => file.writable(),
            _ => false,
        };
        !bound || table.cloexec(*fd).unwrap_or(true)
    })
}

/// The least loaded live cell, if that is another one (Hive §3.2; loads by careful reference).
fn choose() -> Option<CellId> {
    let live = live();
    let now = now_ns();
    let mut placement = PLACEMENT.lock();
    let (placement, read_at) = placement.get_or_insert_with(|| (Placement::new(id()), 0));
    // Loads are published once a tick; in between, what was sent counts.
    if now - *read_at >= crate::time::TICK_NS {
        *read_at = now;
        read_loads(live).into_iter().for_each(|(cell, load)| placement.report(cell, load));
    }
    placement.choose(live, live).filter(|cell| *cell != id())
}

fn read_loads(live: CellSet) -> Vec<(CellId, u64)> {
    live.iter()
        .filter_map(|cell| {
            let load = if cell == id() {
                sched::load()
            } else {
                super::peer(cell)?.word(LOAD_OFFSET).ok()?
            };
            Some((cell, load))
        })
        .collect()
}

fn describe(
    thread: &Thread,
    path: &[u8],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
) -> Option<Spawn> {
    let process = &thread.process;
    let cwd = process.context.lock().cwd.clone();
    let cwd = crate::files::show_path(&cwd);
    // What cannot be named from there stays here, as does a program that is not there at all.
    let foreign = |path: &[u8]| path.starts_with(b"/proc") || path.starts_with(b"/dev");
    if foreign(&cwd) || foreign(path) || exec::find(process, path).is_err() {
        return None;
    }
    let (group, session) = {
        let tree = TREE.lock();
        (tree.group(process.pid).ok()?, tree.session(process.pid).ok()?)
    };
    let creds = process.creds();
    let ids = |ids: Ids| [ids.real, ids.effective, ids.saved, ids.fs];
    let (mask, ignored) = thread.with_signals(|shared, own| {
        let ignores = |s: &u32| shared.actions.get(*s).handler == SIG_IGN;
        (own.mask.0, (1..=SIGNALS).filter(ignores).fold(0, |set, s| set | 1 << (s - 1)))
    });
    Some(Spawn {
        pid: process.pid,
        group,
        session,
        uid: ids(creds.uid),
        gid: ids(creds.gid),
        groups: creds.groups.to_vec(),
        umask: process.context.lock().umask,
        nice: *process.nice.lock(),
        mask,
        ignored,
        cwd,
        path: path.to_vec(),
        arguments: arguments.to_vec(),
        environment: environment.to_vec(),
        files: Vec::new(),
    })
}

/// Makes the open files that the program inherits known to `host`.
fn export(process: &Process, host: CellId, spawn: &mut Spawn) -> Result<()> {
    let table = process.files()?;
    for (fd, file) in table.list() {
        if !table.cloexec(fd)? {
            spawn.files.push((fd, files::export(host, &file)?));
        }
    }
    Ok(())
}

/// What the process gives up here once it runs elsewhere.
fn leave(thread: &Thread, path: &[u8]) {
    let process = &thread.process;
    let files = process.files.lock().take();
    drop(files);
    sched::current().set_space(None);
    let space = process.space.lock().take();
    process.end_loan();
    drop(space);
    let mut comm = path.rsplit(|&b| b == b'/').next().unwrap_or(b"").to_vec();
    comm.truncate(process::COMM_MAX);
    process.identity.lock().comm = comm;
    TREE.lock().execed(process.pid);
    // Every signal goes on to the guest, which decides.
    thread.with_signals(|shared, own| {
        shared.actions.reset_handlers();
        own.mask = SigSet::EMPTY;
    });
    thread.clear_tid.store(0);
}

/// Sleeps until the guest has ended; passes on what is sent to the process meanwhile.
fn wait_for_end(thread: &Thread, away: &Away) -> Status {
    loop {
        thread.settle();
        let ended = away.changed.wait_interruptible(|| *away.end.lock());
        if let Ok(status) = ended {
            return status;
        }
        while let Some(info) = thread.with_signals(|shared, own| {
            signal::take(&mut own.pending, &mut shared.pending, SigSet::EMPTY)
        }) {
            let message = wire::encode(&(thread.process.pid, info.signo));
            // A guest that has just ended needs no signal; its report is on the way.
            let _ = rpc::call(away.host, Op::Signal, &message);
        }
        if thread.process.dying.load() {
            return Status::Killed(SIGKILL, false);
        }
    }
}

/// The host `from` says what became of a guest.
fn told(from: CellId, report: Report) {
    let away = AWAY.lock().get(&report.pid).filter(|away| away.host == from).cloned();
    let (Some(away), Ok(process)) = (away, TREE.lock().get(report.pid)) else { return };
    let (kind, value) = report.change;
    let end = match kind {
        0 => Status::Exited(value as u8),
        1 | 2 if value <= SIGNALS => Status::Killed(value, kind == 2),
        3 if value <= SIGNALS => return process::stop(&process, value),
        4 => {
            // It goes on by a SIGCONT that this cell saw first, or by its host's own.
            let _ = process::post(&process, None, SigInfo::kernel(signal::SIGCONT));
            return;
        }
        _ => return,
    };
    let mut usage = process.usage.lock();
    usage.user_ns += report.user_ns;
    usage.system_ns += report.system_ns;
    drop(usage);
    finish(&away, end);
}

fn finish(away: &Away, end: Status) {
    away.end.lock().get_or_insert(end);
    away.changed.wake_all();
}

// ------------------------------------------------------------------------------- host

/// Runs a program for `home`.
fn take_in(home: CellId, spawn: Spawn) -> Result<()> {
    let named = hive_protocol::Pid::from_raw(spawn.pid).ok_or(Errno::EINVAL)?;
    if named.cell() != home || TREE.lock().contains(spawn.pid) {
        return Err(Errno::EINVAL);
    }
    let ns = crate::files::NAMESPACE.get().ok_or(Errno::EAGAIN)?;
    let ids = |[real, effective, saved, fs]: [u32; 4]| Ids { real, effective, saved, fs };
    let creds =
        Credentials { uid: ids(spawn.uid), gid: ids(spawn.gid), groups: Arc::from(spawn.groups) };
    let root = ns.root();
    let cwd = {
        let at = At { ns, root: &root, base: &root, cred: &creds.for_files() };
        at.resolve(&spawn.cwd, true)?
    };
    let table = Arc::new(FdTable::new());
    for (fd, file) in &spawn.files {
        if *fd < 0 || table.install(files::import(file)?, false, *fd)? != *fd {
            return Err(Errno::EBADF);
        }
    }
    let context = FsContext { root, cwd, umask: spawn.umask & 0o777 };
    let signals = ThreadSignals {
        mask: SigSet(spawn.mask).without(SigSet::UNMASKABLE),
        ..ThreadSignals::default()
    };
    let thread = Process::guest(spawn.pid, home, context, table, creds, signals);
    thread.with_signals(|shared, _| {
        (1..=SIGNALS).filter(|s| spawn.ignored >> (s - 1) & 1 != 0).for_each(|s| {
            let action = shared.actions.get(s);
            shared.actions.set(s, signal::SigAction { handler: SIG_IGN, ..action });
        });
    });
    *thread.process.nice.lock() = spawn.nice.clamp(-20, 19);
    let entry = exec::load_guest(&thread, spawn.path, spawn.arguments, spawn.environment)?;
    TREE.lock().adopt(spawn.pid, thread.process.clone(), spawn.group, spawn.session)?;
    let pid = spawn.pid;
    user::start(thread, UserContext::new(entry.pc, entry.sp), None).map_err(|_| {
        TREE.lock().unfork(pid);
        Errno::ENOMEM
    })
}

/// A guest changed: its home is to know. Called with locks held.
pub fn report(guest: &Process, home: CellId, status: Status) {
    let change = match status {
        Status::Exited(code) => (0, code.into()),
        Status::Killed(signal, core) => (1 + core as u8, signal),
        Status::Stopped(signal) => (3, signal),
        Status::Continued => (4, 0),
    };
    let usage = guest.usage();
    let (user_ns, system_ns) = (usage.user_ns, usage.system_ns);
    let report = Report { pid: guest.pid, change, user_ns, system_ns };
    REPORTS.lock().push_back((home, report));
    REPORTED.wake_one();
}

// ------------------------------------------------------------------------------- death

/// Ends the processes that lost a half of themselves with `dead`, each by name.
fn clean_up(dead: CellSet) {
    let away: Vec<_> = AWAY.lock().iter().map(|(pid, away)| (*pid, away.clone())).collect();
    for (pid, away) in away {
        if dead.contains(away.host) && away.end.lock().is_none() {
            condemn(pid, Lost::Thread);
            finish(&away, Status::Killed(SIGKILL, false));
        }
    }
    let (pids, guests) = {
        let tree = TREE.lock();
        let pids = tree.pids();
        let guests: Vec<_> = pids.iter().filter_map(|pid| tree.get(*pid).ok()).collect();
        (pids, guests)
    };
    drop(pids);
    for process in guests {
        let lost = process.home.get().is_some_and(|home| dead.contains(*home));
        if lost && !process.dying.load() {
            condemn(process.pid, Lost::KernelObject);
            // Never refused: it is not a queued signal.
            let _ = process::post(&process, None, SigInfo::kernel(SIGKILL));
        }
    }
}

fn condemn(pid: Pid, lost: Lost) {
    if let Some(pid) = hive_protocol::Pid::from_raw(pid) {
        show(Event::Killed { pid, lost });
    }
}
