//! Who asks: the ids against which permissions are checked, and the checks.

use crate::abi::{Attr, FileType, mode};
use crate::errno::{Errno, Result};
use alloc::sync::Arc;

/// Want to execute (search, for a directory).
pub const MAY_EXEC: u32 = 1;
/// Want to write.
pub const MAY_WRITE: u32 = 2;
/// Want to read.
pub const MAY_READ: u32 = 4;

/// File system ids of a caller. For access(2) make one of the real ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Cred {
    /// The superuser.
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Arc::from([]) }
    }

    /// True for the superuser: every check passes.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// True if the caller belongs to `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Checks that the caller may do `want` (`MAY_*`) to a file with attributes `attr`: `EACCES`
    /// if not. Root passes, except that executing takes one x bit on a non-directory.
    pub fn check(&self, attr: &Attr, want: u32) -> Result<()> {
        if self.is_root() {
            let exec_denied =
                want & MAY_EXEC != 0 && attr.kind != FileType::Dir && attr.perm & 0o111 == 0;
            return if exec_denied { Err(Errno::EACCES) } else { Ok(()) };
        }
        let shift = match () {
            _ if self.uid == attr.uid => 6,
            _ if self.in_group(attr.gid) => 3,
            _ => 0,
        };
        if attr.perm >> shift & want == want { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Checks that the caller owns the file: `EPERM` if not.
    pub fn check_owner(&self, attr: &Attr) -> Result<()> {
        if self.is_root() || self.uid == attr.uid { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Checks that the caller may take `victim` out of the directory `dir`: write and search
    /// permission, and in a sticky directory ownership of one of the two.
    pub fn check_delete(&self, dir: &Attr, victim: &Attr) -> Result<()> {
        self.check(dir, MAY_WRITE | MAY_EXEC)?;
        let sticky = dir.perm & mode::S_ISVTX != 0;
        if sticky && !self.is_root() && self.uid != victim.uid && self.uid != dir.uid {
            return Err(Errno::EPERM);
        }
        Ok(())
    }
}
