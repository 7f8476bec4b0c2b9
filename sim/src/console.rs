//! What a node's console has shown, and a place in it up to which it has been read.
//!
//! Expectations are about the transcript, never about time: whether a text has come is a function
//! of the run alone, so a script of expectations repeats with it.

/// Most bytes of a transcript; a guest that floods its console loses the oldest.
const LIMIT: usize = 64 << 20;

/// The transcript of one console.
#[derive(Clone, Debug, Default)]
pub struct Console {
    bytes: Vec<u8>,
    /// Everything before this has been read by [`Console::find`] or [`Console::take_line`].
    read: usize,
}

impl Console {
    /// Adds what the console has just shown.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > LIMIT {
            let drop = (self.bytes.len() / 2).max(1).min(self.bytes.len());
            self.bytes.drain(..drop);
            self.read = self.read.saturating_sub(drop);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Everything shown so far (but see the limit).
    pub fn transcript(&self) -> &[u8] {
        &self.bytes
    }

    /// What has not been read yet.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Looks for `text` in what has not been read; if it is there, all up to its end counts as
    /// read and is returned.
    pub fn find(&mut self, text: &str) -> Option<String> {
        let unread = self.unread();
        let at = unread.windows(text.len().max(1)).position(|part| part == text.as_bytes())?;
        let end = at + text.len();
        let found = String::from_utf8_lossy(&unread[..end]).into_owned();
        self.read += end;
        Some(found)
    }

    /// The next whole line that has not been read, without its line end.
    pub fn take_line(&mut self) -> Option<String> {
        let unread = self.unread();
        let end = unread.iter().position(|&byte| byte == b'\n')?;
        let line = String::from_utf8_lossy(&unread[..end]).trim_end_matches('\r').to_owned();
        self.read += end + 1;
        Some(line)
    }

    /// The last lines, for reports of what went wrong.
    pub fn tail(&self, lines: usize) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_text_is_read_once() {
        let mut console = Console::default();
        console.push(b"boot\nroot# ");
        assert_eq!(console.find("# ").as_deref(), Some("boot\nroot# "));
        assert_eq!(console.find("# "), None);
        console.push(b"ls\r\na b\r\nroot# ");
        assert_eq!(console.take_line().as_deref(), Some("ls"));
        assert_eq!(console.take_line().as_deref(), Some("a b"));
        assert_eq!(console.take_line(), None);
        assert!(console.find("# ").is_some());
        assert_eq!(console.tail(1), "root# ");
    }

    #[test]
    fn a_flood_loses_the_oldest_and_never_the_place() {
        let mut console = Console::default();
        let chunk = vec![b'x'; LIMIT / 4];
        for _ in 0..9 {
            console.push(&chunk);
            assert!(console.transcript().len() <= LIMIT);
        }
        console.push(b"end");
        assert!(console.find("end").is_some());
    }
}
