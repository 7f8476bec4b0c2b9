//! The system calls that init makes: riscv64 Linux numbers, raw results.
//!
//! This is the only module of the program that may use `unsafe`: it enters the kernel and it
//! holds the program's first instruction. A result of -4095..=-1 is a negated errno, as the Linux
//! ABI has it.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};
use core::ffi::CStr;

/// Call numbers (asm-generic/unistd.h).
mod nr {
    pub const DUP3: usize = 24;
    pub const IOCTL: usize = 29;
    pub const CHDIR: usize = 49;
    pub const FACCESSAT: usize = 48;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const EXIT_GROUP: usize = 94;
    pub const NANOSLEEP: usize = 101;
    pub const SYNC: usize = 81;
    pub const REBOOT: usize = 142;
    pub const SETSID: usize = 157;
    pub const GETPID: usize = 172;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const WAIT4: usize = 260;
}

const AT_FDCWD: usize = -100isize as usize;
/// Open for reading and writing.
pub const O_RDWR: usize = 2;
/// Open for reading.
pub const O_RDONLY: usize = 0;
const SIGCHLD: usize = 17;
const TIOCSCTTY: usize = 0x540e;

// The kernel enters with sp at argc. Nothing of argv or envp is used.
global_asm!(
    ".globl _start",
    "_start:",
    ".option push",
    ".option norelax",
    "    la gp, __global_pointer$",
    ".option pop",
    "    andi sp, sp, -16",
    "    call {main}",
    "    unimp",
    main = sym crate::start,
);

fn call(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the wrappers below pass, for every argument the kernel reads or writes through, a
    // live reference of at least the length they state; the kernel preserves all other registers.
    unsafe {
        asm!(
            "ecall",
            in("a7") number,
            inlateout("a0") args[0] as isize => result,
            in("a1") args[1],
            in("a2") args[2],
            in("a3") args[3],
            in("a4") args[4],
            in("a5") args[5],
            options(nostack),
        );
    }
    result
}

/// Opens `path` with `flags`.
pub fn open(path: &CStr, flags: usize) -> isize {
    call(nr::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0, 0])
}

/// Closes a descriptor.
pub fn close(fd: usize) -> isize {
    call(nr::CLOSE, [fd, 0, 0, 0, 0, 0])
}

/// Makes `new` name the open file of `old`.
pub fn dup3(old: usize, new: usize) -> isize {
    call(nr::DUP3, [old, new, 0, 0, 0, 0])
}

/// Reads into `buffer`.
pub fn read(fd: usize, buffer: &mut [u8]) -> isize {
    call(nr::READ, [fd, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0])
}

/// Writes `bytes`.
pub fn write(fd: usize, bytes: &[u8]) -> isize {
    call(nr::WRITE, [fd, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0])
}

/// Whether `path` exists (0) or not (negative).
pub fn access(path: &CStr) -> isize {
    call(nr::FACCESSAT, [AT_FDCWD, path.as_ptr() as usize, 0, 0, 0, 0])
}

/// Changes the working directory.
pub fn chdir(path: &CStr) -> isize {
    call(nr::CHDIR, [path.as_ptr() as usize, 0, 0, 0, 0, 0])
}

/// Own process id.
pub fn getpid() -> isize {
    call(nr::GETPID, [0; 6])
}

/// Plain fork: 0 in the child, its id in the parent.
pub fn fork() -> isize {
    call(nr::CLONE, [SIGCHLD, 0, 0, 0, 0, 0])
}

/// Replaces this program. `argv` and `envp` end in a null pointer. Returns only on failure.
pub fn execve(path: &CStr, argv: &[*const u8], envp: &[*const u8]) -> isize {
    debug_assert!(argv.last().is_some_and(|p| p.is_null()));
    debug_assert!(envp.last().is_some_and(|p| p.is_null()));
    let args = [path.as_ptr() as usize, argv.as_ptr() as usize, envp.as_ptr() as usize, 0, 0, 0];
    call(nr::EXECVE, args)
}

/// Waits for any child: its id, and its wait status in `status`.
pub fn wait(status: &mut i32) -> isize {
    call(nr::WAIT4, [usize::MAX, core::ptr::from_mut(status) as usize, 0, 0, 0, 0])
}

/// Starts a new session.
pub fn setsid() -> isize {
    call(nr::SETSID, [0; 6])
}

/// Makes the terminal `fd` the controlling terminal of this session.
pub fn take_terminal(fd: usize) -> isize {
    call(nr::IOCTL, [fd, TIOCSCTTY, 0, 0, 0, 0])
}

/// Sleeps for `seconds`.
pub fn sleep(seconds: u64) -> isize {
    let time = [seconds, 0u64];
    call(nr::NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0])
}

/// Writes all dirty data to the disk.
pub fn sync() -> isize {
    call(nr::SYNC, [0; 6])
}

/// Ends this cell with exit code `code`: `reboot(2)`'s power-off, which on Linux ignores its
/// fourth argument and here takes the code from it, by value.
pub fn power_off(code: u8) -> isize {
    call(nr::REBOOT, [0xfee1_dead, 0x2812_1969, 0x4321_fedc, code as usize, 0, 0])
}

/// Ends this process.
pub fn exit(code: i32) -> ! {
    loop {
        call(nr::EXIT_GROUP, [code as usize, 0, 0, 0, 0, 0]);
    }
}

/// Shows whoever watches the machine that the command begins: what the console shows from here
/// on is the command's. A no-op on hardware.
pub fn mark_start() {
    // SAFETY: a HINT changes nothing.
    unsafe {
        asm!(".insn {mark}", mark = const hive_platform::mark::instruction(hive_protocol::event::mark::USER),
            in("a0") 0);
    }
}
