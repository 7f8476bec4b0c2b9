//! Files of other cells: [`hive_remote`] over this kernel's RPC and name space.
//!
//! `/cells/M` of every other cell M is mounted from M. `/tmp` is the one of the lowest live cell;
//! when that dies, the next lowest offers its own, which is empty (DESIGN §4, "Files").

use super::{id, live, rpc};
use crate::files::{self, NAMESPACE};
use crate::process::{self, TREE};
use crate::space::cache;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::name::Mount;
use hive_fs::vnode::Registry;
use hive_fs::{FileSystem, OpenFile, Result, VnodeRef};
use hive_protocol::rpc::Op;
use hive_protocol::{CellId, CellSet};
use hive_remote::file::RemoteFiles;
use hive_remote::fs::RemoteFs;
use hive_remote::server::Host;
use hive_remote::wire::{self, Caller, Ready, Travelling, Tree};
use hive_remote::{Peer, Server};
use hive_sync::{Lazy, Once, SpinLock};

/// High byte of the file operations of [`Op`].
const SUBSYSTEM: usize = 2;

/// File systems that other cells may name.
static REGISTRY: Registry = Registry::new();
/// The roots that this cell offers.
static CELL_TREE: Once<VnodeRef> = Once::new();
static TMP_TREE: Once<VnodeRef> = Once::new();
static SERVER: Lazy<Server> = Lazy::new(|| Server::new(id(), Box::new(Home)));
static REMOTE: Lazy<Arc<RemoteFiles>> = Lazy::new(|| RemoteFiles::new(Arc::new(Line)));
/// `/tmp` of another cell, while it is mounted here.
static TMP: SpinLock<Option<(CellId, Arc<Mount>)>> = SpinLock::new(None);

/// The way to other cells.
struct Line;

impl Peer for Line {
    fn call(&self, to: CellId, op: Op, request: &[u8]) -> Result<Vec<u8>> {
        rpc::call(to, op, request)
    }

    fn caller(&self) -> Caller {
        let Some(thread) = process::current() else { return Caller::default() };
        let pid = thread.process.pid;
        let tree = TREE.lock();
        Caller {
            pid: pid as u32,
            group: tree.group(pid).unwrap_or(0) as u32,
            session: tree.session(pid).unwrap_or(0) as u32,
            tty_signals_off: [false; 2],
        }
    }
}

/// This cell as home of files.
struct Home;

impl Host for Home {
    fn registry(&self) -> &Registry {
        &REGISTRY
    }

    fn tree(&self, tree: Tree) -> Option<VnodeRef> {
        match tree {
            Tree::Cell => CELL_TREE.get().cloned(),
            Tree::Tmp if tmp_home() == Some(id()) => TMP_TREE.get().cloned(),
            Tree::Tmp => None,
        }
    }

    fn act_as(&self, _caller: Caller, work: &mut dyn FnMut()) {
        // Terminals know only processes of this cell so far: a caller from another one is
        // nobody, which job control lets through.
        work();
    }

    fn notify(&self, client: CellId, ready: Ready) {
        rpc::notify(client, Op::PollNotify, &wire::encode(&ready));
    }
}

/// The cell whose `/tmp` is everybody's.
fn tmp_home() -> Option<CellId> {
    live().lowest()
}

/// Offers a file system of this cell to the others.
pub fn offer(fs: &Arc<dyn FileSystem>, tree: Tree, root: VnodeRef) {
    REGISTRY.add(fs);
    let slot = match tree {
        Tree::Cell => &CELL_TREE,
        Tree::Tmp => &TMP_TREE,
    };
    let _ = slot.set(root);
}

/// Makes `file` known to `host`, to which a process moves.
pub(super) fn export(host: CellId, file: &Arc<OpenFile>) -> Result<Travelling> {
    REMOTE.dup_for(file, host).unwrap_or_else(|| SERVER.export(host, file))
}

/// Takes back what [`export`] made for `host`, where that was a file of ours.
pub(super) fn withdraw<'a>(host: CellId, files: impl Iterator<Item = &'a Travelling>) {
    for file in files.filter(|file| usize::from(file.home) == id().index()) {
        SERVER.withdraw(host, file.handle);
    }
}

/// The open file that came with a process.
pub(super) fn import(file: &Travelling) -> Result<Arc<OpenFile>> {
    if usize::from(file.home) == id().index() {
        SERVER.import_own(file.handle)
    } else {
        REMOTE.import(file)
    }
}

/// Begins to answer the others. Before this cell says that it is up.
pub(super) fn start() {
    rpc::serve(SUBSYSTEM, |from, _, request| Ok(SERVER.serve(from, request)), notice);
    super::on_clean_up(clean_up);
    crate::sched::spawn_kernel("remote poll", || SERVER.poll_loop());
}

fn notice(from: CellId, op: Op, message: &[u8]) {
    if op == Op::PollNotify
        && let Some(ready) = wire::decode::<Ready>(message)
    {
        REMOTE.ready(from, ready);
    }
}

/// Mounts what is the others'. Once all cells are up.
pub(super) fn mount_others() {
    for cell in super::everyone().without(id()).iter() {
        mount(cell, Tree::Cell, &format!("/cells/{cell}"));
    }
    mount_tmp();
}

fn mount(cell: CellId, tree: Tree, path: &str) -> Option<Arc<Mount>> {
    let ns = NAMESPACE.get()?;
    let fs = RemoteFs::new(cell, tree, Arc::new(Line), cache().clone());
    let mounted = fs.root().and_then(|root| files::mount_at(ns, path, fs, root, "cell"));
    match mounted {
        Ok(mount) => mount,
        Err(why) => {
            log!("hive: {path} of cell {cell} is not mounted: {why}");
            None
        }
    }
}

/// Mounts the `/tmp` of its home, over our own, unless that is us.
fn mount_tmp() {
    let home = tmp_home().filter(|home| *home != id());
    let old = TMP.lock().take();
    let keep = old.as_ref().is_some_and(|(cell, _)| Some(*cell) == home);
    if keep {
        *TMP.lock() = old;
        return;
    }
    if let (Some((_, mount)), Some(ns)) = (old, NAMESPACE.get()) {
        // It was mounted here, so it can be taken off.
        let _ = ns.unmount(&mount);
    }
    if let Some(home) = home
        && let Some(mount) = mount(home, Tree::Tmp, "/tmp")
    {
        *TMP.lock() = Some((home, mount));
    }
}

/// After the death of cells: what they held of ours is closed, what we held of theirs fails.
fn clean_up(dead: CellSet) {
    for cell in dead.iter() {
        SERVER.client_died(cell);
        REMOTE.home_died(cell);
    }
    // The new home answers once it has cleaned up too, and may itself be waiting for us: later.
    crate::sched::spawn_kernel("tmp", mount_tmp);
}
