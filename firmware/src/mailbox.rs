//! What harts say to each other in M-mode, over the controllers' mailboxes.
//!
//! One message of each sender to each receiver may be pending. Whoever waits serves its own
//! mailbox meanwhile, so two harts that wait for each other both go on; and nobody waits longer
//! than [`PATIENCE_TICKS`], so a hart that died holds up no one.

use crate::hart::{Hart, State};
use crate::hw;
use hive_platform::controller;
use hive_platform::sips::SendStatus;

/// Longest wait for another hart, in timebase ticks: 1 ms. A live hart answers from M-mode within
/// microseconds unless it is itself waiting, at most this long.
pub const PATIENCE_TICKS: u64 = hive_platform::TIMEBASE_HZ / 1000;

/// What one hart asks of another.
#[derive(Clone, Copy)]
pub enum Request {
    /// Raise the S-mode software interrupt. No reply.
    Interrupt,
    /// `fence.i`.
    FenceI,
    /// `sfence.vma` over a range.
    SfenceVma { start: u64, size: u64 },
    /// HSM state?
    Status,
    /// Enter S-mode.
    Start { entry: u64, argument: u64 },
    /// Switch this node off with an exit code. No reply.
    PowerOff { code: u64 },
    /// Reset this node. No reply.
    Reset,
}

/// Number of a reply on the wire; requests have 1 and up.
const REPLY: u64 = 0;

impl Request {
    fn to_words(self) -> [u64; 3] {
        match self {
            Request::Interrupt => [1, 0, 0],
            Request::FenceI => [2, 0, 0],
            Request::SfenceVma { start, size } => [3, start, size],
            Request::Status => [4, 0, 0],
            Request::Start { entry, argument } => [5, entry, argument],
            Request::PowerOff { code } => [6, code, 0],
            Request::Reset => [7, 0, 0],
        }
    }

    fn from_words(kind: u64, a: u64, b: u64) -> Option<Request> {
        Some(match kind {
            1 => Request::Interrupt,
            2 => Request::FenceI,
            3 => Request::SfenceVma { start: a, size: b },
            4 => Request::Status,
            5 => Request::Start { entry: a, argument: b },
            6 => Request::PowerOff { code: a },
            7 => Request::Reset,
            _ => return None,
        })
    }
}

/// Sends `request` to `to` and waits for the reply: `None` if `to` is dead or stays silent.
/// The hart's own requests to itself are carried out on the spot.
pub fn call(hart: &mut Hart, to: usize, request: Request) -> Option<u64> {
    let sequence = post(hart, to, request)?;
    collect(hart, to, sequence)
}

/// Sends `request` without waiting for a reply; the sequence number to [`collect`] it by.
pub fn post(hart: &mut Hart, to: usize, request: Request) -> Option<u64> {
    hart.sequence += 1;
    let sequence = hart.sequence;
    let [kind, a, b] = request.to_words();
    send(hart, to, [kind | sequence << 8, a, b]).then_some(sequence)
}

/// Waits for the reply to the request with number `sequence`.
pub fn collect(hart: &mut Hart, from: usize, sequence: u64) -> Option<u64> {
    let deadline = hw::time() + PATIENCE_TICKS;
    while !hart.is_mute(from) && hw::time() < deadline {
        match receive(hart) {
            Some((sender, number, value)) if sender == from && number == sequence => {
                return Some(value);
            }
            Some(_) => {}
            None => hw::pause(),
        }
    }
    hart.set_mute(from, true);
    None
}

/// Handles all that has arrived; replies to requests long given up are dropped.
pub fn serve(hart: &mut Hart) {
    while hart.controller.read(controller::MAILBOX_RX) != 0 {
        receive(hart);
    }
}

/// Takes one message: carries out a request, or returns a reply (sender, sequence, value).
fn receive(hart: &mut Hart) -> Option<(usize, u64, u64)> {
    let sender = hart.controller.read(controller::MAILBOX_RX).checked_sub(1)? as usize;
    let word = |i: u64| hart.controller.read(controller::MAILBOX_RX_DATA + 8 * i);
    let [head, a, b] = [word(0), word(1), word(2)];
    hart.controller.write(controller::MAILBOX_RX_RELEASE, 0);
    // Mailboxes are M-mode's own, but a stray store may come from a firmware gone wild.
    if !hart.partition.contains(sender) {
        return None;
    }
    hart.set_mute(sender, false);
    let (kind, sequence) = (head & 0xff, head >> 8);
    if kind == REPLY {
        return Some((sender, sequence, a));
    }
    let request = Request::from_words(kind, a, b)?;
    if let Some(value) = carry_out(hart, request) {
        send(hart, sender, [REPLY | sequence << 8, value, 0]);
    }
    None
}

/// Does what another hart of the partition asked; the reply, if it waits for one.
fn carry_out(hart: &mut Hart, request: Request) -> Option<u64> {
    match request {
        Request::Interrupt => {
            hw::raise_software_interrupt();
            return None;
        }
        Request::FenceI => hw::fence_i(),
        Request::SfenceVma { start, size } => hw::sfence_vma(start, size),
        Request::Status => {}
        Request::Start { entry, argument } => {
            let before = hart.state;
            if before == State::Stopped {
                hart.state = State::Starting { entry, argument };
            }
            return Some(before.number());
        }
        Request::PowerOff { code } => hart.controller.write(controller::POWER, code),
        Request::Reset => hart.controller.write(controller::RESET, 1),
    }
    Some(hart.state.number())
}

/// Puts a message into `to`'s mailbox, waiting while our previous one is still there.
fn send(hart: &mut Hart, to: usize, words: [u64; 3]) -> bool {
    let deadline = hw::time() + PATIENCE_TICKS;
    loop {
        for (i, word) in words.into_iter().enumerate() {
            hart.controller.write(controller::MAILBOX_TX + 8 * i as u64, word);
        }
        hart.controller.write(controller::MAILBOX_SEND, to as u64);
        let status = hart.controller.read(controller::MAILBOX_STATUS);
        match SendStatus::from_register(status) {
            SendStatus::Sent => return true,
            SendStatus::Dead => return false,
            SendStatus::Full if hart.is_mute(to) || hw::time() >= deadline => {
                hart.set_mute(to, true);
                return false;
            }
            SendStatus::Full => {}
        }
        // Our own mailbox may hold what `to` is waiting to deliver; a reply found here belongs to
        // a request already given up, since nobody sends while a call of its own is open.
        if receive(hart).is_none() {
            hw::pause();
        }
    }
}
