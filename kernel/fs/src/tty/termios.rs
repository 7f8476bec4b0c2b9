//! `struct termios` of Linux (asm-generic/termbits.h) and the flags that the discipline obeys.

/// Bytes of the kernel's `struct termios`.
pub const TERMIOS_SIZE: usize = 36;
/// Control characters.
const NCCS: usize = 19;

#[allow(missing_docs)]
pub mod iflag {
    pub const INLCR: u32 = 0o100;
    pub const IGNCR: u32 = 0o200;
    pub const ICRNL: u32 = 0o400;
    pub const IXON: u32 = 0o2000;
}
#[allow(missing_docs)]
pub mod oflag {
    pub const OPOST: u32 = 0o1;
    pub const ONLCR: u32 = 0o4;
    pub const OCRNL: u32 = 0o10;
}
#[allow(missing_docs)]
pub mod lflag {
    pub const ISIG: u32 = 0o1;
    pub const ICANON: u32 = 0o2;
    pub const ECHO: u32 = 0o10;
    pub const ECHOE: u32 = 0o20;
    pub const ECHOK: u32 = 0o40;
    pub const ECHONL: u32 = 0o100;
    pub const NOFLSH: u32 = 0o200;
    pub const TOSTOP: u32 = 0o400;
    pub const ECHOCTL: u32 = 0o1000;
    pub const ECHOKE: u32 = 0o4000;
    pub const IEXTEN: u32 = 0o100000;
}
/// Indices of control characters.
#[allow(missing_docs)]
pub mod cc {
    pub const VINTR: usize = 0;
    pub const VQUIT: usize = 1;
    pub const VERASE: usize = 2;
    pub const VKILL: usize = 3;
    pub const VEOF: usize = 4;
    pub const VTIME: usize = 5;
    pub const VMIN: usize = 6;
    pub const VSTART: usize = 8;
    pub const VSTOP: usize = 9;
    pub const VSUSP: usize = 10;
    pub const VEOL: usize = 11;
    pub const VREPRINT: usize = 12;
    pub const VWERASE: usize = 14;
    pub const VLNEXT: usize = 15;
    pub const VEOL2: usize = 16;
}

/// Settings of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // named as in C
pub struct Termios {
    pub iflag: u32,
    pub oflag: u32,
    pub cflag: u32,
    pub lflag: u32,
    pub line: u8,
    pub cc: [u8; NCCS],
}

impl Default for Termios {
    /// What Linux gives a new terminal: 38400 baud, 8 bits, cooked.
    fn default() -> Termios {
        use lflag::*;
        const B38400_CS8_CREAD_HUPCL: u32 = 0o17 | 0o60 | 0o200 | 0o2000;
        let mut cc = [0; NCCS];
        cc[..17].copy_from_slice(&[3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0]);
        Termios {
            iflag: iflag::ICRNL | iflag::IXON,
            oflag: oflag::OPOST | oflag::ONLCR,
            cflag: B38400_CS8_CREAD_HUPCL,
            lflag: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            cc,
        }
    }
}

impl Termios {
    /// As TCGETS stores it.
    pub fn to_bytes(&self) -> [u8; TERMIOS_SIZE] {
        let mut out = [0; TERMIOS_SIZE];
        let words = [self.iflag, self.oflag, self.cflag, self.lflag];
        for (chunk, word) in out.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        out[16] = self.line;
        out[17..].copy_from_slice(&self.cc);
        out
    }

    /// As TCSETS brings it.
    pub fn from_bytes(bytes: &[u8; TERMIOS_SIZE]) -> Termios {
        let word =
            |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let mut cc = [0; NCCS];
        cc.copy_from_slice(&bytes[17..]);
        Termios {
            iflag: word(0),
            oflag: word(4),
            cflag: word(8),
            lflag: word(12),
            line: bytes[16],
            cc,
        }
    }

    /// True if all of `flags` are set in `lflag`.
    pub fn local(&self, flags: u32) -> bool {
        self.lflag & flags == flags
    }

    /// Whether `byte` is control character `index` (0 disables one).
    pub fn is(&self, index: usize, byte: u8) -> bool {
        byte != 0 && self.cc[index] == byte
    }
}
