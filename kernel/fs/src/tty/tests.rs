//! A terminal with sessions and groups around it, as a shell drives it.

use super::*;
use crate::io::{SliceSource, VecSink};
use std::sync::Mutex;

/// A kernel that notes what the terminal does to it.
#[derive(Default)]
struct Kernel {
    wire: Mutex<Vec<u8>>,
    signals: Mutex<Vec<(u32, u32)>>,
    caller: Mutex<Caller>,
    controls: Mutex<Vec<(u32, bool)>>,
}

impl Host for Kernel {
    fn output(&self, bytes: &[u8]) {
        self.wire.lock().unwrap().extend_from_slice(bytes);
    }
    fn caller(&self) -> Caller {
        *self.caller.lock().unwrap()
    }
    fn signal_group(&self, group: u32, signal: u32) {
        self.signals.lock().unwrap().push((group, signal));
    }
    fn group_in_session(&self, group: u32, session: u32) -> bool {
        session == 10 && (10..20).contains(&group)
    }
    fn control(&self, session: u32, tty: Option<Arc<Tty>>) {
        self.controls.lock().unwrap().push((session, tty.is_some()));
    }
}

/// The argument of an ioctl: a number, or bytes it points to.
struct Arg(usize, Mutex<Vec<u8>>);

impl UserArg for Arg {
    fn value(&self) -> usize {
        self.0
    }
    fn read(&self, buf: &mut [u8]) -> Result<()> {
        let bytes = self.1.lock().unwrap();
        buf.copy_from_slice(bytes.get(..buf.len()).ok_or(Errno::EFAULT)?);
        Ok(())
    }
    fn write(&self, data: &[u8]) -> Result<()> {
        *self.1.lock().unwrap() = data.to_vec();
        Ok(())
    }
}

const TCGETS: u32 = 0x5401;
const TCSETSW: u32 = 0x5403;
const TIOCSCTTY: u32 = 0x540e;
const TIOCGPGRP: u32 = 0x540f;
const TIOCSPGRP: u32 = 0x5410;
const TIOCSWINSZ: u32 = 0x5414;
const TIOCNOTTY: u32 = 0x5422;
const TIOCGSID: u32 = 0x5429;

struct Desk {
    kernel: Arc<Kernel>,
    tty: Arc<Tty>,
    line: Arc<dyn FileOps>,
}

impl Desk {
    /// The shell, leader of session 10, has the terminal.
    fn new() -> Desk {
        let kernel = Arc::new(Kernel::default());
        let tty = Tty::new(kernel.clone());
        let desk = Desk { line: tty.open(), tty, kernel };
        desk.act_as(10, false);
        desk.ioctl(TIOCSCTTY, &[]).unwrap();
        desk
    }
    fn act_as(&self, group: u32, deaf: bool) {
        let (session, leader) = (10, group == 10);
        *self.kernel.caller.lock().unwrap() =
            Caller { group, session, leader, no_ttin: deaf, no_ttou: deaf };
    }
    fn ioctl(&self, cmd: u32, bytes: &[u8]) -> Result<Vec<u8>> {
        let arg = Arg(0, Mutex::new(bytes.to_vec()));
        self.line.ioctl(cmd, &arg)?;
        Ok(arg.1.into_inner().unwrap())
    }
    fn read(&self) -> Result<Vec<u8>> {
        let mut sink = VecSink::new(100);
        self.line.read(0, true, &mut sink)?;
        Ok(sink.data)
    }
    fn signals(&self) -> Vec<(u32, u32)> {
        core::mem::take(&mut *self.kernel.signals.lock().unwrap())
    }
    fn wire(&self) -> Vec<u8> {
        core::mem::take(&mut *self.kernel.wire.lock().unwrap())
    }
}

#[test]
fn a_shell_hands_the_terminal_over_and_takes_it_back() {
    let d = Desk::new();
    assert_eq!(d.ioctl(TIOCGPGRP, &[]).unwrap(), 10u32.to_le_bytes());
    assert_eq!(d.ioctl(TIOCGSID, &[]).unwrap(), 10u32.to_le_bytes());
    d.ioctl(TIOCSPGRP, &15u32.to_le_bytes()).unwrap();
    // ^C goes to the job, not to the shell.
    d.tty.input(b"\x03");
    assert_eq!(d.signals(), [(15, 2)]);
    // The shell is in the background now: a read stops it, a change of settings too.
    assert_eq!(d.read(), Err(Errno::ERESTARTSYS));
    assert_eq!(d.signals(), [(10, signal::SIGTTIN)]);
    let settings = d.ioctl(TCGETS, &[]).unwrap();
    assert_eq!(d.ioctl(TCSETSW, &settings), Err(Errno::ERESTARTSYS));
    assert_eq!(d.signals(), [(10, signal::SIGTTOU)]);
    // With the signals blocked, as shells do, it may take the terminal back, but not read.
    d.act_as(10, true);
    assert_eq!(d.read(), Err(Errno::EIO));
    d.ioctl(TIOCSPGRP, &10u32.to_le_bytes()).unwrap();
    assert_eq!(d.ioctl(TIOCSPGRP, &99u32.to_le_bytes()), Err(Errno::EPERM));
    assert_eq!(d.signals(), []);
    d.tty.input(b"\x1a");
    assert_eq!(d.signals(), [(10, 20)]);
}

#[test]
fn settings_of_readline() {
    let d = Desk::new();
    let mut raw = d.ioctl(TCGETS, &[]).unwrap();
    assert_eq!(raw.len(), TERMIOS_SIZE);
    let local = u32::from_le_bytes(raw[12..16].try_into().unwrap());
    let changed = local & !(lflag::ICANON | lflag::ECHO);
    raw[12..16].copy_from_slice(&changed.to_le_bytes());
    raw[17 + cc::VMIN] = 1;
    d.ioctl(TCSETSW, &raw).unwrap();
    assert_eq!(d.ioctl(TCGETS, &[]).unwrap(), raw);
    assert_eq!(d.line.poll(&mut PollTable::new()) & POLLIN, 0);
    d.tty.input(b"\x1b[A\r");
    assert_eq!(d.line.poll(&mut PollTable::new()) & POLLIN, POLLIN);
    // No echo; the carriage return is a new line still (ICRNL).
    assert_eq!(d.wire(), b"");
    assert_eq!(d.read().unwrap(), b"\x1b[A\n");
    assert_eq!(d.read(), Err(Errno::EAGAIN));
    d.line.write(0, false, &mut SliceSource::new(b"a\nb")).unwrap();
    assert_eq!(d.wire(), b"a\r\nb");
}

#[test]
fn a_blocked_reader_gets_its_line() {
    let d = Desk::new();
    let line = d.line.clone();
    let reader = std::thread::spawn(move || {
        let mut sink = VecSink::new(100);
        line.read(0, false, &mut sink).map(|_| sink.data)
    });
    d.tty.input(b"hel");
    d.tty.input(b"lo\r");
    assert_eq!(reader.join().unwrap().unwrap(), b"hello\n");
    assert_eq!(d.wire(), b"hello\r\n");
}

#[test]
fn window_and_hang_up() {
    let d = Desk::new();
    d.ioctl(TIOCSWINSZ, &[50, 0, 100, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(d.signals(), [(10, signal::SIGWINCH)]);
    d.ioctl(TIOCSWINSZ, &[50, 0, 100, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(d.signals(), [], "no change, no signal");
    d.ioctl(TIOCNOTTY, &[]).unwrap();
    assert_eq!(d.ioctl(TIOCGPGRP, &[]), Err(Errno::ENOTTY));
    d.ioctl(TIOCSCTTY, &[]).unwrap();
    d.signals();
    d.tty.hang_up();
    assert_eq!(d.signals(), [(10, signal::SIGHUP), (10, signal::SIGCONT)]);
    assert_eq!(d.read().unwrap(), b"");
    assert_eq!(d.line.write(0, false, &mut SliceSource::new(b"x")), Err(Errno::EIO));
    assert_eq!(d.line.poll(&mut PollTable::new()) & POLLHUP, POLLHUP);
    let controls = d.kernel.controls.lock().unwrap().clone();
    assert_eq!(controls, [(10, true), (10, false), (10, true), (10, false)]);
}

#[test]
fn the_timer_between_bytes_ends_a_read() {
    let d = Desk::new();
    let mut raw = d.ioctl(TCGETS, &[]).unwrap();
    raw[12..16].copy_from_slice(&0u32.to_le_bytes());
    (raw[17 + cc::VMIN], raw[17 + cc::VTIME]) = (5, 1);
    d.ioctl(TCSETSW, &raw).unwrap();
    d.tty.input(b"abc");
    let mut sink = VecSink::new(100);
    assert_eq!(d.line.read(0, false, &mut sink), Ok(3));
    raw[17 + cc::VMIN] = 0;
    d.ioctl(TCSETSW, &raw).unwrap();
    assert_eq!(d.line.read(0, false, &mut VecSink::new(100)), Ok(0));
}
