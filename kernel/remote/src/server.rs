//! The home's side: answers calls about its files.
//!
//! Each client cell has a table of the vnodes handed to it, with how often, and of the handles it
//! holds. A request may name nothing else. When agreement removes a client, [`Server::client_died`]
//! drops its table, which closes its files.
//!
//! Locks: `clients` is a leaf; vnodes and open files are taken out of the table before use.

use crate::wire::{
    self, Caller, DATA_MAX, Id, Ready, Reply, Request, Travelling, Tree, WireAttr, statfs_words,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use hive_fs::abi::{FileType, NAME_MAX};
use hive_fs::io::{SliceSource, UserArg, VecSink};
use hive_fs::poll::{POLLERR, POLLHUP, POLLNVAL, PollHead, PollTable};
use hive_fs::vnode::Registry;
use hive_fs::{Errno, OpenFile, Result, VnodeRef};
use hive_protocol::{CellId, MAX_CELLS};
use hive_sync::{AtomicU64, SpinLock, rank};

/// Most vnodes and most handles that one client may hold: bounds what a mad one can cost.
pub const HELD_MAX: usize = 1 << 14;
/// Most bytes an ioctl passes each way.
const IOCTL_MAX: usize = 256;

/// What the server needs of the kernel around it.
pub trait Host: Send + Sync {
    /// The file systems of this cell.
    fn registry(&self) -> &Registry;
    /// The root of a tree that this cell is home of.
    fn tree(&self, tree: Tree) -> Option<VnodeRef>;
    /// Runs `work` as `caller`: terminals ask who the current thread is.
    fn act_as(&self, caller: Caller, work: &mut dyn FnMut());
    /// Tells `client` that a handle it polls is ready.
    fn notify(&self, client: CellId, ready: Ready);
}

/// The server of a cell's files.
pub struct Server {
    cell: CellId,
    host: Box<dyn Host>,
    clients: SpinLock<Clients>,
    /// Told when the set of polled handles changes, and how often it has.
    polled: PollHead,
    changes: AtomicU64,
}

#[derive(Default)]
struct Clients {
    tables: BTreeMap<u8, Table>,
    next_handle: u64,
}

/// What one client holds.
#[derive(Default)]
struct Table {
    vnodes: BTreeMap<Id, (VnodeRef, u32)>,
    handles: BTreeMap<u64, Handle>,
}

struct Handle {
    file: Arc<OpenFile>,
    /// Poll bits that the client waits for; 0 if it does not.
    wanted: u16,
}

impl Server {
    /// The server of `cell`.
    pub fn new(cell: CellId, host: Box<dyn Host>) -> Server {
        let clients = SpinLock::ranked(rank::FILE, Clients::default());
        Server { cell, host, clients, polled: PollHead::new(), changes: AtomicU64::new(0) }
    }

    /// Answers one call of `client`. Sleeps for disks only.
    pub fn serve(&self, client: CellId, request: &[u8]) -> Vec<u8> {
        let reply = match wire::decode::<Request<'_>>(request) {
            Some(request) => self.answer(client, request),
            None => Err(Errno::EINVAL),
        };
        wire::encode(&reply.unwrap_or_else(|error| Reply::Error(error as u16)))
    }

    /// Drops all that `client` held.
    pub fn client_died(&self, client: CellId) {
        let gone = self.clients.lock().tables.remove(&(client.index() as u8));
        drop(gone);
        self.polled.notify();
    }

    /// Makes `file` known to `client`, to which a process is about to move.
    pub fn export(&self, client: CellId, file: &Arc<OpenFile>) -> Result<Travelling> {
        let handle = self.new_handle(client, file.clone())?;
        Ok(Travelling {
            home: self.cell.index() as u16,
            handle,
            flags: file.flags(),
            id: file.vnode().id().into(),
            kind: file.vnode().kind() as u8,
        })
    }

    /// A file that came back home: the open file itself; its handle ends.
    pub fn import_own(&self, handle: u64) -> Result<Arc<OpenFile>> {
        let mut clients = self.clients.lock();
        let table = clients.tables.get_mut(&(self.cell.index() as u8)).ok_or(Errno::EBADF)?;
        let handle = table.handles.remove(&handle).ok_or(Errno::EBADF)?;
        Ok(handle.file)
    }

    /// Ends a handle that [`Server::export`] made and nobody will use.
    pub fn withdraw(&self, client: CellId, handle: u64) {
        let mut clients = self.clients.lock();
        let table = clients.tables.get_mut(&(client.index() as u8));
        let gone = table.and_then(|table| table.handles.remove(&handle));
        drop(clients);
        drop(gone);
    }

    /// How many vnodes `client` holds.
    pub fn held(&self, client: CellId) -> usize {
        self.clients.lock().table(client).vnodes.len()
    }

    /// Body of the thread that watches polled handles; never returns unless interrupted.
    pub fn poll_loop(&self) {
        loop {
            let mut ready = Vec::new();
            let seen = self.changes.load();
            let woken = PollTable::wait(None, |table| {
                table.register(&self.polled);
                ready = self.scan(table);
                // A table registers in its first scan only: a new handle needs a new table.
                ready.len() + (self.changes.load() != seen) as usize
            });
            for (client, handle) in ready {
                self.host.notify(client, Ready(handle));
            }
            if woken.is_err() {
                return;
            }
        }
    }

    /// Handles that became ready; they are not waited for any more.
    fn scan(&self, table: &mut PollTable) -> Vec<(CellId, u64)> {
        let waiting: Vec<(u8, u64, u16, Arc<OpenFile>)> = {
            let clients = self.clients.lock();
            let all =
                clients.tables.iter().flat_map(|(c, t)| t.handles.iter().map(move |h| (*c, h)));
            all.filter(|(_, (_, h))| h.wanted != 0)
                .map(|(c, (number, h))| (c, *number, h.wanted, h.file.clone()))
                .collect()
        };
        let mut ready = Vec::new();
        for (client, number, wanted, file) in waiting {
            if file.poll(table) & (wanted | POLLERR | POLLHUP | POLLNVAL) == 0 {
                continue;
            }
            let mut clients = self.clients.lock();
            let held = clients.tables.get_mut(&client).and_then(|t| t.handles.get_mut(&number));
            if let (Some(handle), Some(client)) = (held, CellId::new(client.into())) {
                handle.wanted = 0;
                ready.push((client, number));
            }
        }
        ready
    }

    fn answer(&self, client: CellId, request: Request<'_>) -> Result<Reply> {
        match request {
            Request::Root(tree) => self.hand_out(client, self.tree(tree)?),
            Request::Forget(list) => {
                let list: Vec<(Id, u32)> = wire::decode(list).ok_or(Errno::EINVAL)?;
                list.into_iter().for_each(|(id, count)| self.forget(client, id, count));
                Ok(Reply::Done)
            }
            Request::StatFs(tree) => {
                Ok(Reply::StatFs(statfs_words(&self.tree(tree)?.fs().statfs()?)))
            }
            Request::Sync => self.host.registry().sync_all().map(|()| Reply::Done),
            Request::HandleClose(handle) => {
                self.withdraw(client, handle);
                Ok(Reply::Done)
            }
            Request::HandleDup(handle, other) => {
                let other = CellId::new(other.into()).ok_or(Errno::EINVAL)?;
                let file = self.file(client, handle)?;
                self.new_handle(other, file).map(Reply::Number)
            }
            Request::HandleRead { .. }
            | Request::HandleWrite { .. }
            | Request::HandleSeek { .. }
            | Request::HandleAttr(_)
            | Request::HandlePoll { .. }
            | Request::HandleIoctl { .. } => self.answer_handle(client, request),
            request => self.answer_vnode(client, request),
        }
    }

    fn answer_vnode(&self, client: CellId, request: Request<'_>) -> Result<Reply> {
        let vnode = |id| self.vnode(client, id);
        let done = |()| Reply::Done;
        match request {
            Request::GetAttr(id) => Ok(Reply::Attr(WireAttr::from(vnode(id)?.getattr()?))),
            Request::SetAttr(id, set) => vnode(id)?.setattr(&set.set_attr()?).map(done),
            Request::Lookup(id, name) => {
                let dir = vnode(id)?;
                // The tree ends at its root, whatever the client says.
                let at_root = self.roots().any(|root| root.id() == dir.id());
                let found = if at_root && name == b".." { dir } else { dir.lookup(sound(name)?)? };
                self.hand_out(client, found)
            }
            Request::Create { dir, name, kind, perm, uid, gid } => {
                let new = kind.new_file(perm, uid, gid)?;
                self.hand_out(client, vnode(dir)?.create(fresh(name)?, &new)?)
            }
            Request::Link { dir, name, target } => {
                let target = vnode(target)?.id();
                vnode(dir)?.link(fresh(name)?, target).map(done)
            }
            Request::Unlink(dir, name) => vnode(dir)?.unlink(fresh(name)?).map(done),
            Request::Rmdir(dir, name) => vnode(dir)?.rmdir(fresh(name)?).map(done),
            Request::Rename { dir, old, to, new, flags } => {
                let to = vnode(to)?.id();
                vnode(dir)?.rename(fresh(old)?, to, fresh(new)?, flags).map(done)
            }
            Request::ReadDir { dir, cookie } => entries(&vnode(dir)?, cookie),
            Request::Readlink(id) => vnode(id)?.readlink().map(Reply::Data),
            Request::Read { id, offset, count } => {
                let mut sink = VecSink::new(DATA_MAX.min(count as usize));
                file(vnode(id)?)?.read_at(offset, &mut sink)?;
                Ok(Reply::Data(sink.data))
            }
            Request::Write { id, offset, data } => {
                if offset.is_some_and(|o| o.checked_add(data.len() as u64).is_none()) {
                    return Err(Errno::EFBIG);
                }
                let (count, behind) =
                    file(vnode(id)?)?.write_at(offset, &mut SliceSource::new(data))?;
                Ok(Reply::Written(count as u64, behind))
            }
            Request::SeekExtent { id, offset, hole } => {
                file(vnode(id)?)?.seek_extent(offset, hole).map(Reply::Number)
            }
            Request::Fsync { id, data_only } => vnode(id)?.fsync(data_only).map(done),
            _ => Err(Errno::EINVAL),
        }
    }

    fn answer_handle(&self, client: CellId, request: Request<'_>) -> Result<Reply> {
        match request {
            Request::HandleRead { handle, caller, count } => {
                let file = self.file(client, handle)?;
                let mut sink = VecSink::new(DATA_MAX.min(count as usize));
                let count = self.without_waiting(caller, || match file.ops() {
                    Some(ops) if !ops.seekable() => match file.readable() {
                        true => ops.read(0, true, &mut sink),
                        false => Err(Errno::EBADF),
                    },
                    _ => file.read(&mut sink),
                })?;
                Ok(count.map_or(Reply::WouldBlock, |_| Reply::Data(sink.data)))
            }
            Request::HandleWrite { handle, caller, data } => {
                let file = self.file(client, handle)?;
                let mut source = SliceSource::new(data);
                let count = self.without_waiting(caller, || match file.ops() {
                    Some(ops) if !ops.seekable() => match file.writable() {
                        true => ops.write(0, true, &mut source),
                        false => Err(Errno::EBADF),
                    },
                    _ => file.write(&mut source),
                })?;
                Ok(count.map_or(Reply::WouldBlock, |n| Reply::Number(n as u64)))
            }
            Request::HandleSeek { handle, delta, whence } => {
                self.file(client, handle)?.lseek(delta, whence).map(Reply::Number)
            }
            Request::HandleAttr(handle) => {
                Ok(Reply::Attr(WireAttr::from(self.file(client, handle)?.getattr()?)))
            }
            Request::HandlePoll { handle, wanted } => {
                let file = self.file(client, handle)?;
                let state = file.poll(&mut PollTable::new());
                if state & wanted == 0 {
                    self.watch(client, handle, wanted);
                }
                Ok(Reply::Number(state.into()))
            }
            Request::HandleIoctl { handle, caller, command, value, input } => {
                let file = self.file(client, handle)?;
                let argument = Argument {
                    value: value as usize,
                    input,
                    output: SpinLock::ranked(rank::FILE, Vec::new()),
                };
                let mut result = Err(Errno::EIO);
                self.host.act_as(caller, &mut || result = file.ioctl(command, &argument));
                let result = result?;
                Ok(Reply::Ioctl(result as u64, argument.output.lock().clone()))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Runs `work` as `caller`; `None` if it would have had to wait.
    fn without_waiting(
        &self,
        caller: Caller,
        mut work: impl FnMut() -> Result<usize>,
    ) -> Result<Option<usize>> {
        let mut result = Err(Errno::EIO);
        self.host.act_as(caller, &mut || result = work());
        match result {
            Ok(count) => Ok(Some(count)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn watch(&self, client: CellId, handle: u64, wanted: u16) {
        let mut clients = self.clients.lock();
        let table = clients.tables.get_mut(&(client.index() as u8));
        if let Some(held) = table.and_then(|t| t.handles.get_mut(&handle)) {
            held.wanted |= wanted;
        }
        drop(clients);
        self.changes.fetch_add(1);
        self.polled.notify();
    }

    fn tree(&self, tree: Tree) -> Result<VnodeRef> {
        self.host.tree(tree).ok_or(Errno::ENXIO)
    }

    fn roots(&self) -> impl Iterator<Item = VnodeRef> {
        [Tree::Cell, Tree::Tmp].into_iter().filter_map(|tree| self.host.tree(tree))
    }

    fn hand_out(&self, client: CellId, vnode: VnodeRef) -> Result<Reply> {
        let id = Id::from(vnode.id());
        let kind = vnode.kind() as u8;
        let mut clients = self.clients.lock();
        let table = clients.table(client);
        if table.vnodes.len() >= HELD_MAX && !table.vnodes.contains_key(&id) {
            return Err(Errno::ENFILE);
        }
        let entry = table.vnodes.entry(id).or_insert_with(|| (vnode, 0));
        entry.1 = entry.1.saturating_add(1);
        Ok(Reply::Vnode(id, kind))
    }

    fn forget(&self, client: CellId, id: Id, count: u32) {
        let mut clients = self.clients.lock();
        let table = clients.table(client);
        let Some(entry) = table.vnodes.get_mut(&id) else { return };
        entry.1 = entry.1.saturating_sub(count);
        let gone = if entry.1 == 0 { table.vnodes.remove(&id) } else { None };
        drop(clients);
        drop(gone);
    }

    fn vnode(&self, client: CellId, id: Id) -> Result<VnodeRef> {
        let mut clients = self.clients.lock();
        clients.table(client).vnodes.get(&id).map(|(v, _)| v.clone()).ok_or(Errno::ESTALE)
    }

    fn file(&self, client: CellId, handle: u64) -> Result<Arc<OpenFile>> {
        let mut clients = self.clients.lock();
        clients.table(client).handles.get(&handle).map(|h| h.file.clone()).ok_or(Errno::EBADF)
    }

    fn new_handle(&self, client: CellId, file: Arc<OpenFile>) -> Result<u64> {
        let mut clients = self.clients.lock();
        clients.next_handle += 1;
        let number = clients.next_handle;
        let table = clients.table(client);
        if table.handles.len() >= HELD_MAX {
            return Err(Errno::ENFILE);
        }
        table.handles.insert(number, Handle { file, wanted: 0 });
        Ok(number)
    }
}

impl Clients {
    fn table(&mut self, client: CellId) -> &mut Table {
        const { assert!(MAX_CELLS <= 1 << 8) };
        self.tables.entry(client.index() as u8).or_default()
    }
}

/// A name as the name layer lets it through, `.` and `..` included.
fn sound(name: &[u8]) -> Result<&[u8]> {
    match name {
        [] => Err(Errno::ENOENT),
        name if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL),
        name if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        name => Ok(name),
    }
}

/// A name that may be made or removed.
fn fresh(name: &[u8]) -> Result<&[u8]> {
    if matches!(name, b"." | b"..") { Err(Errno::EINVAL) } else { sound(name) }
}

/// A vnode that is read and written by offset.
fn file(vnode: VnodeRef) -> Result<VnodeRef> {
    match vnode.kind() {
        FileType::Regular => Ok(vnode),
        FileType::Dir => Err(Errno::EISDIR),
        _ => Err(Errno::ENXIO),
    }
}

fn entries(dir: &VnodeRef, cookie: u64) -> Result<Reply> {
    let mut list = Vec::new();
    let mut bytes = 0;
    dir.readdir(cookie, &mut |entry| {
        bytes += entry.name.len() + 32;
        let fits = bytes <= DATA_MAX;
        if fits {
            list.push((entry.ino, entry.d_type, entry.name.to_vec(), entry.next));
        }
        fits
    })?;
    Ok(Reply::Entries(list))
}

/// An ioctl's argument that came over the wire.
struct Argument<'a> {
    value: usize,
    input: &'a [u8],
    output: SpinLock<Vec<u8>>,
}

impl UserArg for Argument<'_> {
    fn value(&self) -> usize {
        self.value
    }
    fn read(&self, buf: &mut [u8]) -> Result<()> {
        let input = self.input.get(..buf.len()).ok_or(Errno::EFAULT)?;
        buf.copy_from_slice(input);
        Ok(())
    }
    fn write(&self, data: &[u8]) -> Result<()> {
        if data.len() > IOCTL_MAX {
            return Err(Errno::EFAULT);
        }
        let copy = vec::Vec::from(data);
        *self.output.lock() = copy;
        Ok(())
    }
}
