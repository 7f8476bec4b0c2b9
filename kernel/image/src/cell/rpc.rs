//! Intercell RPC (Hive §6): carries [`hive_cells::rpc`] over SIPS.
//!
//! A call is made by a thread and may sleep. Requests are taken off their queue at interrupt
//! level; what needs no waiting is served there, the rest by server threads. Bytes that do not
//! fit a line stay in their owner's memory and are pulled by the other side with a careful copy:
//! a request's until its call slot is used again, an answer's until the same client's next call in
//! that slot.
//!
//! Locks: `CALLS`, `QUEUE` and `ANSWERS` are leaves, taken one at a time; hints are raised and
//! threads woken after they are dropped.

use super::{member, peers};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use hive_cells::careful;
use hive_cells::hint::Hint;
use hive_cells::limits::RPC_CALLS;
use hive_cells::rpc::{
    self, Arrival, Attempt, CallId, Calls, Outcome, Queue, Refused, Served, Wait,
};
use hive_fs::{Errno, Result};
use hive_hal::memory::{Pa, pa_of};
use hive_hal::{platform, uaccess};
use hive_platform::sips::{Class, SendStatus};
use hive_protocol::membership::Reason;
use hive_protocol::rpc::{MAX_INLINE, MAX_REFERENCE, Op, Reference, Status, flags};
use hive_protocol::{CellId, CellSet, Kind, Message};
use hive_sync::{SpinLock, WaitQueue, now_ns, rank};

/// Threads that serve queued requests.
const SERVERS: usize = 4;
/// Requests that may wait for a server thread.
const QUEUED_MAX: usize = 64;
/// Pause before a refused send is tried again.
const RETRY_NS: u64 = 200_000;
/// Subsystems: the high bytes of [`Op`].
const SUBSYSTEMS: usize = 4;

/// Serves the queued requests of one subsystem, on a server thread.
pub type Handler = fn(from: CellId, op: Op, request: &[u8]) -> Result<Vec<u8>>;
/// Serves a one-way message at interrupt level.
pub type Notice = fn(from: CellId, op: Op, message: &[u8]);

/// Too large for a kernel stack: made in place, without cells until [`start`].
static CALLS: SpinLock<Calls> = SpinLock::ranked(rank::DEVICE, Calls::new(CellSet::EMPTY));
static ENDED: [WaitQueue; RPC_CALLS] = [const { WaitQueue::new() }; RPC_CALLS];
/// Bytes of requests, by call slot.
static SENT: SpinLock<BTreeMap<usize, Bytes>> = SpinLock::ranked(rank::DEVICE, BTreeMap::new());
/// Bytes of answers, by client and its call slot.
static ANSWERS: SpinLock<BTreeMap<(CellId, u32), Bytes>> =
    SpinLock::ranked(rank::DEVICE, BTreeMap::new());
static QUEUE: SpinLock<Queue<QUEUED_MAX>> = SpinLock::ranked(rank::DEVICE, Queue::new());
static ARRIVED: WaitQueue = WaitQueue::new();
static HANDLERS: SpinLock<[Option<Handler>; SUBSYSTEMS]> = SpinLock::new([None; SUBSYSTEMS]);
static NOTICES: SpinLock<[Option<Notice>; SUBSYSTEMS]> = SpinLock::new([None; SUBSYSTEMS]);

/// Names the handler of a subsystem, before [`start`].
pub fn serve(subsystem: usize, handler: Handler, notice: Notice) {
    HANDLERS.lock()[subsystem] = Some(handler);
    NOTICES.lock()[subsystem] = Some(notice);
}

/// Begins to take requests. On a kernel thread.
pub fn start() {
    CALLS.lock().verdict(peers::everyone(), &mut |_| {});
    crate::trap::on_sips(Class::Request, || arrived(Class::Request));
    crate::trap::on_sips(Class::Reply, || arrived(Class::Reply));
    crate::time::on_tick(expire);
    super::on_clean_up(clean_up);
    for _ in 0..SERVERS {
        crate::sched::spawn_kernel("rpc server", || {
            loop {
                let request = ARRIVED.wait_until(|| QUEUE.lock().take());
                serve_queued(&request);
            }
        });
    }
}

/// Asks `to` and sleeps until it answers.
///
/// # Errors
/// What the server answered; `EIO` if its cell is dead or talks nonsense.
pub fn call(to: CellId, op: Op, request: &[u8]) -> Result<Vec<u8>> {
    loop {
        let Some(message) = call_once(to, op, request)? else {
            hive_sync::sched::sleep_ns(RETRY_NS);
            continue;
        };
        return match Status::from_number(message.status) {
            Some(Status::Ok) => fetch(to, &message),
            Some(Status::Errno(code)) => Err(Errno::from_code(code).unwrap_or(Errno::EIO)),
            Some(Status::Busy) => {
                hive_sync::sched::sleep_ns(RETRY_NS);
                continue;
            }
            _ => Err(Errno::EIO),
        };
    }
}

/// Tells `to` something that needs no answer and fits a line; lost if its queue is full.
pub fn notify(to: CellId, op: Op, message: &[u8]) {
    let line = Message { op: op as u16, flags: flags::ONE_WAY, ..Message::new(Kind::Request, 0) };
    if let (Some(peer), Some(line)) = (peers::peer(to), line.with_bytes(message)) {
        // Lost to a dead cell: nobody waits there.
        let _ = peer.send(&line);
    }
}

/// One attempt at a call; `None` if there is no room for it now.
fn call_once(to: CellId, op: Op, request: &[u8]) -> Result<Option<Message>> {
    let peer = peers::peer(to).ok_or(Errno::EIO)?;
    let (payload, bytes) = wrap(Message::new(Kind::Request, 0), request)?;
    let payload = Message { flags: payload.flags | flags::QUEUE, ..payload };
    let since = now_us();
    let begun = CALLS.lock().begin(to, op, &payload, since);
    let (id, message) = match begun {
        Ok(begun) => begun,
        Err(Refused::Dead) => return Err(Errno::EIO),
        Err(Refused::Unanswered | Refused::Full) => return Ok(None),
    };
    if let Some(bytes) = bytes {
        let old = SENT.lock().insert(id.slot(), bytes);
        drop(old);
    }
    match peer.send(&message) {
        SendStatus::Sent => {}
        status => {
            CALLS.lock().retract(id);
            if status == SendStatus::Full {
                return Ok(None);
            }
            member::suspect(Hint { accused: to, reason: Reason::BusError, address: 0 });
            return Err(Errno::EIO);
        }
    }
    match wait(id, since) {
        Outcome::Answer(message) => Ok(Some(message)),
        Outcome::Dead | Outcome::TimedOut => Err(Errno::EIO),
    }
}

/// Spins, then sleeps (Hive §6: "the client processor only context-switches after a timeout").
fn wait(id: CallId, since: u64) -> Outcome {
    loop {
        match CALLS.lock().wait(id, since, now_us()) {
            Wait::Done(outcome) => return outcome,
            Wait::Spin => {}
            Wait::Block => break,
        }
        hive_sync::pause();
    }
    ENDED[id.slot()].wait_until(|| match CALLS.lock().wait(id, since, now_us()) {
        Wait::Done(outcome) => Some(outcome),
        Wait::Spin | Wait::Block => None,
    })
}

/// Puts `bytes` into `message`, or a reference to a copy of them that the caller must keep.
fn wrap(message: Message, bytes: &[u8]) -> Result<(Message, Option<Bytes>)> {
    if bytes.len() <= MAX_INLINE {
        return Ok((message.with_bytes(bytes).ok_or(Errno::EIO)?, None));
    }
    if bytes.len() as u64 > MAX_REFERENCE {
        return Err(Errno::E2BIG);
    }
    let copy = Bytes::copy(bytes);
    let Pa(address) = pa_of(copy.0.as_ptr().cast()).ok_or(Errno::EIO)?;
    let reference = Reference { address, length: bytes.len() as u64 };
    let message = message.with_words(&reference.words());
    Ok((Message { flags: flags::BY_REFERENCE, ..message }, Some(copy)))
}

/// The bytes of a message from `from`, pulled out of its memory if need be.
fn fetch(from: CellId, message: &Message) -> Result<Vec<u8>> {
    if message.flags & flags::BY_REFERENCE == 0 {
        let length = usize::from(message.length);
        return message.bytes().get(..length).map(Vec::from).ok_or(Errno::EIO);
    }
    let refuse = || {
        super::count_refused();
        member::suspect(Hint { accused: from, reason: Reason::FailedCheck, address: 0 });
        Errno::EIO
    };
    let peer = peers::peer(from).ok_or(Errno::EIO)?;
    let (_, reference) = Reference::split(message.words()).map_err(|_| refuse())?;
    let reference = careful::reference(&peer.dram, reference).map_err(|_| refuse())?;
    let mut bytes = vec![0; reference.length as usize];
    uaccess::careful_copy(&mut bytes, Pa(reference.address)).map_err(|_| {
        let address = reference.address;
        member::suspect(Hint { accused: from, reason: Reason::BusError, address });
        Errno::EIO
    })?;
    Ok(bytes)
}

/// Messages of `class` have arrived.
fn arrived(class: Class) {
    let Some(platform) = platform::get() else { return };
    while let Some((node, line)) = platform.sips_receive(class) {
        let Some((from, message)) = super::decode(node, &line, class) else { continue };
        if message.kind == Kind::Request {
            take(from, &message);
            continue;
        }
        let arrival = CALLS.lock().arrive(&message);
        match arrival {
            Arrival::Ended(id) => ENDED[id.slot()].wake_all(),
            Arrival::Queued(_) | Arrival::Late => {}
            Arrival::Bogus => {
                super::count_refused();
                member::suspect(Hint { accused: from, reason: Reason::FailedCheck, address: 0 });
            }
        }
    }
}

/// A request, at interrupt level.
fn take(from: CellId, request: &Message) {
    let notices = *NOTICES.lock();
    let served = QUEUE.lock().serve(request, |op, request| match op {
        Op::Ping => Attempt::Done(Status::Ok, *request),
        _ if request.flags & flags::ONE_WAY != 0 => Attempt::Done(Status::Ok, *request),
        _ => Attempt::WouldBlock,
    });
    if request.flags & flags::ONE_WAY != 0
        && let Some(op) = Op::from_number(request.op)
        && let Some(Some(notice)) = notices.get(request.op as usize >> 8)
        && let Some(bytes) = request.bytes().get(..usize::from(request.length))
    {
        notice(from, op, bytes);
    }
    let (Served::Reply(reply) | Served::Queued(reply)) = served else { return };
    if let Some(peer) = peers::peer(from) {
        // Room for it was reserved by the request; a dead client needs none.
        let _ = peer.send(&reply);
    }
    if matches!(served, Served::Queued(_)) {
        ARRIVED.wake_one();
    }
}

/// A queued request, on a server thread.
fn serve_queued(request: &Message) {
    let from = request.from;
    let result = Op::from_number(request.op).ok_or(Errno::ENOSYS).and_then(|op| {
        let handler = HANDLERS.lock().get(request.op as usize >> 8).copied().flatten();
        handler.ok_or(Errno::ENOSYS)?(from, op, &fetch(from, request)?)
    });
    let wrapped = result.and_then(|bytes| wrap(Message::new(Kind::Completion, 0), &bytes));
    let (status, payload) = match wrapped {
        Ok((payload, bytes)) => {
            if let Some(bytes) = bytes {
                let old = ANSWERS.lock().insert((from, request.call as u32), bytes);
                drop(old);
            }
            (Status::Ok, payload)
        }
        Err(errno) => (Status::Errno(errno as u16), Message::new(Kind::Completion, 0)),
    };
    let completion = rpc::completion(request, status, &payload);
    let Some(peer) = peers::peer(from) else { return };
    while peer.send(&completion) == SendStatus::Full && member::live().contains(from) {
        hive_sync::sched::sleep_ns(RETRY_NS);
    }
}

/// Tick: calls without reply are hints, and end after a while.
fn expire() {
    if hive_hal::hart::index() != 0 {
        return;
    }
    let (mut hints, mut woken) = (Vec::new(), Vec::new());
    CALLS.lock().expire(now_us(), &mut |hint| hints.push(hint), &mut |id| woken.push(id));
    woken.into_iter().for_each(|id| ENDED[id.slot()].wake_all());
    hints.into_iter().for_each(member::suspect);
}

/// Calls towards the dead end, their requests and answers are dropped.
fn clean_up(dead: CellSet) {
    let live = member::live();
    let mut woken = Vec::new();
    CALLS.lock().verdict(live, &mut |id| woken.push(id));
    woken.into_iter().for_each(|id| ENDED[id.slot()].wake_all());
    QUEUE.lock().verdict(live);
    let mut answers = ANSWERS.lock();
    let gone: Vec<_> = answers.keys().copied().filter(|(cell, _)| dead.contains(*cell)).collect();
    let gone: Vec<_> = gone.into_iter().filter_map(|key| answers.remove(&key)).collect();
    drop(answers);
    drop(gone);
}

fn now_us() -> u64 {
    now_ns() / 1000
}

/// Bytes at an address that a [`Reference`] may have: aligned to a word.
struct Bytes(Box<[u64]>);

impl Bytes {
    fn copy(bytes: &[u8]) -> Bytes {
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Bytes(words.collect())
    }
}
