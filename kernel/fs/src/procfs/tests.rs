use super::*;
use crate::abi::oflag::*;
use crate::cred::Cred;
use crate::devfs::{DevFs, DevHost};
use crate::io::{SliceSource, VecSink};
use crate::name::At;
use crate::pipe::PipeFs;
use crate::testing::{StepClock, cache};
use crate::tmpfs::TmpFs;
use crate::tty::{Caller, Host, Tty};
use alloc::string::ToString;
use hive_sync::Once;
use std::sync::Mutex as StdMutex;

/// A kernel with one process, 42, of one thread.
#[derive(Default)]
struct Kernel {
    files: StdMutex<Vec<(i32, Arc<crate::OpenFile>)>>,
    root: Once<Place>,
}

impl ProcSource for Kernel {
    fn current(&self) -> (i32, i32) {
        (42, 42)
    }
    fn pids(&self) -> Vec<i32> {
        alloc::vec![1, 42]
    }
    fn tids(&self, pid: i32) -> Result<Vec<i32>> {
        Ok(alloc::vec![pid])
    }
    fn process(&self, pid: i32, tid: i32) -> Result<ProcessInfo> {
        if pid != 42 && pid != 1 {
            return Err(Errno::ESRCH);
        }
        let comm = "a (b) c".to_string();
        Ok(ProcessInfo {
            pid,
            tid,
            comm,
            state: 'S',
            vm_size: 8192,
            tty: 1281,
            ..Default::default()
        })
    }
    fn cmdline(&self, _pid: i32) -> Result<Vec<u8>> {
        Ok(b"ps\0aux\0".to_vec())
    }
    fn maps(&self, _pid: i32) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn exe(&self, _pid: i32) -> Result<Place> {
        Err(Errno::ENOENT)
    }
    fn cwd(&self, _pid: i32) -> Result<Place> {
        Ok(self.root.get().unwrap().clone())
    }
    fn root(&self, _pid: i32) -> Result<Place> {
        Ok(self.root.get().unwrap().clone())
    }
    fn files(&self, _pid: i32) -> Result<Vec<(i32, Arc<crate::OpenFile>)>> {
        Ok(self.files.lock().unwrap().clone())
    }
    fn memory(&self) -> MemoryInfo {
        MemoryInfo { total: 32 << 20, free: 1 << 20, ..Default::default() }
    }
    fn harts(&self) -> Vec<HartInfo> {
        alloc::vec![HartInfo { isa: "rv64gc".to_string(), ..Default::default() }; 4]
    }
    fn activity(&self) -> Activity {
        Activity { uptime_ns: 12_345_678_901, load: [5, 110, 0], threads: 3, ..Default::default() }
    }
    fn names(&self) -> SystemNames {
        SystemNames { release: "6.1.0-hive".to_string(), ..Default::default() }
    }
    fn cell(&self) -> u16 {
        0
    }
    fn cells(&self) -> Vec<CellInfo> {
        alloc::vec![CellInfo { cell: 3, incarnation: 2, live: false }]
    }
}

impl DevHost for Kernel {
    fn random(&self, buf: &mut [u8]) {
        buf.fill(4);
    }
    fn controlling_tty(&self) -> Option<Arc<Tty>> {
        None
    }
}

impl Host for Kernel {
    fn output(&self, _bytes: &[u8]) {}
    fn caller(&self) -> Caller {
        Caller::default()
    }
    fn signal_group(&self, _group: u32, _signal: u32) {}
    fn group_in_session(&self, _group: u32, _session: u32) -> bool {
        false
    }
    fn control(&self, _session: u32, _tty: Option<Arc<Tty>>) {}
}

struct World {
    ns: Arc<Namespace>,
    kernel: Arc<Kernel>,
    root: Place,
    cred: Cred,
}

impl World {
    fn new() -> World {
        let (cache, _ram) = cache(64);
        let fs = TmpFs::new(cache, FsId::new(0, 1), StepClock::new(), 100).unwrap();
        let ns = Namespace::new(fs, false, "/dev/vda").unwrap();
        let (root, cred, kernel) = (ns.root(), Cred::root(), Arc::new(Kernel::default()));
        kernel.root.set(root.clone()).ok().unwrap();
        let w = World { ns, kernel, root, cred };
        let proc = ProcFs::new(FsId::new(0, 2), w.kernel.clone(), &w.ns);
        let tty = Tty::new(w.kernel.clone());
        let dev = DevFs::new(FsId::new(0, 3), w.kernel.clone(), tty);
        let both: [(&[u8], Arc<dyn FileSystem>); 2] = [(b"/proc", proc), (b"/dev", dev)];
        for (path, fs) in both {
            w.at().mkdir(path, 0o755).unwrap();
            let on = w.at().resolve(path, true).unwrap();
            let top = fs.root().unwrap();
            w.ns.mount(&on, fs, top, true, "none").unwrap();
        }
        w
    }
    fn at(&self) -> At<'_> {
        At { ns: &self.ns, root: &self.root, base: &self.root, cred: &self.cred }
    }
    fn read(&self, path: &str) -> String {
        let f = self.at().open(path.as_bytes(), O_RDONLY, 0).unwrap();
        let mut sink = VecSink::new(1 << 16);
        while f.read(&mut sink).unwrap() > 0 {}
        String::from_utf8(sink.data).unwrap()
    }
}

#[test]
fn every_fixed_entry_stands_in_a_directory() {
    for (parent, name, _) in FIXED {
        assert!(matches!(FIXED[*parent].2, Fixed::Dir), "{name}");
    }
    let w = World::new();
    assert_eq!(w.read("/proc/sys/kernel/osrelease"), "6.1.0-hive\n");
    assert_eq!(w.read("/proc/sys/vm/overcommit_memory"), "0\n");
    assert_eq!(w.read("/proc/sys/kernel/random/boot_id"), "\n");
    assert!(w.read("/proc/tty/drivers").contains("serial"));
    assert_eq!(w.read("/proc/cells"), "3 2 dead\n");
}

/// Linux is the judge: same fields, names and layout as the host's own /proc.
#[test]
fn texts_are_shaped_as_on_the_host() {
    let w = World::new();
    let host = |path: &str| std::fs::read_to_string(path).unwrap();
    let fields = |s: &str| s.rsplit(')').next().unwrap().split_whitespace().count();
    assert_eq!(fields(&w.read("/proc/self/stat")), fields(&host("/proc/self/stat")));
    assert!(w.read("/proc/self/stat").starts_with("42 (a (b) c) S 0 0 0 1281 "));
    assert_eq!(w.read("/proc/self/statm").split_whitespace().count(), 7);
    let known = |s: &str| -> Vec<String> {
        s.lines().map(|l| l.split(':').next().unwrap().to_string()).collect()
    };
    let host_status = known(&host("/proc/self/status"));
    for name in known(&w.read("/proc/self/status")) {
        // Lines newer than the host's kernel.
        let newer = ["Kthread", "THP_enabled"].contains(&name.as_str());
        assert!(newer || host_status.contains(&name), "status has no line {name}");
    }
    let host_memory = host("/proc/meminfo");
    let width = host_memory.lines().next().unwrap().len();
    for line in w.read("/proc/meminfo").lines() {
        assert!(line.len() == width, "{line}");
        assert!(known(&host_memory).contains(&known(line)[0]), "{line}");
    }
    assert_eq!(w.read("/proc/uptime"), "12.34 0.00\n");
    assert_eq!(w.read("/proc/loadavg"), "0.05 1.10 0.00 1/3 0\n");
    let cpus = w.read("/proc/stat");
    assert!(cpus.starts_with("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 "));
    assert_eq!(cpus.lines().filter(|l| l.starts_with("cpu")).count(), 5);
    assert!(w.read("/proc/mounts").contains("none /proc proc ro,noatime 0 0\n"));
    assert!(
        w.read("/proc/self/mountinfo").starts_with("1 0 8:1 / / rw,noatime - tmpfs /dev/vda rw")
    );
}

#[test]
fn links_lead_to_open_files_without_names() {
    let w = World::new();
    let at = w.at();
    assert_eq!(at.readlink(b"/proc/self").unwrap(), b"42");
    assert_eq!(at.readlink(b"/proc/self/cwd").unwrap(), b"/");
    let (r, wr) = PipeFs::new(FsId::new(0, 9)).pipe(0);
    wr.write(&mut SliceSource::new(b"through")).unwrap();
    // Its writer is gone before the reader comes: unlike a fifo, a pipe does not wait for one.
    drop(wr);
    let file = at.open(b"/file", O_RDWR | O_CREAT, 0o600).unwrap();
    *w.kernel.files.lock().unwrap() = alloc::vec![(0, r), (63, file)];
    // What bash's process substitution does.
    let again = at.open(b"/dev/fd/0", O_RDONLY, 0).unwrap();
    let mut sink = VecSink::new(7);
    again.read(&mut sink).unwrap();
    assert_eq!(sink.data, b"through");
    assert_eq!(at.readlink(b"/proc/self/fd/0").unwrap(), b"pipe:[1]");
    assert_eq!(at.readlink(b"/proc/42/fd/63").unwrap(), b"/file");
    at.unlink(b"/file", 0).unwrap();
    assert_eq!(at.readlink(b"/proc/42/fd/63").unwrap(), b"/file (deleted)");
    assert_eq!(at.open(b"/proc/43/stat", O_RDONLY, 0).err(), Some(Errno::ENOENT));
    assert_eq!(at.open(b"/proc/stat", O_RDWR, 0).err(), Some(Errno::EROFS));
}

#[test]
fn listing_goes_on_where_it_was() {
    let w = World::new();
    let dir = w.at().resolve(b"/proc", true).unwrap();
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let mut n = 0;
        dir.vnode()
            .readdir(cookie, &mut |e| {
                n += 1;
                if n <= 4 {
                    cookie = e.next;
                    names.push(String::from_utf8(e.name.to_vec()).unwrap());
                }
                n <= 4
            })
            .unwrap();
        if n <= 4 {
            break;
        }
    }
    assert_eq!(names[..2], [".", ".."]);
    assert_eq!(names[names.len() - 2..], ["1", "42"]);
    assert_eq!(names.iter().filter(|n| *n == "sys").count(), 1);
}

#[test]
fn devices() {
    let w = World::new();
    let at = w.at();
    let open = |path: &str| at.open(path.as_bytes(), O_RDWR, 0);
    let mut sink = VecSink::new(300);
    assert_eq!(open("/dev/urandom").unwrap().read(&mut sink), Ok(300));
    assert_eq!(sink.data, [4; 300]);
    assert_eq!(open("/dev/null").unwrap().read(&mut VecSink::new(9)), Ok(0));
    assert_eq!(open("/dev/null").unwrap().write(&mut SliceSource::new(b"abc")), Ok(3));
    assert_eq!(open("/dev/full").unwrap().write(&mut SliceSource::new(b"a")), Err(Errno::ENOSPC));
    assert_eq!(open("/dev/tty").err(), Some(Errno::ENXIO));
    assert_eq!(at.stat(b"/dev/null", 0).unwrap().0.rdev, crate::abi::makedev(1, 3));
    // No O_CREAT in a fixed tree, but `> /dev/null` works.
    assert!(at.open(b"/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0o666).is_ok());
    assert_eq!(at.open(b"/dev/new", O_WRONLY | O_CREAT, 0o666).err(), Some(Errno::EROFS));
}
