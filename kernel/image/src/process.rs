//! Processes and their threads: what they consist of, how they begin and end, and how signals
//! reach them. System calls are in `syscall`, the decisions about signals in [`crate::signal`],
//! about kinship in [`crate::tree`].
//!
//! # Locks, in the order they are taken
//!
//! | lock | guards |
//! |---|---|
//! | [`TREE`] | kinship, groups, sessions, zombies, who is stopped |
//! | [`Process::signals`] | actions, pending signals and masks of all its threads |
//! | the other locks of a process | one field each; nothing else is taken while one is held |
//!
//! All are spin locks of rank `PROCESS` and up, held for a few instructions; whatever may sleep
//! (dropping an address space or open files) happens after they are given back.
//!
//! # Life
//!
//! A process begins in [`Process::first`] or by clone(2), runs in [`crate::user::run`], and ends
//! in [`end`]: the last thread gives everything back, [`Tree::exit`] makes it a zombie,
//! and its parent (or the reaper) takes the rest.
//!
//! Absent: more than one thread (the structures are apart so that they can come), core dumps.

use crate::creds::{Credentials, Limits};
use crate::sched;
use crate::signal::{self, Detail, Pending, SigInfo, SigSet, si};
use crate::space::Space;
use crate::tree::{Pid, Status, Tree};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::errno::{Errno, Result};
use hive_fs::{FdTable, Place};
use hive_protocol::{CellId, Incarnation};
use hive_sync::{AtomicBool, AtomicU32, AtomicU64, Once, Rank, SpinLock, WaitQueue, now_ns, rank};

/// Rank of [`TREE`].
const RANK_TREE: Rank = rank::PROCESS;
const RANK_SIGNALS: Rank = Rank(rank::PROCESS.0 + 1);
const RANK_FIELD: Rank = Rank(rank::PROCESS.0 + 2);

/// All processes of this cell.
pub static TREE: SpinLock<Tree<Arc<Process>>> = SpinLock::ranked(RANK_TREE, Tree::new());

/// Processes made since boot, for /proc/stat.
pub static FORKS: AtomicU64 = AtomicU64::new(0);

/// Most processes of a cell at once, zombies included: a fork beyond it fails with `EAGAIN`.
pub const PROCESSES_MAX: usize = 4096;

/// What a program is called and where it lies: for /proc and prctl.
#[derive(Clone, Default)]
pub struct Identity {
    /// `comm`: at most 15 bytes.
    pub comm: Vec<u8>,
    /// The executed file.
    pub exe: Option<Place>,
    /// Address and bytes of the arguments on the stack.
    pub arguments: (u64, u64),
    /// Address and bytes of the environment on the stack.
    pub environment: (u64, u64),
}

/// Where a process is in the name space.
#[derive(Clone)]
pub struct FsContext {
    /// Its root directory.
    pub root: Place,
    /// Its working directory.
    pub cwd: Place,
    /// Permission bits that new files do not get.
    pub umask: u32,
}

/// Longest `comm`.
pub const COMM_MAX: usize = 15;

/// Signal state of one thread; guarded by its process's lock.
#[derive(Default)]
pub struct ThreadSignals {
    /// Blocked signals.
    pub mask: SigSet,
    /// The mask to restore once a handler has been set up (sigsuspend, ppoll, pselect6).
    pub saved_mask: Option<SigSet>,
    /// Sent to this thread alone.
    pub pending: Pending,
    /// Alternate stack.
    pub alt: signal::AltStack,
    /// Signals that sigtimedwait waits for, though they are blocked.
    pub awaited: SigSet,
}

/// Signal state of a process.
#[derive(Default)]
pub struct Signals {
    /// Actions and what was sent to the process.
    pub shared: signal::Shared,
    /// Of its threads, by their index in [`Process::threads`].
    pub threads: Vec<ThreadSignals>,
}

/// Processor time and faults.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// In user mode, ns.
    pub user_ns: u64,
    /// In the kernel, ns.
    pub system_ns: u64,
    /// Page faults.
    pub faults: u64,
}

impl Usage {
    /// Adds `other`.
    pub fn add(&mut self, other: Usage) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.faults += other.faults;
    }
}

/// Held by a parent that lent its address space (vfork) until the child execs or ends.
#[derive(Default)]
pub struct Loan {
    over: AtomicBool,
    queue: WaitQueue,
}

impl Loan {
    /// Gives the space back.
    pub fn end(&self) {
        self.over.store(true);
        self.queue.wake_all();
    }
    /// Sleeps until it is given back; signals do not end this.
    pub fn wait(&self) {
        self.queue.wait_until(|| self.over.load().then_some(()));
    }
}

/// See the module.
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// When it began, ns since boot.
    pub start_ns: u64,
    /// Address space; replaced by execve, taken by exit.
    pub space: SpinLock<Option<Arc<Space>>>,
    /// Open files; taken by exit.
    pub files: SpinLock<Option<Arc<FdTable>>>,
    /// Root, working directory, umask.
    pub context: SpinLock<FsContext>,
    /// Ids.
    pub credentials: SpinLock<Arc<Credentials>>,
    /// Resource limits.
    pub limits: SpinLock<Limits>,
    /// Names.
    pub identity: SpinLock<Identity>,
    /// See [`Signals`].
    pub signals: SpinLock<Signals>,
    /// Its threads; the first is the group leader.
    pub threads: SpinLock<Vec<Arc<Thread>>>,
    /// Woken when a child changes state.
    pub child_event: WaitQueue,
    /// Woken when a stopped process goes on.
    pub go_on: WaitQueue,
    /// Threads stand still at the user boundary while this holds.
    pub stopped: AtomicBool,
    /// Set once the process is ending: threads leave at the user boundary.
    pub dying: AtomicBool,
    /// Own usage.
    pub usage: SpinLock<Usage>,
    /// Usage of children waited for.
    pub child_usage: SpinLock<Usage>,
    /// Sent to the parent at the end; 0: none (clone without a signal).
    pub exit_signal: u32,
    /// The parent's lock on its own address space, if this process borrowed it.
    pub loan: SpinLock<Option<Arc<Loan>>>,
    /// Nice value, -20..=19; kept, not acted on.
    pub nice: SpinLock<i32>,
    /// The cell it came from, if it is a guest here ([`crate::cell::process`]).
    pub home: Once<CellId>,
    /// alarm(2): when SIGALRM comes, ns since boot, and the interval after it; 0: never.
    pub alarm: SpinLock<(u64, u64)>,
}

/// A thread of a process.
pub struct Thread {
    /// Its id; the leader's is the process id.
    pub tid: Pid,
    /// Its place in [`Signals::threads`].
    pub index: usize,
    /// What it is a thread of.
    pub process: Arc<Process>,
    /// The kernel thread that runs it.
    pub kernel: Once<Arc<sched::Thread>>,
    /// Where a zero is stored and a futex woken when it ends (`CLONE_CHILD_CLEARTID`).
    pub clear_tid: AtomicU64,
    /// Deadline of a sleep that a stop interrupted, so that it goes on where it was.
    pub resume_deadline: SpinLock<Option<u64>>,
    /// Harts it may run on (sched_setaffinity); kept, and reported.
    pub affinity: AtomicU64,
}

/// Which cell this is, for process ids.
struct Numbering {
    cell: CellId,
    incarnation: Incarnation,
    next: AtomicU32,
}
static NUMBERING: Once<Numbering> = Once::new();

/// Tells process ids which cell they are of; once, before the first process.
pub fn number_as(cell: CellId, incarnation: Incarnation) {
    let numbering = Numbering { cell, incarnation, next: AtomicU32::new(1) };
    assert!(NUMBERING.set(numbering).is_ok(), "the cell has its number already");
}

/// An unused process id. `TREE` is locked by the caller, who enters the id before unlocking.
fn next_pid(tree: &Tree<Arc<Process>>) -> Result<Pid> {
    let numbering = NUMBERING.get().ok_or(Errno::EAGAIN)?;
    // One more try than there can be processes.
    for _ in 0..=3 * PROCESSES_MAX {
        let sequence = numbering.next.fetch_add(1) as u16;
        let pid = hive_protocol::Pid::new(numbering.cell, numbering.incarnation, sequence);
        match pid {
            Some(pid) if !tree.is_taken(pid.raw()) => return Ok(pid.raw()),
            _ => {}
        }
    }
    Err(Errno::EAGAIN)
}

/// The process id given last.
pub fn last_pid() -> Pid {
    NUMBERING.get().map_or(0, |n| {
        let sequence = n.next.advisory().wrapping_sub(1) as u16;
        hive_protocol::Pid::new(n.cell, n.incarnation, sequence).map_or(0, |pid| pid.raw())
    })
}

impl Process {
    fn new(pid: Pid, exit_signal: u32, context: FsContext) -> Process {
        fn field<T>(value: T) -> SpinLock<T> {
            SpinLock::ranked(RANK_FIELD, value)
        }
        Process {
            pid,
            start_ns: now_ns(),
            space: field(None),
            files: field(None),
            context: field(context),
            credentials: field(Arc::new(Credentials::root())),
            limits: field(Limits::default()),
            identity: field(Identity::default()),
            signals: SpinLock::ranked(RANK_SIGNALS, Signals::default()),
            threads: field(Vec::new()),
            child_event: WaitQueue::new(),
            go_on: WaitQueue::new(),
            stopped: AtomicBool::new(false),
            dying: AtomicBool::new(false),
            usage: field(Usage::default()),
            child_usage: field(Usage::default()),
            exit_signal,
            loan: field(None),
            nice: field(0),
            home: Once::new(),
            alarm: field((0, 0)),
        }
    }

    fn add_leader(self: &Arc<Process>, signals: ThreadSignals) -> Arc<Thread> {
        let thread = Arc::new(Thread {
            tid: self.pid,
            index: 0,
            process: self.clone(),
            kernel: Once::new(),
            clear_tid: AtomicU64::new(0),
            resume_deadline: SpinLock::ranked(RANK_FIELD, None),
            affinity: AtomicU64::new(u64::MAX),
        });
        self.signals.lock().threads.push(signals);
        self.threads.lock().push(thread.clone());
        thread
    }

    /// The first process of the cell, without a program yet.
    pub fn first(files: Arc<FdTable>, context: FsContext) -> Result<Arc<Thread>> {
        let mut tree = TREE.lock();
        let pid = next_pid(&tree)?;
        let process = Arc::new(Process::new(pid, signal::SIGCHLD, context));
        tree.plant(pid, process.clone());
        drop(tree);
        *process.files.lock() = Some(files);
        Ok(process.add_leader(ThreadSignals::default()))
    }

    /// A child of `parent`'s process with copies of all that fork copies; `space` and `files`
    /// are what it shall use. It does not run yet; [`Process::abandon`] takes it back.
    pub fn fork(
        parent: &Thread,
        exit_signal: u32,
        space: Arc<Space>,
        files: Arc<FdTable>,
    ) -> Result<Arc<Thread>> {
        let from = &parent.process;
        let context = from.context.lock().clone();
        let (shared, own) = {
            let signals = from.signals.lock();
            let actions = signals.shared.actions.clone();
            let own = signals.threads.get(parent.index);
            (
                signal::Shared { actions, pending: Pending::default() },
                own.map_or((SigSet::EMPTY, Default::default()), |t| (t.mask, t.alt)),
            )
        };
        let mut tree = TREE.lock();
        if tree.pids().len() >= PROCESSES_MAX {
            return Err(Errno::EAGAIN);
        }
        let pid = next_pid(&tree)?;
        let child = Arc::new(Process::new(pid, exit_signal, context));
        tree.fork(from.pid, pid, child.clone())?;
        drop(tree);
        FORKS.fetch_add(1);
        *child.space.lock() = Some(space);
        *child.files.lock() = Some(files);
        *child.credentials.lock() = from.credentials.lock().clone();
        *child.limits.lock() = *from.limits.lock();
        let identity = from.identity.lock().clone();
        *child.identity.lock() = identity;
        let nice = *from.nice.lock();
        *child.nice.lock() = nice;
        child.signals.lock().shared = shared;
        let thread =
            child.add_leader(ThreadSignals { mask: own.0, alt: own.1, ..Default::default() });
        thread.affinity.store(parent.affinity.load());
        Ok(thread)
    }

    /// The process `pid` of cell `home`, to run its program here; not in the tree yet.
    pub fn guest(
        pid: Pid,
        home: CellId,
        context: FsContext,
        files: Arc<FdTable>,
        creds: Credentials,
        signals: ThreadSignals,
    ) -> Arc<Thread> {
        let process = Arc::new(Process::new(pid, signal::SIGCHLD, context));
        let _ = process.home.set(home);
        *process.files.lock() = Some(files);
        *process.credentials.lock() = Arc::new(creds);
        process.add_leader(signals)
    }

    /// Address space.
    pub fn space(&self) -> Result<Arc<Space>> {
        self.space.lock().clone().ok_or(Errno::ESRCH)
    }

    /// Open files.
    pub fn files(&self) -> Result<Arc<FdTable>> {
        self.files.lock().clone().ok_or(Errno::ESRCH)
    }

    /// Ids.
    pub fn creds(&self) -> Arc<Credentials> {
        self.credentials.lock().clone()
    }

    /// `comm` as text.
    pub fn comm(&self) -> String {
        String::from_utf8_lossy(&self.identity.lock().comm).into_owned()
    }

    /// Usage so far.
    pub fn usage(&self) -> Usage {
        *self.usage.lock()
    }

    /// Ends the loan of the parent's address space, if there is one.
    pub fn end_loan(&self) {
        let loan = self.loan.lock().take();
        if let Some(loan) = loan {
            loan.end();
        }
    }

    /// Whether this is the process that no signal ends against its will.
    pub fn is_first(&self) -> bool {
        NUMBERING.get().is_some_and(|n| {
            hive_protocol::Pid::new(n.cell, n.incarnation, 1).map(|p| p.raw()) == Some(self.pid)
        })
    }
}

/// The user thread that the running kernel thread carries.
pub fn current() -> Option<Arc<Thread>> {
    sched::current().local()?.downcast::<Thread>().ok()
}

impl Thread {
    /// Runs `f` on this thread's signal state and its process's.
    pub fn with_signals<R>(
        &self,
        f: impl FnOnce(&mut signal::Shared, &mut ThreadSignals) -> R,
    ) -> R {
        let mut signals = self.process.signals.lock();
        let Signals { shared, threads } = &mut *signals;
        match threads.get_mut(self.index) {
            Some(own) => f(shared, own),
            // A thread enters its state before it is seen by anyone.
            None => f(shared, &mut ThreadSignals::default()),
        }
    }

    /// Whether something waits for this thread at the user boundary.
    pub fn has_work(&self) -> bool {
        self.process.dying.load()
            || self.process.stopped.load()
            || self.with_signals(|shared, own| deliverable(shared, own))
    }

    /// Makes interruptible waits end exactly while there is work at the user boundary.
    pub fn settle(&self) {
        let Some(kernel) = self.kernel.get() else { return };
        kernel.clear_interrupt();
        if self.has_work() {
            kernel.interrupt();
        }
    }

    fn poke(&self) {
        if let Some(kernel) = self.kernel.get() {
            kernel.interrupt();
        }
    }

    /// Replaces the mask; the old one.
    pub fn set_mask(&self, mask: SigSet) -> SigSet {
        let old = self.with_signals(|_, own| {
            core::mem::replace(&mut own.mask, mask.without(SigSet::UNMASKABLE))
        });
        self.settle();
        old
    }
}

fn deliverable(shared: &signal::Shared, own: &ThreadSignals) -> bool {
    let waiting = shared.pending.set().union(own.pending.set());
    waiting.without(own.mask).0 != 0
}

/// What [`signal::Shared::generate`] says of `info` for `process` or one of its threads, acted on.
fn generate(
    tree: Option<&mut Tree<Arc<Process>>>,
    process: &Arc<Process>,
    thread: Option<&Thread>,
    info: SigInfo,
) -> Result<()> {
    let mut signals = process.signals.lock();
    let Signals { shared, threads } = &mut *signals;
    let masked = |t: &ThreadSignals| t.mask.has(info.signo);
    let taker = match thread {
        Some(thread) => Some(thread.index),
        None => threads.iter().position(|t| !masked(t)).or(Some(0)),
    };
    // A signal that is waited for must not vanish because it is ignored.
    let held =
        taker.and_then(|i| threads.get(i)).is_some_and(|t| t.mask.union(t.awaited).has(info.signo));
    let own = thread.and_then(|t| threads.get_mut(t.index)).map(|t| &mut t.pending);
    let immune = process.is_first();
    let done = shared.generate(info, own, held, immune).map_err(|_| Errno::EAGAIN)?;
    if SigSet::STOPS.has(info.signo) || info.signo == signal::SIGCONT {
        // The thread queues hold the same cancellations as the shared one.
        let cancel = if info.signo == signal::SIGCONT {
            SigSet::STOPS
        } else {
            SigSet::of(&[signal::SIGCONT])
        };
        for t in threads.iter_mut() {
            t.pending.discard(cancel);
        }
    }
    drop(signals);
    if done.resume && process.stopped.swap(false) {
        process.go_on.wake_all();
        if let Some(tree) = tree
            && tree.resume(process.pid)
            && info.signo == signal::SIGCONT
        {
            tell_parent(tree, process, Status::Continued);
        }
    }
    if done.wake {
        let threads = process.threads.lock().clone();
        if let Some(thread) = taker.and_then(|i| threads.get(i)) {
            thread.poke();
        }
    }
    Ok(())
}

/// Sends `info` to `process`, or to one `thread` of it.
pub fn post(process: &Arc<Process>, thread: Option<&Thread>, info: SigInfo) -> Result<()> {
    if info.signo == signal::SIGCONT || info.signo == signal::SIGKILL {
        let mut tree = TREE.lock();
        generate(Some(&mut tree), process, thread, info)
    } else {
        generate(None, process, thread, info)
    }
}

/// Sends `info` to every process of `group`; `ESRCH` if it has none.
pub fn post_group(group: Pid, info: SigInfo) -> Result<()> {
    let members = TREE.lock().members(group);
    if members.is_empty() {
        return Err(Errno::ESRCH);
    }
    for process in &members {
        // A full queue of one member does not spare the others.
        let _ = post(process, None, info);
    }
    Ok(())
}

/// SIGCHLD and a wake-up for the parent of `child`, which has become `status`.
fn tell_parent(tree: &Tree<Arc<Process>>, child: &Arc<Process>, status: Status) {
    if let Some(home) = child.home.get() {
        crate::cell::process::report(child, *home, status);
    }
    let Ok(parent) = tree.parent(child.pid).and_then(|pid| tree.get(pid)) else { return };
    let (code, value) = match status {
        Status::Exited(code) => (si::CLD_EXITED, code as i32),
        Status::Killed(signal, false) => (si::CLD_KILLED, signal as i32),
        Status::Killed(signal, true) => (si::CLD_DUMPED, signal as i32),
        Status::Stopped(signal) => (si::CLD_STOPPED, signal as i32),
        Status::Continued => (si::CLD_CONTINUED, signal::SIGCONT as i32),
    };
    let usage = child.usage();
    let signo = match status {
        Status::Exited(_) | Status::Killed(..) => child.exit_signal,
        _ => signal::SIGCHLD,
    };
    let quiet = matches!(status, Status::Stopped(_) | Status::Continued) && {
        let action = parent.signals.lock().shared.actions.get(signal::SIGCHLD);
        action.flags & signal::sa::NOCLDSTOP != 0
    };
    if signo != 0 && !quiet {
        let detail = Detail::Child {
            pid: child.pid,
            uid: child.creds().uid.real,
            status: value,
            utime: ticks(usage.user_ns),
            stime: ticks(usage.system_ns),
        };
        // A standard signal is never refused.
        let _ = generate(None, &parent, None, SigInfo { signo, code, detail });
    }
    parent.child_event.wake_all();
}

/// Clock ticks (`USER_HZ`, 100 a second) in `ns`.
pub fn ticks(ns: u64) -> i64 {
    (ns / 10_000_000) as i64
}

/// Stops the calling thread's process by `signo` unless a SIGCONT or SIGKILL came meanwhile.
pub fn stop(process: &Arc<Process>, signo: u32) {
    let mut tree = TREE.lock();
    let called_off = {
        let signals = process.signals.lock();
        let mut waiting = signals.shared.pending.set();
        for t in &signals.threads {
            waiting = waiting.union(t.pending.set());
        }
        waiting.has(signal::SIGCONT) || waiting.has(signal::SIGKILL)
    };
    if called_off || process.dying.load() {
        return;
    }
    if tree.stop(process.pid, signo) {
        process.stopped.store(true);
        tell_parent(&tree, process, Status::Stopped(signo));
    }
}

/// Stands still while the process is stopped.
pub fn stand_while_stopped(process: &Process) {
    let go = || (!process.stopped.load() || process.dying.load()).then_some(());
    process.go_on.wait_until(go);
}

/// Ends `thread`, the only one of its process, and with it the process. The kernel thread that
/// carried it ends next.
pub fn end(thread: Arc<Thread>, status: Status) {
    let process = thread.process.clone();
    assert!(!process.is_first(), "the first process of the cell ended: {status:?}");
    process.dying.store(true);
    crate::futex::clear_tid(&thread);
    let files = process.files.lock().take();
    drop(files);
    let space = process.space.lock().take();
    process.end_loan();
    sched::current().set_space(None);
    drop(space);
    let identity = core::mem::take(&mut *process.identity.lock());
    drop(identity);
    bury(&process, status);
    let threads = core::mem::take(&mut *process.threads.lock());
    drop(threads);
}

/// The end of `process` as the others see it.
fn bury(process: &Arc<Process>, status: Status) {
    let mut tree = TREE.lock();
    let session = tree.session(process.pid).unwrap_or(0);
    let Ok(exit) = tree.exit(process.pid, status) else { return };
    tell_parent(&tree, process, status);
    let mut gone = None;
    if let Ok(parent) = tree.get(exit.parent) {
        let action = parent.signals.lock().shared.actions.get(signal::SIGCHLD);
        if action.handler == signal::SIG_IGN || action.flags & signal::sa::NOCLDWAIT != 0 {
            gone = tree.reap(process.pid);
        }
    }
    if exit.wake_reaper
        && let Ok(reaper) = tree.get(tree.reaper())
    {
        let _ = generate(None, &reaper, None, SigInfo::kernel(signal::SIGCHLD));
        reaper.child_event.wake_all();
    }
    drop(tree);
    drop(gone);
    for orphaned in exit.orphaned {
        let _ = post_group(orphaned, SigInfo::kernel(signal::SIGHUP));
        let _ = post_group(orphaned, SigInfo::kernel(signal::SIGCONT));
    }
    if exit.led_session {
        crate::console::session_ended(session);
    }
}
