//! The user's terminal: raw while a guest's console has it, and the keys that are for us.
//!
//! Ctrl-A begins a command, as in QEMU: a digit or `n` switches to another console, `x` ends the
//! run, `h` helps, Ctrl-A again sends itself. A terminal that is left by a signal stays raw
//! (`stty sane` mends it); any other end restores it.

use std::io::{IsTerminal, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Ctrl-A.
const ESCAPE: u8 = 1;

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Key {
    /// Bytes for the guest.
    Bytes(Vec<u8>),
    /// Show this node's console.
    Switch(usize),
    /// Show the next node's console.
    Next,
    /// End the run.
    Quit,
    /// Say what keys there are.
    Help,
    /// No more input will come.
    End,
}

/// One line on the keys.
pub const HELP: &str = "Ctrl-A 0-9: that node's console, n: next, x: end, Ctrl-A: sends Ctrl-A";

/// Standard input, byte by byte.
pub struct Terminal {
    /// Settings to go back to; `None` if input is not a terminal.
    saved: Option<String>,
    input: Receiver<Vec<u8>>,
    escape: Escape,
}

impl Terminal {
    /// Starts reading standard input, raw if it is a terminal.
    pub fn open() -> Terminal {
        let saved = std::io::stdin().is_terminal().then(|| stty(&["-g"])).flatten();
        if saved.is_some() {
            stty(&["raw", "-echo"]);
        }
        let (send, input) = channel();
        // Reading cannot be interrupted; the thread ends with the process.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                match std::io::stdin().read(&mut buffer) {
                    Ok(0) | Err(_) => return,
                    Ok(n) if send.send(buffer[..n].to_vec()).is_err() => return,
                    Ok(_) => {}
                }
            }
        });
        Terminal { saved, input, escape: Escape::default() }
    }

    /// Whether a person types.
    pub fn is_interactive(&self) -> bool {
        self.saved.is_some()
    }

    /// What has been typed since the last call; waits for it up to `wait`.
    pub fn keys(&mut self, wait: std::time::Duration) -> Vec<Key> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.input.recv_timeout(wait) {
            Ok(bytes) if self.is_interactive() => self.escape.feed(&bytes),
            Ok(bytes) => vec![Key::Bytes(bytes)],
            Err(Timeout) => Vec::new(),
            Err(Disconnected) => vec![Key::End],
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(saved) = &self.saved {
            stty(&[saved]);
        }
    }
}

/// Runs `stty` on our standard input; `None` if it fails.
fn stty(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("stty");
    let out = command.args(arguments).stdin(Stdio::inherit()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Finds our commands among the bytes.
#[derive(Default)]
struct Escape {
    begun: bool,
}

impl Escape {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut plain = Vec::new();
        for &byte in bytes {
            if !self.begun {
                if byte == ESCAPE {
                    self.begun = true;
                } else {
                    plain.push(byte);
                }
                continue;
            }
            self.begun = false;
            let key = match byte {
                b'0'..=b'9' => Key::Switch(usize::from(byte - b'0')),
                b'n' => Key::Next,
                b'x' | b'X' => Key::Quit,
                ESCAPE => Key::Bytes(vec![ESCAPE]),
                _ => Key::Help,
            };
            if !plain.is_empty() {
                keys.push(Key::Bytes(std::mem::take(&mut plain)));
            }
            keys.push(key);
        }
        if !plain.is_empty() {
            keys.push(Key::Bytes(plain));
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_across_reads() {
        let mut escape = Escape::default();
        let bytes = |b: &[u8]| Key::Bytes(b.to_vec());
        assert_eq!(escape.feed(b"ab\x012c"), [bytes(b"ab"), Key::Switch(2), bytes(b"c")]);
        assert_eq!(escape.feed(b"d\x01"), [bytes(b"d")]);
        assert_eq!(escape.feed(b"x"), [Key::Quit]);
        assert_eq!(escape.feed(b"\x01\x01\x01n\x01?"), [bytes(b"\x01"), Key::Next, Key::Help]);
    }
}
