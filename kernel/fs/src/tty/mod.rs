//! Terminals: a [`discipline`] between a wire and processes, with job control.
//!
//! `state` is a spin lock taken at interrupt level as well; echo, signals and wake-ups go out
//! after it is dropped. Only [`Host`] knows processes.

pub mod discipline;
pub mod termios;
#[cfg(test)]
mod tests;

use self::discipline::{Discipline, Effects};
use self::termios::{TERMIOS_SIZE, Termios, cc, lflag};
use crate::errno::{Errno, Result};
use crate::file::{FIONREAD, FileOps};
use crate::io::{ByteSink, ByteSource, UserArg, put_all};
use crate::poll::{POLLHUP, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, PollHead, PollTable};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use hive_sync::{SpinLock, now_ns, rank};

/// Signals that terminals send, by their Linux numbers.
#[allow(missing_docs)]
pub mod signal {
    pub const SIGHUP: u32 = 1;
    pub const SIGCONT: u32 = 18;
    pub const SIGTTIN: u32 = 21;
    pub const SIGTTOU: u32 = 22;
    pub const SIGWINCH: u32 = 28;
}

/// Who uses a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// It is the leader of that session.
    pub leader: bool,
    /// SIGTTIN would not reach it: blocked, ignored, or its group is orphaned.
    pub no_ttin: bool,
    /// As `no_ttin`, for SIGTTOU.
    pub no_ttou: bool,
}

/// What a terminal needs of the kernel around it.
pub trait Host: Send + Sync {
    /// Puts bytes on the wire. Interrupt level.
    fn output(&self, bytes: &[u8]);
    /// Who the current thread acts for.
    fn caller(&self) -> Caller;
    /// Sends a signal to every process of `group`. Interrupt level.
    fn signal_group(&self, group: u32, signal: u32);
    /// Whether some process of `group` belongs to `session`.
    fn group_in_session(&self, group: u32, session: u32) -> bool;
    /// `tty` became the controlling terminal of `session`, or ceased to be with `None`.
    fn control(&self, session: u32, tty: Option<Arc<Tty>>);
}

/// A terminal.
pub struct Tty {
    host: Arc<dyn Host>,
    state: SpinLock<State>,
    head: PollHead,
    itself: Weak<Tty>,
}

struct State {
    discipline: Discipline,
    session: Option<u32>,
    foreground: Option<u32>,
    /// Rows, columns, and two sizes in pixels.
    window: [u16; 4],
    hung_up: bool,
}

/// Bytes processed at a time between a process and the wire.
const CHUNK: usize = 256;

impl Tty {
    /// A terminal of 24 by 80.
    pub fn new(host: Arc<dyn Host>) -> Arc<Tty> {
        let state = State {
            discipline: Discipline::default(),
            session: None,
            foreground: None,
            window: [24, 80, 0, 0],
            hung_up: false,
        };
        Arc::new_cyclic(|itself| Tty {
            host,
            state: SpinLock::ranked(rank::FILE, state),
            head: PollHead::new(),
            itself: itself.clone(),
        })
    }

    /// Opens it. It becomes the controlling terminal by TIOCSCTTY only.
    pub fn open(self: &Arc<Tty>) -> Arc<dyn FileOps> {
        Arc::new(Line(self.clone()))
    }

    /// The terminal behind an open file, if there is one.
    pub fn of(ops: &dyn FileOps) -> Option<Arc<Tty>> {
        ops.as_any().downcast_ref::<Line>().map(|line| line.0.clone())
    }

    /// The foreground process group.
    pub fn foreground(&self) -> Option<u32> {
        self.state.lock().foreground
    }

    /// Bytes came in over the wire. Interrupt level.
    pub fn input(&self, bytes: &[u8]) {
        let mut effects = Effects::default();
        let foreground = {
            let mut state = self.state.lock();
            bytes.iter().for_each(|byte| state.discipline.input(*byte, &mut effects));
            state.foreground
        };
        if !effects.echo.is_empty() {
            self.host.output(&effects.echo);
        }
        if let Some(group) = foreground {
            effects.signals.iter().for_each(|s| self.host.signal_group(group, *s as u32));
        }
        // Output may go on too, after ^Q.
        self.head.notify();
    }

    /// The session it controls ended or gave it up: its foreground group is told.
    pub fn release(&self, session: u32) {
        let group = {
            let mut state = self.state.lock();
            if state.session != Some(session) {
                return;
            }
            state.session = None;
            state.foreground.take()
        };
        self.host.control(session, None);
        if let Some(group) = group {
            self.host.signal_group(group, signal::SIGHUP);
            self.host.signal_group(group, signal::SIGCONT);
        }
    }

    /// The wire is gone: reads end, writes fail.
    pub fn hang_up(&self) {
        let session = {
            let mut state = self.state.lock();
            state.hung_up = true;
            state.session
        };
        if let Some(session) = session {
            self.release(session);
        }
        self.head.notify();
    }

    /// Job control (POSIX.1 11.1.4): a background process is stopped by `signal`, or gets `EIO`
    /// where that would not reach it (`unreachable`); `None` lets it through.
    fn check_foreground(&self, signal: u32, unreachable: Option<Errno>) -> Result<()> {
        let caller = self.host.caller();
        let state = self.state.lock();
        let background = state.session == Some(caller.session)
            && state.foreground.is_some_and(|group| group != caller.group);
        drop(state);
        let off = if signal == signal::SIGTTIN { caller.no_ttin } else { caller.no_ttou };
        match (background, off) {
            (false, _) => Ok(()),
            (true, true) => unreachable.map_or(Ok(()), Err),
            (true, false) => {
                self.host.signal_group(caller.group, signal);
                Err(Errno::ERESTARTSYS)
            }
        }
    }

    fn get(&self, arg: &dyn UserArg, number: Option<u32>) -> Result<usize> {
        let number = number.ok_or(Errno::ENOTTY)?;
        arg.write(&number.to_le_bytes())?;
        Ok(0)
    }

    /// The foreground group and session, if the caller's session has this terminal.
    fn mine(&self) -> Result<(Caller, Option<u32>)> {
        let caller = self.host.caller();
        let state = self.state.lock();
        match state.session == Some(caller.session) {
            true => Ok((caller, state.foreground)),
            false => Err(Errno::ENOTTY),
        }
    }

    fn set_termios(&self, arg: &dyn UserArg, flush: bool) -> Result<usize> {
        self.check_foreground(signal::SIGTTOU, None)?;
        let mut bytes = [0; TERMIOS_SIZE];
        arg.read(&mut bytes)?;
        let mut state = self.state.lock();
        if flush {
            state.discipline.flush_input();
        }
        state.discipline.set(Termios::from_bytes(&bytes));
        drop(state);
        self.head.notify();
        Ok(0)
    }

    fn set_foreground(&self, arg: &dyn UserArg) -> Result<usize> {
        self.check_foreground(signal::SIGTTOU, None)?;
        let (caller, _) = self.mine()?;
        let mut bytes = [0; 4];
        arg.read(&mut bytes)?;
        let group = u32::from_le_bytes(bytes);
        if group as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        if !self.host.group_in_session(group, caller.session) {
            return Err(Errno::EPERM);
        }
        self.state.lock().foreground = Some(group);
        Ok(0)
    }

    fn set_controlling(&self) -> Result<usize> {
        let caller = self.host.caller();
        {
            let mut state = self.state.lock();
            match state.session {
                Some(session) if session == caller.session => return Ok(0),
                Some(_) => return Err(Errno::EPERM),
                None if !caller.leader => return Err(Errno::EPERM),
                None => {}
            }
            state.session = Some(caller.session);
            state.foreground = Some(caller.group);
        }
        self.host.control(caller.session, self.itself.upgrade());
        Ok(0)
    }

    fn set_window(&self, arg: &dyn UserArg) -> Result<usize> {
        let mut bytes = [0; 8];
        arg.read(&mut bytes)?;
        let word = |i: usize| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
        let new = [word(0), word(1), word(2), word(3)];
        let (changed, group) = {
            let mut state = self.state.lock();
            (core::mem::replace(&mut state.window, new) != new, state.foreground)
        };
        if let Some(group) = group.filter(|_| changed) {
            self.host.signal_group(group, signal::SIGWINCH);
        }
        Ok(0)
    }

    /// What a read finds now: bytes to take, `Some(0)` for the end; `None`: it must wait.
    fn available(state: &State, least: usize) -> Option<usize> {
        if state.hung_up {
            return Some(0);
        }
        let canonical = state.discipline.termios.local(lflag::ICANON);
        state.discipline.available().filter(|n| canonical || *n >= least)
    }

    /// Waits for input as canonical mode, or VMIN and VTIME, ask (termios(3)).
    fn await_input(&self, limit: usize, nonblock: bool) -> Result<()> {
        let (canonical, least, tenths) = {
            let state = self.state.lock();
            let t = &state.discipline.termios;
            let least = usize::from(t.cc[cc::VMIN]).min(limit);
            (t.local(lflag::ICANON), least, u64::from(t.cc[cc::VTIME]))
        };
        let ready = |least| {
            let state = self.state.lock();
            Self::available(&state, least)
        };
        if nonblock {
            return ready(1).map(drop).ok_or(Errno::EAGAIN);
        }
        if canonical || tenths == 0 {
            if !canonical && least == 0 {
                return Ok(());
            }
            return self.head.wait(|| ready(least.max(1))).map(drop);
        }
        // With VMIN the timer starts at the first byte and again with each further one.
        let mut have = 0;
        if least > 0 {
            have = self.head.wait(|| ready(1))?;
        }
        while have < least.max(1) {
            let deadline = now_ns() + tenths * 100_000_000;
            match self.head.wait_deadline(Some(deadline), || ready(have + 1))? {
                None | Some(0) => break,
                Some(more) => have = more,
            }
        }
        Ok(())
    }
}

/// An open terminal.
struct Line(Arc<Tty>);

impl FileOps for Line {
    fn read(&self, _offset: u64, nonblock: bool, sink: &mut dyn ByteSink) -> Result<usize> {
        let tty = &self.0;
        if sink.left() == 0 {
            return Ok(0);
        }
        loop {
            tty.check_foreground(signal::SIGTTIN, Some(Errno::EIO))?;
            tty.await_input(sink.left(), nonblock)?;
            let bytes = {
                let mut state = tty.state.lock();
                // Another reader was faster, or a signal key emptied the queue.
                let canonical = state.discipline.termios.local(lflag::ICANON);
                if canonical && Tty::available(&state, 1).is_none() {
                    continue;
                }
                state.discipline.read(sink.left())
            };
            return put_all(sink, &bytes);
        }
    }

    fn write(&self, _offset: u64, nonblock: bool, source: &mut dyn ByteSource) -> Result<usize> {
        let tty = &self.0;
        if tty.state.lock().discipline.termios.local(lflag::TOSTOP) {
            tty.check_foreground(signal::SIGTTOU, None)?;
        }
        let mut done = 0;
        let mut buffer = [0; CHUNK];
        while source.left() > 0 {
            let go = |state: &State| match state {
                State { hung_up: true, .. } => Some(Err(Errno::EIO)),
                state if state.discipline.stopped => None,
                _ => Some(Ok(())),
            };
            let clear = match nonblock {
                true => go(&tty.state.lock()).unwrap_or(Err(Errno::EAGAIN)),
                false => tty.head.wait(|| go(&tty.state.lock())).and_then(|r| r),
            };
            let got = match clear.and_then(|()| source.get(&mut buffer)) {
                Ok(0) => break,
                Ok(got) => got,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            let mut out = Vec::with_capacity(2 * got);
            {
                let mut state = tty.state.lock();
                buffer[..got].iter().for_each(|b| state.discipline.output(*b, &mut out));
            }
            tty.host.output(&out);
            done += got;
        }
        Ok(done)
    }

    fn poll(&self, table: &mut PollTable) -> u16 {
        table.register(&self.0.head);
        let state = self.0.state.lock();
        let mut bits = if state.discipline.stopped { 0 } else { POLLOUT | POLLWRNORM };
        if Tty::available(&state, 1).is_some() {
            bits |= POLLIN | POLLRDNORM;
        }
        if state.hung_up {
            bits |= POLLHUP;
        }
        bits
    }

    fn ioctl(&self, cmd: u32, arg: &dyn UserArg) -> Result<usize> {
        let tty = &self.0;
        match cmd {
            0x5401 => {
                let bytes = tty.state.lock().discipline.termios.to_bytes();
                arg.write(&bytes)?;
                Ok(0)
            }
            0x5402 | 0x5403 => tty.set_termios(arg, false),
            0x5404 => tty.set_termios(arg, true),
            // TCSBRK, TCSBRKP: output is on the wire already; TCXONC: XON and XOFF by ioctl.
            0x5409 | 0x5425 => Ok(0),
            0x540a => match arg.value() {
                0 | 1 => {
                    tty.state.lock().discipline.stopped = arg.value() == 0;
                    tty.head.notify();
                    Ok(0)
                }
                2 | 3 => Ok(0),
                _ => Err(Errno::EINVAL),
            },
            0x540b => match arg.value() {
                0 | 2 => {
                    tty.state.lock().discipline.flush_input();
                    Ok(0)
                }
                1 => Ok(0),
                _ => Err(Errno::EINVAL),
            },
            0x540e => tty.set_controlling(),
            0x540f => tty.get(arg, Some(tty.mine()?.1.unwrap_or(0))),
            0x5410 => tty.set_foreground(arg),
            0x5413 => {
                let window = tty.state.lock().window;
                let mut bytes = [0; 8];
                for (two, word) in bytes.chunks_exact_mut(2).zip(window) {
                    two.copy_from_slice(&word.to_le_bytes());
                }
                arg.write(&bytes)?;
                Ok(0)
            }
            0x5414 => tty.set_window(arg),
            0x5422 => {
                let (caller, _) = tty.mine()?;
                if caller.leader {
                    tty.release(caller.session);
                } else {
                    return Err(Errno::ENOTTY);
                }
                Ok(0)
            }
            0x5429 => tty.get(arg, Some(tty.mine()?.0.session)),
            FIONREAD => {
                let count = tty.state.lock().discipline.available().unwrap_or(0);
                tty.get(arg, Some(count as u32))
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
