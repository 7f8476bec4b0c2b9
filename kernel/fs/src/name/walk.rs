//! Path resolution (path_resolution(7)).

use super::{At, Place};
use crate::abi::{FileType, NAME_MAX, PATH_MAX};
use crate::cred::MAY_EXEC;
use crate::errno::{Errno, Result};
use alloc::vec::Vec;

/// Most symbolic links followed in one resolution (Linux `MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// Where a path leads: the last directory, the last name, and what it names now.
pub struct Leaf {
    /// The directory that holds the last component; the file itself if the path has none.
    pub dir: Place,
    /// The last component; empty if the path ends in `.`, `..` or is `/`.
    pub name: Vec<u8>,
    /// What it names; `None` if there is no such file in an existing directory.
    pub found: Option<Place>,
    /// The path ends in a slash: only a directory will do.
    pub slash: bool,
}

impl Leaf {
    /// The file, which must exist, and be a directory if the path ends in a slash.
    pub fn existing(self) -> Result<Place> {
        let place = self.found.ok_or(Errno::ENOENT)?;
        if self.slash && place.vnode().kind() != FileType::Dir {
            return Err(Errno::ENOTDIR);
        }
        Ok(place)
    }
}

impl At<'_> {
    /// Resolves `path`; the last component is followed if it is a symbolic link and `follow`, or
    /// if a slash comes after it.
    pub fn walk(&self, path: &[u8], follow: bool) -> Result<Leaf> {
        match path.len() {
            0 => return Err(Errno::ENOENT),
            n if n >= PATH_MAX => return Err(Errno::ENAMETOOLONG),
            _ => {}
        }
        let start = if path.first() == Some(&b'/') { self.root } else { self.base };
        let mut cur = start.clone();
        let mut rest = path.to_vec();
        let (mut pos, mut links) = (0, 0);
        loop {
            let part = Part::at(&rest, pos);
            let Some(name) = part.name else {
                let slash = rest.last() == Some(&b'/');
                if slash && !cur.is_dir() {
                    return Err(Errno::ENOTDIR);
                }
                let found = Some(cur.clone());
                return Ok(Leaf { dir: cur, name: Vec::new(), found, slash });
            };
            self.may_search(&cur)?;
            pos = part.end;
            match name {
                b"." => continue,
                b".." => {
                    cur = self.ns.parent(&cur, self.root)?;
                    continue;
                }
                _ if name.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
                _ => {}
            }
            let next = match cur.vnode().lookup(name) {
                Ok(v) => self.ns.cross(cur.child(v, name)),
                Err(Errno::ENOENT) if part.last => {
                    let name = name.to_vec();
                    return Ok(Leaf { dir: cur, name, found: None, slash: part.slash });
                }
                Err(e) => return Err(e),
            };
            let is_link = next.vnode().kind() == FileType::Symlink;
            if is_link && (!part.last || follow || part.slash) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP);
                }
                if let Some(place) = next.vnode().magic_link()? {
                    cur = place;
                    continue;
                }
                let mut target = next.vnode().readlink()?;
                if target.is_empty() {
                    return Err(Errno::ENOENT);
                }
                if target.first() == Some(&b'/') {
                    cur = self.root.clone();
                }
                target.extend_from_slice(rest.get(pos..).unwrap_or(&[]));
                if target.len() >= 2 * PATH_MAX {
                    return Err(Errno::ENAMETOOLONG);
                }
                (rest, pos) = (target, 0);
                continue;
            }
            if part.last {
                let name = name.to_vec();
                return Ok(Leaf { dir: cur, name, found: Some(next), slash: part.slash });
            }
            cur = next;
        }
    }

    fn may_search(&self, dir: &Place) -> Result<()> {
        if !dir.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if self.cred.is_root() {
            return Ok(());
        }
        self.cred.check(&dir.vnode().getattr()?, MAY_EXEC)
    }
}

/// One component of a path.
struct Part<'a> {
    /// The component; `None` at the end of the path.
    name: Option<&'a [u8]>,
    /// Position behind it.
    end: usize,
    /// Nothing but slashes comes after it.
    last: bool,
    /// Slashes come after it.
    slash: bool,
}

impl Part<'_> {
    fn at(path: &[u8], pos: usize) -> Part<'_> {
        let tail = path.get(pos..).unwrap_or(&[]);
        let skip = tail.iter().take_while(|&&b| b == b'/').count();
        let tail = &tail[skip..];
        let len = tail.iter().take_while(|&&b| b != b'/').count();
        let (name, after) = tail.split_at(len);
        Part {
            name: (!name.is_empty()).then_some(name),
            end: pos + skip + len,
            last: after.iter().all(|&b| b == b'/'),
            slash: !after.is_empty(),
        }
    }
}
