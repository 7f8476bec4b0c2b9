//! SIPS, the short interprocessor send (Hive §6): one 128-byte line, delivered in about the
//! time of a cache miss, with an interrupt. What the bytes mean is the sender's and the
//! receiver's affair (`hive-protocol`).

/// Bytes of a message.
pub const LINE: usize = 128;
/// Number of queue classes.
pub const CLASSES: usize = 3;

/// The receive queue a message goes to. Requests and replies are apart so that no cycle of
/// nodes waiting for room can form; agreement has its own so that no flood can silence it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Class {
    /// A request.
    Request = 0,
    /// A reply: its room is reserved by the request.
    Reply = 1,
    /// Agreement on which cells live.
    Agreement = 2,
}

impl Class {
    /// All classes in register order.
    pub const ALL: [Class; CLASSES] = [Class::Request, Class::Reply, Class::Agreement];

    /// The class with number `n`, if there is one.
    pub const fn from_number(n: u64) -> Option<Class> {
        match n {
            0 => Some(Class::Request),
            1 => Some(Class::Reply),
            2 => Some(Class::Agreement),
            _ => None,
        }
    }
}

/// What became of a send: known at once, without waiting for the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SendStatus {
    /// The message is in the receiver's queue.
    Sent = 0,
    /// The receiver's slots for this sender are all taken.
    Full = 1,
    /// The receiver failed, is off, or does not exist. A message line (not a mailbox message) is
    /// also refused by a node that is not [`crate::controller::READY`]: there is no kernel to
    /// take it. So a node that was reset by vote is seen by all others to be dead until it is
    /// booted again, which agreement relies on.
    Dead = 2,
}

impl SendStatus {
    /// Reads a status register.
    pub const fn from_register(value: u64) -> SendStatus {
        match value {
            0 => SendStatus::Sent,
            1 => SendStatus::Full,
            _ => SendStatus::Dead,
        }
    }
}
