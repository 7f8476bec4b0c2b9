//! Terminals and the processes that use them: what `hive-fs` asks of the kernel around a
//! terminal, the console of the cell, and which session has which terminal.

use crate::process::{self, Process, TREE, Thread, post_group};
use crate::signal::{SIGTTIN, SIGTTOU, SigInfo};
use crate::tree::Pid;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use hive_fs::devfs::{CONSOLE_RDEV, DevHost};
use hive_fs::errno::Result;
use hive_fs::tty::{Caller, Host, Tty};
use hive_sync::{Once, SpinLock};

/// The console of the cell.
static CONSOLE: Once<Arc<Tty>> = Once::new();
/// Controlling terminals by session.
static CONTROLLING: SpinLock<BTreeMap<Pid, Arc<Tty>>> = SpinLock::new(BTreeMap::new());

/// The cell's UART as the wire of a terminal, and what devices ask of the kernel.
pub struct Wire;

/// Whether `signo` would come to nothing for `thread`, so that job control must not stop it.
fn unreachable(thread: &Thread, signo: u32, orphaned: bool) -> bool {
    orphaned
        || thread.with_signals(|shared, own| {
            own.mask.has(signo) || shared.actions.get(signo).handler == crate::signal::SIG_IGN
        })
}

impl Host for Wire {
    fn output(&self, bytes: &[u8]) {
        hive_hal::console::write(bytes);
    }

    fn caller(&self) -> Caller {
        let Some(thread) = process::current() else { return Caller::default() };
        let pid = thread.process.pid;
        let tree = TREE.lock();
        let (group, session) = (tree.group(pid).unwrap_or(0), tree.session(pid).unwrap_or(0));
        let orphaned = tree.is_orphaned(group);
        drop(tree);
        Caller {
            group: group as u32,
            session: session as u32,
            leader: session == pid,
            no_ttin: unreachable(&thread, SIGTTIN, orphaned),
            no_ttou: unreachable(&thread, SIGTTOU, orphaned),
        }
    }

    fn signal_group(&self, group: u32, signal: u32) {
        // A group may have ended since the terminal was told of it.
        let _ = post_group(group as Pid, SigInfo::kernel(signal));
    }

    fn group_in_session(&self, group: u32, session: u32) -> bool {
        TREE.lock().session_of_group(group as Pid) == Some(session as Pid)
    }

    fn control(&self, session: u32, tty: Option<Arc<Tty>>) {
        let old = match tty {
            Some(tty) => CONTROLLING.lock().insert(session as Pid, tty),
            None => CONTROLLING.lock().remove(&(session as Pid)),
        };
        drop(old);
    }
}

/// The console of the cell, made on first use.
pub fn console() -> &'static Arc<Tty> {
    CONSOLE.get_or_init(|| {
        let tty = Tty::new(Arc::new(Wire));
        let wire = tty.clone();
        hive_hal::console::on_input(move |byte| wire.input(&[byte]));
        tty
    })
}

/// Lets what was printed reach the wire before the power goes: a hart of another node than the
/// console's has only handed it over (device pages answer their own node). It sleeps for longer
/// than the tick at which that node's harts take it.
pub fn let_out() {
    hive_sync::sched::sleep_ns(2 * crate::time::TICK_NS);
}

/// The controlling terminal of `session`.
pub fn of_session(session: Pid) -> Option<Arc<Tty>> {
    CONTROLLING.lock().get(&session).cloned()
}

impl DevHost for Wire {
    fn random(&self, buf: &mut [u8]) {
        crate::random::fill(buf);
    }

    /// What /dev/tty is to the caller.
    fn controlling_tty(&self) -> Option<Arc<Tty>> {
        let thread = process::current()?;
        let session = TREE.lock().session(thread.process.pid).ok()?;
        of_session(session)
    }
}

/// A session leader ended: its terminal is free, and the foreground group is told.
pub fn session_ended(session: Pid) {
    if let Some(tty) = of_session(session) {
        tty.release(session as u32);
    }
}

/// Device number and foreground group of the controlling terminal of `session`, for /proc.
pub fn told(session: Pid) -> (u64, i32) {
    match of_session(session) {
        Some(tty) => (CONSOLE_RDEV, tty.foreground().map_or(-1, |group| group as i32)),
        None => (0, -1),
    }
}

/// Descriptors 0, 1 and 2 of the first process: the console.
pub fn open_standard(process: &Process) -> Result<()> {
    let file = crate::files::open_console()?;
    let files = process.files()?;
    for _ in 0..3 {
        files.install(file.clone(), false, 0)?;
    }
    Ok(())
}
