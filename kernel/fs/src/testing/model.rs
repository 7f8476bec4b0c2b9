//! A tree of files in plain Rust, and random operations done to it and to a file system alike.

use super::Rng;
use crate::abi::{at::*, oflag::*};
use crate::cred::Cred;
use crate::errno::{Errno, Result};
use crate::io::{SliceSource, VecSink};
use crate::name::{At, Namespace, Place};
use crate::vnode::FileSystem;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A file system at the root of a name space, and root's view of it.
pub struct World {
    /// The mounts.
    pub ns: Arc<Namespace>,
    /// The root.
    pub root: Place,
    cred: Cred,
}

impl World {
    /// `fs`, writable.
    pub fn new(fs: Arc<dyn FileSystem>) -> Result<World> {
        let ns = Namespace::new(fs, false, "/dev/test")?;
        let root = ns.root();
        Ok(World { ns, root, cred: Cred::root() })
    }

    pub fn at(&self) -> At<'_> {
        At { ns: &self.ns, root: &self.root, base: &self.root, cred: &self.cred }
    }

    pub fn write(&self, path: &str, offset: u64, data: &[u8]) -> Result<()> {
        let f = self.at().open(path.as_bytes(), O_RDWR | O_CREAT, 0o644)?;
        assert_eq!(f.pwrite(offset, &mut SliceSource::new(data))?, data.len());
        Ok(())
    }

    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        let f = self.at().open(path.as_bytes(), O_RDONLY, 0)?;
        let mut sink = VecSink::new(1 << 26);
        while f.read(&mut sink)? > 0 {}
        Ok(sink.data)
    }

    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let dir = self.at().resolve(path.as_bytes(), true)?;
        let mut names = Vec::new();
        let mut cookie = 0;
        // In small steps, so that cookies are used.
        loop {
            let mut n = 0;
            dir.vnode().readdir(cookie, &mut |e| {
                if n == 3 {
                    return false;
                }
                n += 1;
                cookie = e.next;
                names.push(String::from_utf8_lossy(e.name).into_owned());
                true
            })?;
            if n == 0 {
                break;
            }
        }
        names.retain(|n| n != "." && n != "..");
        names.sort();
        Ok(names)
    }
}

/// Bytes that depend on the seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed | 1);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// The model: names, and contents by number so that hard links share them.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Dir,
    File(usize),
    Link(String),
}

#[derive(Default)]
pub struct Model {
    pub names: BTreeMap<String, Node>,
    pub contents: Vec<Vec<u8>>,
}

impl Model {
    fn pick(&self, rng: &mut Rng, want: impl Fn(&Node) -> bool) -> Option<String> {
        let all: Vec<_> = self.names.iter().filter(|(_, n)| want(n)).collect();
        (!all.is_empty()).then(|| all[rng.below(all.len() as u64) as usize].0.clone())
    }
    fn dir(&self, rng: &mut Rng) -> String {
        let own = self.pick(rng, |n| *n == Node::Dir);
        if rng.below(3) == 0 { String::new() } else { own.unwrap_or_default() }
    }
    fn fresh(&self, rng: &mut Rng) -> String {
        let longest = if rng.below(9) == 0 { 200 } else { 12 };
        let len = 1 + rng.below(longest) as usize;
        let name: String = (0..len).map(|_| (b'a' + rng.below(26) as u8) as char).collect();
        format!("{}/{name}", self.dir(rng))
    }
    fn children(&self, dir: &str) -> Vec<String> {
        let under = |p: &&String| {
            p.strip_prefix(dir).and_then(|r| r.strip_prefix('/')).is_some_and(|r| !r.contains('/'))
        };
        self.names.keys().filter(under).cloned().collect()
    }
}

fn is_file(n: &Node) -> bool {
    matches!(n, Node::File(_))
}

/// One random operation on both; what is possible in the model must succeed on the disk.
pub fn step(w: &World, m: &mut Model, rng: &mut Rng) {
    let at = w.at();
    match rng.below(14) {
        0..=2 => {
            let path = m.fresh(rng);
            if m.names.contains_key(&path) {
                assert_eq!(at.mkdir(path.as_bytes(), 0o755), Err(Errno::EEXIST));
                return;
            }
            w.write(&path, 0, b"").unwrap();
            m.contents.push(Vec::new());
            m.names.insert(path, Node::File(m.contents.len() - 1));
        }
        3..=5 => {
            let Some(path) = m.pick(rng, is_file) else { return };
            let Node::File(c) = m.names[&path] else { return };
            let far = if rng.below(12) == 0 { 6_000_000 } else { 90_000 };
            let (offset, len) = (rng.below(far) as usize, rng.below(30_000) as usize);
            let data = pattern(rng.0, len);
            w.write(&path, offset as u64, &data).unwrap();
            let content = &mut m.contents[c];
            if len > 0 {
                content.resize(content.len().max(offset + len), 0);
                content[offset..offset + len].copy_from_slice(&data);
            }
        }
        6 => {
            let Some(path) = m.pick(rng, is_file) else { return };
            let Node::File(c) = m.names[&path] else { return };
            let size = rng.below(100_000);
            at.truncate(path.as_bytes(), size).unwrap();
            m.contents[c].resize(size as usize, 0);
        }
        7 => {
            let path = m.fresh(rng);
            if !m.names.contains_key(&path) {
                at.mkdir(path.as_bytes(), 0o755).unwrap();
                m.names.insert(path, Node::Dir);
            }
        }
        8 => {
            let Some(path) = m.pick(rng, |n| *n == Node::Dir) else { return };
            if m.children(&path).is_empty() {
                at.unlink(path.as_bytes(), AT_REMOVEDIR).unwrap();
                m.names.remove(&path);
            } else {
                let r = at.unlink(path.as_bytes(), AT_REMOVEDIR);
                assert_eq!(r, Err(Errno::ENOTEMPTY));
            }
        }
        9 => {
            let Some(path) = m.pick(rng, |n| *n != Node::Dir) else { return };
            // Half the time it is open while it loses its name.
            let open = at.open(path.as_bytes(), O_RDONLY | O_NOFOLLOW, 0);
            at.unlink(path.as_bytes(), 0).unwrap();
            let node = m.names.remove(&path);
            if let (Ok(f), Some(Node::File(c))) = (open, node) {
                let mut sink = VecSink::new(1 << 26);
                while f.read(&mut sink).unwrap() > 0 {}
                assert!(sink.data == m.contents[c]);
            }
        }
        10 => {
            let Some(path) = m.pick(rng, is_file) else { return };
            let new = m.fresh(rng);
            if !m.names.contains_key(&new) {
                at.link(path.as_bytes(), &at, new.as_bytes(), 0).unwrap();
                m.names.insert(new, m.names[&path].clone());
            }
        }
        11 => {
            let path = m.fresh(rng);
            let target = "t".repeat(1 + rng.below(200) as usize);
            if !m.names.contains_key(&path) {
                at.symlink(target.as_bytes(), path.as_bytes()).unwrap();
                m.names.insert(path, Node::Link(target));
            }
        }
        12 => rename(w, m, rng),
        _ => {
            let Some(path) = m.pick(rng, is_file) else { return };
            let Node::File(c) = m.names[&path] else { return };
            assert!(w.read(&path).unwrap() == m.contents[c], "{path}");
        }
    }
}

fn rename(w: &World, m: &mut Model, rng: &mut Rng) {
    let at = w.at();
    let Some(old) = m.pick(rng, |_| true) else { return };
    let existing = m.pick(rng, |_| true).unwrap();
    let new = if rng.below(3) == 0 { existing } else { m.fresh(rng) };
    let result = at.rename(old.as_bytes(), &at, new.as_bytes(), 0);
    let (node, target) = (m.names[&old].clone(), m.names.get(&new).cloned());
    let below = new.starts_with(&format!("{old}/"));
    let above = old.starts_with(&format!("{new}/"));
    let dir = node == Node::Dir;
    let want = match &target {
        _ if old == new => Ok(()),
        _ if dir && below => Err(Errno::EINVAL),
        Some(t) if dir && *t != Node::Dir => Err(Errno::ENOTDIR),
        Some(Node::Dir) if !dir => Err(Errno::EISDIR),
        Some(Node::Dir) if above || !m.children(&new).is_empty() => Err(Errno::ENOTEMPTY),
        _ => Ok(()),
    };
    assert_eq!(result, want, "rename {old} {new}");
    let same_file = is_file(&node) && target.as_ref() == Some(&node);
    if want.is_err() || old == new || same_file {
        return;
    }
    let prefix = format!("{old}/");
    let moved: Vec<_> =
        m.names.keys().filter(|p| **p == old || p.starts_with(&prefix)).cloned().collect();
    for p in moved {
        let n = m.names.remove(&p).unwrap();
        m.names.insert(format!("{new}{}", &p[old.len()..]), n);
    }
}

pub fn compare(w: &World, m: &Model) {
    for (path, node) in &m.names {
        let attr = w.at().stat(path.as_bytes(), AT_SYMLINK_NOFOLLOW).unwrap().0;
        match node {
            Node::Dir => {
                let names = m.children(path).len();
                assert_eq!(w.list(path).unwrap().len(), names, "{path}");
                let dirs = m.children(path).iter().filter(|p| m.names[*p] == Node::Dir).count();
                assert_eq!(attr.nlink as usize, 2 + dirs);
            }
            Node::File(c) => {
                let names = m.names.values().filter(|n| *n == node).count();
                assert_eq!(attr.nlink as usize, names);
                assert!(w.read(path).unwrap() == m.contents[*c], "{path}");
            }
            Node::Link(t) => assert_eq!(w.at().readlink(path.as_bytes()).unwrap(), t.as_bytes()),
        }
    }
}
