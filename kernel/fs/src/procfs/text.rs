//! The texts of /proc, to the letter as Linux prints them (fs/proc, proc(5)): procps reads them.

use super::source::*;
use crate::abi::{dev_major, dev_minor};
use crate::name::{Mount, Namespace};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

const PAGE: u64 = hive_vm::PAGE_SIZE as u64;
const KB: u64 = 1024;

/// /proc/PID/stat.
pub fn stat(p: &ProcessInfo) -> String {
    // tty_nr keeps the old split: minor low byte, major, rest of minor (MAJOR/MINOR new_encode_dev).
    let (major, minor) = (dev_major(p.tty), dev_minor(p.tty));
    let tty = minor & 0xff | major << 8 | (minor & !0xff) << 12;
    let mut s = format!("{} ({}) {}", p.tid, p.comm, p.state);
    let head: [i64; 6] = [
        p.ppid.into(),
        p.pgrp.into(),
        p.session.into(),
        tty.into(),
        p.tpgid.into(),
        p.flags.into(),
    ];
    let faults = [p.minor_faults, 0, p.major_faults, 0];
    let times = [p.utime, p.stime, p.children_utime, p.children_stime];
    put(&mut s, head);
    put(&mut s, faults);
    put(&mut s, times);
    put(&mut s, [p.priority as i64, p.nice as i64, p.threads as i64, 0]);
    put(&mut s, [p.start_time, p.vm_size, p.rss / PAGE, p.rss_limit]);
    put(&mut s, [p.start_code, p.end_code, p.start_stack, 0, 0]);
    // Only the first 31 signals: "obsolete, use status".
    let low = |set: u64| set & 0x7fff_ffff;
    put(&mut s, [low(p.signals_pending), low(p.signals_blocked)]);
    put(&mut s, [low(p.signals_ignored), low(p.signals_caught)]);
    put(&mut s, [0, 0, 0, p.exit_signal as i64, p.hart as i64, 0, p.policy as i64]);
    put(&mut s, [0, 0, 0, p.start_data, p.end_data, p.start_brk]);
    put(&mut s, [p.arg_start, p.arg_end, p.env_start, p.env_end]);
    put(&mut s, [p.exit_code as i64]);
    s.push('\n');
    s
}

fn put<T: core::fmt::Display, const N: usize>(s: &mut String, values: [T; N]) {
    for v in values {
        let _ = write!(s, " {v}");
    }
}

/// /proc/PID/statm.
pub fn statm(p: &ProcessInfo) -> String {
    let shared = p.rss_file + p.rss_shared;
    let [size, rss, shared, text, data] =
        [p.vm_size, p.rss, shared, p.text, p.data + p.stack].map(|b| b / PAGE);
    format!("{size} {rss} {shared} {text} 0 {data} 0\n")
}

fn state_name(state: char) -> &'static str {
    match state {
        'R' => "R (running)",
        'D' => "D (disk sleep)",
        'T' => "T (stopped)",
        't' => "t (tracing stop)",
        'Z' => "Z (zombie)",
        'X' => "X (dead)",
        _ => "S (sleeping)",
    }
}

/// /proc/PID/status. `harts` is the number of harts of the cell.
pub fn status(p: &ProcessInfo, harts: usize) -> String {
    let mut s = String::new();
    let w = &mut s;
    let _ = write!(w, "Name:\t{}\nUmask:\t{:04o}\n", p.comm, p.umask);
    let _ = write!(w, "State:\t{}\nTgid:\t{}\nNgid:\t0\n", state_name(p.state), p.pid);
    let _ = write!(w, "Pid:\t{}\nPPid:\t{}\nTracerPid:\t0\n", p.tid, p.ppid);
    for (name, ids) in [("Uid", p.uid), ("Gid", p.gid)] {
        let _ = writeln!(w, "{name}:\t{}\t{}\t{}\t{}", ids[0], ids[1], ids[2], ids[3]);
    }
    let _ = write!(w, "FDSize:\t{}\nGroups:\t", p.fd_slots);
    for g in &p.groups {
        let _ = write!(w, "{g} ");
    }
    let _ = write!(w, "\nNStgid:\t{}\nNSpid:\t{}\nNSpgid:\t{}\n", p.pid, p.tid, p.pgrp);
    let _ = write!(w, "NSsid:\t{}\nKthread:\t{}\n", p.session, (p.vm_size == 0) as u32);
    if p.vm_size > 0 {
        let anon = p.rss.saturating_sub(p.rss_file + p.rss_shared);
        let sizes = [
            ("VmPeak", p.vm_peak.max(p.vm_size)),
            ("VmSize", p.vm_size),
            ("VmLck", 0),
            ("VmPin", 0),
            ("VmHWM", p.rss_peak.max(p.rss)),
            ("VmRSS", p.rss),
            ("RssAnon", anon),
            ("RssFile", p.rss_file),
            ("RssShmem", p.rss_shared),
            ("VmData", p.data),
            ("VmStk", p.stack),
            ("VmExe", p.text),
            ("VmLib", p.libraries),
            ("VmPTE", p.page_tables),
            ("VmSwap", 0),
            ("HugetlbPages", 0),
        ];
        for (name, bytes) in sizes {
            let _ = writeln!(w, "{name}:\t{:8} kB", bytes / KB);
        }
        let _ = write!(w, "CoreDumping:\t0\nTHP_enabled:\t0\n");
    }
    let _ = write!(w, "Threads:\t{}\nSigQ:\t0/0\n", p.threads);
    let sets = [
        ("SigPnd", p.signals_pending),
        ("ShdPnd", p.signals_shared),
        ("SigBlk", p.signals_blocked),
        ("SigIgn", p.signals_ignored),
        ("SigCgt", p.signals_caught),
    ];
    for (name, set) in sets {
        let _ = writeln!(w, "{name}:\t{set:016x}");
    }
    // All capabilities (Linux 6: 41) for root, none for others.
    let caps = if p.uid[1] == 0 { (1u64 << 41) - 1 } else { 0 };
    let bounding = (1u64 << 41) - 1;
    for (name, set) in [("Inh", 0), ("Prm", caps), ("Eff", caps), ("Bnd", bounding), ("Amb", 0)] {
        let _ = writeln!(w, "Cap{name}:\t{set:016x}");
    }
    let _ = write!(w, "NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n");
    let mask = if harts >= 64 { u64::MAX } else { (1 << harts) - 1 };
    let last = harts.saturating_sub(1);
    let list = if last == 0 { String::from("0") } else { format!("0-{last}") };
    let _ = write!(w, "Cpus_allowed:\t{mask:x}\nCpus_allowed_list:\t{list}\n");
    let _ = write!(w, "Mems_allowed:\t1\nMems_allowed_list:\t0\n");
    let _ = writeln!(w, "voluntary_ctxt_switches:\t{}", p.voluntary_switches);
    let _ = writeln!(w, "nonvoluntary_ctxt_switches:\t{}", p.forced_switches);
    s
}

/// /proc/stat.
pub fn cpu_stat(harts: &[HartInfo], a: &Activity) -> String {
    let mut s = String::new();
    let mut line = |name: &str, t: &CpuTimes| {
        let _ = write!(s, "{name}");
        put(&mut s, [t.user, t.nice, t.system, t.idle, t.iowait, t.irq, t.softirq, 0, 0, 0]);
        s.push('\n');
    };
    let mut all = CpuTimes::default();
    for h in harts {
        all.user += h.times.user;
        all.nice += h.times.nice;
        all.system += h.times.system;
        all.idle += h.times.idle;
        all.iowait += h.times.iowait;
        all.irq += h.times.irq;
        all.softirq += h.times.softirq;
    }
    line("cpu ", &all);
    for (i, h) in harts.iter().enumerate() {
        line(&format!("cpu{i}"), &h.times);
    }
    let _ = writeln!(s, "intr {}", a.interrupts);
    let _ = writeln!(s, "ctxt {}", a.context_switches);
    let _ = writeln!(s, "btime {}", a.boot_time);
    let _ = writeln!(s, "processes {}", a.forks);
    let _ = writeln!(s, "procs_running {}", a.running.max(1));
    let _ = writeln!(s, "procs_blocked {}", a.blocked);
    s.push_str("softirq 0 0 0 0 0 0 0 0 0 0 0\n");
    s
}

/// /proc/meminfo.
pub fn meminfo(m: &MemoryInfo) -> String {
    let lines = [
        ("MemTotal", m.total),
        ("MemFree", m.free),
        ("MemAvailable", m.available),
        ("Buffers", 0),
        ("Cached", m.cached),
        ("SwapCached", 0),
        ("Active", m.anonymous),
        ("Inactive", m.cached),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", m.dirty),
        ("Writeback", m.writeback),
        ("AnonPages", m.anonymous),
        ("Mapped", m.mapped),
        ("Shmem", m.shared),
        ("KReclaimable", 0),
        ("Slab", m.slab),
        ("SReclaimable", 0),
        ("SUnreclaim", m.slab),
        ("KernelStack", m.kernel_stacks),
        ("PageTables", m.page_tables),
        ("CommitLimit", m.total),
        ("Committed_AS", m.committed),
        ("VmallocTotal", 0),
        ("VmallocUsed", 0),
    ];
    let mut s = String::new();
    for (name, bytes) in lines {
        let name = format!("{name}:");
        let _ = writeln!(s, "{name:<16}{:8} kB", bytes / KB);
    }
    s
}

/// /proc/uptime.
pub fn uptime(a: &Activity) -> String {
    let part = |ns: u64| (ns / 1_000_000_000, ns / 10_000_000 % 100);
    let ((up, up_frac), (idle, idle_frac)) = (part(a.uptime_ns), part(a.idle_ns));
    format!("{up}.{up_frac:02} {idle}.{idle_frac:02}\n")
}

/// /proc/loadavg.
pub fn loadavg(a: &Activity) -> String {
    let mut s = String::new();
    for l in a.load {
        let _ = write!(s, "{}.{:02} ", l / 100, l % 100);
    }
    let _ = writeln!(s, "{}/{} {}", a.running.max(1), a.threads, a.last_pid);
    s
}

/// /proc/cpuinfo.
pub fn cpuinfo(harts: &[HartInfo]) -> String {
    let mut s = String::new();
    for (i, h) in harts.iter().enumerate() {
        let _ = write!(s, "processor\t: {i}\nhart\t\t: {}\nisa\t\t: {}\n", h.hart, h.isa);
        let _ = write!(s, "mmu\t\t: {}\nmvendorid\t: 0x0\nmarchid\t\t: 0x0\n", h.mmu);
        let _ = write!(s, "mimpid\t\t: 0x0\n\n");
    }
    s
}

/// /proc/cells: number, incarnation and state of each cell.
pub fn cells(all: &[CellInfo]) -> String {
    let mut s = String::new();
    for c in all {
        let state = if c.live { "live" } else { "dead" };
        let _ = writeln!(s, "{} {} {state}", c.cell, c.incarnation);
    }
    s
}

/// A path in mounts and mountinfo: space, tab, newline and backslash in octal.
fn escaped(path: &[u8]) -> String {
    let mut s = String::new();
    for &b in path {
        match b {
            b' ' | b'\t' | b'\n' | b'\\' => {
                let _ = write!(s, "\\{b:03o}");
            }
            0x21..0x7f => s.push(b as char),
            // Names need not be UTF-8; the reader gets something printable.
            _ => s.push('?'),
        }
    }
    s
}

fn mount_point(ns: &Namespace, m: &alloc::sync::Arc<Mount>) -> String {
    escaped(&ns.mount_path(m))
}

/// /proc/PID/mounts.
pub fn mounts(ns: &Namespace) -> String {
    let mut s = String::new();
    for m in ns.mounts() {
        let mode = if m.read_only { "ro" } else { "rw" };
        let at = mount_point(ns, &m);
        let source = escaped(m.source.as_bytes());
        let _ = writeln!(s, "{source} {at} {} {mode},noatime 0 0", m.fs.type_name());
    }
    s
}

/// /proc/PID/mountinfo.
pub fn mountinfo(ns: &Namespace) -> String {
    let mut s = String::new();
    for m in ns.mounts() {
        let mode = if m.read_only { "ro" } else { "rw" };
        let (dev, at) = (m.fs.id().dev(), mount_point(ns, &m));
        let (major, minor) = (dev_major(dev), dev_minor(dev));
        let (id, parent, kind) = (m.id, m.parent_id(), m.fs.type_name());
        let source = escaped(m.source.as_bytes());
        let _ = writeln!(
            s,
            "{id} {parent} {major}:{minor} / {at} {mode},noatime - {kind} {source} {mode}"
        );
    }
    s
}

/// /proc/filesystems.
pub const FILESYSTEMS: &str = "nodev\tproc\nnodev\ttmpfs\nnodev\tdevtmpfs\nnodev\tpipefs\n\text2\n";

/// /proc/devices.
pub const DEVICES: &str = "Character devices:\n  1 mem\n  4 ttyS\n  5 /dev/tty\n  5 /dev/console\n\
                           \nBlock devices:\n254 virtblk\n";

/// /proc/tty/drivers: how ps turns tty_nr into a name.
pub const TTY_DRIVERS: &str = "\
/dev/tty             /dev/tty        5       0 system:/dev/tty
/dev/console         /dev/console    5       1 system:console
serial               /dev/ttyS       4 64-67 serial
";
