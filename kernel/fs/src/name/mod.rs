//! The name space of a cell: mounts, places, and the path calls over them.
//!
//! The base tree of the local disk is mounted read-only at `/`; on top of it stand `/cells/N`
//! (for the own N the same directory again, writable; for another cell's N whatever the intercell
//! part mounts), `/tmp`, `/dev` and `/proc`. The read-only flag belongs to the mount, not to the
//! file system.
//!
//! A [`Place`] is a vnode, the mount it was reached through and, as far as known, the way there.
//! Names may change under a place, so the way is a hint: [`Namespace::path_of`] checks it.
//!
//! Lock order: the mount table is a leaf; nothing is called with it held.

mod ops;
#[cfg(test)]
mod tests;
mod walk;

pub use ops::{At, UTIME_NOW, UTIME_OMIT};
pub use walk::Leaf;

use crate::abi::FileType;
use crate::errno::{Errno, Result};
use crate::vnode::{FileSystem, NewFile, NewKind, VnodeId, VnodeRef};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_sync::{SpinLock, rank};

/// A mounted file system, or part of one.
pub struct Mount {
    /// Number told by statx and mountinfo; never used twice.
    pub id: u64,
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// What stands at the mount point.
    pub root: VnodeRef,
    /// True if writes through it fail with `EROFS`.
    pub read_only: bool,
    /// What /proc/mounts calls the device.
    pub source: String,
    /// The directory covered; `None` for the root.
    on: Option<Place>,
}

impl Mount {
    /// The id of the mount this one stands on; 0 for the root.
    pub fn parent_id(&self) -> u64 {
        self.on.as_ref().and_then(Place::mount).map_or(0, |m| m.id)
    }
}

/// A file and the way to it.
#[derive(Clone)]
pub struct Place(Arc<Inner>);

struct Inner {
    mount: Option<Arc<Mount>>,
    vnode: VnodeRef,
    up: Option<(Place, Box<[u8]>)>,
}

impl Place {
    /// A file without a name: a pipe, a socket, an epoll instance.
    pub fn anonymous(vnode: VnodeRef) -> Place {
        Place(Arc::new(Inner { mount: None, vnode, up: None }))
    }

    fn root_of(mount: &Arc<Mount>) -> Place {
        let vnode = mount.root.clone();
        Place(Arc::new(Inner { mount: Some(mount.clone()), vnode, up: None }))
    }

    /// `vnode`, found or made under `name` in the directory `self`.
    fn child(&self, vnode: VnodeRef, name: &[u8]) -> Place {
        let up = Some((self.clone(), Box::from(name)));
        Place(Arc::new(Inner { mount: self.0.mount.clone(), vnode, up }))
    }

    /// `vnode` on the mount of `self`, the way unknown.
    fn stray(&self, vnode: VnodeRef) -> Place {
        Place(Arc::new(Inner { mount: self.0.mount.clone(), vnode, up: None }))
    }

    /// The file.
    pub fn vnode(&self) -> &VnodeRef {
        &self.0.vnode
    }

    /// The mount it was reached through; `None` for an anonymous file.
    pub fn mount(&self) -> Option<&Arc<Mount>> {
        self.0.mount.as_ref()
    }

    /// The mount id, 0 for an anonymous file.
    pub fn mount_id(&self) -> u64 {
        self.mount().map_or(0, |m| m.id)
    }

    /// True if both are the same file through the same mount.
    pub fn same(&self, other: &Place) -> bool {
        self.mount_id() == other.mount_id() && self.0.vnode.id() == other.0.vnode.id()
    }

    /// `EROFS` if the mount is read-only.
    pub fn check_writable(&self) -> Result<()> {
        match self.mount() {
            Some(m) if m.read_only => Err(Errno::EROFS),
            _ => Ok(()),
        }
    }

    fn is_dir(&self) -> bool {
        self.0.vnode.kind() == FileType::Dir
    }

    fn is_mount_root(&self) -> bool {
        self.mount().is_some_and(|m| m.root.id() == self.0.vnode.id())
    }
}

impl Drop for Inner {
    /// Unlinks long chains of parents without recursion: a chain is as deep as a path, and the
    /// kernel's stack is small.
    fn drop(&mut self) {
        let mut up = self.up.take();
        while let Some((place, _)) = up {
            up = Arc::into_inner(place.0).and_then(|mut inner| inner.up.take());
        }
    }
}

type Table = BTreeMap<(u64, VnodeId), Arc<Mount>>;

/// All mounts of a cell.
pub struct Namespace {
    root: Arc<Mount>,
    table: SpinLock<(u64, Table)>,
}

impl Namespace {
    /// A name space with `fs` at the root.
    pub fn new(fs: Arc<dyn FileSystem>, read_only: bool, source: &str) -> Result<Arc<Namespace>> {
        let root = fs.root()?;
        let source = String::from(source);
        let root = Arc::new(Mount { id: 1, fs, root, read_only, source, on: None });
        let table = SpinLock::ranked(rank::FILE, (2, BTreeMap::new()));
        Ok(Arc::new(Namespace { root, table }))
    }

    /// The root directory.
    pub fn root(&self) -> Place {
        self.cross(Place::root_of(&self.root))
    }

    /// Mounts the directory `root` of `fs` over the directory `on`. `EBUSY` if something is
    /// mounted there: unmount it first.
    pub fn mount(
        &self,
        on: &Place,
        fs: Arc<dyn FileSystem>,
        root: VnodeRef,
        read_only: bool,
        source: &str,
    ) -> Result<Arc<Mount>> {
        if !on.is_dir() || root.kind() != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        let (on, source) = (Some(on.clone()), String::from(source));
        let mut mount = Mount { id: 0, fs, root, read_only, source, on };
        let Some(key) = Self::key_of(&mount) else { return Err(Errno::EINVAL) };
        let mut table = self.table.lock();
        if table.1.contains_key(&key) {
            drop(table);
            return Err(Errno::EBUSY);
        }
        mount.id = table.0;
        table.0 += 1;
        let mount = Arc::new(mount);
        table.1.insert(key, mount.clone());
        Ok(mount)
    }

    /// Mounts the root of `fs` at the absolute `path`, whose directories are made where missing:
    /// by the vnodes themselves, so that the base tree, read-only through its mount, can be given
    /// its mount points at boot. `root` is what stands there, the root of `fs` if `None`.
    pub fn mount_at(
        &self,
        path: &[u8],
        fs: Arc<dyn FileSystem>,
        root: Option<VnodeRef>,
        read_only: bool,
        source: &str,
    ) -> Result<Arc<Mount>> {
        let on = self.make_dirs(path)?;
        let root = match root {
            Some(root) => root,
            None => fs.root()?,
        };
        self.mount(&on, fs, root, read_only, source)
    }

    /// The directory at the absolute `path`, made with its parents (mode 755, root's) where
    /// missing. For the kernel itself: no permission is checked, no link followed.
    pub fn make_dirs(&self, path: &[u8]) -> Result<Place> {
        let mut at = self.root();
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            let vnode = match at.vnode().lookup(name) {
                Err(Errno::ENOENT) => {
                    let new = NewFile { kind: NewKind::Dir, perm: 0o755, uid: 0, gid: 0 };
                    at.vnode().create(name, &new)?
                }
                found => found?,
            };
            at = self.cross(at.child(vnode, name));
        }
        Ok(at)
    }

    /// Takes a mount off; places that were reached through it stay what they are. `EINVAL` if it
    /// is not there, as for the root.
    pub fn unmount(&self, mount: &Arc<Mount>) -> Result<()> {
        let key = Self::key_of(mount).ok_or(Errno::EINVAL)?;
        let mut table = self.table.lock();
        let there = table.1.get(&key).is_some_and(|m| m.id == mount.id);
        let gone = if there { table.1.remove(&key) } else { None };
        drop(table);
        gone.map(drop).ok_or(Errno::EINVAL)
    }

    /// Every mount, in order of id.
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        let mut all = alloc::vec![self.root.clone()];
        all.extend(self.table.lock().1.values().cloned());
        all.sort_by_key(|m| m.id);
        all
    }

    /// Where a mount stands, as /proc/mounts shows it.
    pub fn mount_path(&self, mount: &Arc<Mount>) -> Vec<u8> {
        let here = Place::root_of(mount);
        self.path_of(&here, &Place::root_of(&self.root)).unwrap_or_else(|_| b"?".to_vec())
    }

    fn key_of(mount: &Mount) -> Option<(u64, VnodeId)> {
        mount.on.as_ref().map(|on| (on.mount_id(), on.vnode().id()))
    }

    /// What stands at `place` on top of all mounts.
    fn cross(&self, mut place: Place) -> Place {
        while place.is_dir() {
            let key = (place.mount_id(), place.vnode().id());
            let Some(m) = self.table.lock().1.get(&key).cloned() else { break };
            place = Place::root_of(&m);
        }
        place
    }

    /// The parent directory as seen by a process whose root is `root`.
    fn parent(&self, place: &Place, root: &Place) -> Result<Place> {
        let mut at = place.clone();
        while !at.same(root) && at.is_mount_root() {
            match at.mount().and_then(|m| m.on.clone()) {
                Some(on) => at = on,
                None => break,
            }
        }
        if at.same(root) || at.is_mount_root() {
            return Ok(at);
        }
        let up = at.vnode().lookup(b"..")?;
        let known = at.0.up.as_ref().map(|(p, _)| p).filter(|p| p.vnode().id() == up.id());
        Ok(self.cross(known.cloned().unwrap_or_else(|| at.stray(up))))
    }

    /// The absolute path of `place` for a process whose root is `root`; `ENOENT` if it has no
    /// name any more. A pipe gives `pipe:[N]`, another anonymous file `anon_inode:[N]`.
    pub fn path_of(&self, place: &Place, root: &Place) -> Result<Vec<u8>> {
        if place.mount().is_none() {
            return Ok(anonymous_name(place));
        }
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = place.clone();
        // A tree changed under us may never end: a path has at most this many components.
        for _ in 0..crate::abi::PATH_MAX / 2 {
            if at.same(root) || at.is_mount_root() && at.mount_id() == self.root.id {
                let mut path = Vec::new();
                for name in names.iter().rev() {
                    path.push(b'/');
                    path.extend_from_slice(name);
                }
                return Ok(if path.is_empty() { b"/".to_vec() } else { path });
            }
            if at.is_mount_root() {
                at = at.mount().and_then(|m| m.on.clone()).ok_or(Errno::ENOENT)?;
                continue;
            }
            let (dir, name) = self.named_by(&at, root)?;
            names.push(name);
            at = dir;
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// The path of `place` as /proc/PID/fd and maps show it: with ` (deleted)` if it has no name.
    pub fn show_path(&self, place: &Place, root: &Place) -> Vec<u8> {
        self.path_of(place, root).unwrap_or_else(|_| {
            let mut names = Vec::new();
            let mut at = place;
            while let Some((dir, name)) = &at.0.up {
                names.push(name);
                at = dir;
            }
            let mut path = match at.mount().and_then(|m| m.on.as_ref()) {
                Some(on) => self.path_of(on, root).unwrap_or_default(),
                None => Vec::new(),
            };
            for name in names.iter().rev() {
                path.push(b'/');
                path.extend_from_slice(name);
            }
            path.extend_from_slice(b" (deleted)");
            path
        })
    }

    /// The directory that holds `at` and its name there.
    fn named_by(&self, at: &Place, root: &Place) -> Result<(Place, Vec<u8>)> {
        let id = at.vnode().id();
        if let Some((dir, name)) = &at.0.up {
            if dir.vnode().lookup(name).is_ok_and(|v| v.id() == id) {
                return Ok((dir.clone(), name.to_vec()));
            }
        }
        if !at.is_dir() {
            return Err(Errno::ENOENT);
        }
        let dir = self.parent(at, root)?;
        let mut found = None;
        dir.vnode().readdir(0, &mut |e| {
            let hit = e.ino == id.ino && e.name != b"." && e.name != b"..";
            if hit {
                found = Some(e.name.to_vec());
            }
            !hit
        })?;
        found.map(|name| (dir, name)).ok_or(Errno::ENOENT)
    }
}

fn anonymous_name(place: &Place) -> Vec<u8> {
    let v = place.vnode();
    let what = match v.kind() {
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        _ => "anon_inode",
    };
    alloc::format!("{what}:[{}]", v.id().ino).into_bytes()
}
