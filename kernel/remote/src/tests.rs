//! Two cells in one process: a client whose peer is a server behind a function call.

use crate::client::Peer;
use crate::file::RemoteFiles;
use crate::fs::RemoteFs;
use crate::server::{Host, Server};
use crate::wire::{self, Caller, Ready, Reply, Request, Tree};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use hive_fs::abi::{FileType, Time};
use hive_fs::ext2::Clock;
use hive_fs::io::{SliceSource, VecSink};
use hive_fs::pipe::PipeFs;
use hive_fs::poll::{POLLIN, PollTable};
use hive_fs::tmpfs::TmpFs;
use hive_fs::vnode::{FsId, NewFile, NewKind, Registry, SetAttr};
use hive_fs::{Errno, FileSystem, OpenFile, Result, VnodeRef};
use hive_protocol::CellId;
use hive_protocol::rpc::Op;
use hive_sync::{AtomicBool, SpinLock};
use hive_vm::{Cache, CellNumber, Frame, Memory, PAGE_SIZE, PhysMem};
use std::sync::OnceLock;

const HOME: CellId = CellId::of(0);
const CLIENT: CellId = CellId::of(1);

struct Ram(SpinLock<Vec<u8>>);

impl Ram {
    fn at(frame: Frame, offset: usize) -> usize {
        frame.0 as usize * PAGE_SIZE + offset
    }
}

impl PhysMem for Ram {
    fn read(&self, frame: Frame, offset: usize, dst: &mut [u8]) {
        let at = Ram::at(frame, offset);
        dst.copy_from_slice(&self.0.lock()[at..at + dst.len()]);
    }
    fn write(&self, frame: Frame, offset: usize, src: &[u8]) {
        let at = Ram::at(frame, offset);
        self.0.lock()[at..at + src.len()].copy_from_slice(src);
    }
    fn zero(&self, frame: Frame, offset: usize, len: usize) {
        let at = Ram::at(frame, offset);
        self.0.lock()[at..at + len].fill(0);
    }
    fn copy(&self, from: Frame, to: Frame) {
        let (from, to) = (Ram::at(from, 0), Ram::at(to, 0));
        self.0.lock().copy_within(from..from + PAGE_SIZE, to);
    }
}

fn cache(cell: CellId) -> Arc<Cache> {
    const FRAMES: usize = 256;
    let ram = Ram(SpinLock::new(vec![0; FRAMES * PAGE_SIZE]));
    let all = [Frame(0)..Frame(FRAMES as u64)];
    let number = CellNumber(cell.index() as u16);
    let memory = Memory::new(number, Frame(0), FRAMES, &all, Box::new(ram));
    Arc::new(Cache::new(Arc::new(memory)))
}

struct Noon;
impl Clock for Noon {
    fn now(&self) -> Time {
        Time { sec: 43_200, nsec: 0 }
    }
}

/// The home's kernel.
struct Kernel {
    registry: Registry,
    root: VnodeRef,
    _fs: Arc<dyn FileSystem>,
    told: Arc<SpinLock<Vec<Ready>>>,
}

impl Host for Kernel {
    fn registry(&self) -> &Registry {
        &self.registry
    }
    fn tree(&self, tree: Tree) -> Option<VnodeRef> {
        (tree == Tree::Cell).then(|| self.root.clone())
    }
    fn act_as(&self, _: Caller, work: &mut dyn FnMut()) {
        work();
    }
    fn notify(&self, client: CellId, ready: Ready) {
        assert_eq!(client, CLIENT);
        self.told.lock().push(ready);
    }
}

/// The wire: a call is a function call, until the home dies.
struct Wire {
    server: Arc<Server>,
    dead: AtomicBool,
    files: OnceLock<Arc<RemoteFiles>>,
}

impl Peer for Wire {
    fn call(&self, to: CellId, _op: Op, request: &[u8]) -> Result<Vec<u8>> {
        assert_eq!(to, HOME);
        if self.dead.load() { Err(Errno::EIO) } else { Ok(self.server.serve(CLIENT, request)) }
    }
    fn caller(&self) -> Caller {
        Caller::default()
    }
}

struct Pair {
    server: Arc<Server>,
    wire: Arc<Wire>,
    root: VnodeRef,
    told: Arc<SpinLock<Vec<Ready>>>,
}

fn pair() -> Pair {
    let fs = TmpFs::new(cache(HOME), FsId::new(0, 4), Arc::new(Noon), 1000).unwrap();
    let told = Arc::new(SpinLock::new(Vec::new()));
    let root = fs.root().unwrap();
    let registry = Registry::new();
    let fs: Arc<dyn FileSystem> = fs;
    registry.add(&fs);
    let kernel = Kernel { registry, root: root.clone(), _fs: fs, told: told.clone() };
    let server = Arc::new(Server::new(HOME, Box::new(kernel)));
    let wire = Arc::new(Wire {
        server: server.clone(),
        dead: AtomicBool::new(false),
        files: OnceLock::new(),
    });
    let remote = RemoteFs::new(HOME, Tree::Cell, wire.clone(), cache(CLIENT));
    Pair { root: remote.root().unwrap(), server, wire, told }
}

const NEW: NewFile<'static> = NewFile { kind: NewKind::Regular, perm: 0o644, uid: 1, gid: 2 };

fn read(vnode: &VnodeRef, offset: u64) -> Result<Vec<u8>> {
    let mut sink = VecSink::new(1 << 20);
    vnode.read_at(offset, &mut sink).map(|_| sink.data)
}

#[test]
fn a_file_of_another_cell_reads_as_it_was_written() {
    let p = pair();
    let file = p.root.create(b"f", &NEW).unwrap();
    let data: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
    assert_eq!(file.write_at(Some(0), &mut SliceSource::new(&data)), Ok((100_000, 100_000)));
    assert_eq!(file.write_at(None, &mut SliceSource::new(b"end")), Ok((3, 100_003)));
    let again = p.root.lookup(b"f").unwrap();
    assert_eq!(again.id(), file.id());
    assert_eq!(read(&again, 0).unwrap()[..100_000], data);
    assert_eq!(read(&again, 100_000).unwrap(), b"end");
    let attr = again.getattr().unwrap();
    assert_eq!((attr.size, attr.uid, attr.perm), (100_003, 1, 0o644));
    file.setattr(&SetAttr { size: Some(4), ..SetAttr::default() }).unwrap();
    assert_eq!(read(&again, 0).unwrap(), data[..4]);
}

#[test]
fn directories_are_made_listed_and_removed() {
    let p = pair();
    let dir = p.root.create(b"d", &NewFile { kind: NewKind::Dir, ..NEW }).unwrap();
    dir.create(b"a", &NEW).unwrap();
    p.root.rename(b"d", p.root.id(), b"e", 0).unwrap();
    let mut names = Vec::new();
    let dir = p.root.lookup(b"e").unwrap();
    dir.readdir(0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })
    .unwrap();
    assert_eq!(names, [&b"."[..], b"..", b"a"]);
    assert_eq!(p.root.rmdir(b"e"), Err(Errno::ENOTEMPTY));
    dir.unlink(b"a").unwrap();
    p.root.rmdir(b"e").unwrap();
    assert_eq!(p.root.lookup(b"e").err(), Some(Errno::ENOENT));
}

#[test]
fn a_client_reaches_only_what_was_handed_to_it() {
    let p = pair();
    let file = p.root.create(b"f", &NEW).unwrap();
    let ask = |from, request: Request<'_>| -> Reply {
        let answer = p.server.serve(from, &wire::encode(&request));
        wire::decode(&answer).unwrap()
    };
    let id = file.id().into();
    assert!(matches!(ask(CLIENT, Request::GetAttr(id)), Reply::Attr(_)));
    let stale = Reply::Error(Errno::ESTALE as u16);
    assert_eq!(ask(CellId::of(2), Request::GetAttr(id)), stale);
    assert_eq!(ask(CellId::of(2), Request::Write { id, offset: None, data: b"x" }), stale);
    let bad = Reply::Error(Errno::EBADF as u16);
    assert_eq!(ask(CLIENT, Request::HandleAttr(1)), bad);
    // The tree ends at its root.
    let root = p.root.id().into();
    assert!(matches!(ask(CLIENT, Request::Lookup(root, b"..")), Reply::Vnode(up, _) if up == root));
    assert_eq!(ask(CLIENT, Request::Unlink(root, b"a/b")), Reply::Error(Errno::EINVAL as u16));
}

#[test]
fn rubbish_is_refused_and_changes_nothing() {
    let p = pair();
    p.root.create(b"f", &NEW).unwrap();
    let mut seed = 1u64;
    for length in 0..3000usize {
        let bytes: Vec<u8> = (0..length % 64)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        let answer = p.server.serve(CellId::of(3), &bytes);
        assert!(wire::decode::<Reply>(&answer).is_some());
    }
    assert!(p.root.lookup(b"f").is_ok());
}

#[test]
fn a_vnode_let_go_is_forgotten_at_home() {
    let p = pair();
    for i in 0..200u32 {
        let name = alloc::format!("f{i}");
        p.root.create(name.as_bytes(), &NEW).unwrap();
        p.root.unlink(name.as_bytes()).unwrap();
    }
    // What is still held is the root and at most the batch on its way.
    assert!(p.server.held(CLIENT) <= 40, "{}", p.server.held(CLIENT));
}

#[test]
fn an_open_pipe_travels_and_wakes_its_reader() {
    let p = pair();
    let (reader, writer) = PipeFs::new(FsId::new(0, 1)).pipe(0);
    let travelling = p.server.export(CLIENT, &reader).unwrap();
    drop(reader);
    let files = RemoteFiles::new(p.wire.clone());
    let _ = p.wire.files.set(files.clone());
    let remote = files.import(&travelling).unwrap();
    assert_eq!(remote.vnode().kind(), FileType::Fifo);
    assert_eq!(remote.poll(&mut PollTable::new()) & POLLIN, 0);
    // The home's poll thread, and a wire that delivers what it says; both end with the test.
    let server = p.server.clone();
    std::thread::spawn(move || server.poll_loop());
    let (told, wire) = (p.told.clone(), files.clone());
    std::thread::spawn(move || {
        loop {
            let next = told.lock().pop();
            match next {
                Some(ready) => wire.ready(HOME, ready),
                None => std::thread::yield_now(),
            }
        }
    });
    let read = |file: &OpenFile| {
        let mut sink = VecSink::new(10);
        file.read(&mut sink).map(|_| sink.data)
    };
    let sleeper = std::thread::spawn({
        let remote = remote.clone();
        move || read(&remote)
    });
    // Long enough for the reader to sleep, most of the time; right either way.
    std::thread::sleep(core::time::Duration::from_millis(50));
    writer.write(&mut SliceSource::new(b"wake")).unwrap();
    assert_eq!(sleeper.join().unwrap().unwrap(), b"wake");
    drop(remote);
    assert_eq!(writer.write(&mut SliceSource::new(b"x")), Err(Errno::EPIPE));
}

#[test]
fn the_death_of_the_home_is_an_error_and_of_the_client_a_close() {
    let p = pair();
    let file = p.root.create(b"f", &NEW).unwrap();
    let (reader, writer) = PipeFs::new(FsId::new(0, 1)).pipe(0);
    p.server.export(CLIENT, &reader).unwrap();
    drop(reader);
    p.server.client_died(CLIENT);
    assert_eq!(writer.write(&mut SliceSource::new(b"x")), Err(Errno::EPIPE));
    assert_eq!(file.getattr().err(), Some(Errno::ESTALE));
    p.wire.dead.store(true);
    assert_eq!(read(&file, 0), Err(Errno::EIO));
    assert_eq!(p.root.lookup(b"f").err(), Some(Errno::EIO));
}
