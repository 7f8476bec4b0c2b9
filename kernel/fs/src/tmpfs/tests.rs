use super::TmpFs;
use crate::abi::{FileType, at::*, oflag::*, seek};
use crate::cred::Cred;
use crate::errno::Errno;
use crate::io::{SliceSource, VecSink};
use crate::name::{At, Namespace};
use crate::testing::{StepClock, cache};
use crate::vnode::{FileSystem, FsId};
use alloc::format;
use alloc::vec::Vec;

#[test]
fn bytes_survive_memory_pressure_and_go_with_the_file() {
    let (cache, _ram) = cache(256);
    let fs = TmpFs::new(cache.clone(), FsId::new(0, 5), StepClock::new(), 100).unwrap();
    let other = TmpFs::new(cache.clone(), FsId::new(0, 6), StepClock::new(), 400).unwrap();
    let ns = Namespace::new(fs.clone(), false, "tmpfs").unwrap();
    let (root, cred) = (ns.root(), Cred::root());
    let at = At { ns: &ns, root: &root, base: &root, cred: &cred };
    let f = at.open(b"/f", O_RDWR | O_CREAT, 0o600).unwrap();
    let data: Vec<u8> = (0..200_000u32).map(|i| (i / 7) as u8).collect();
    assert_eq!(f.write(&mut SliceSource::new(&data)), Ok(data.len()));
    assert_eq!(fs.statfs().unwrap().bfree, 100 - 49);
    // A reader of holes elsewhere fills all other frames with clean pages.
    let v = other.root().unwrap();
    let new =
        crate::vnode::NewFile { kind: crate::vnode::NewKind::Regular, perm: 0o600, uid: 0, gid: 0 };
    let holes = v.create(b"holes", &new).unwrap();
    holes.setattr(&crate::vnode::SetAttr { size: Some(4 << 20), ..Default::default() }).unwrap();
    let mut sink = VecSink::new(4 << 20);
    assert_eq!(holes.read_at(0, &mut sink), Ok(4 << 20));
    f.lseek(0, seek::SEEK_SET).unwrap();
    let mut sink = VecSink::new(1 << 20);
    assert_eq!(f.read(&mut sink), Ok(data.len()));
    assert!(sink.data == data);
    // Truncation zeroes and gives back.
    f.truncate(5000).unwrap();
    f.truncate(9000).unwrap();
    assert_eq!(fs.statfs().unwrap().bfree, 98);
    let mut sink = VecSink::new(1 << 20);
    assert_eq!(f.pread(0, &mut sink), Ok(9000));
    assert!(sink.data[..5000] == data[..5000] && sink.data[5000..].iter().all(|b| *b == 0));
    at.unlink(b"/f", 0).unwrap();
    assert_eq!(f.pwrite(0, &mut SliceSource::new(b"x")), Ok(1));
    drop(f);
    assert_eq!(fs.statfs().unwrap().bfree, 100);
    // The limit holds.
    let f = at.open(b"/g", O_RDWR | O_CREAT, 0o600).unwrap();
    let big = alloc::vec![1; 500_000];
    assert_eq!(f.write(&mut SliceSource::new(&big)), Ok(100 * 4096));
    assert_eq!(f.write(&mut SliceSource::new(&big)), Err(Errno::ENOSPC));
    drop(f);
    at.unlink(b"/g", 0).unwrap();
    cache.memory().check();
}

#[test]
fn directories() {
    let (cache, _ram) = cache(64);
    let fs = TmpFs::new(cache, FsId::new(0, 5), StepClock::new(), 100).unwrap();
    let ns = Namespace::new(fs.clone(), false, "tmpfs").unwrap();
    let (root, cred) = (ns.root(), Cred::root());
    let at = At { ns: &ns, root: &root, base: &root, cred: &cred };
    for i in 0..20 {
        at.mkdir(format!("/d{i}").as_bytes(), 0o755).unwrap();
    }
    // rm -r: read a little, remove, read on.
    let mut cookie = 0;
    let mut seen = 0;
    loop {
        let mut name = None;
        root.vnode()
            .readdir(cookie, &mut |e| {
                let first = name.is_none();
                if first {
                    cookie = e.next;
                    name = Some(e.name.to_vec());
                }
                first
            })
            .unwrap();
        let Some(name) = name else { break };
        if name != b"." && name != b".." {
            at.unlink(&name, AT_REMOVEDIR).unwrap();
            seen += 1;
        }
    }
    assert_eq!(seen, 20);
    at.mkdir(b"/a", 0o755).unwrap();
    at.mkdir(b"/a/b", 0o755).unwrap();
    assert_eq!(at.rename(b"/a", &at, b"/a/b/c", 0), Err(Errno::EINVAL));
    assert_eq!(at.rename(b"/a/b", &at, b"/a", 0), Err(Errno::ENOTEMPTY));
    let inside = at.chdir(b"/a/b").unwrap();
    at.rename(b"/a/b", &at, b"/moved", 0).unwrap();
    let from = At { base: &inside, ..at };
    assert_eq!(from.getcwd().unwrap(), b"/moved");
    at.symlink(b"moved", b"/link").unwrap();
    assert_eq!(at.stat(b"/link", AT_SYMLINK_NOFOLLOW).unwrap().0.kind, FileType::Symlink);
    assert_eq!(at.stat(b"/link/.", 0).unwrap().0.nlink, 2);
    at.unlink(b"/moved", AT_REMOVEDIR).unwrap();
    assert_eq!(from.getcwd(), Err(Errno::ENOENT));
    assert_eq!(from.open(b"x", O_CREAT | O_RDWR, 0o600).err(), Some(Errno::ENOENT));
    assert_eq!(at.stat(b"/", 0).unwrap().0.nlink, 3);
}

#[test]
fn random_operations_match_a_model() {
    use crate::testing::{Rng, model};
    let (cache, _ram) = cache(12000);
    let fs = TmpFs::new(cache.clone(), FsId::new(0, 5), StepClock::new(), 11000).unwrap();
    let w = model::World::new(fs.clone()).unwrap();
    let (mut m, mut rng) = (model::Model::default(), Rng(21));
    for _ in 0..3000 {
        model::step(&w, &mut m, &mut rng);
    }
    model::compare(&w, &m);
    fs.sync().unwrap();
    cache.memory().check();
    let kept: u64 = m
        .names
        .keys()
        .map(|p| w.at().stat(p.as_bytes(), 0x100).unwrap().0)
        .map(|a| (a.ino, a.blocks / 8))
        .collect::<alloc::collections::BTreeMap<_, _>>()
        .values()
        .sum();
    let s = fs.statfs().unwrap();
    assert_eq!(s.blocks - s.bfree, kept, "no page is lost or counted twice");
}
