//! ext2 against e2fsprogs: images made by `mke2fs -d`, judged by `e2fsck -fn`, read by `debugfs`.

use super::Ext2;
use crate::abi::{FileType, at::*, oflag::*, rename::*};
use crate::errno::{Errno, Result};
use crate::io::{SliceSink, SliceSource, VecSink};
use crate::testing::model::{self, Model, Node, compare, pattern, step};
use crate::testing::{MemDisk, Rng, StepClock, cache};
use crate::vnode::{FileSystem, FsId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{eprintln, fs, println};

/// A scratch folder that goes when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("hive-ext2-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(program: &str, args: &[&str]) -> Option<(bool, String)> {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let out = Command::new(program).args(args).env("PATH", path).output();
    match out {
        Ok(o) => {
            let text = [o.stdout, o.stderr].concat();
            Some((o.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(_) => {
            println!("skipped: {program} (e2fsprogs) is not installed");
            None
        }
    }
}

/// An image of `blocks` blocks with what lies in `tree`.
fn make_image(dir: &Path, tree: Option<&Path>, options: &[&str], blocks: u32) -> Option<Vec<u8>> {
    let image = dir.join("image");
    let _ = fs::remove_file(&image);
    let (image_str, blocks) = (image.to_str().unwrap().to_string(), blocks.to_string());
    let mut args = alloc::vec!["-q", "-F", "-t", "ext2"];
    args.extend_from_slice(options);
    let tree = tree.map(|t| t.to_str().unwrap().to_string());
    if let Some(t) = &tree {
        args.extend_from_slice(&["-d", t]);
    }
    args.extend_from_slice(&[&image_str, &blocks]);
    let (ok, text) = run("mke2fs", &args)?;
    assert!(ok, "mke2fs: {text}");
    Some(fs::read(&image).unwrap())
}

/// e2fsck finds nothing to mend.
fn check(dir: &Path, data: &[u8]) {
    let image = dir.join("checked");
    fs::write(&image, data).unwrap();
    let (ok, text) = run("e2fsck", &["-fn", image.to_str().unwrap()]).unwrap();
    assert!(ok, "e2fsck: {text}");
}

struct World {
    fs: Arc<Ext2>,
    disk: Arc<MemDisk>,
    view: model::World,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.fs.unmount();
    }
}

impl core::ops::Deref for World {
    type Target = model::World;
    fn deref(&self) -> &model::World {
        &self.view
    }
}

impl World {
    fn mount(data: Vec<u8>, frames: usize) -> Result<World> {
        let (cache, ram) = cache(frames);
        let disk = MemDisk::new(data, ram);
        let fs = Ext2::mount(disk.clone(), cache, FsId::new(0, 1), StepClock::new())?;
        Ok(World { view: model::World::new(fs.clone())?, disk, fs })
    }

    fn image(&self) -> Vec<u8> {
        self.disk.data.lock().unwrap().clone()
    }
}

#[test]
fn reads_what_mke2fs_wrote() {
    let scratch = Scratch::new("read");
    let tree = scratch.0.join("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    let big = pattern(5, 5_000_000);
    fs::write(tree.join("big"), &big).unwrap();
    fs::write(tree.join("sub/deep/small"), b"hello\n").unwrap();
    std::os::unix::fs::symlink("sub/deep/small", tree.join("fast")).unwrap();
    let long = format!("sub/{}deep/small", "./".repeat(100));
    std::os::unix::fs::symlink(&long, tree.join("slow")).unwrap();
    for i in 0..300 {
        fs::write(tree.join(format!("sub/file-number-{i:04}")), format!("{i}")).unwrap();
    }
    for block in ["1024", "2048", "4096"] {
        let Some(image) = make_image(&scratch.0, Some(&tree), &["-b", block], 16384) else {
            return;
        };
        let w = World::mount(image, 400).unwrap();
        assert_eq!(w.read("/big").unwrap(), big, "block size {block}");
        assert_eq!(w.read("/fast").unwrap(), b"hello\n");
        assert_eq!(w.read("/slow").unwrap(), b"hello\n");
        assert_eq!(w.at().readlink(b"/slow").unwrap(), long.as_bytes());
        assert_eq!(w.list("/sub").unwrap().len(), 301);
        assert_eq!(w.read("/sub/file-number-0299").unwrap(), b"299");
        assert_eq!(w.read("/nothing").unwrap_err(), Errno::ENOENT);
    }
}

/// debugfs reads the same tree off the image.
fn compare_debugfs(dir: &Path, data: &[u8], m: &Model) {
    let (image, out) = (dir.join("dumped"), dir.join("out"));
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    fs::write(&image, data).unwrap();
    let request = format!("rdump / {}", out.display());
    run("debugfs", &["-R", &request, image.to_str().unwrap()]).unwrap();
    for (path, node) in &m.names {
        let host = out.join(&path[1..]);
        match node {
            Node::File(c) => assert!(fs::read(&host).unwrap() == m.contents[*c], "{path}"),
            Node::Link(t) => assert_eq!(fs::read_link(&host).unwrap().to_str().unwrap(), t),
            Node::Dir => assert!(host.is_dir()),
        }
    }
}

fn random_run(block: &str, seed: u64, steps: usize) {
    let scratch = Scratch::new(&format!("random-{block}-{seed}"));
    let bytes: u32 = 48 << 20;
    let blocks = bytes / block.parse::<u32>().unwrap();
    let Some(image) = make_image(&scratch.0, None, &["-b", block, "-N", "4000"], blocks) else {
        return;
    };
    let w = World::mount(image, 600).unwrap();
    let mut m = Model::default();
    let mut rng = Rng(seed);
    for i in 0..steps {
        step(&w, &mut m, &mut rng);
        if i % 400 == 399 {
            w.fs.sync().unwrap();
            check(&scratch.0, &w.image());
        }
    }
    compare(&w, &m);
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
    compare_debugfs(&scratch.0, &w.image(), &m);
    // And again from the disk alone.
    compare(&World::mount(w.image(), 300).unwrap(), &m);
}

#[test]
fn random_operations_match_a_model_4k() {
    random_run("4096", 11, 1500);
}

#[test]
fn random_operations_match_a_model_1k() {
    random_run("1024", 12, 1500);
}

#[test]
fn sparse_files_and_the_whole_tree_of_indirect_blocks() {
    let scratch = Scratch::new("sparse");
    let Some(image) = make_image(&scratch.0, None, &["-b", "1024"], 8192) else { return };
    let w = World::mount(image, 300).unwrap();
    // One block below each kind of indirect block: 1 KB blocks, 256 pointers each.
    let kb = 1024;
    let places = [0, 12 * kb, (12 + 256) * kb, (12 + 256 + 65536) * kb, 1 << 33];
    for at in places {
        w.write("/holes", at, b"x").unwrap();
    }
    let attr = w.at().stat(b"/holes", 0).unwrap().0;
    assert_eq!(attr.size, (1 << 33) + 1);
    assert_eq!(attr.blocks, 2 * (5 + 1 + 2 + 3 + 2), "5 of data, 8 indirect");
    let f = w.at().open(b"/holes", O_RDONLY, 0).unwrap();
    let mut hole = [1; 100];
    f.pread(5 * kb, &mut SliceSink::new(&mut hole)).unwrap();
    assert_eq!(hole, [0; 100]);
    assert_eq!(f.lseek(1, crate::abi::seek::SEEK_HOLE), Ok(kb));
    assert_eq!(f.lseek(kb as i64, crate::abi::seek::SEEK_DATA), Ok(12 * kb));
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
    let free = w.fs.statfs().unwrap().bfree;
    w.at().truncate(b"/holes", 13 * kb).unwrap();
    assert_eq!(w.at().stat(b"/holes", 0).unwrap().0.blocks, 2 * 3);
    drop(f);
    w.at().unlink(b"/holes", 0).unwrap();
    assert_eq!(w.fs.statfs().unwrap().bfree, free + 13);
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
}

#[test]
fn full_disk_says_so_and_stays_consistent() {
    let scratch = Scratch::new("full");
    let Some(image) = make_image(&scratch.0, None, &["-b", "4096", "-N", "64"], 600) else {
        return;
    };
    let w = World::mount(image, 2000).unwrap();
    let chunk = pattern(9, 300_000);
    let mut end = None;
    for i in 0..100 {
        if let Err(e) =
            w.at().open(format!("/f{i}").as_bytes(), O_RDWR | O_CREAT, 0o644).and_then(|f| {
                let mut src = SliceSource::new(&chunk);
                f.write(&mut src)?;
                if crate::io::ByteSource::left(&src) > 0 {
                    f.write(&mut src).map(drop)
                } else {
                    Ok(())
                }
            })
        {
            end = Some(e);
            break;
        }
    }
    assert_eq!(end, Some(Errno::ENOSPC));
    assert_eq!(w.fs.statfs().unwrap().bfree, 0);
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
    w.at().unlink(b"/f0", 0).unwrap();
    w.write("/again", 0, &chunk[..100_000]).unwrap();
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
}

#[test]
fn open_file_without_a_name_lives_until_closed() {
    let scratch = Scratch::new("orphan");
    let Some(image) = make_image(&scratch.0, None, &["-b", "4096"], 1000) else { return };
    let w = World::mount(image, 300).unwrap();
    w.write("/f", 0, &pattern(1, 50_000)).unwrap();
    w.fs.sync().unwrap();
    let free = w.fs.statfs().unwrap().bfree;
    let f = w.at().open(b"/f", O_RDWR, 0).unwrap();
    w.at().unlink(b"/f", 0).unwrap();
    assert_eq!(w.fs.statfs().unwrap().bfree, free);
    assert_eq!(f.getattr().unwrap().nlink, 0);
    f.pwrite(60_000, &mut SliceSource::new(b"still")).unwrap();
    let id = f.vnode().id();
    drop(f);
    assert!(w.fs.statfs().unwrap().bfree > free);
    assert_eq!(w.fs.vnode(id).err(), Some(Errno::ESTALE));
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
    // The number is used again, in another life.
    w.write("/g", 0, b"new").unwrap();
    assert_eq!(w.fs.vnode(id).err(), Some(Errno::ESTALE));
}

#[test]
fn exchange_and_noreplace() {
    let scratch = Scratch::new("exchange");
    let Some(image) = make_image(&scratch.0, None, &["-b", "1024"], 4000) else { return };
    let w = World::mount(image, 300).unwrap();
    let at = w.at();
    at.mkdir(b"/a", 0o755).unwrap();
    at.mkdir(b"/a/d", 0o755).unwrap();
    w.write("/f", 0, b"file").unwrap();
    assert_eq!(at.rename(b"/f", &at, b"/a", RENAME_NOREPLACE), Err(Errno::EEXIST));
    at.rename(b"/f", &at, b"/a/d", RENAME_EXCHANGE).unwrap();
    assert_eq!(w.read("/a/d").unwrap(), b"file");
    assert_eq!(at.stat(b"/f", 0).unwrap().0.kind, FileType::Dir);
    assert_eq!(at.stat(b"/a", 0).unwrap().0.nlink, 2);
    assert_eq!(at.stat(b"/f/..", 0).unwrap().0.ino, 2);
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
}

#[test]
fn damaged_file_is_refused_to_earlier_openers() {
    let scratch = Scratch::new("damage");
    let Some(image) = make_image(&scratch.0, None, &["-b", "4096"], 1000) else { return };
    let w = World::mount(image, 300).unwrap();
    w.write("/f", 0, b"on disk").unwrap();
    w.fs.sync().unwrap();
    let f = w.at().open(b"/f", O_RDWR, 0).unwrap();
    f.pwrite(0, &mut SliceSource::new(b"in core")).unwrap();
    w.fs.cache().discard(|_| true);
    assert_eq!(f.read(&mut VecSink::new(10)), Err(Errno::EIO));
    assert_eq!(f.fsync(false), Err(Errno::EIO));
    assert_eq!(w.read("/f").unwrap(), b"on disk");
}

/// Rubbish on the disk: errors, and nothing worse.
#[test]
fn rubbish_is_refused_in_finite_time() {
    let scratch = Scratch::new("fuzz");
    let tree = scratch.0.join("tree");
    fs::create_dir_all(tree.join("d/e")).unwrap();
    fs::write(tree.join("d/f"), pattern(2, 400_000)).unwrap();
    std::os::unix::fs::symlink("d/f", tree.join("l")).unwrap();
    let Some(image) = make_image(&scratch.0, Some(&tree), &["-b", "1024"], 1200) else { return };
    let rounds = 600;
    for seed in 1..=rounds {
        let mut rng = Rng(seed * 0x9e37_79b9);
        let mut bad = image.clone();
        for _ in 0..1 + rng.below(30) {
            // Mostly metadata: superblock, descriptors, bitmaps, tables, first data.
            let zone = if rng.below(4) == 0 { bad.len() as u64 } else { 64 * 1024 };
            let at = rng.below(zone) as usize;
            match rng.below(3) {
                0 => bad[at] = rng.below(256) as u8,
                1 => bad[at] ^= 1 << rng.below(8),
                _ => {
                    let word = (rng.below(1300) as u32).to_le_bytes();
                    let at = (at & !3).min(bad.len() - 4);
                    bad[at..at + 4].copy_from_slice(&word);
                }
            }
        }
        let Ok(w) = World::mount(bad, 500) else { continue };
        let at = w.at();
        for path in ["/", "/d", "/d/e", "/lost+found"] {
            let _ = w.list(path);
        }
        for path in ["/d/f", "/l", "/d/e/../f"] {
            let _ = at.open(path.as_bytes(), O_RDWR, 0).map(|f| {
                let mut sink = VecSink::new(1 << 20);
                while f.read(&mut sink).is_ok_and(|n| n > 0) {}
                let _ = f.lseek(0, crate::abi::seek::SEEK_HOLE);
            });
        }
        let _ = w.write("/d/e/new", 300_000, b"data");
        let _ = at.mkdir(b"/d/e/sub", 0o755);
        let _ = at.symlink(&[b'x'; 100], b"/d/sl");
        let _ = at.rename(b"/d/e", &at, b"/moved", 0);
        let _ = at.rename(b"/d/f", &at, b"/d/g", 0);
        let _ = at.truncate(b"/d/g", 10);
        let _ = at.unlink(b"/d/g", 0);
        let _ = at.unlink(b"/moved/sub", AT_REMOVEDIR);
        let _ = at.chdir(b"/moved").map(|p| w.ns.path_of(&p, &w.root));
        let _ = w.fs.sync();
    }
    eprintln!("{rounds} damaged images");
}

/// Threads in each other's way: no deadlock, and a consistent disk at the end.
#[test]
fn threads_at_once() {
    let scratch = Scratch::new("threads");
    let Some(image) = make_image(&scratch.0, None, &["-b", "1024"], 16384) else { return };
    let w = World::mount(image, 400).unwrap();
    for d in 0..4 {
        w.at().mkdir(format!("/d{d}").as_bytes(), 0o755).unwrap();
    }
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let w = &w;
            s.spawn(move || {
                let mut rng = Rng(77 + t);
                let at = w.at();
                let mut path = || {
                    let (d, e, f) = (rng.below(4), rng.below(3), rng.below(4));
                    (
                        format!("/d{d}/{f}"),
                        format!("/d{d}/e{e}/{f}"),
                        format!("/d{d}/e{e}"),
                        rng.below(9),
                    )
                };
                for _ in 0..500 {
                    let ((a, b, d, what), (c, e, g, len)) = (path(), path());
                    // Any errno may come of a race; what counts is what is left.
                    let _ = match what {
                        0 => w.write(&a, 0, &pattern(len, 9000)),
                        1 => w.write(&b, 5000, b"x"),
                        2 => at.unlink(b.as_bytes(), 0),
                        3 => at.mkdir(d.as_bytes(), 0o755),
                        4 => at.unlink(d.as_bytes(), AT_REMOVEDIR),
                        5 => at.rename(a.as_bytes(), &at, e.as_bytes(), 0),
                        6 => at.rename(d.as_bytes(), &at, g.as_bytes(), 0),
                        7 => at.link(a.as_bytes(), &at, c.as_bytes(), 0),
                        _ => w.read(&a).map(drop),
                    };
                }
            });
        }
    });
    w.fs.sync().unwrap();
    check(&scratch.0, &w.image());
}
