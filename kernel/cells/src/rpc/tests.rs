//! Calls, late answers, limits; and a small network of cells with bounded queues in which calls
//! of every kind must end, whatever dies and whoever gives up.

use super::*;
use hive_platform::controller::SIPS_DEPTH;
use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

const NOTHING: Message = Message::new(Kind::Request, 0);

fn cell(n: usize) -> CellId {
    CellId::of(n)
}

fn calls() -> Calls<4> {
    Calls::new(CellSet::first(3))
}

fn answered(request: &Message, status: Status) -> Message {
    let mut m = reply(request, status, &NOTHING.with_words(&[7]));
    m.from = request.to;
    m
}

#[test]
fn a_call_ends_with_its_reply_and_spins_first() {
    let mut calls = calls();
    let (id, request) = calls.begin(cell(1), Op::Ping, &NOTHING, 100).unwrap();
    assert_eq!((request.kind, request.call), (Kind::Request, id.word()));
    assert_eq!(calls.wait(id, 100, 101), Wait::Spin);
    assert_eq!(calls.wait(id, 100, 100 + RPC_SPIN_US), Wait::Block);
    let reply = answered(&request, Status::Ok);
    assert_eq!(calls.arrive(&reply), Arrival::Ended(id));
    assert_eq!(calls.wait(id, 100, 103), Wait::Done(Outcome::Answer(reply)));
    // A second answer to the same call is nobody's.
    assert_eq!(calls.arrive(&reply), Arrival::Late);
}

#[test]
fn a_queued_call_blocks_until_its_completion() {
    let mut calls = calls();
    let (id, request) = calls.begin(cell(1), Op::FileRead, &NOTHING, 0).unwrap();
    assert_eq!(calls.arrive(&answered(&request, Status::Queued)), Arrival::Queued(id));
    assert_eq!(calls.wait(id, 0, 2), Wait::Block);
    assert_eq!(calls.arrive(&answered(&request, Status::Ok)), Arrival::Bogus);
    calls.expire(10 * RPC_GIVE_UP_US, &mut |_| panic!("no hint while queued"), &mut |_| ());
    let end = completion(&request, Status::Ok, &NOTHING);
    assert_eq!(calls.arrive(&end), Arrival::Ended(id));
    assert_eq!(calls.arrive(&end), Arrival::Bogus);
    assert_eq!(calls.wait(id, 0, 4), Wait::Done(Outcome::Answer(end)));
}

/// The two travel in different queues.
#[test]
fn a_completion_may_overtake_its_reply() {
    let mut calls = calls();
    let (id, request) = calls.begin(cell(1), Op::FileRead, &NOTHING, 0).unwrap();
    let end = completion(&request, Status::Ok, &NOTHING);
    assert_eq!(calls.arrive(&end), Arrival::Ended(id));
    assert_eq!(calls.wait(id, 0, 1), Wait::Done(Outcome::Answer(end)));
    assert_eq!(calls.arrive(&answered(&request, Status::Ok)), Arrival::Bogus);
    assert_eq!(calls.arrive(&answered(&request, Status::Queued)), Arrival::Late);
    assert_eq!(calls.slot(id.word()), None);
    assert_eq!(calls.unanswered[1], 0);
}

#[test]
fn answers_from_elsewhere_are_bogus() {
    let mut calls = calls();
    let (id, request) = calls.begin(cell(1), Op::Ping, &NOTHING, 0).unwrap();
    let good = answered(&request, Status::Ok);
    for bad in [
        Message { from: cell(2), ..good },
        Message { op: Op::Sync as u16, ..good },
        Message { status: 5000, ..good },
        Message { call: good.call + 1, ..good },
        Message { call: good.call + (1 << 32), ..good },
        Message { call: 0, ..good },
        Message { call: u64::MAX, ..good },
    ] {
        assert_eq!(calls.arrive(&bad), Arrival::Bogus, "{bad:?}");
    }
    assert_eq!(calls.arrive(&good), Arrival::Ended(id));
}

#[test]
fn limits_hold_and_memory_stays_pinned_until_the_late_answer() {
    let mut calls = Calls::<64>::new(CellSet::first(3));
    let begun: Vec<_> = (0..RPC_UNANSWERED)
        .map(|_| calls.begin(cell(1), Op::FileWrite, &NOTHING, 0).unwrap())
        .collect();
    let more = |calls: &mut Calls<64>, to| calls.begin(to, Op::Ping, &NOTHING, 0).map(|_| ());
    assert_eq!(more(&mut calls, cell(1)), Err(Refused::Unanswered));
    assert_eq!(more(&mut calls, cell(3)), Err(Refused::Dead));
    assert_eq!(more(&mut calls, cell(2)), Ok(()));
    let (id, request) = begun[0];
    calls.abandon(id);
    assert!(calls.in_use(id));
    assert_eq!(more(&mut calls, cell(1)), Err(Refused::Unanswered));
    assert_eq!(calls.arrive(&answered(&request, Status::Queued)), Arrival::Late);
    assert!(calls.in_use(id));
    assert_eq!(more(&mut calls, cell(1)), Ok(()));
    assert_eq!(calls.arrive(&completion(&request, Status::Ok, &NOTHING)), Arrival::Late);
    assert!(!calls.in_use(id));
}

#[test]
fn silence_is_a_hint_once_then_a_timeout() {
    let mut calls = calls();
    let (id, request) = calls.begin(cell(1), Op::Ping, &NOTHING, 0).unwrap();
    let (mut hints, mut woken) = (Vec::new(), Vec::new());
    for now in [1, RPC_TIMEOUT_US, RPC_TIMEOUT_US + 1, RPC_GIVE_UP_US] {
        calls.expire(now, &mut |h| hints.push((now, h.accused)), &mut |id| woken.push(id));
    }
    assert_eq!(hints, [(RPC_TIMEOUT_US, cell(1))]);
    assert_eq!(woken, [id]);
    assert_eq!(calls.wait(id, 0, RPC_GIVE_UP_US), Wait::Done(Outcome::TimedOut));
    assert!(calls.in_use(id));
    assert_eq!(calls.arrive(&answered(&request, Status::Ok)), Arrival::Late);
    assert!(!calls.in_use(id));
}

#[test]
fn calls_to_a_dead_cell_end_with_dead() {
    let mut calls = calls();
    let (first, request) = calls.begin(cell(1), Op::Ping, &NOTHING, 0).unwrap();
    let (second, _) = calls.begin(cell(2), Op::Ping, &NOTHING, 0).unwrap();
    let mut woken = Vec::new();
    calls.verdict(CellSet(0b101), &mut |id| woken.push(id));
    assert_eq!(woken, [first]);
    assert_eq!(calls.wait(first, 0, 0), Wait::Done(Outcome::Dead));
    assert_eq!(calls.wait(second, 0, 0), Wait::Spin);
    assert_eq!(calls.arrive(&answered(&request, Status::Ok)), Arrival::Late);
}

#[test]
fn best_effort_falls_back_to_the_queue_and_a_flood_gets_its_share() {
    let mut queue = Queue::<4>::new();
    let request = |from| Message { from: cell(from), op: Op::FileRead as u16, ..NOTHING };
    let serve = |queue: &mut Queue<4>, m: &Message, attempt| queue.serve(m, |_, _| attempt);
    let status = |served| match served {
        Served::Reply(m) | Served::Queued(m) => Status::from_number(m.status),
        Served::Nothing => None,
    };
    let done = Attempt::Done(Status::Errno(2), NOTHING);
    assert_eq!(status(serve(&mut queue, &request(1), done)), Some(Status::Errno(2)));
    let strange = Message { op: 0xffff, ..request(1) };
    assert_eq!(status(serve(&mut queue, &strange, done)), Some(Status::NoSuchOp));
    for expected in [Status::Queued, Status::Queued, Status::Busy] {
        let served = serve(&mut queue, &request(1), Attempt::WouldBlock);
        assert_eq!(status(served), Some(expected));
    }
    let at_once = Message { flags: flags::QUEUE, ..request(2) };
    let served = queue.serve(&at_once, |_, _| panic!("asked not to try"));
    assert_eq!(status(served), Some(Status::Queued));
    let one_way = Message { flags: flags::ONE_WAY, ..request(2) };
    assert_eq!(serve(&mut queue, &one_way, done), Served::Nothing);
    queue.verdict(CellSet(0b101));
    assert_eq!(queue.take().map(|m| m.from), Some(cell(2)));
    assert_eq!(queue.take(), None);
}

/// xorshift64*: the same search for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

const CELLS: usize = 3;

/// Cells that call each other over queues of [`SIPS_DEPTH`] lines per sender and class.
struct Net {
    calls: Vec<Calls<16>>,
    queues: Vec<Queue<4>>,
    /// Requests that server processes work on.
    working: Vec<Vec<Message>>,
    /// By class, receiver, sender.
    lines: BTreeMap<(Kind, usize, usize), VecDeque<Message>>,
    waiting: Vec<Vec<(CallId, usize)>>,
    live: CellSet,
    ended: [usize; 3],
}

impl Net {
    fn new() -> Net {
        let live = CellSet::first(CELLS);
        Net {
            calls: (0..CELLS).map(|_| Calls::new(live)).collect(),
            queues: (0..CELLS).map(|_| Queue::new()).collect(),
            working: (0..CELLS).map(|_| Vec::new()).collect(),
            lines: BTreeMap::new(),
            waiting: (0..CELLS).map(|_| Vec::new()).collect(),
            live,
            ended: [0; 3],
        }
    }

    fn send(&mut self, from: usize, m: Message) -> bool {
        let (class, to) = (m.kind.class(), m.to.index());
        if !self.live.contains(m.to) {
            return true;
        }
        let kind = if class == Kind::Reply.class() { Kind::Reply } else { Kind::Request };
        let queue = self.lines.entry((kind, to, from)).or_default();
        if queue.len() >= SIPS_DEPTH {
            assert_ne!(kind, Kind::Reply, "a reply found no room");
            return false;
        }
        queue.push_back(Message { from: cell(from), ..m });
        true
    }

    fn turn(&mut self, random: &mut Random, calling: bool) {
        let me = random.below(CELLS);
        if !self.live.contains(cell(me)) {
            return;
        }
        let peer = random.below(CELLS);
        match random.below(8) {
            0 if calling && peer != me => self.call(me, peer),
            1 => {
                if let Some(request) = self.queues[me].take() {
                    self.working[me].push(request);
                }
            }
            2 => self.complete(me),
            3 => self.look(me, calling && random.below(20) == 0),
            4 | 5 => self.receive(Kind::Reply, me, peer, random),
            _ => self.receive(Kind::Request, me, peer, random),
        }
    }

    fn call(&mut self, me: usize, peer: usize) {
        if let Ok((id, mut m)) = self.calls[me].begin(cell(peer), Op::FileRead, &NOTHING, 0) {
            m.from = cell(me);
            if self.send(me, m) {
                self.waiting[me].push((id, peer));
            } else {
                self.calls[me].retract(id);
            }
        }
    }

    fn complete(&mut self, me: usize) {
        let Some(request) = self.working[me].pop() else { return };
        if !self.send(me, completion(&request, Status::Ok, &NOTHING)) {
            self.working[me].push(request); // no room: the process waits
        }
    }

    fn look(&mut self, me: usize, give_up: bool) {
        let Some((id, peer)) = self.waiting[me].pop() else { return };
        match self.calls[me].wait(id, 0, RPC_SPIN_US) {
            Wait::Done(Outcome::Answer(m)) => {
                assert_eq!((m.from, m.call), (cell(peer), id.word()));
                self.ended[0] += 1;
            }
            Wait::Done(_) => self.ended[1] += 1,
            _ if give_up => {
                self.calls[me].abandon(id);
                self.ended[2] += 1;
            }
            _ => self.waiting[me].insert(0, (id, peer)),
        }
    }

    fn receive(&mut self, kind: Kind, me: usize, peer: usize, random: &mut Random) {
        let queue = self.lines.entry((kind, me, peer)).or_default();
        let Some(m) = queue.pop_front() else { return };
        if m.kind != Kind::Request {
            let arrival = self.calls[me].arrive(&m);
            return assert_ne!(arrival, Arrival::Bogus, "{m:?}");
        }
        let attempt = match random.below(2) {
            0 => Attempt::Done(Status::Ok, NOTHING),
            _ => Attempt::WouldBlock,
        };
        match self.queues[me].serve(&m, |_, _| attempt) {
            Served::Reply(reply) | Served::Queued(reply) => assert!(self.send(me, reply)),
            Served::Nothing => {}
        }
    }

    fn die(&mut self, dead: usize) {
        self.live = self.live.without(cell(dead));
        self.waiting[dead].clear();
        self.lines.retain(|(_, to, _), _| *to != dead);
        for other in self.live.iter() {
            self.calls[other.index()].verdict(self.live, &mut |_| ());
            self.queues[other.index()].verdict(self.live);
        }
    }
}

/// Every call ends, a reply always finds room, and no answer is taken for another's. Seen to fail
/// when `begin` does not count unanswered calls, when a completion is refused before its reply,
/// and when answers of a cell that was removed are not dropped.
#[test]
fn calls_of_every_kind_end_whatever_happens() {
    let mut totals = [0; 3];
    for seed in 1..=300 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut net = Net::new();
        let death = 500 + random.below(2000);
        for turn in 0..4000 {
            if turn == death && seed % 3 != 0 {
                net.die(random.below(CELLS));
            }
            net.turn(&mut random, turn < 2500);
        }
        for _ in 0..6000 {
            net.turn(&mut random, false);
        }
        for me in net.live.iter() {
            assert!(net.waiting[me.index()].is_empty(), "seed {seed}: calls never end");
        }
        totals.iter_mut().zip(net.ended).for_each(|(total, n)| *total += n);
    }
    assert!(totals.iter().all(|n| *n > 100), "{totals:?}");
}
