//! What /proc tells about the kernel around it. The kernel image implements [`ProcSource`]; the
//! texts are made in `text`.

use crate::abi::Attr;
use crate::errno::{Errno, Result};
use crate::file::OpenFile;
use crate::name::Place;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Ticks per second of times in /proc (`USER_HZ`).
pub const USER_HZ: u64 = 100;

/// A process, or one thread of it. Times are in ticks of [`USER_HZ`], sizes in bytes; what a
/// kernel does not count is 0.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the names of proc(5)
pub struct ProcessInfo {
    pub pid: i32,
    /// The thread; equal to `pid` for the first.
    pub tid: i32,
    pub comm: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`.
    pub state: char,
    pub ppid: i32,
    pub pgrp: i32,
    pub session: i32,
    /// Device number of the controlling terminal, 0 for none.
    pub tty: u64,
    /// Foreground group of that terminal, -1 for none.
    pub tpgid: i32,
    pub flags: u32,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub utime: u64,
    pub stime: u64,
    pub children_utime: u64,
    pub children_stime: u64,
    pub priority: i32,
    pub nice: i32,
    pub threads: u32,
    /// Ticks after boot.
    pub start_time: u64,
    pub vm_size: u64,
    pub vm_peak: u64,
    pub rss: u64,
    pub rss_peak: u64,
    pub rss_file: u64,
    pub rss_shared: u64,
    pub text: u64,
    pub data: u64,
    pub stack: u64,
    pub libraries: u64,
    pub page_tables: u64,
    /// RLIMIT_RSS.
    pub rss_limit: u64,
    pub start_code: u64,
    pub end_code: u64,
    pub start_stack: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
    pub exit_signal: i32,
    pub exit_code: i32,
    /// The hart it runs, or ran last, on.
    pub hart: u32,
    pub policy: u32,
    /// Real, effective, saved, file system.
    pub uid: [u32; 4],
    pub gid: [u32; 4],
    pub groups: Vec<u32>,
    pub umask: u32,
    pub fd_slots: u32,
    pub signals_pending: u64,
    pub signals_shared: u64,
    pub signals_blocked: u64,
    pub signals_ignored: u64,
    pub signals_caught: u64,
    pub voluntary_switches: u64,
    pub forced_switches: u64,
    /// The cell it runs on.
    pub cell: u16,
}

/// Memory of the cell, bytes.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct MemoryInfo {
    pub total: u64,
    pub free: u64,
    /// What could be had without swapping.
    pub available: u64,
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub anonymous: u64,
    pub mapped: u64,
    pub shared: u64,
    pub slab: u64,
    pub page_tables: u64,
    pub kernel_stacks: u64,
    pub committed: u64,
}

/// Where a hart's time went, ticks.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct CpuTimes {
    pub user: u64,
    pub nice: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
}

/// A hart of the cell.
#[derive(Clone, Debug, Default)]
pub struct HartInfo {
    /// Its number in the machine.
    pub hart: u32,
    /// As the device tree says, `rv64imafdc...`.
    pub isa: String,
    /// `sv39`.
    pub mmu: String,
    /// Where its time went.
    pub times: CpuTimes,
}

/// Activity of the cell.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Activity {
    /// Since boot.
    pub uptime_ns: u64,
    /// Sum over harts.
    pub idle_ns: u64,
    /// Time of boot, seconds since 1970.
    pub boot_time: u64,
    /// Load averages of 1, 5, 15 minutes, hundredths.
    pub load: [u32; 3],
    pub running: u32,
    pub blocked: u32,
    pub threads: u32,
    pub last_pid: i32,
    pub context_switches: u64,
    pub interrupts: u64,
    /// Processes made since boot.
    pub forks: u64,
}

/// A cell as this one knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellInfo {
    /// Its number.
    pub cell: u16,
    /// Its life.
    pub incarnation: u32,
    /// In the live set.
    pub live: bool,
}

/// Names of the system, as uname(2) tells them.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct SystemNames {
    pub sysname: String,
    pub nodename: String,
    pub release: String,
    pub version: String,
    pub domainname: String,
    /// The line of /proc/version.
    pub banner: String,
    /// What the kernel was started with.
    pub command_line: String,
    /// Random for each boot, as text.
    pub boot_id: String,
}

/// The kernel as /proc sees it. A process that is gone is `ESRCH`.
pub trait ProcSource: Send + Sync {
    /// Process and thread of the caller.
    fn current(&self) -> (i32, i32);
    /// Every process, ascending.
    fn pids(&self) -> Vec<i32>;
    /// The threads of a process, ascending.
    fn tids(&self, pid: i32) -> Result<Vec<i32>>;
    /// A process, or one thread of it.
    fn process(&self, pid: i32, tid: i32) -> Result<ProcessInfo>;
    /// Arguments, each ended by a NUL.
    fn cmdline(&self, pid: i32) -> Result<Vec<u8>>;
    /// Environment, each ended by a NUL.
    fn environ(&self, _pid: i32) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    /// Auxiliary vector, as on the stack.
    fn auxv(&self, _pid: i32) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    /// The lines of /proc/PID/maps.
    fn maps(&self, pid: i32) -> Result<Vec<u8>>;
    /// The lines of /proc/PID/limits.
    fn limits(&self, _pid: i32) -> Result<Vec<u8>> {
        Err(Errno::ENOENT)
    }
    /// The program it runs; `ENOENT` for a kernel thread.
    fn exe(&self, pid: i32) -> Result<Place>;
    /// Current directory.
    fn cwd(&self, pid: i32) -> Result<Place>;
    /// Root directory.
    fn root(&self, pid: i32) -> Result<Place>;
    /// Open files, ascending.
    fn files(&self, pid: i32) -> Result<Vec<(i32, Arc<OpenFile>)>>;
    /// Memory.
    fn memory(&self) -> MemoryInfo;
    /// The cell's harts.
    fn harts(&self) -> Vec<HartInfo>;
    /// Activity.
    fn activity(&self) -> Activity;
    /// Names.
    fn names(&self) -> SystemNames;
    /// The cell we are on.
    fn cell(&self) -> u16;
    /// All cells.
    fn cells(&self) -> Vec<CellInfo>;
    /// Largest process id + 1.
    fn pid_max(&self) -> u32 {
        4_194_304
    }
    /// Whether the caller may look into the memory and files of the process whose /proc entry
    /// has these attributes.
    fn may_inspect(&self, _pid: i32, _attr: &Attr) -> bool {
        true
    }
}
