//! The process tree: who is whose child, group and session, and what a parent may still hear of
//! its children. Pure: no locks, no hardware; `P` is whatever a process is.
//!
//! Invariants (checked by [`Tree::check`] in tests): every node but the reaper has a living
//! parent in the tree that lists it; a group lies within one session; a zombie has no children.
//!
//! Rules are POSIX.1 (setpgid, setsid, "orphaned process group") and wait4(2).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hive_fs::errno::{Errno, Result};

/// A process id as user programs see it.
pub type Pid = i32;

/// What wait4 and waitid tell of a child, in the layout of `wstatus`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Called exit with this code.
    Exited(u8),
    /// Ended by a signal; whether a core dump is claimed.
    Killed(u32, bool),
    /// Stopped by a signal.
    Stopped(u32),
    /// Went on.
    Continued,
}

impl Status {
    /// The word that wait4 stores.
    pub const fn word(self) -> i32 {
        match self {
            Status::Exited(code) => (code as i32) << 8,
            Status::Killed(signal, core) => signal as i32 | if core { 0x80 } else { 0 },
            Status::Stopped(signal) => (signal as i32) << 8 | 0x7f,
            Status::Continued => 0xffff,
        }
    }
}

/// State of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Alive,
    Stopped(u32),
    Zombie(Status),
}

#[derive(Debug)]
struct Node<P> {
    process: P,
    parent: Pid,
    children: Vec<Pid>,
    group: Pid,
    session: Pid,
    state: State,
    /// A stop or continue that the parent has not waited for.
    news: Option<Status>,
    /// Has called execve: its parent may no longer move it (setpgid).
    has_execed: bool,
}

/// Which children wait4 and waitid mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whom {
    /// Any child.
    Any,
    /// This one.
    Pid(Pid),
    /// Any of this group.
    Group(Pid),
}

/// Which events a waiter wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// Ended children (`WEXITED`).
    pub exited: bool,
    /// Stopped children (`WUNTRACED`).
    pub stopped: bool,
    /// Continued children (`WCONTINUED`).
    pub continued: bool,
    /// Leave the event to be waited for again (`WNOWAIT`).
    pub keep: bool,
}

/// What an exit brings about; the caller sends the signals.
#[derive(Debug, PartialEq, Eq)]
pub struct Exit {
    /// To be told by SIGCHLD.
    pub parent: Pid,
    /// The reaper has got zombies by this and must be told too.
    pub wake_reaper: bool,
    /// Groups that became orphaned with a stopped member: SIGHUP, then SIGCONT.
    pub orphaned: Vec<Pid>,
    /// The process led its session: its terminal is free again.
    pub led_session: bool,
}

/// See the module.
pub struct Tree<P> {
    nodes: BTreeMap<Pid, Node<P>>,
    reaper: Pid,
}

impl<P: Clone> Tree<P> {
    /// A tree without processes.
    pub const fn new() -> Tree<P> {
        Tree { nodes: BTreeMap::new(), reaper: 0 }
    }

    /// Plants the first process, which adopts orphans. It leads its own session.
    pub fn plant(&mut self, pid: Pid, process: P) {
        assert!(self.nodes.is_empty(), "the first process comes first");
        self.reaper = pid;
        let node = Node {
            process,
            parent: 0,
            children: Vec::new(),
            group: pid,
            session: pid,
            state: State::Alive,
            news: None,
            has_execed: false,
        };
        self.nodes.insert(pid, node);
    }

    fn node(&self, pid: Pid) -> Result<&Node<P>> {
        self.nodes.get(&pid).ok_or(Errno::ESRCH)
    }
    fn node_mut(&mut self, pid: Pid) -> Result<&mut Node<P>> {
        self.nodes.get_mut(&pid).ok_or(Errno::ESRCH)
    }

    /// The process `pid`, dead but not reaped ones too.
    pub fn get(&self, pid: Pid) -> Result<P> {
        self.node(pid).map(|n| n.process.clone())
    }
    /// Whether `pid` names a process.
    pub fn contains(&self, pid: Pid) -> bool {
        self.nodes.contains_key(&pid)
    }
    /// Whether `id` is in use as pid, group or session.
    pub fn is_taken(&self, id: Pid) -> bool {
        self.contains(id) || self.nodes.values().any(|n| n.group == id || n.session == id)
    }
    /// All process ids in order, zombies too.
    pub fn pids(&self) -> Vec<Pid> {
        self.nodes.keys().copied().collect()
    }
    /// Parent (0 for the first process).
    pub fn parent(&self, pid: Pid) -> Result<Pid> {
        self.node(pid).map(|n| n.parent)
    }
    /// The one that adopts orphans.
    pub fn reaper(&self) -> Pid {
        self.reaper
    }
    /// Process group.
    pub fn group(&self, pid: Pid) -> Result<Pid> {
        self.node(pid).map(|n| n.group)
    }
    /// Session.
    pub fn session(&self, pid: Pid) -> Result<Pid> {
        self.node(pid).map(|n| n.session)
    }
    /// Session of a group with a member.
    pub fn session_of_group(&self, group: Pid) -> Option<Pid> {
        self.nodes.values().find(|n| n.group == group).map(|n| n.session)
    }
    /// Living members of a group.
    pub fn members(&self, group: Pid) -> Vec<P> {
        let of = |n: &&Node<P>| n.group == group && !matches!(n.state, State::Zombie(_));
        self.nodes.values().filter(of).map(|n| n.process.clone()).collect()
    }
    /// Whether any process, dead or alive, is in `group`.
    pub fn has_group(&self, group: Pid) -> bool {
        self.nodes.values().any(|n| n.group == group)
    }
    /// The state letter of /proc/PID/stat if the tree decides it: `T` or `Z`.
    pub fn letter(&self, pid: Pid) -> Option<u8> {
        match self.node(pid).ok()?.state {
            State::Alive => None,
            State::Stopped(_) => Some(b'T'),
            State::Zombie(_) => Some(b'Z'),
        }
    }
    /// Whether `pid` is stopped.
    pub fn is_stopped(&self, pid: Pid) -> bool {
        matches!(self.node(pid).map(|n| n.state), Ok(State::Stopped(_)))
    }

    /// Adds a child of `parent` in its group and session.
    pub fn fork(&mut self, parent: Pid, pid: Pid, process: P) -> Result<()> {
        debug_assert!(!self.contains(pid));
        let up = self.node_mut(parent)?;
        up.children.push(pid);
        let node = Node {
            process,
            parent,
            children: Vec::new(),
            group: up.group,
            session: up.session,
            state: State::Alive,
            news: None,
            has_execed: false,
        };
        self.nodes.insert(pid, node);
        Ok(())
    }

    /// The reaper adopts `pid`, a process of another cell that runs here, with its own group and
    /// session.
    pub fn adopt(&mut self, pid: Pid, process: P, group: Pid, session: Pid) -> Result<()> {
        if self.contains(pid) {
            return Err(Errno::EEXIST);
        }
        self.fork(self.reaper, pid, process)?;
        let node = self.node_mut(pid)?;
        (node.group, node.session, node.has_execed) = (group, session, true);
        Ok(())
    }

    /// Whether `pid` has children, zombies included.
    pub fn has_children(&self, pid: Pid) -> bool {
        self.node(pid).is_ok_and(|node| !node.children.is_empty())
    }

    /// Takes back a [`Tree::fork`] whose child never ran.
    pub fn unfork(&mut self, pid: Pid) {
        if let Some(node) = self.nodes.remove(&pid)
            && let Some(up) = self.nodes.get_mut(&node.parent)
        {
            up.children.retain(|&c| c != pid);
        }
    }

    /// Notes a successful execve.
    pub fn execed(&mut self, pid: Pid) {
        if let Ok(node) = self.node_mut(pid) {
            node.has_execed = true;
        }
    }

    /// setpgid(2) by `caller`; 0 means itself, and the target.
    pub fn set_group(&mut self, caller: Pid, pid: Pid, group: Pid) -> Result<()> {
        let pid = if pid == 0 { caller } else { pid };
        let group = if group == 0 { pid } else { group };
        if pid < 0 || group < 0 {
            return Err(Errno::EINVAL);
        }
        let session = self.session(caller)?;
        let node = self.node(pid)?;
        if pid != caller {
            if node.parent != caller {
                return Err(Errno::ESRCH);
            }
            if node.session != session {
                return Err(Errno::EPERM);
            }
            if node.has_execed {
                return Err(Errno::EACCES);
            }
        }
        if node.session == pid || group != pid && self.session_of_group(group) != Some(session) {
            return Err(Errno::EPERM);
        }
        self.node_mut(pid)?.group = group;
        Ok(())
    }

    /// setsid(2).
    pub fn set_session(&mut self, pid: Pid) -> Result<Pid> {
        if self.has_group(pid) {
            return Err(Errno::EPERM);
        }
        let node = self.node_mut(pid)?;
        node.group = pid;
        node.session = pid;
        Ok(pid)
    }

    /// Whether no member of `group` has a parent outside the group but in the session.
    pub fn is_orphaned(&self, group: Pid) -> bool {
        !self.nodes.values().any(|n| {
            let alive = !matches!(n.state, State::Zombie(_));
            let parent = self.nodes.get(&n.parent);
            n.group == group
                && alive
                && parent.is_some_and(|p| p.group != group && p.session == n.session)
        })
    }

    fn has_stopped_member(&self, group: Pid) -> bool {
        self.nodes.values().any(|n| n.group == group && matches!(n.state, State::Stopped(_)))
    }

    /// Ends `pid`: a zombie until reaped. Its children go to the reaper.
    pub fn exit(&mut self, pid: Pid, status: Status) -> Result<Exit> {
        let node = self.node(pid)?;
        let (parent, group, led_session) = (node.parent, node.group, node.session == pid);
        let children = node.children.clone();
        // Only groups that were not orphaned before can become so now.
        let mut candidates: Vec<Pid> =
            children.iter().filter_map(|&c| self.group(c).ok()).chain([group]).collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|&g| !self.is_orphaned(g));
        let reaper = self.reaper;
        let mut wake_reaper = false;
        for &child in &children {
            let node = self.node_mut(child)?;
            node.parent = reaper;
            wake_reaper |= matches!(node.state, State::Zombie(_));
        }
        if reaper != pid {
            self.node_mut(reaper)?.children.extend_from_slice(&children);
        }
        let node = self.node_mut(pid)?;
        node.children.clear();
        node.state = State::Zombie(status);
        node.news = None;
        candidates.retain(|&g| self.is_orphaned(g) && self.has_stopped_member(g));
        Ok(Exit { parent, wake_reaper, orphaned: candidates, led_session })
    }

    /// Marks `pid` stopped; false if it was, or is dead.
    pub fn stop(&mut self, pid: Pid, signal: u32) -> bool {
        match self.node_mut(pid) {
            Ok(node) if node.state == State::Alive => {
                node.state = State::Stopped(signal);
                node.news = Some(Status::Stopped(signal));
                true
            }
            _ => false,
        }
    }

    /// Marks `pid` going on; false if it was not stopped.
    pub fn resume(&mut self, pid: Pid) -> bool {
        match self.node_mut(pid) {
            Ok(node) if matches!(node.state, State::Stopped(_)) => {
                node.state = State::Alive;
                node.news = Some(Status::Continued);
                true
            }
            _ => false,
        }
    }

    /// Removes a zombie from the tree.
    pub fn reap(&mut self, pid: Pid) -> Option<P> {
        if !matches!(self.node(pid).ok()?.state, State::Zombie(_)) {
            return None;
        }
        let node = self.nodes.remove(&pid)?;
        if let Some(up) = self.nodes.get_mut(&node.parent) {
            up.children.retain(|&c| c != pid);
        }
        Some(node.process)
    }

    /// The next event for a waiting `parent`: `Ok(None)` if there is none yet, `ECHILD` if there
    /// never will be. An ended child is reaped unless `events.keep`.
    pub fn wait(
        &mut self,
        parent: Pid,
        whom: Whom,
        events: Events,
    ) -> Result<Option<(Pid, Status, P)>> {
        let mut any = false;
        let mut found = None;
        for &pid in &self.node(parent)?.children {
            let node = self.node(pid)?;
            let meant = match whom {
                Whom::Any => true,
                Whom::Pid(wanted) => wanted == pid,
                Whom::Group(group) => group == node.group,
            };
            if !meant {
                continue;
            }
            any = true;
            let event = match (node.state, node.news) {
                (State::Zombie(status), _) if events.exited => Some(status),
                (_, Some(news @ Status::Stopped(_))) if events.stopped => Some(news),
                (_, Some(news @ Status::Continued)) if events.continued => Some(news),
                _ => None,
            };
            if let Some(status) = event {
                found = Some((pid, status, node.process.clone()));
                break;
            }
        }
        let Some((pid, status, process)) = found else {
            return if any { Ok(None) } else { Err(Errno::ECHILD) };
        };
        if !events.keep {
            match status {
                Status::Exited(_) | Status::Killed(..) => drop(self.reap(pid)),
                _ => self.node_mut(pid)?.news = None,
            }
        }
        Ok(Some((pid, status, process)))
    }

    /// Panics if an invariant of the module head does not hold.
    #[cfg(test)]
    pub fn check(&self) {
        for (&pid, node) in &self.nodes {
            if pid != self.reaper {
                assert!(self.nodes[&node.parent].children.contains(&pid));
                assert!(!matches!(self.nodes[&node.parent].state, State::Zombie(_)));
            }
            for &child in &node.children {
                assert_eq!(self.nodes[&child].parent, pid);
            }
            for other in self.nodes.values().filter(|o| o.group == node.group) {
                assert_eq!(other.session, node.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXITED: Events = Events { exited: true, stopped: false, continued: false, keep: false };

    fn family() -> Tree<()> {
        // 1 init, 2 shell (own session), 3 and 4 its job.
        let mut t = Tree::new();
        t.plant(1, ());
        t.fork(1, 2, ()).unwrap();
        t.set_session(2).unwrap();
        t.fork(2, 3, ()).unwrap();
        t.set_group(2, 3, 0).unwrap();
        t.fork(2, 4, ()).unwrap();
        t.set_group(4, 0, 3).unwrap();
        t.check();
        t
    }

    #[test]
    fn wait_finds_reaps_and_ends() {
        let mut t = family();
        assert_eq!(t.wait(2, Whom::Any, EXITED), Ok(None));
        t.exit(4, Status::Exited(3)).unwrap();
        assert_eq!(t.wait(2, Whom::Pid(3), EXITED), Ok(None));
        let keep = Events { keep: true, ..EXITED };
        assert_eq!(t.wait(2, Whom::Group(3), keep).unwrap(), Some((4, Status::Exited(3), ())));
        assert_eq!(t.wait(2, Whom::Any, EXITED).unwrap(), Some((4, Status::Exited(3), ())));
        assert!(!t.contains(4));
        assert_eq!(t.wait(2, Whom::Pid(4), EXITED), Err(Errno::ECHILD));
        t.exit(3, Status::Killed(9, false)).unwrap();
        t.wait(2, Whom::Any, EXITED).unwrap().unwrap();
        assert_eq!(t.wait(2, Whom::Any, EXITED), Err(Errno::ECHILD));
        t.check();
    }

    #[test]
    fn stops_and_continues_are_told_once() {
        let mut t = family();
        let events = Events { stopped: true, continued: true, ..EXITED };
        assert!(t.stop(3, 20));
        assert!(!t.stop(3, 20));
        assert_eq!(t.wait(2, Whom::Any, EXITED), Ok(None));
        assert_eq!(t.wait(2, Whom::Any, events).unwrap(), Some((3, Status::Stopped(20), ())));
        assert_eq!(t.wait(2, Whom::Any, events), Ok(None));
        assert!(t.resume(3));
        assert_eq!(t.wait(2, Whom::Any, events).unwrap(), Some((3, Status::Continued, ())));
        assert!(!t.resume(3));
    }

    #[test]
    fn orphans_go_to_the_reaper_and_stopped_orphaned_groups_are_told() {
        let mut t = family();
        t.stop(3, 20);
        assert!(!t.is_orphaned(3));
        let exit = t.exit(2, Status::Exited(0)).unwrap();
        assert_eq!(exit.parent, 1);
        assert_eq!(exit.orphaned, [3]);
        assert!(exit.led_session && !exit.wake_reaper);
        assert_eq!(t.parent(3), Ok(1));
        t.check();
        t.exit(4, Status::Exited(0)).unwrap();
        t.wait(1, Whom::Pid(2), EXITED).unwrap().unwrap();
        t.wait(1, Whom::Pid(4), EXITED).unwrap().unwrap();
        t.check();
    }

    #[test]
    fn a_zombie_grandchild_wakes_the_reaper() {
        let mut t = family();
        t.exit(3, Status::Exited(0)).unwrap();
        assert!(t.exit(2, Status::Exited(0)).unwrap().wake_reaper);
        t.check();
    }

    #[test]
    fn groups_obey_posix() {
        let mut t = family();
        assert_eq!(t.set_group(2, 2, 0), Err(Errno::EPERM), "a session leader stays");
        assert_eq!(t.set_group(2, 1, 0), Err(Errno::ESRCH), "not a child");
        assert_eq!(t.set_group(2, 4, 99), Err(Errno::EPERM), "no such group");
        assert_eq!(t.set_group(2, 4, 1), Err(Errno::EPERM), "another session");
        assert_eq!(t.set_group(2, -1, 1), Err(Errno::EINVAL));
        t.execed(4);
        assert_eq!(t.set_group(2, 4, 4), Err(Errno::EACCES));
        assert_eq!(t.set_group(4, 0, 0), Ok(()));
        assert_eq!(t.set_session(4), Err(Errno::EPERM), "a group leader cannot");
        t.fork(4, 5, ()).unwrap();
        assert_eq!(t.set_session(5), Ok(5));
        t.check();
    }

    #[test]
    fn status_words_are_those_of_wait4() {
        assert_eq!(Status::Exited(3).word(), 0x300);
        assert_eq!(Status::Killed(11, true).word(), 0x8b);
        assert_eq!(Status::Stopped(20).word(), 0x147f);
        assert_eq!(Status::Continued.word(), 0xffff);
    }
}
