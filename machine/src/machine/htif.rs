//! Berkeley host-target interface for bare programs: the ELF file's `tohost` and `fromhost`
//! words. Looked at when a slice ends.
//!
//! Served: exit codes (odd `tohost`), `write` and `exit` of the system-call proxy (device 0),
//! console output (device 1, command 1). Anything else is answered with -ENOSYS.

use crate::ram::{PAGE, Ram};
use hive_platform::map;

const SYS_WRITE: u64 = 64;
const SYS_EXIT: u64 = 93;
const ENOSYS: i64 = -38;
const EFAULT: i64 = -14;
/// Most bytes of one proxied write.
const WRITE_MAX: u64 = 64 << 10;

/// Addresses of the two words.
#[derive(Clone, Copy, Debug)]
pub struct Htif {
    /// Guest to host.
    pub tohost: u64,
    /// Host to guest.
    pub fromhost: Option<u64>,
}

/// What the guest asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing.
    None,
    /// End with this code.
    Exit(u64),
    /// Console output.
    Output(Vec<u8>),
}

fn read(ram: &Ram, pa: u64, out: &mut [u8]) -> Option<()> {
    let first = ram.dram_frame(pa)?;
    ram.read(first.base() + pa % PAGE as u64, out)
}

fn read_word(ram: &Ram, pa: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(ram, pa, &mut bytes)?;
    Some(u64::from_le_bytes(bytes))
}

fn write_word(ram: &mut Ram, pa: u64, value: u64) {
    if pa % 8 == 0
        && pa >= map::DRAM
        && let Some(frame) = ram.dram_frame(pa)
    {
        // Cannot fail: the frame is DRAM and the word aligned.
        let _ = ram.write(frame.base() + pa % PAGE as u64, &value.to_le_bytes());
    }
}

impl Htif {
    /// Looks at `tohost` and serves what is there.
    pub fn poll(&self, ram: &mut Ram) -> Request {
        let Some(word) = read_word(ram, self.tohost).filter(|w| *w != 0) else {
            return Request::None;
        };
        if word & 1 != 0 && word >> 48 == 0 {
            return Request::Exit(word >> 1);
        }
        let (device, command, payload) = (word >> 56, word >> 48 & 0xff, word << 16 >> 16);
        write_word(ram, self.tohost, 0);
        match (device, command) {
            (1, 1) => Request::Output(vec![payload as u8]),
            (0, 0) => self.proxy(ram, payload),
            _ => Request::None,
        }
    }

    /// A system call whose number and arguments are eight words at `at`.
    fn proxy(&self, ram: &mut Ram, at: u64) -> Request {
        let word = |i: u64| read_word(ram, at.wrapping_add(i * 8)).unwrap_or(0);
        let (number, a0, a1, a2) = (word(0), word(1), word(2), word(3));
        let (result, request) = match number {
            SYS_EXIT => return Request::Exit(a0),
            SYS_WRITE if a0 == 1 || a0 == 2 => {
                let mut bytes = vec![0; a2.min(WRITE_MAX) as usize];
                match read(ram, a1, &mut bytes) {
                    Some(()) => (bytes.len() as i64, Request::Output(bytes)),
                    None => (EFAULT, Request::None),
                }
            }
            _ => (ENOSYS, Request::None),
        };
        write_word(ram, at, result as u64);
        if let Some(fromhost) = self.fromhost {
            write_word(ram, fromhost, 1);
        }
        request
    }
}
