//! A 16550A: the console of a node. Output leaves at once; input beyond the receive FIFO waits
//! outside the chip, so that no byte from the environment is lost.

use std::collections::VecDeque;

/// Bytes of the receive FIFO.
const FIFO: usize = 16;
/// Most bytes that wait outside the chip; more input than that is dropped.
const BACKLOG: usize = 1 << 20;

const IER_RX: u8 = 1;
const IER_TX: u8 = 2;
const LSR_READY: u8 = 1;
const LSR_EMPTY: u8 = 0x60;
const LCR_DLAB: u8 = 0x80;
const MCR_LOOP: u8 = 0x10;

/// One 16550A.
#[derive(Clone, Debug, Default)]
pub struct Uart {
    ier: u8,
    fcr: u8,
    lcr: u8,
    mcr: u8,
    scratch: u8,
    divisor: u16,
    /// The transmitter-empty interrupt has not been shown yet.
    tx_pending: bool,
    fifo: VecDeque<u8>,
    backlog: VecDeque<u8>,
    output: Vec<u8>,
}

impl Uart {
    /// Bytes from the outside.
    pub fn input(&mut self, bytes: &[u8]) {
        let room = BACKLOG - self.backlog.len().min(BACKLOG);
        self.backlog.extend(bytes.iter().take(room));
        self.fill();
    }

    /// Takes what was sent since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Whether there is output to take.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Back to power-on; input that has not entered the chip stays.
    pub fn reset(&mut self) {
        *self = Uart {
            backlog: std::mem::take(&mut self.backlog),
            output: std::mem::take(&mut self.output),
            ..Uart::default()
        };
        self.fill();
    }

    /// The interrupt line.
    pub fn interrupt(&self) -> bool {
        self.cause() != 1
    }

    fn fill(&mut self) {
        while self.fifo.len() < FIFO
            && let Some(byte) = self.backlog.pop_front()
        {
            self.fifo.push_back(byte);
        }
    }

    /// Low bits of IIR: 1 is "none".
    fn cause(&self) -> u8 {
        if self.ier & IER_RX != 0 && !self.fifo.is_empty() {
            4
        } else if self.ier & IER_TX != 0 && self.tx_pending {
            2
        } else {
            1
        }
    }

    /// Reads register `offset` (0 to 7).
    pub fn read(&mut self, offset: u64) -> u8 {
        let dlab = self.lcr & LCR_DLAB != 0;
        match offset {
            0 if dlab => self.divisor as u8,
            0 => {
                let byte = self.fifo.pop_front().unwrap_or(0);
                self.fill();
                byte
            }
            1 if dlab => (self.divisor >> 8) as u8,
            1 => self.ier,
            2 => {
                let cause = self.cause();
                if cause == 2 {
                    self.tx_pending = false;
                }
                cause | if self.fcr & 1 != 0 { 0xc0 } else { 0 }
            }
            3 => self.lcr,
            4 => self.mcr,
            5 => LSR_EMPTY | if self.fifo.is_empty() { 0 } else { LSR_READY },
            6 if self.mcr & MCR_LOOP != 0 => {
                (self.mcr & 1) << 5 | (self.mcr & 2) << 3 | (self.mcr & 0xc) << 4
            }
            6 => 0xb0,
            7 => self.scratch,
            _ => 0,
        }
    }

    /// Writes register `offset` (0 to 7).
    pub fn write(&mut self, offset: u64, value: u8) {
        let dlab = self.lcr & LCR_DLAB != 0;
        match offset {
            0 if dlab => self.divisor = self.divisor & 0xff00 | value as u16,
            0 => {
                if self.mcr & MCR_LOOP != 0 {
                    if self.fifo.len() < FIFO {
                        self.fifo.push_back(value);
                    }
                } else {
                    self.output.push(value);
                }
                self.tx_pending = true;
            }
            1 if dlab => self.divisor = self.divisor & 0xff | (value as u16) << 8,
            1 => {
                if value & IER_TX != 0 && self.ier & IER_TX == 0 {
                    self.tx_pending = true;
                }
                self.ier = value & 0xf;
            }
            2 => {
                if value & 2 != 0 || (value ^ self.fcr) & 1 != 0 {
                    self.fifo.clear();
                    self.fill();
                }
                self.fcr = value & 0xc9;
            }
            3 => self.lcr = value,
            4 => self.mcr = value & 0x1f,
            7 => self.scratch = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_waits_and_interrupts() {
        let mut u = Uart::default();
        u.input(b"hello, a line longer than the fifo");
        assert!(!u.interrupt());
        u.write(1, IER_RX);
        assert!(u.interrupt());
        let mut got = Vec::new();
        while u.read(5) & LSR_READY != 0 {
            got.push(u.read(0));
        }
        assert_eq!(got, b"hello, a line longer than the fifo");
        assert!(!u.interrupt());
    }

    #[test]
    fn transmitter_interrupt_is_shown_once_per_byte() {
        let mut u = Uart::default();
        u.write(1, IER_TX);
        assert_eq!(u.read(2) & 0xf, 2);
        assert_eq!(u.read(2) & 0xf, 1);
        u.write(0, b'x');
        assert!(u.interrupt());
        assert_eq!(u.take_output(), b"x");
    }

    #[test]
    fn linux_finds_it_by_loopback() {
        let mut u = Uart::default();
        u.write(4, MCR_LOOP | 0xa);
        assert_eq!(u.read(6) & 0xf0, 0x90);
    }
}
