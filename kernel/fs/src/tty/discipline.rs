//! The line discipline: what happens to a byte between the wire and a reader, without locks,
//! devices or processes (POSIX.1 chapter 11; Linux's `n_tty` where that is silent).

use super::termios::{Termios, cc::*, iflag, lflag::*, oflag};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Most bytes of one line under edit (Linux `N_TTY_BUF_SIZE`).
const LINE_MAX: usize = 4096;
/// Most bytes that wait to be read.
const READY_MAX: usize = 4096;
/// In `ready`: the end of a line that has no byte of its own (VEOF).
const END: u16 = 0x100;
/// In `ready`: this byte ends a line.
const LAST: u16 = 0x200;

/// A signal that a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum KeySignal {
    /// ^C
    Interrupt = 2,
    /// ^\
    Quit = 3,
    /// ^Z
    Suspend = 20,
}

/// What input leads to.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Effects {
    /// Bytes to show.
    pub echo: Vec<u8>,
    /// Signals for the foreground group, in order.
    pub signals: Vec<KeySignal>,
    /// A reader may find more than before.
    pub readable: bool,
}

/// The discipline's state.
#[derive(Default)]
pub struct Discipline {
    /// Settings.
    pub termios: Termios,
    line: Vec<u8>,
    ready: VecDeque<u16>,
    /// Lines in `ready` that are complete.
    lines: usize,
    literal: bool,
    column: usize,
    /// Output is stopped by ^S.
    pub stopped: bool,
}

impl Discipline {
    /// Takes a byte from the wire.
    pub fn input(&mut self, byte: u8, effects: &mut Effects) {
        let t = self.termios;
        if core::mem::take(&mut self.literal) {
            return self.take(byte, effects);
        }
        let byte = match byte {
            b'\r' if t.iflag & iflag::IGNCR != 0 => return,
            b'\r' if t.iflag & iflag::ICRNL != 0 => b'\n',
            b'\n' if t.iflag & iflag::INLCR != 0 => b'\r',
            byte => byte,
        };
        if t.iflag & iflag::IXON != 0 {
            if t.is(VSTOP, byte) || t.is(VSTART, byte) {
                self.stopped = t.is(VSTOP, byte);
                return;
            }
            self.stopped = false;
        }
        if t.local(ISIG) {
            let keys = [
                (VINTR, KeySignal::Interrupt),
                (VQUIT, KeySignal::Quit),
                (VSUSP, KeySignal::Suspend),
            ];
            if let Some((_, signal)) = keys.into_iter().find(|(index, _)| t.is(*index, byte)) {
                self.echo(byte, effects);
                if !t.local(NOFLSH) {
                    self.flush_input();
                }
                effects.signals.push(signal);
                return;
            }
        }
        if t.local(ICANON) {
            self.edit(byte, effects);
        } else {
            self.echo(byte, effects);
            self.push(byte.into());
            effects.readable = true;
        }
    }

    /// Canonical mode.
    fn edit(&mut self, byte: u8, effects: &mut Effects) {
        let t = self.termios;
        let extended = t.local(IEXTEN);
        if extended && t.is(VLNEXT, byte) {
            self.literal = true;
            if t.local(ECHO | ECHOCTL) {
                effects.echo.extend_from_slice(b"^\x08");
            }
        } else if t.is(VERASE, byte) {
            self.erase(effects);
        } else if extended && t.is(VWERASE, byte) {
            while self.line.last().is_some_and(|b| b.is_ascii_whitespace()) {
                self.erase(effects);
            }
            while self.line.last().is_some_and(|b| !b.is_ascii_whitespace()) {
                self.erase(effects);
            }
        } else if t.is(VKILL, byte) {
            if t.local(ECHOK | ECHOKE | ECHOE) {
                while !self.line.is_empty() {
                    self.erase(effects);
                }
            } else {
                self.line.clear();
                self.echo(byte, effects);
                if t.local(ECHOK) {
                    self.echo(b'\n', effects);
                }
            }
        } else if extended && t.is(VREPRINT, byte) {
            self.echo(byte, effects);
            self.echo(b'\n', effects);
            for b in self.line.clone() {
                self.echo(b, effects);
            }
        } else if t.is(VEOF, byte) {
            self.complete(END, effects);
        } else if byte == b'\n' {
            if t.local(ECHO) || t.local(ECHONL) {
                self.show(b'\n', effects);
            }
            self.complete(LAST | u16::from(byte), effects);
        } else if t.is(VEOL, byte) || extended && t.is(VEOL2, byte) {
            self.echo(byte, effects);
            self.complete(LAST | u16::from(byte), effects);
        } else {
            self.take(byte, effects);
        }
    }

    /// A byte that means itself.
    fn take(&mut self, byte: u8, effects: &mut Effects) {
        if !self.termios.local(ICANON) {
            self.push(byte.into());
            effects.readable = true;
        } else if self.line.len() < LINE_MAX {
            self.line.push(byte);
        } else {
            return;
        }
        self.echo(byte, effects);
    }

    /// Ends the line under edit with `mark` and gives it to readers.
    fn complete(&mut self, mark: u16, effects: &mut Effects) {
        for byte in core::mem::take(&mut self.line) {
            self.push(byte.into());
        }
        // The mark always finds room: a full queue must still end.
        self.ready.push_back(mark);
        self.lines += 1;
        effects.readable = true;
    }

    fn push(&mut self, entry: u16) {
        if self.ready.len() < READY_MAX {
            self.ready.push_back(entry);
        }
    }

    /// Removes the last byte of the line, on the screen too.
    fn erase(&mut self, effects: &mut Effects) {
        let Some(byte) = self.line.pop() else { return };
        // The bytes that continue a UTF-8 character go with its first.
        if byte & 0xc0 == 0x80 && self.line.last().is_some_and(|b| *b >= 0x80) {
            return self.erase(effects);
        }
        if !self.termios.local(ECHO) {
            return;
        }
        if !self.termios.local(ECHOE) {
            return self.echo(self.termios.cc[VERASE], effects);
        }
        let width = match byte {
            b'\t' => {
                let before: usize = self.line.iter().map(|b| self.width(*b)).sum();
                8 - before % 8
            }
            byte => self.width(byte),
        };
        for _ in 0..width {
            effects.echo.extend_from_slice(b"\x08 \x08");
            self.column = self.column.saturating_sub(1);
        }
    }

    fn width(&self, byte: u8) -> usize {
        match byte {
            0..32 | 127 if self.termios.local(ECHOCTL) => 2,
            0..32 | 127 => 0,
            _ => 1,
        }
    }

    fn echo(&mut self, byte: u8, effects: &mut Effects) {
        if !self.termios.local(ECHO) {
            return;
        }
        match byte {
            b'\n' | b'\t' => self.show(byte, effects),
            0..32 | 127 if self.termios.local(ECHOCTL) => {
                self.show(b'^', effects);
                self.show(byte ^ 64, effects);
            }
            _ => self.show(byte, effects),
        }
    }

    fn show(&mut self, byte: u8, effects: &mut Effects) {
        self.output(byte, &mut effects.echo);
    }

    /// What goes on the wire for a byte that a process writes.
    pub fn output(&mut self, byte: u8, out: &mut Vec<u8>) {
        let t = &self.termios;
        let post = t.oflag & oflag::OPOST != 0;
        match byte {
            b'\n' if post && t.oflag & oflag::ONLCR != 0 => {
                self.column = 0;
                out.extend_from_slice(b"\r\n");
                return;
            }
            b'\r' if post && t.oflag & oflag::OCRNL != 0 => return out.push(b'\n'),
            b'\r' | b'\n' => self.column = 0,
            8 => self.column = self.column.saturating_sub(1),
            b'\t' => self.column = (self.column / 8 + 1) * 8,
            32.. => self.column += 1,
            _ => {}
        }
        out.push(byte);
    }

    /// How many bytes a read would get now; in canonical mode those of the first line, and
    /// `Some(0)` is the end of file. `None`: it has to wait.
    pub fn available(&self) -> Option<usize> {
        if !self.termios.local(ICANON) {
            return (!self.ready.is_empty()).then_some(self.ready.len());
        }
        if self.lines == 0 {
            return None;
        }
        let mark = self.ready.iter().position(|entry| entry & (END | LAST) != 0)?;
        Some(mark + (self.ready[mark] & LAST != 0) as usize)
    }

    /// Takes up to `limit` bytes, to the end of a line in canonical mode.
    pub fn read(&mut self, limit: usize) -> Vec<u8> {
        let canonical = self.termios.local(ICANON);
        let mut out = Vec::new();
        while let Some(entry) = self.ready.front().copied() {
            let full = out.len() == limit;
            // A line that fills the reader's buffer exactly takes its mark along.
            if full && !(canonical && entry & END != 0) {
                break;
            }
            self.ready.pop_front();
            let ends = entry & (END | LAST) != 0;
            self.lines -= ends as usize;
            if entry & END == 0 {
                out.push(entry as u8);
            }
            if ends && canonical {
                break;
            }
        }
        out
    }

    /// Forgets what was typed and not read (TCIFLUSH).
    pub fn flush_input(&mut self) {
        self.line.clear();
        self.ready.clear();
        self.lines = 0;
        self.literal = false;
    }

    /// New settings; bytes of a half-typed line become readable when canonical mode ends.
    pub fn set(&mut self, termios: Termios) {
        let was = self.termios.local(ICANON);
        self.termios = termios;
        if was && !termios.local(ICANON) {
            for byte in core::mem::take(&mut self.line) {
                self.push(byte.into());
            }
            self.ready.retain(|entry| entry & END == 0);
            self.ready.iter_mut().for_each(|entry| *entry &= 0xff);
            self.lines = 0;
        }
        if termios.iflag & iflag::IXON == 0 {
            self.stopped = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(d: &mut Discipline, text: &[u8]) -> Effects {
        let mut effects = Effects::default();
        text.iter().for_each(|b| d.input(*b, &mut effects));
        effects
    }

    #[test]
    fn a_line_is_edited_before_anyone_reads_it() {
        let mut d = Discipline::default();
        let e = typed(&mut d, b"cax\x7ft x yy\x17z");
        assert!(!e.readable);
        assert_eq!(d.available(), None);
        let e = typed(&mut d, b"\r");
        assert!(e.readable && e.echo == b"\r\n");
        assert_eq!(d.available(), Some(8));
        assert_eq!(d.read(100), b"cat x z\n");
        typed(&mut d, b"gone\x15kept\n");
        assert_eq!(d.read(2), b"ke");
        assert_eq!(d.read(100), b"pt\n");
    }

    #[test]
    fn end_of_file_is_a_line_without_bytes() {
        let mut d = Discipline::default();
        typed(&mut d, b"ab\x04\x04");
        assert_eq!(d.available(), Some(2));
        assert_eq!(d.read(2), b"ab");
        assert_eq!(d.available(), Some(0));
        assert_eq!(d.read(10), b"");
        assert_eq!(d.available(), None);
    }

    #[test]
    fn keys_signal_and_flush() {
        let mut d = Discipline::default();
        let e = typed(&mut d, b"abc\x03");
        assert_eq!(e.signals, [KeySignal::Interrupt]);
        assert_eq!(e.echo, b"abc^C");
        typed(&mut d, b"\n");
        assert_eq!(d.read(10), b"\n");
        assert_eq!(typed(&mut d, b"\x16\x03\n").signals, []);
        assert_eq!(d.read(10), b"\x03\n");
    }

    #[test]
    fn raw_mode_gives_bytes_at_once_and_takes_over_the_half_line() {
        let mut d = Discipline::default();
        typed(&mut d, b"half");
        let mut raw = Termios::default();
        raw.lflag = 0;
        d.set(raw);
        assert_eq!(d.available(), Some(4));
        let e = typed(&mut d, b"\x03\x04");
        assert_eq!((e.signals.len(), e.echo.len()), (0, 0));
        assert_eq!(d.read(100), b"half\x03\x04");
    }

    #[test]
    fn erasing_takes_as_many_columns_as_echo_gave() {
        let mut d = Discipline::default();
        let e = typed(&mut d, b"\x01\x7f");
        assert_eq!(e.echo, b"^A\x08 \x08\x08 \x08");
        let e = typed(&mut d, "\u{e4}\x7f\n".as_bytes());
        assert!(e.readable);
        assert_eq!(d.read(10), b"\n");
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut d = Discipline::default();
        typed(&mut d, &[b'x'; 3 * LINE_MAX]);
        typed(&mut d, b"\n");
        assert!(d.read(usize::MAX).len() <= LINE_MAX + 1);
    }
}
