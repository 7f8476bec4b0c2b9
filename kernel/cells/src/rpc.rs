//! Intercell RPC (Hive §6) without the hardware: which calls are under way, what an arriving line
//! means, what a server does with a request.
//!
//! A call is a request line, answered at interrupt level by a reply line. What may block is
//! answered "queued" and ended by a completion line from a server process. SIPS is reliable, so
//! nothing is sent twice and nothing needs to be recognized as a repetition; but a call can end
//! before its answer comes (the server's cell is declared dead, the client gives up), so late
//! answers must be recognized: a call id is a slot and the slot's generation.
//!
//! Why no cycle of cells can wait for each other: a request is always taken off its queue at
//! interrupt level, at once: served, queued or refused ("busy"), never left. A reply has its room
//! reserved: no cell has more than [`RPC_UNANSWERED`] requests without reply at another, as many as
//! the reply queue holds, so a reply is never refused. A completion is sent by a process, which can
//! wait for room; its receiver takes it off at interrupt level and sends nothing.
//!
//! Data that does not fit a line stays in its owner's memory and is read from there by careful
//! reference; nobody writes another cell's memory. So the memory behind a request must stay as it
//! is while its slot is taken, even after the client gave up: [`Calls::in_use`].
//!
//! Absent: retransmission, duplicate suppression, fragmentation (Hive §6 says why).

use hive_protocol::rpc::{Op, Status, flags};
use hive_protocol::{CellId, CellSet, Kind, MAX_CELLS, Message};

use crate::hint::Hint;
use crate::limits::{RPC_CALLS, RPC_GIVE_UP_US, RPC_SPIN_US, RPC_TIMEOUT_US, RPC_UNANSWERED};
use hive_protocol::membership::Reason;

/// Names a call within its client cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(u64);

impl CallId {
    /// As it goes on the wire: generation in the high half, slot in the low. Never 0.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Its slot, below the size of the table: the index of what the caller keeps per call.
    pub const fn slot(self) -> usize {
        self.0 as u32 as usize
    }
}

/// Why a call cannot begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The cell is not live.
    Dead,
    /// Too many requests to that cell have no reply yet: wait for one.
    Unanswered,
    /// The table is full: wait for a call to end.
    Full,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this reply or completion.
    Answer(Message),
    /// The server's cell was removed from the live set.
    Dead,
    /// No answer for [`RPC_GIVE_UP_US`], though the cell is still held to be live.
    TimedOut,
}

/// How a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The call ended; it is out of the table.
    Done(Outcome),
    /// Look again at once.
    Spin,
    /// Give up the hart; wake when the call ends.
    Block,
}

/// What an arriving reply or completion meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The call ended: wake its client.
    Ended(CallId),
    /// The server queued it: the client should block.
    Queued(CallId),
    /// Nobody waits for it any more; dropped. Its memory may now be used again.
    Late,
    /// No call of ours is meant, or the answer makes no sense: dropped, and a failed check.
    Bogus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// The client waits: for a reply if one is due, else for the completion.
    Waiting,
    /// Ended; the client has not looked yet.
    Ended(Outcome),
    /// The client is gone; something is still to come.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    to: CellId,
    op: u16,
    /// When it was sent, in microseconds.
    since: u64,
    /// A hint was raised over it.
    hinted: bool,
    /// A reply is still to come, for which room is reserved.
    reply_due: bool,
    /// The completion came. It may overtake the reply, which is in the other queue.
    completed: bool,
    state: State,
}

impl Slot {
    const fn id(&self, index: usize) -> CallId {
        CallId((self.generation as u64) << 32 | index as u64)
    }

    /// The state once the client looks no more: taken as long as anything is still to come.
    const fn left_by_client(&self) -> State {
        match self.state {
            State::Ended(Outcome::Dead) => State::Free,
            State::Ended(Outcome::Answer(_)) if !self.reply_due => State::Free,
            State::Free => State::Free,
            _ => State::Abandoned,
        }
    }
}

/// The calls of one cell to others.
#[derive(Debug)]
pub struct Calls<const SLOTS: usize = RPC_CALLS> {
    slots: [Slot; SLOTS],
    live: CellSet,
    unanswered: [u8; MAX_CELLS],
    /// Where to look for a free slot first.
    next: usize,
}

impl<const SLOTS: usize> Calls<SLOTS> {
    /// No call under way.
    pub const fn new(live: CellSet) -> Self {
        let slot = Slot {
            generation: 1,
            to: CellId::of(0),
            op: 0,
            since: 0,
            hinted: false,
            reply_due: false,
            completed: false,
            state: State::Free,
        };
        Calls { slots: [slot; SLOTS], live, unanswered: [0; MAX_CELLS], next: 0 }
    }

    /// Begins a call: the message still lacks sender, receiver and their lives. If the send is
    /// then answered "full" or "dead", take the call back with [`Calls::retract`].
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn begin(
        &mut self,
        to: CellId,
        op: Op,
        payload: &Message,
        now_us: u64,
    ) -> Result<(CallId, Message), Refused> {
        if !self.live.contains(to) {
            return Err(Refused::Dead);
        }
        let unanswered = self.unanswered.get_mut(to.index()).ok_or(Refused::Dead)?;
        if usize::from(*unanswered) >= RPC_UNANSWERED {
            return Err(Refused::Unanswered);
        }
        let order = (self.next..SLOTS).chain(0..self.next);
        let free = order.into_iter().find(|i| self.slots[*i].state == State::Free);
        let index = free.ok_or(Refused::Full)?;
        self.next = (index + 1) % SLOTS;
        *unanswered += 1;
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        (slot.to, slot.op, slot.since) = (to, op as u16, now_us);
        (slot.hinted, slot.reply_due, slot.completed) = (false, true, false);
        slot.state = State::Waiting;
        let id = slot.id(index);
        let request = Message { kind: Kind::Request, op: op as u16, to, call: id.0, ..*payload };
        Ok((id, request))
    }

    /// The request was never delivered: the call never was.
    pub fn retract(&mut self, id: CallId) {
        let slot = self.slot(id.0).and_then(|index| self.slots.get_mut(index));
        if let Some(slot) = slot {
            let (to, due) = (slot.to, slot.reply_due);
            slot.state = State::Free;
            if due {
                self.answered(to);
            }
        }
    }

    /// A reply or completion came from `message.from` (checked by [`Message::decode`]).
    pub fn arrive(&mut self, message: &Message) -> Arrival {
        if !self.live.contains(message.from) {
            return Arrival::Late;
        }
        let Some(index) = self.slot(message.call) else { return self.unknown(message) };
        let Some(slot) = self.slots.get_mut(index) else { return Arrival::Bogus };
        let queued = match Status::from_number(message.status) {
            Some(status) => status == Status::Queued,
            None => return Arrival::Bogus,
        };
        let reply = message.kind == Kind::Reply;
        // A reply comes once; a completion comes once, and not after a final reply.
        let expected = if reply {
            slot.reply_due && (queued || !slot.completed)
        } else {
            !slot.completed && !queued && !matches!(slot.state, State::Ended(Outcome::Answer(_)))
        };
        if !expected || slot.to != message.from || slot.op != message.op {
            return Arrival::Bogus;
        }
        if reply {
            slot.reply_due = false;
        } else {
            slot.completed = true;
        }
        let last = if queued { slot.completed } else { !slot.reply_due };
        let id = CallId(message.call);
        let arrival = match slot.state {
            State::Waiting if queued => Arrival::Queued(id),
            State::Ended(Outcome::TimedOut) if queued => {
                slot.state = State::Waiting;
                Arrival::Queued(id)
            }
            State::Waiting | State::Ended(Outcome::TimedOut) => {
                slot.state = State::Ended(Outcome::Answer(*message));
                Arrival::Ended(id)
            }
            State::Abandoned if last => {
                slot.state = State::Free;
                Arrival::Late
            }
            State::Abandoned | State::Ended(_) | State::Free => Arrival::Late,
        };
        if reply {
            self.answered(message.from);
        }
        arrival
    }

    /// An answer to a call that is not in the table: late if its generation once was.
    fn unknown(&self, message: &Message) -> Arrival {
        let slot = self.slots.get(message.call as u32 as usize);
        let past = slot.is_some_and(|slot| {
            slot.generation.wrapping_sub((message.call >> 32) as u32) as i32 >= 0
        });
        if past && message.call >> 32 != 0 { Arrival::Late } else { Arrival::Bogus }
    }

    /// How the client of `id`, which began at `since_us`, waits now.
    pub fn wait(&mut self, id: CallId, since_us: u64, now_us: u64) -> Wait {
        let slot = self.slot(id.0).and_then(|index| self.slots.get_mut(index));
        let Some(slot) = slot else { return Wait::Done(Outcome::Dead) };
        match slot.state {
            State::Ended(outcome) => {
                slot.state = slot.left_by_client();
                Wait::Done(outcome)
            }
            _ if slot.reply_due && now_us.saturating_sub(since_us) < RPC_SPIN_US => Wait::Spin,
            _ => Wait::Block,
        }
    }

    /// The client no longer waits (a signal). The slot stays taken until all answers came.
    pub fn abandon(&mut self, id: CallId) {
        let slot = self.slot(id.0).and_then(|index| self.slots.get_mut(index));
        if let Some(slot) = slot {
            slot.state = slot.left_by_client();
        }
    }

    /// Whether the server may still read memory that this call passed by reference.
    pub fn in_use(&self, id: CallId) -> bool {
        let slot = self.slot(id.0).and_then(|index| self.slots.get(index));
        slot.is_some_and(|slot| match slot.state {
            State::Waiting | State::Ended(Outcome::TimedOut) => true,
            State::Abandoned => !slot.completed,
            State::Free | State::Ended(_) => false,
        })
    }

    /// Called at each tick: hints for calls that got no reply in time, once each, and the end of
    /// those given up. `woken` is called for each call that ended.
    pub fn expire(
        &mut self,
        now_us: u64,
        hint: &mut impl FnMut(Hint),
        woken: &mut impl FnMut(CallId),
    ) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            // A queued call may take as long as a disk or a terminal: the server's cell is
            // watched by its clock words meanwhile.
            if slot.state == State::Free || !slot.reply_due || slot.completed {
                continue;
            }
            let late = now_us.saturating_sub(slot.since);
            if late >= RPC_TIMEOUT_US && !slot.hinted {
                slot.hinted = true;
                hint(Hint { accused: slot.to, reason: Reason::RpcTimeout, address: 0 });
            }
            if late >= RPC_GIVE_UP_US && slot.state == State::Waiting {
                slot.state = State::Ended(Outcome::TimedOut);
                woken(slot.id(index));
            }
        }
    }

    /// A new live set: every call to a cell outside it ends. `woken` is called for each.
    pub fn verdict(&mut self, live: CellSet, woken: &mut impl FnMut(CallId)) {
        self.live = live;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if live.contains(slot.to) {
                continue;
            }
            slot.reply_due = false;
            match slot.state {
                State::Waiting => {
                    slot.state = State::Ended(Outcome::Dead);
                    woken(slot.id(index));
                }
                State::Abandoned => slot.state = State::Free,
                State::Ended(Outcome::TimedOut) => slot.state = State::Ended(Outcome::Dead),
                State::Free | State::Ended(_) => {}
            }
        }
        for (cell, count) in self.unanswered.iter_mut().enumerate() {
            if !live.contains(CellId::of(cell)) {
                *count = 0;
            }
        }
    }

    /// The slot that call id `word` names, if that call is in the table.
    fn slot(&self, word: u64) -> Option<usize> {
        let index = word as u32 as usize;
        let slot = self.slots.get(index)?;
        let same = u64::from(slot.generation) == word >> 32;
        (same && slot.state != State::Free).then_some(index)
    }

    fn answered(&mut self, cell: CellId) {
        if let Some(count) = self.unanswered.get_mut(cell.index()) {
            *count = count.saturating_sub(1);
        }
    }
}

/// What the interrupt-level attempt at a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Served: the reply's status and payload (as [`Message::with_words`] or
    /// [`Message::with_bytes`] make it).
    Done(Status, Message),
    /// It would have to wait: a server process must do it.
    WouldBlock,
}

/// What to do with a request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Send this reply.
    Reply(Message),
    /// Send this reply ("queued") and wake a server process.
    Queued(Message),
    /// Send nothing.
    Nothing,
}

/// Requests waiting for a server process.
#[derive(Debug)]
pub struct Queue<const SLOTS: usize> {
    ring: [Option<Message>; SLOTS],
    head: usize,
    length: usize,
    /// Requests waiting, by client: a flooding cell gets no more than its share.
    waiting: [u16; MAX_CELLS],
}

impl<const SLOTS: usize> Queue<SLOTS> {
    /// An empty queue.
    pub const fn new() -> Self {
        Queue { ring: [None; SLOTS], head: 0, length: 0, waiting: [0; MAX_CELLS] }
    }

    /// Most requests of one client that may wait: half of the queue.
    pub const SHARE: usize = if SLOTS < 2 { 1 } else { SLOTS / 2 };

    /// Serves a request at interrupt level, best effort: `attempt` must not wait; if it says
    /// that it would have to, the request is queued.
    pub fn serve(
        &mut self,
        request: &Message,
        attempt: impl FnOnce(Op, &Message) -> Attempt,
    ) -> Served {
        let one_way = request.flags & flags::ONE_WAY != 0;
        let answer = |status| {
            let reply = reply(request, status, &Message::new(Kind::Reply, 0));
            if one_way { Served::Nothing } else { Served::Reply(reply) }
        };
        let Some(op) = Op::from_number(request.op) else { return answer(Status::NoSuchOp) };
        if request.flags & flags::QUEUE == 0 || one_way {
            match attempt(op, request) {
                Attempt::Done(_, _) if one_way => return Served::Nothing,
                Attempt::Done(status, payload) => {
                    return Served::Reply(reply(request, status, &payload));
                }
                Attempt::WouldBlock => {}
            }
        }
        if !self.push(request) {
            return answer(Status::Busy);
        }
        match answer(Status::Queued) {
            Served::Reply(reply) => Served::Queued(reply),
            other => other,
        }
    }

    fn push(&mut self, request: &Message) -> bool {
        let Some(waiting) = self.waiting.get_mut(request.from.index()) else { return false };
        if self.length >= SLOTS || usize::from(*waiting) >= Self::SHARE {
            return false;
        }
        *waiting += 1;
        self.ring[(self.head + self.length) % SLOTS] = Some(*request);
        self.length += 1;
        true
    }

    /// The next request for a server process.
    pub fn take(&mut self) -> Option<Message> {
        while self.length > 0 {
            let request = self.ring[self.head].take();
            self.head = (self.head + 1) % SLOTS;
            self.length -= 1;
            if let Some(request) = request {
                if let Some(waiting) = self.waiting.get_mut(request.from.index()) {
                    *waiting = waiting.saturating_sub(1);
                }
                return Some(request);
            }
        }
        None
    }

    /// A new live set: requests of the dead are dropped. What a server process has taken ends
    /// as usual; its completion finds the client dead.
    pub fn verdict(&mut self, live: CellSet) {
        for slot in &mut self.ring {
            if slot.is_some_and(|request| !live.contains(request.from)) {
                *slot = None;
            }
        }
        for cell in 0..MAX_CELLS {
            if !live.contains(CellId::of(cell)) {
                self.waiting[cell] = 0;
            }
        }
    }
}

impl<const SLOTS: usize> Default for Queue<SLOTS> {
    fn default() -> Self {
        Self::new()
    }
}

/// The reply to `request`: status and payload; sender and lives are the request's, turned round.
pub const fn reply(request: &Message, status: Status, payload: &Message) -> Message {
    answer(Kind::Reply, request, status, payload)
}

/// The completion of the queued `request`.
pub const fn completion(request: &Message, status: Status, payload: &Message) -> Message {
    answer(Kind::Completion, request, status, payload)
}

const fn answer(kind: Kind, request: &Message, status: Status, payload: &Message) -> Message {
    Message {
        kind,
        op: request.op,
        from: request.to,
        from_incarnation: request.to_incarnation,
        to: request.from,
        to_incarnation: request.from_incarnation,
        flags: payload.flags & flags::BY_REFERENCE,
        status: status.number(),
        call: request.call,
        length: payload.length,
        payload: payload.payload,
    }
}

#[cfg(test)]
mod tests;
