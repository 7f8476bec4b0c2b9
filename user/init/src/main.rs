//! The first process of a cell.
//!
//! It owns the console, starts a shell on it, starts another when that one exits, and reaps every
//! orphan of its cell. If the kernel's command line carries `hive.exec=HEX`, cell 0's instead runs
//! `/bin/sh -c` of those bytes once and powers the cell off with the command's exit status.
//!
//! Words of `/proc/cmdline` that it knows:
//!
//! | word | meaning |
//! |---|---|
//! | `hive.exec=HEX` | the command, two hexadecimal digits a byte |
//! | `hive.shell=PATH` | the shell to start on the console (default `/bin/bash`, then `/bin/sh`) |
//!
//! Absent: run levels, mounting (the kernel brings `/proc` and `/dev`), logging in.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod sys;

#[cfg(target_os = "none")]
pub use guest::start;

#[cfg(any(target_os = "none", test))]
mod cmdline {
    //! The kernel command line: words separated by blanks.

    /// Value of the word `key=..` of `line`.
    pub fn value<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
        line.split(|b| b.is_ascii_whitespace())
            .filter_map(|word| word.strip_prefix(key)?.strip_prefix(b"="))
            .next()
    }

    /// Decodes hexadecimal `text` into `out` followed by a NUL; `None` if it is not hexadecimal,
    /// holds a NUL or does not fit.
    pub fn unhex<'a>(text: &[u8], out: &'a mut [u8]) -> Option<&'a core::ffi::CStr> {
        if text.len() % 2 != 0 || text.len() / 2 >= out.len() {
            return None;
        }
        let digit = |b: u8| (b as char).to_digit(16);
        for (pair, byte) in text.chunks_exact(2).zip(out.iter_mut()) {
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        out[text.len() / 2] = 0;
        core::ffi::CStr::from_bytes_with_nul(&out[..=text.len() / 2]).ok()
    }
}

#[cfg(target_os = "none")]
mod guest {
    use crate::{cmdline, sys};
    use core::ffi::CStr;

    /// Longest command line read. The kernel's own limit is shorter.
    const CMDLINE_MAX: usize = 16 * 1024;
    /// Pause before a shell that ended is replaced, so that one that cannot start does not spin.
    const RESTART_PAUSE_S: u64 = 1;

    /// Entered once, by `_start`.
    pub extern "C" fn start() -> ! {
        open_console();
        let mut line = [0; CMDLINE_MAX];
        let line = read_cmdline(&mut line);
        let mut command = [0; CMDLINE_MAX / 2];
        // One cell runs the command; the others serve their consoles as ever.
        let first = crate::cell_of_pid(sys::getpid() as usize) == 0;
        match cmdline::value(line, b"hive.exec").filter(|_| first) {
            Some(hex) => match cmdline::unhex(hex, &mut command) {
                Some(command) => run_once(command),
                None => {
                    say("init: hive.exec is not hexadecimal text\n");
                    finish(2)
                }
            },
            None => serve_shells(cmdline::value(line, b"hive.shell")),
        }
    }

    fn say(text: &str) {
        sys::write(2, text.as_bytes());
    }

    /// Descriptors 0, 1 and 2 on the console, whatever they were before.
    fn open_console() {
        let fd = sys::open(c"/dev/console", sys::O_RDWR);
        if fd < 0 {
            return;
        }
        let fd = fd as usize;
        for target in 0..3 {
            if fd != target {
                sys::dup3(fd, target);
            }
        }
        if fd > 2 {
            sys::close(fd);
        }
    }

    fn read_cmdline(buffer: &mut [u8]) -> &[u8] {
        let fd = sys::open(c"/proc/cmdline", sys::O_RDONLY);
        if fd < 0 {
            return &[];
        }
        let mut filled = 0;
        while filled < buffer.len() {
            let n = sys::read(fd as usize, &mut buffer[filled..]);
            if n <= 0 {
                break;
            }
            filled += n as usize;
        }
        sys::close(fd as usize);
        &buffer[..filled]
    }

    /// `HOME=/cells/N` if the cell has its writable tree, else `/root`.
    fn home(buffer: &mut [u8; 32]) -> &CStr {
        let cell = crate::cell_of_pid(sys::getpid() as usize);
        let prefix = b"HOME=/cells/";
        let mut digits = [0u8; 20];
        let mut n = cell;
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        let end = prefix.len() + digits.len() - first;
        buffer[..prefix.len()].copy_from_slice(prefix);
        buffer[prefix.len()..end].copy_from_slice(&digits[first..]);
        buffer[end] = 0;
        let path = |b: &[u8]| CStr::from_bytes_until_nul(b).is_ok_and(|p| sys::access(p) >= 0);
        if !path(&buffer[b"HOME=".len()..]) {
            buffer[..11].copy_from_slice(b"HOME=/root\0");
        }
        CStr::from_bytes_until_nul(buffer).unwrap_or(c"HOME=/")
    }

    /// In a new child: session, terminal, working directory, program. Never returns.
    fn become_program(path: &CStr, argv: &[*const u8]) -> ! {
        sys::setsid();
        if sys::take_terminal(0) < 0 {
            say("init: the console cannot be a controlling terminal\n");
        }
        let mut buffer = [0; 32];
        let home = home(&mut buffer);
        if let Ok(dir) = CStr::from_bytes_with_nul(&home.to_bytes_with_nul()[b"HOME=".len()..]) {
            sys::chdir(dir);
        }
        let env = [
            home.as_ptr().cast(),
            c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".as_ptr().cast(),
            c"TERM=linux".as_ptr().cast(),
            c"USER=root".as_ptr().cast(),
            c"LOGNAME=root".as_ptr().cast(),
            c"SHELL=/bin/sh".as_ptr().cast(),
            c"PS1=\\u@\\h:\\w\\$ ".as_ptr().cast(),
            core::ptr::null(),
        ];
        sys::execve(path, argv, &env);
        sys::exit(127)
    }

    /// Starts `path`; its process id, or a negated errno.
    fn spawn(path: &CStr, argv: &[*const u8]) -> isize {
        match sys::fork() {
            0 => become_program(path, argv),
            pid => pid,
        }
    }

    /// Reaps until `pid` itself ends: its wait status. `None` if there is nothing to wait for.
    fn reap_until(pid: isize) -> Option<i32> {
        const EINTR: isize = -4;
        loop {
            let mut status = 0;
            match sys::wait(&mut status) {
                EINTR => {}
                reaped if reaped == pid => return Some(status),
                reaped if reaped < 0 => return None,
                _ => {}
            }
        }
    }

    fn run_once(command: &CStr) -> ! {
        let argv = [
            c"sh".as_ptr().cast(),
            c"-c".as_ptr().cast(),
            command.as_ptr().cast(),
            core::ptr::null(),
        ];
        sys::mark_start();
        let pid = spawn(c"/bin/sh", &argv);
        let status = if pid > 0 { reap_until(pid) } else { None };
        finish(match status {
            // As a shell reports it: the exit status, or 128 and the signal.
            Some(status) if status & 0x7f == 0 => (status >> 8) as u8,
            Some(status) => 128 + (status & 0x7f) as u8,
            None => {
                say("init: cannot start /bin/sh\n");
                127
            }
        })
    }

    fn finish(code: u8) -> ! {
        sys::sync();
        sys::power_off(code);
        say("init: the cell does not power off\n");
        loop {
            sys::sleep(3600);
        }
    }

    fn serve_shells(wanted: Option<&[u8]>) -> ! {
        let mut buffer = [0u8; 256];
        if let Some(wanted) = wanted.filter(|w| w.len() < buffer.len()) {
            buffer[..wanted.len()].copy_from_slice(wanted);
        }
        let wanted = CStr::from_bytes_until_nul(&buffer).unwrap_or(c"");
        loop {
            let shell = [wanted, c"/bin/bash", c"/bin/sh"]
                .into_iter()
                .find(|path| !path.is_empty() && sys::access(path) >= 0)
                .unwrap_or(c"/bin/sh");
            // The dash in front makes it a login shell.
            let argv = [c"-sh".as_ptr().cast(), core::ptr::null()];
            let bash = [c"-bash".as_ptr().cast(), core::ptr::null()];
            let argv = if shell == c"/bin/bash" { &bash } else { &argv };
            let pid = spawn(shell, argv);
            if pid < 0 || reap_until(pid).is_none() {
                say("init: cannot start a shell\n");
            }
            sys::sleep(RESTART_PAUSE_S);
        }
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        say("init: panic\n");
        finish(101)
    }
}

/// The cell that a process id names.
#[cfg(target_os = "none")]
fn cell_of_pid(pid: usize) -> usize {
    let pid = i32::try_from(pid).ok().and_then(hive_protocol::Pid::from_raw);
    pid.map_or(0, |pid| pid.cell().index())
}

#[cfg(test)]
mod tests {
    use super::cmdline::*;

    #[test]
    fn words_are_found_by_their_whole_key() {
        let line = b"a=1 hive.execs=33 hive.exec=6c73\n";
        assert_eq!(value(line, b"hive.exec"), Some(&b"6c73"[..]));
        assert_eq!(value(line, b"exec"), None);
        assert_eq!(value(b"", b"a"), None);
    }

    #[test]
    fn hexadecimal_is_decoded_or_refused() {
        let mut out = [0; 4];
        assert_eq!(unhex(b"6c73", &mut out), Some(c"ls"));
        assert_eq!(unhex(b"6c7", &mut out), None);
        assert_eq!(unhex(b"6g", &mut out), None);
        assert_eq!(unhex(b"0061", &mut out), None);
        assert_eq!(unhex(b"61616161", &mut out), None);
    }
}
