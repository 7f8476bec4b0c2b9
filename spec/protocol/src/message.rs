//! The 128-byte SIPS line (Hive §6) as cells use it: a 24-byte header and up to 104 bytes of
//! payload. The line is sixteen 64-bit words because the controller takes and gives 64-bit words.
//!
//! | word | bits | field |
//! |---|---|---|
//! | 0 | 0..32 | check value over the used words |
//! | 0 | 32..40 | version ([`VERSION`]) |
//! | 0 | 40..48 | [`Kind`] |
//! | 0 | 48..64 | operation: [`crate::rpc::Op`] for RPC, else 0 |
//! | 1 | 0..8, 8..16 | source cell, its incarnation |
//! | 1 | 16..24, 24..32 | destination cell, its incarnation |
//! | 1 | 32..40 | payload length in bytes, at most [`PAYLOAD`] |
//! | 1 | 40..48 | flags ([`crate::rpc::flags`]) |
//! | 1 | 48..64 | status of a reply or completion: [`crate::rpc::Status`] |
//! | 2 | | call id; 0 outside RPC |
//! | 3.. | | payload, zero-padded to a word |
//!
//! The check value guards against a cell that garbles what it sends, not against one that means
//! harm: the sender's *node* is attested by the controller (the receive slot tells it), and
//! [`Message::decode`] demands that the header agrees with it.

use hive_platform::sips::LINE;

use crate::{CellId, Incarnation};

/// A line as it goes through the controller.
pub type Line = [u64; LINE_WORDS];
/// Words of a line.
pub const LINE_WORDS: usize = LINE / 8;
/// Words of the header.
pub const HEADER_WORDS: usize = 3;
/// Bytes of payload a line can carry.
pub const PAYLOAD: usize = LINE - HEADER_WORDS * 8;
/// Words of payload a line can carry.
pub const PAYLOAD_WORDS: usize = PAYLOAD / 8;
/// Version of all formats in this crate.
pub const VERSION: u8 = 1;

const _: () = assert!(LINE == 128 && PAYLOAD == 104);

/// What a line is about. Each kind travels in one SIPS class ([`Kind::class`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// [`crate::membership::Opinion`].
    Membership = 1,
    /// Touches nothing at the receiver: a probe that asks only whether it can be sent.
    Probe = 2,
    /// An RPC request, served at interrupt level or queued.
    Request = 3,
    /// The interrupt-level answer to a request.
    Reply = 4,
    /// The end of a queued request: sent once its server process is done.
    Completion = 5,
}

impl Kind {
    const fn from_number(n: u8) -> Option<Kind> {
        Some(match n {
            1 => Kind::Membership,
            2 => Kind::Probe,
            3 => Kind::Request,
            4 => Kind::Reply,
            5 => Kind::Completion,
            _ => return None,
        })
    }

    /// The queue that lines of this kind use. A completion goes with the requests: it starts
    /// something at its receiver, is served there at interrupt level and never sends in turn,
    /// so it cannot close a cycle.
    pub const fn class(self) -> hive_platform::sips::Class {
        use hive_platform::sips::Class;
        match self {
            Kind::Membership | Kind::Probe => Class::Agreement,
            Kind::Request | Kind::Completion => Class::Request,
            Kind::Reply => Class::Reply,
        }
    }
}

/// A decoded line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// What it is about.
    pub kind: Kind,
    /// RPC operation number, 0 otherwise. Still a number: an unknown one must be answered.
    pub op: u16,
    /// Who sent it.
    pub from: CellId,
    /// In which life.
    pub from_incarnation: Incarnation,
    /// To whom.
    pub to: CellId,
    /// The life of the receiver that the sender believes in.
    pub to_incarnation: Incarnation,
    /// [`crate::rpc::flags`].
    pub flags: u8,
    /// [`crate::rpc::Status`] as a number.
    pub status: u16,
    /// Names the call within its client: see `hive-cells`' `rpc`.
    pub call: u64,
    /// Bytes of payload in use, at most [`PAYLOAD`].
    pub length: u8,
    /// The payload; bytes from `length` on are zero.
    pub payload: [u64; PAYLOAD_WORDS],
}

/// Why a line is refused. All of them blame the peer, except that `Receiver*` may also mean a
/// message overtaken by a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The check value is wrong: the line was garbled before it was sent.
    Check,
    /// Another version of the protocol.
    Version,
    /// No such kind, or a kind in a queue where it does not belong.
    Kind,
    /// The header names another sender than the controller does.
    Sender,
    /// Sent by another life of that cell than the one we know: drop it.
    SenderIncarnation,
    /// Meant for another cell.
    Receiver,
    /// Meant for a former life of this cell: answer "stale" or drop it.
    ReceiverIncarnation,
    /// The length exceeds a line, or the padding is not zero.
    Length,
    /// A field of the payload is out of range.
    Payload,
}

/// What the receiver knows without trusting the sender.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// This cell.
    pub to: CellId,
    /// Its life.
    pub to_incarnation: Incarnation,
    /// The cell that owns the node the controller names as sender.
    pub from: CellId,
    /// Its life, as far as we know.
    pub from_incarnation: Incarnation,
    /// The queue it came out of.
    pub class: hive_platform::sips::Class,
}

impl Message {
    /// A message without payload.
    pub const fn new(kind: Kind, op: u16) -> Message {
        Message {
            kind,
            op,
            from: CellId::of(0),
            from_incarnation: Incarnation(0),
            to: CellId::of(0),
            to_incarnation: Incarnation(0),
            flags: 0,
            status: 0,
            call: 0,
            length: 0,
            payload: [0; PAYLOAD_WORDS],
        }
    }

    /// Puts words into the payload; what does not fit is a bug of the caller.
    #[must_use]
    pub fn with_words(mut self, words: &[u64]) -> Message {
        assert!(words.len() <= PAYLOAD_WORDS, "payload exceeds a line");
        self.payload = [0; PAYLOAD_WORDS];
        self.payload[..words.len()].copy_from_slice(words);
        self.length = (words.len() * 8) as u8;
        self
    }

    /// Puts bytes into the payload; `None` if they do not fit (send them by reference).
    #[must_use]
    pub fn with_bytes(mut self, bytes: &[u8]) -> Option<Message> {
        if bytes.len() > PAYLOAD {
            return None;
        }
        self.payload = [0; PAYLOAD_WORDS];
        for (word, chunk) in self.payload.iter_mut().zip(bytes.chunks(8)) {
            let mut le = [0; 8];
            le[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(le);
        }
        self.length = bytes.len() as u8;
        Some(self)
    }

    /// The payload words in use.
    pub fn words(&self) -> &[u64] {
        let used = (self.length as usize).div_ceil(8).min(PAYLOAD_WORDS);
        self.payload.get(..used).unwrap_or(&[])
    }

    /// The payload as bytes; only the first [`Message::length`] mean anything.
    pub fn bytes(&self) -> [u8; PAYLOAD] {
        let mut out = [0; PAYLOAD];
        for (chunk, word) in out.chunks_exact_mut(8).zip(self.payload) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The line to send.
    pub fn encode(&self) -> Line {
        let mut line = [0; LINE_WORDS];
        line[0] = (VERSION as u64) << 32 | (self.kind as u64) << 40 | (self.op as u64) << 48;
        line[1] = self.from.index() as u64
            | (self.from_incarnation.0 as u64) << 8
            | (self.to.index() as u64) << 16
            | (self.to_incarnation.0 as u64) << 24
            | (self.length as u64) << 32
            | (self.flags as u64) << 40
            | (self.status as u64) << 48;
        line[2] = self.call;
        line[HEADER_WORDS..].copy_from_slice(&self.payload);
        line[0] |= u64::from(check(&line, self.words().len()));
        line
    }

    /// Reads a line that was received as `expect` says.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn decode(line: &Line, expect: &Expect) -> Result<Message, Invalid> {
        let [w0, w1, call, payload @ ..] = *line;
        let field = |word: u64, shift: u32| (word >> shift) as u8;
        let length = field(w1, 32);
        if length as usize > PAYLOAD {
            return Err(Invalid::Length);
        }
        if check(line, (length as usize).div_ceil(8)) != w0 as u32 {
            return Err(Invalid::Check);
        }
        if field(w0, 32) != VERSION {
            return Err(Invalid::Version);
        }
        let kind = Kind::from_number(field(w0, 40)).ok_or(Invalid::Kind)?;
        if kind.class() != expect.class {
            return Err(Invalid::Kind);
        }
        if field(w1, 0) as usize != expect.from.index() {
            return Err(Invalid::Sender);
        }
        if field(w1, 8) != expect.from_incarnation.0 {
            return Err(Invalid::SenderIncarnation);
        }
        if field(w1, 16) as usize != expect.to.index() {
            return Err(Invalid::Receiver);
        }
        if field(w1, 24) != expect.to_incarnation.0 {
            return Err(Invalid::ReceiverIncarnation);
        }
        Ok(Message {
            kind,
            op: (w0 >> 48) as u16,
            from: expect.from,
            from_incarnation: expect.from_incarnation,
            to: expect.to,
            to_incarnation: expect.to_incarnation,
            flags: field(w1, 40),
            status: (w1 >> 48) as u16,
            call,
            length,
            payload: used_only(payload, length),
        })
    }
}

/// Clears what lies beyond `length` bytes: the check value does not cover it.
fn used_only(mut payload: [u64; PAYLOAD_WORDS], length: u8) -> [u64; PAYLOAD_WORDS] {
    for (i, word) in payload.iter_mut().enumerate() {
        let left = (length as usize).saturating_sub(i * 8);
        if left < 8 {
            *word &= (1 << (left * 8)) - 1;
        }
    }
    payload
}

/// Check value over the header (its own field left out) and `words` words of payload: multiply
/// and rotate, three instructions a word, so that a null RPC pays for three words only.
fn check(line: &Line, words: usize) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 / golden ratio: every bit spreads upwards
    let mut sum = line[0] >> 32;
    for word in line[1..].iter().take(HEADER_WORDS - 1 + words) {
        sum = (sum.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }
    (sum >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use hive_platform::sips::Class;

    fn example() -> (Message, Expect) {
        let mut m = Message::new(Kind::Request, 0x0102).with_words(&[0x1122_3344_5566_7788, 9]);
        m.from = CellId::of(3);
        m.from_incarnation = Incarnation(4);
        m.to = CellId::of(5);
        m.to_incarnation = Incarnation(6);
        m.flags = 7;
        m.status = 0x0809;
        m.call = 0xa0b0_c0d0;
        let expect = Expect {
            to: m.to,
            to_incarnation: m.to_incarnation,
            from: m.from,
            from_incarnation: m.from_incarnation,
            class: Class::Request,
        };
        (m, expect)
    }

    #[test]
    fn golden_line() {
        let (m, _) = example();
        let line = m.encode();
        assert_eq!(line[0] >> 32, 0x0102_0301);
        assert_eq!(line[0] as u32, GOLDEN_CHECK);
        assert_eq!(line[1], 0x0809_0710_0605_0403);
        assert_eq!(line[2], 0xa0b0_c0d0);
        assert_eq!(line[3..5], [0x1122_3344_5566_7788, 9]);
        assert_eq!(line[5..], [0; 11]);
    }
    const GOLDEN_CHECK: u32 = 631_627_937;

    #[test]
    fn every_changed_bit_in_use_is_noticed() {
        let (m, expect) = example();
        let line = m.encode();
        assert_eq!(Message::decode(&line, &expect), Ok(m));
        for word in 0..5 {
            for bit in 0..64 {
                let mut bad = line;
                bad[word] ^= 1 << bit;
                assert!(Message::decode(&bad, &expect).is_err(), "word {word} bit {bit}");
            }
        }
        // Beyond the length nothing is read.
        let mut slack = line;
        slack[9] = !0;
        assert_eq!(Message::decode(&slack, &expect), Ok(m));
    }

    #[test]
    fn identity_comes_from_the_controller_not_from_the_header() {
        let (m, expect) = example();
        let line = m.encode();
        let cases = [
            (Expect { from: CellId::of(2), ..expect }, Invalid::Sender),
            (Expect { from_incarnation: Incarnation(5), ..expect }, Invalid::SenderIncarnation),
            (Expect { to: CellId::of(2), ..expect }, Invalid::Receiver),
            (Expect { to_incarnation: Incarnation(7), ..expect }, Invalid::ReceiverIncarnation),
            (Expect { class: Class::Reply, ..expect }, Invalid::Kind),
        ];
        for (expect, why) in cases {
            assert_eq!(Message::decode(&line, &expect), Err(why));
        }
    }

    #[test]
    fn bytes_and_words_are_the_same_payload() {
        let m = Message::new(Kind::Request, 0).with_bytes(b"/tmp/a file").unwrap();
        assert_eq!(m.length, 11);
        assert_eq!(m.words().len(), 2);
        assert_eq!(&m.bytes()[..11], b"/tmp/a file");
        assert!(Message::new(Kind::Request, 0).with_bytes(&[0; PAYLOAD]).is_some());
        assert!(Message::new(Kind::Request, 0).with_bytes(&[0; PAYLOAD + 1]).is_none());
    }
}
