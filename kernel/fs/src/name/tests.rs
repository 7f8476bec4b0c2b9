use super::*;
use crate::abi::{at::*, oflag::*};
use crate::cred::Cred;
use crate::file::FdTable;
use crate::io::{SliceSource, VecSink};
use crate::testing::{StepClock, cache};
use crate::tmpfs::TmpFs;
use crate::vnode::FsId;

struct World {
    ns: Arc<Namespace>,
    root: Place,
    cred: Cred,
}

impl World {
    /// A read-only root with /ro/file in it, and /rw: its directory /home mounted writable.
    fn new() -> World {
        let (cache, _ram) = cache(64);
        let fs = TmpFs::new(cache, FsId::new(0, 1), StepClock::new(), 50).unwrap();
        let writable = Namespace::new(fs.clone(), false, "x").unwrap();
        let (root, cred) = (writable.root(), Cred::root());
        let at = At { ns: &writable, root: &root, base: &root, cred: &cred };
        for dir in [&b"/ro"[..], b"/home", b"/home/sub"] {
            at.mkdir(dir, 0o755).unwrap();
        }
        at.open(b"/ro/file", O_CREAT | O_RDWR, 0o640).unwrap();
        at.symlink(b"../ro/file", b"/home/up").unwrap();
        at.symlink(b"loop", b"/home/loop").unwrap();
        at.symlink(b"/home", b"/abs").unwrap();
        at.symlink(b"nowhere", b"/home/dangling").unwrap();
        let ns = Namespace::new(fs.clone(), true, "/dev/vda").unwrap();
        let root = ns.root();
        let w = World { ns, root, cred };
        let home = w.at().resolve(b"/home", true).unwrap().vnode().clone();
        w.ns.mount_at(b"/rw", fs, Some(home), false, "/dev/vda").unwrap();
        w
    }
    fn at(&self) -> At<'_> {
        At { ns: &self.ns, root: &self.root, base: &self.root, cred: &self.cred }
    }
}

#[test]
fn only_writable_trees_are_written() {
    let w = World::new();
    let at = w.at();
    assert_eq!(at.mkdir(b"/home/x", 0o755), Err(Errno::EROFS));
    at.mkdir(b"/rw/x", 0o755).unwrap();
    assert_eq!(at.stat(b"/home/x", 0).unwrap().0.kind, FileType::Dir);
    assert_eq!(at.open(b"/ro/file", O_RDWR, 0).err(), Some(Errno::EROFS));
    assert_eq!(at.open(b"/ro/new", O_RDWR | O_CREAT, 0o600).err(), Some(Errno::EROFS));
    assert_eq!(at.chmod(b"/ro/file", 0o600, 0), Err(Errno::EROFS));
    assert_eq!(at.unlink(b"/ro/file", 0), Err(Errno::EROFS));
    assert_eq!(at.truncate(b"/ro/file", 0), Err(Errno::EROFS));
    assert_eq!(at.access(b"/ro/file", 2, 0), Err(Errno::EROFS));
    assert_eq!(at.rename(b"/rw/x", &at, b"/ro/x", 0), Err(Errno::EXDEV));
    assert_eq!(at.link(b"/ro/file", &at, b"/rw/hard", 0), Err(Errno::EXDEV));
    assert_eq!(at.unlink(b"/rw", AT_REMOVEDIR), Err(Errno::EROFS));
    assert_eq!(at.statfs(b"/").unwrap().flags & 1, 1);
    assert_eq!(at.statfs(b"/rw").unwrap().flags & 1, 0);
}

#[test]
fn dots_links_and_slashes() {
    let w = World::new();
    let at = w.at();
    let ino = |p: &str| at.stat(p.as_bytes(), 0).map(|(a, _)| a.ino);
    assert_eq!(ino("/rw/.."), ino("/"));
    assert_eq!(ino("/rw/sub/../.."), ino("/"));
    assert_eq!(ino("/../.."), ino("/"));
    assert_eq!(ino("//rw///sub//"), ino("/home/sub"));
    // Relative to where the link was reached: above /rw is the root.
    assert_eq!(ino("/rw/up"), ino("/ro/file"));
    assert_eq!(ino("/abs/sub"), ino("/home/sub"));
    assert_eq!(ino("/rw/loop"), Err(Errno::ELOOP));
    assert_eq!(ino("/rw/up/"), Err(Errno::ENOTDIR));
    assert_eq!(ino("/rw/up/x"), Err(Errno::ENOTDIR));
    assert_eq!(ino(""), Err(Errno::ENOENT));
    assert_eq!(ino(&"a".repeat(256)), Err(Errno::ENAMETOOLONG));
    assert_eq!(ino(&"a/".repeat(2100)), Err(Errno::ENAMETOOLONG));
    let open = |p: &str, flags| at.open(p.as_bytes(), flags, 0o644).map(drop);
    assert_eq!(open("/rw/up", O_NOFOLLOW), Err(Errno::ELOOP));
    assert_eq!(open("/rw/up", O_NOFOLLOW | O_PATH), Ok(()));
    assert_eq!(open("/ro/file", O_DIRECTORY), Err(Errno::ENOTDIR));
    assert_eq!(open("/rw", O_RDWR), Err(Errno::EISDIR));
    assert_eq!(open("/rw/new/", O_RDWR | O_CREAT), Err(Errno::EISDIR));
    assert_eq!(open("/rw/dangling", O_RDWR | O_CREAT | O_EXCL), Err(Errno::EEXIST));
    assert_eq!(open("/rw/dangling", O_RDWR | O_CREAT), Ok(()));
    assert!(ino("/rw/nowhere").is_ok());
    at.mkdir(b"/rw/made/", 0o755).unwrap();
    assert_eq!(at.unlink(b"/rw/made/.", AT_REMOVEDIR), Err(Errno::EINVAL));
    assert_eq!(at.unlink(b"/rw/made/..", AT_REMOVEDIR), Err(Errno::ENOTEMPTY));
    assert_eq!(at.unlink(b"/rw/made/", 0), Err(Errno::EISDIR));
    at.unlink(b"/rw/made/", AT_REMOVEDIR).unwrap();
    let sub = at.chdir(b"/rw/sub").unwrap();
    let from = At { base: &sub, ..at };
    assert_eq!(from.getcwd().unwrap(), b"/rw/sub");
    at.rename(b"/rw/sub", &at, b"/rw/renamed", 0).unwrap();
    assert_eq!(from.getcwd().unwrap(), b"/rw/renamed");
    assert_eq!(from.stat(b"", AT_EMPTY_PATH).unwrap().0.ino, sub.vnode().id().ino);
    // A process whose root is /rw does not get out.
    let jail = at.resolve(b"/rw", true).unwrap();
    let inside = At { root: &jail, base: &jail, ..at };
    assert_eq!(inside.stat(b"/../..", 0).unwrap().0.ino, ino("/rw").unwrap());
    assert_eq!(inside.getcwd().unwrap(), b"/");
}

#[test]
fn permissions_by_credentials() {
    let w = World::new();
    let user = Cred { uid: 7, gid: 7, groups: Arc::from([50]) };
    let (root, at) = (w.at(), At { cred: &user, ..w.at() });
    assert_eq!(at.open(b"/ro/file", O_RDONLY, 0).err(), Some(Errno::EACCES));
    assert_eq!(at.mkdir(b"/rw/mine", 0o755), Err(Errno::EACCES));
    root.chown(b"/rw", u32::MAX, 50, 0).unwrap();
    root.chmod(b"/rw", 0o1775, 0).unwrap();
    at.mkdir(b"/rw/mine", 0o700).unwrap();
    assert_eq!(at.stat(b"/rw/mine", 0).unwrap().0.uid, 7);
    // Sticky: the group may write, but not remove what is another's.
    assert_eq!(at.unlink(b"/rw/up", 0), Err(Errno::EPERM));
    at.open(b"/rw/mine/f", O_CREAT | O_RDWR, 0o600).unwrap();
    assert_eq!(at.chown(b"/rw/mine/f", 8, u32::MAX, 0), Err(Errno::EPERM));
    at.chown(b"/rw/mine/f", u32::MAX, 50, 0).unwrap();
    assert_eq!(at.chmod(b"/rw/up", 0o777, 0), Err(Errno::EROFS));
    let other = Cred { uid: 8, gid: 8, groups: Arc::from([]) };
    let at = At { cred: &other, ..at };
    assert_eq!(at.stat(b"/rw/mine/f", 0).err(), Some(Errno::EACCES));
    assert_eq!(at.executable(b"/ro/file", 0).err(), Some(Errno::EACCES));
    assert_eq!(root.access(b"/ro/file", 1, 0), Err(Errno::EACCES), "root needs an x bit too");
}

#[test]
fn descriptors() {
    let w = World::new();
    let table = FdTable::new();
    table.set_limit(8);
    let open = |flags| w.at().open(b"/rw/f", O_RDWR | O_CREAT | flags, 0o600).unwrap();
    assert_eq!(table.install(open(0), false, 0), Ok(0));
    assert_eq!(table.dup(0, 5, true), Ok(5));
    assert_eq!(table.install(open(O_APPEND), false, 0), Ok(1));
    assert_eq!(table.dup3(0, 0, false), Err(Errno::EINVAL));
    assert_eq!(table.dup3(0, 9, false), Err(Errno::EBADF));
    let write = |fd, b: &[u8]| table.get(fd).unwrap().write(&mut SliceSource::new(b));
    write(0, b"abc").unwrap();
    write(1, b"end").unwrap();
    write(5, b"D").unwrap(); // shares the offset of 0
    let mut sink = VecSink::new(99);
    table.get(1).unwrap().pread(0, &mut sink).unwrap();
    assert_eq!(sink.data, b"abcDnd");
    let child = table.fork();
    child.close_on_exec();
    assert_eq!(child.list().iter().map(|(fd, _)| *fd).collect::<Vec<_>>(), [0, 1]);
    assert!(table.cloexec(5).unwrap());
    for fd in [2, 3, 4, 6, 7] {
        assert_eq!(table.dup(0, 0, false), Ok(fd));
    }
    assert_eq!(table.dup(0, 0, false), Err(Errno::EMFILE));
    table.close_range(2, u32::MAX, false).unwrap();
    assert_eq!(table.close(5), Err(Errno::EBADF));
    table.get(0).unwrap().lseek(0, 0).unwrap();
    let (from, to) = (table.get(0).unwrap(), open(0));
    assert_eq!(crate::file::sendfile(&to, &from, None, 4), Ok(4));
    assert_eq!(from.lseek(0, 1), Ok(4));
}
