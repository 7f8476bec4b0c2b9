//! Who a process acts as, and how much it may use. Pure.
//!
//! There is one privilege, user id 0 (effective); capabilities are absent: a process has all of
//! them or none.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use hive_fs::Cred;
use hive_fs::errno::{Errno, Result};

/// Real, effective, saved and file system id of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ids {
    /// Real.
    pub real: u32,
    /// Effective.
    pub effective: u32,
    /// Saved.
    pub saved: u32,
    /// For file access; follows the effective one.
    pub fs: u32,
}

/// "Leave as it is" in setresuid and its kin.
pub const KEEP: u32 = u32::MAX;

impl Ids {
    fn may_become(&self, id: u32, privileged: bool) -> bool {
        privileged || [self.real, self.effective, self.saved].contains(&id)
    }

    /// setuid(2), setgid(2).
    pub fn set(&mut self, id: u32, privileged: bool) -> Result<()> {
        if id == KEEP {
            return Err(Errno::EINVAL);
        }
        if privileged {
            *self = Ids { real: id, effective: id, saved: id, fs: id };
        } else if self.may_become(id, false) {
            self.effective = id;
            self.fs = id;
        } else {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// setresuid(2), setresgid(2).
    pub fn set_all(&mut self, real: u32, effective: u32, saved: u32, root: bool) -> Result<()> {
        if [real, effective, saved].iter().any(|&id| id != KEEP && !self.may_become(id, root)) {
            return Err(Errno::EPERM);
        }
        let pick = |new, old| if new == KEEP { old } else { new };
        self.real = pick(real, self.real);
        self.effective = pick(effective, self.effective);
        self.saved = pick(saved, self.saved);
        self.fs = self.effective;
        Ok(())
    }

    /// setreuid(2), setregid(2): the saved id follows if the real one is set, or the effective
    /// one to something else than the old real one.
    pub fn set_two(&mut self, real: u32, effective: u32, root: bool) -> Result<()> {
        let old = *self;
        let real_ok = real == KEEP || root || [old.real, old.effective].contains(&real);
        if !real_ok || effective != KEEP && !self.may_become(effective, root) {
            return Err(Errno::EPERM);
        }
        let saved = if real != KEEP || effective != KEEP && effective != old.real {
            effective
        } else {
            KEEP
        };
        let saved = if saved == KEEP && real != KEEP { old.effective } else { saved };
        self.set_all(real, effective, saved, true)
    }

    /// setfsuid(2): the old one, whether it changed or not.
    pub fn set_fs(&mut self, id: u32, privileged: bool) -> u32 {
        let old = self.fs;
        if id != KEEP && (self.may_become(id, privileged) || id == old) {
            self.fs = id;
        }
        old
    }
}

/// Most supplementary groups (`NGROUPS_MAX`).
pub const GROUPS_MAX: usize = 65536;

/// Ids of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Users.
    pub uid: Ids,
    /// Groups.
    pub gid: Ids,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Credentials {
    /// The superuser.
    pub fn root() -> Credentials {
        Credentials { uid: Ids::default(), gid: Ids::default(), groups: Arc::from([]) }
    }

    /// Whether privileged.
    pub fn is_root(&self) -> bool {
        self.uid.effective == 0
    }

    /// For file access.
    pub fn for_files(&self) -> Cred {
        Cred { uid: self.uid.fs, gid: self.gid.fs, groups: self.groups.clone() }
    }

    /// For access(2), which asks as the real user.
    pub fn real_for_files(&self) -> Cred {
        Cred { uid: self.uid.real, gid: self.gid.real, groups: self.groups.clone() }
    }

    /// kill(2): whether a signal may go to a process of `target`.
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let theirs = [target.uid.real, target.uid.saved];
        self.is_root() || theirs.contains(&self.uid.real) || theirs.contains(&self.uid.effective)
    }
}

/// No limit.
pub const INFINITY: u64 = u64::MAX;

/// Soft and hard limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What counts.
    pub soft: u64,
    /// Up to where the soft limit may be raised.
    pub hard: u64,
}

/// Indices of [`Limits`] (asm-generic/resource.h).
pub mod rlimit {
    #![allow(missing_docs)]
    pub const FSIZE: usize = 1;
    pub const DATA: usize = 2;
    pub const STACK: usize = 3;
    pub const CORE: usize = 4;
    pub const NPROC: usize = 6;
    pub const NOFILE: usize = 7;
    pub const MEMLOCK: usize = 8;
    pub const AS: usize = 9;
    pub const SIGPENDING: usize = 11;
    pub const MSGQUEUE: usize = 12;
    pub const NICE: usize = 13;
    pub const RTPRIO: usize = 14;
    pub const COUNT: usize = 16;
}

/// Bytes of a stack unless a limit says otherwise.
pub const STACK_DEFAULT: u64 = 8 << 20;
/// Open files of a process unless a limit says otherwise.
pub const FILES_DEFAULT: u64 = 1024;
/// Open files that the hard limit allows.
pub const FILES_MAX: u64 = 4096;

/// Resource limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits([Limit; rlimit::COUNT]);

impl Default for Limits {
    fn default() -> Self {
        let mut all = [Limit { soft: INFINITY, hard: INFINITY }; rlimit::COUNT];
        all[rlimit::STACK].soft = STACK_DEFAULT;
        all[rlimit::CORE].soft = 0;
        all[rlimit::NPROC] = Limit { soft: 4096, hard: 4096 };
        all[rlimit::NOFILE] = Limit { soft: FILES_DEFAULT, hard: FILES_MAX };
        all[rlimit::MEMLOCK] = Limit { soft: 8 << 20, hard: 8 << 20 };
        all[rlimit::SIGPENDING] = Limit { soft: 1024, hard: 1024 };
        all[rlimit::MSGQUEUE] = Limit { soft: 819_200, hard: 819_200 };
        all[rlimit::NICE] = Limit { soft: 0, hard: 0 };
        all[rlimit::RTPRIO] = Limit { soft: 0, hard: 0 };
        Limits(all)
    }
}

impl Limits {
    /// Limit `which`.
    pub fn get(&self, which: usize) -> Result<Limit> {
        self.0.get(which).copied().ok_or(Errno::EINVAL)
    }

    /// The soft limit of one of our own [`rlimit`] constants.
    pub fn soft(&self, which: usize) -> u64 {
        self.get(which).map_or(INFINITY, |l| l.soft)
    }

    /// The text of /proc/PID/limits.
    pub fn text(&self) -> String {
        const NAMES: [(&str, &str); rlimit::COUNT] = [
            ("Max cpu time", "seconds"),
            ("Max file size", "bytes"),
            ("Max data size", "bytes"),
            ("Max stack size", "bytes"),
            ("Max core file size", "bytes"),
            ("Max resident set", "bytes"),
            ("Max processes", "processes"),
            ("Max open files", "files"),
            ("Max locked memory", "bytes"),
            ("Max address space", "bytes"),
            ("Max file locks", "locks"),
            ("Max pending signals", "signals"),
            ("Max msgqueue size", "bytes"),
            ("Max nice priority", ""),
            ("Max realtime priority", ""),
            ("Max realtime timeout", "us"),
        ];
        let show = |v: u64| if v == INFINITY { "unlimited".into() } else { format!("{v}") };
        let row =
            |a: &str, b: String, c: String, d: &str| format!("{a:<25} {b:<20} {c:<20} {d:<10}\n");
        let mut text = row("Limit", "Soft Limit".into(), "Hard Limit".into(), "Units");
        for ((name, unit), limit) in NAMES.iter().zip(&self.0) {
            text += &row(name, show(limit.soft), show(limit.hard), unit);
        }
        text
    }

    /// setrlimit(2).
    pub fn set(&mut self, which: usize, new: Limit, privileged: bool) -> Result<()> {
        let old = self.0.get_mut(which).ok_or(Errno::EINVAL)?;
        if new.soft > new.hard {
            return Err(Errno::EINVAL);
        }
        if new.hard > old.hard && !privileged || which == rlimit::NOFILE && new.hard > FILES_MAX {
            return Err(Errno::EPERM);
        }
        *old = new;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_change_as_posix_says() {
        let mut ids = Ids { real: 1, effective: 2, saved: 3, fs: 2 };
        assert_eq!(ids.set(9, false), Err(Errno::EPERM));
        ids.set(3, false).unwrap();
        assert_eq!(ids, Ids { real: 1, effective: 3, saved: 3, fs: 3 });
        ids.set_all(KEEP, 1, KEEP, false).unwrap();
        assert_eq!(ids, Ids { real: 1, effective: 1, saved: 3, fs: 1 });
        assert_eq!(ids.set_all(7, KEEP, KEEP, false), Err(Errno::EPERM));
        ids.set(5, true).unwrap();
        assert_eq!(ids, Ids { real: 5, effective: 5, saved: 5, fs: 5 });
        ids.set_two(6, 7, true).unwrap();
        assert_eq!(ids, Ids { real: 6, effective: 7, saved: 7, fs: 7 });
        ids.set_two(KEEP, 6, false).unwrap();
        assert_eq!(ids, Ids { real: 6, effective: 6, saved: 7, fs: 6 });
    }

    #[test]
    fn limits_rise_to_the_hard_limit_only() {
        let mut l = Limits::default();
        let small = Limit { soft: 10, hard: 20 };
        l.set(rlimit::STACK, small, false).unwrap();
        assert_eq!(l.get(rlimit::STACK), Ok(small));
        assert_eq!(l.set(rlimit::STACK, Limit { soft: 10, hard: 30 }, false), Err(Errno::EPERM));
        assert_eq!(l.set(rlimit::STACK, Limit { soft: 30, hard: 20 }, true), Err(Errno::EINVAL));
        assert_eq!(l.get(99), Err(Errno::EINVAL));
        assert_eq!(
            l.set(rlimit::NOFILE, Limit { soft: 1, hard: INFINITY }, true),
            Err(Errno::EPERM)
        );
    }
}
