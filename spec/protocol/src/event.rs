//! What a cell shows to whoever watches the machine: each [`Event`] is both a mark (a HINT
//! instruction, see `hive_platform::mark`) with one argument word, and a line of the *time line*
//! on the cell's console. Formatter and parser of that line are both here.
//!
//! A line reads `hive: SECONDS cell N EVENT key=value ..`, SECONDS being the `time` CSR with
//! seven decimals (its 100 ns resolution):
//!
//! `hive: 0.0123456 cell 2 hint accused=1 reason=clock-stopped`

use core::fmt;

use hive_platform::TIMEBASE_HZ;

use crate::{CellId, CellSet, Incarnation, Pid, death::Cause, membership::Reason};

/// What happened. The mark's argument is named for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The cell runs. Mark: its incarnation.
    Booted {
        /// Its life.
        incarnation: Incarnation,
    },
    /// A check of this cell raised a hint. Mark: accused | reason << 8.
    Hint {
        /// Whom it blames.
        accused: CellId,
        /// Which check.
        reason: Reason,
    },
    /// User processes are suspended and agreement runs. Mark: the round.
    Suspended {
        /// The round of agreement.
        round: u64,
    },
    /// This cell's own probe is done. Mark: accused | guilty << 8.
    Voted {
        /// Who was probed.
        accused: CellId,
        /// Whether the probe says that it failed.
        guilty: bool,
    },
    /// This cell wrote its vote word. Mark: the cells it names.
    VoteWord {
        /// The cells named.
        cells: CellSet,
    },
    /// An accusation failed. Mark: accused.
    VotedDown {
        /// Who was accused.
        accused: CellId,
    },
    /// Agreement is done. Mark: the live set.
    Agreed {
        /// The epoch: deaths agreed on since power-on.
        epoch: u32,
        /// Who lives.
        live: CellSet,
    },
    /// Recovery entered. Mark: the epoch.
    Recovery {
        /// The epoch.
        epoch: u32,
    },
    /// A global barrier was passed. Mark: epoch | number << 32.
    Barrier {
        /// 1 or 2.
        number: u8,
        /// The epoch.
        epoch: u32,
    },
    /// A process was killed because it lost state. Mark: the process id.
    Killed {
        /// The process.
        pid: Pid,
        /// The state it lost.
        lost: Lost,
    },
    /// User processes run again. Mark: the epoch.
    Resumed {
        /// The epoch.
        epoch: u32,
    },
    /// This cell is recovery master. Mark: the epoch.
    Master {
        /// The epoch.
        epoch: u32,
    },
    /// The recovery master's report on a failed cell. Mark: cell | usable << 8.
    Diagnosed {
        /// The failed cell.
        cell: CellId,
        /// Whether its hardware passed.
        usable: bool,
    },
    /// The cell panics; its death record is complete. Mark: the cause.
    Panic {
        /// Why.
        cause: Cause,
    },
    /// A task of the workload began. Mark: the task.
    TaskStarted {
        /// Its number.
        task: u64,
    },
    /// A task of the workload ended well. Mark: the task.
    TaskDone {
        /// Its number.
        task: u64,
    },
    /// A task of the workload was lost. Mark: the task.
    TaskLost {
        /// Its number.
        task: u64,
    },
}

/// The state a process could not do without (DESIGN §4, Recovery).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Lost {
    /// One of its threads ran on the dead cell.
    Thread = 1,
    /// A kernel object of the process was on the dead cell.
    KernelObject = 2,
    /// An anonymous or private page that cannot be fetched again.
    Page = 3,
    /// Its terminal, pipe end or other unrecoverable file was on the dead cell.
    File = 4,
}

impl Lost {
    const ALL: [Lost; 4] = [Lost::Thread, Lost::KernelObject, Lost::Page, Lost::File];

    /// The word used on consoles.
    pub const fn name(self) -> &'static str {
        match self {
            Lost::Thread => "thread",
            Lost::KernelObject => "kernel-object",
            Lost::Page => "page",
            Lost::File => "file",
        }
    }
}

/// Mark codes. Codes from [`mark::USER`] on are free for user programs.
pub mod mark {
    /// [`super::Event::Booted`].
    pub const BOOTED: u16 = 1;
    /// [`super::Event::Hint`].
    pub const HINT: u16 = 2;
    /// [`super::Event::Suspended`].
    pub const SUSPENDED: u16 = 3;
    /// [`super::Event::Voted`].
    pub const VOTED: u16 = 4;
    /// [`super::Event::VoteWord`].
    pub const VOTE_WORD: u16 = 5;
    /// [`super::Event::VotedDown`].
    pub const VOTED_DOWN: u16 = 6;
    /// [`super::Event::Agreed`].
    pub const AGREED: u16 = 7;
    /// [`super::Event::Recovery`].
    pub const RECOVERY: u16 = 8;
    /// [`super::Event::Barrier`] 1.
    pub const BARRIER1: u16 = 9;
    /// [`super::Event::Barrier`] 2.
    pub const BARRIER2: u16 = 10;
    /// [`super::Event::Killed`].
    pub const KILLED: u16 = 11;
    /// [`super::Event::Resumed`].
    pub const RESUMED: u16 = 12;
    /// [`super::Event::Master`].
    pub const MASTER: u16 = 13;
    /// [`super::Event::Diagnosed`].
    pub const DIAGNOSED: u16 = 14;
    /// [`super::Event::Panic`].
    pub const PANIC: u16 = 15;
    /// [`super::Event::TaskStarted`].
    pub const TASK_STARTED: u16 = 64;
    /// [`super::Event::TaskDone`].
    pub const TASK_DONE: u16 = 65;
    /// [`super::Event::TaskLost`].
    pub const TASK_LOST: u16 = 66;
    /// First code for user programs.
    pub const USER: u16 = 1024;
}

impl Event {
    /// Mark code and argument.
    pub const fn mark(&self) -> (u16, u64) {
        match *self {
            Event::Booted { incarnation } => (mark::BOOTED, incarnation.0 as u64),
            Event::Hint { accused, reason } => {
                (mark::HINT, accused.index() as u64 | (reason as u64) << 8)
            }
            Event::Suspended { round } => (mark::SUSPENDED, round),
            Event::Voted { accused, guilty } => {
                (mark::VOTED, accused.index() as u64 | (guilty as u64) << 8)
            }
            Event::VoteWord { cells } => (mark::VOTE_WORD, cells.0),
            Event::VotedDown { accused } => (mark::VOTED_DOWN, accused.index() as u64),
            Event::Agreed { epoch: _, live } => (mark::AGREED, live.0),
            Event::Recovery { epoch } => (mark::RECOVERY, epoch as u64),
            Event::Barrier { number: 1, epoch } => (mark::BARRIER1, epoch as u64 | 1 << 32),
            Event::Barrier { number, epoch } => {
                (mark::BARRIER2, epoch as u64 | (number as u64) << 32)
            }
            Event::Killed { pid, lost: _ } => (mark::KILLED, pid.raw() as u64),
            Event::Resumed { epoch } => (mark::RESUMED, epoch as u64),
            Event::Master { epoch } => (mark::MASTER, epoch as u64),
            Event::Diagnosed { cell, usable } => {
                (mark::DIAGNOSED, cell.index() as u64 | (usable as u64) << 8)
            }
            Event::Panic { cause } => (mark::PANIC, cause as u64),
            Event::TaskStarted { task } => (mark::TASK_STARTED, task),
            Event::TaskDone { task } => (mark::TASK_DONE, task),
            Event::TaskLost { task } => (mark::TASK_LOST, task),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Booted { incarnation } => write!(f, "booted incarnation={}", incarnation.0),
            Event::Hint { accused, reason } => {
                write!(f, "hint accused={accused} reason={}", reason.name())
            }
            Event::Suspended { round } => write!(f, "suspended round={round}"),
            Event::Voted { accused, guilty } => {
                write!(f, "voted accused={accused} guilty={guilty}")
            }
            Event::VoteWord { cells } => write!(f, "vote-word cells={:#x}", cells.0),
            Event::VotedDown { accused } => write!(f, "voted-down accused={accused}"),
            Event::Agreed { epoch, live } => write!(f, "agreed epoch={epoch} live={:#x}", live.0),
            Event::Recovery { epoch } => write!(f, "recovery epoch={epoch}"),
            Event::Barrier { number, epoch } => write!(f, "barrier number={number} epoch={epoch}"),
            Event::Killed { pid, lost } => write!(f, "killed pid={pid} lost={}", lost.name()),
            Event::Resumed { epoch } => write!(f, "resumed epoch={epoch}"),
            Event::Master { epoch } => write!(f, "master epoch={epoch}"),
            Event::Diagnosed { cell, usable } => write!(f, "diagnosed cell={cell} usable={usable}"),
            Event::Panic { cause } => write!(f, "panic cause={}", cause.name()),
            Event::TaskStarted { task } => write!(f, "task-started task={task}"),
            Event::TaskDone { task } => write!(f, "task-done task={task}"),
            Event::TaskLost { task } => write!(f, "task-lost task={task}"),
        }
    }
}

impl Event {
    /// Reads what [`fmt::Display`] wrote.
    fn parse(text: &str) -> Option<Event> {
        let (name, fields) = text.split_once(' ')?;
        let get = |key: &str| {
            fields.split(' ').find_map(|field| {
                let (k, value) = field.split_once('=')?;
                (k == key).then_some(value)
            })
        };
        let num = |key: &str| get(key)?.parse::<u64>().ok();
        let small = |key: &str| get(key)?.parse::<u32>().ok();
        let cell = |key: &str| CellId::new(get(key)?.parse().ok()?);
        let yes = |key: &str| get(key)?.parse::<bool>().ok();
        let set =
            |key: &str| u64::from_str_radix(get(key)?.strip_prefix("0x")?, 16).ok().map(CellSet);
        Some(match name {
            "booted" => {
                Event::Booted { incarnation: Incarnation(get("incarnation")?.parse().ok()?) }
            }
            "hint" => Event::Hint {
                accused: cell("accused")?,
                reason: Reason::from_name(get("reason")?)?,
            },
            "suspended" => Event::Suspended { round: num("round")? },
            "voted" => Event::Voted { accused: cell("accused")?, guilty: yes("guilty")? },
            "vote-word" => Event::VoteWord { cells: set("cells")? },
            "voted-down" => Event::VotedDown { accused: cell("accused")? },
            "agreed" => Event::Agreed { epoch: small("epoch")?, live: set("live")? },
            "recovery" => Event::Recovery { epoch: small("epoch")? },
            "barrier" => {
                Event::Barrier { number: get("number")?.parse().ok()?, epoch: small("epoch")? }
            }
            "killed" => {
                let lost = get("lost")?;
                Event::Killed {
                    pid: Pid::from_raw(get("pid")?.parse().ok()?)?,
                    lost: Lost::ALL.into_iter().find(|l| l.name() == lost)?,
                }
            }
            "resumed" => Event::Resumed { epoch: small("epoch")? },
            "master" => Event::Master { epoch: small("epoch")? },
            "diagnosed" => Event::Diagnosed { cell: cell("cell")?, usable: yes("usable")? },
            "panic" => Event::Panic { cause: Cause::from_name(get("cause")?)? },
            "task-started" => Event::TaskStarted { task: num("task")? },
            "task-done" => Event::TaskDone { task: num("task")? },
            "task-lost" => Event::TaskLost { task: num("task")? },
            _ => return None,
        })
    }
}

/// A line of the time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `time` CSR: units of 1 / [`TIMEBASE_HZ`] s.
    pub time: u64,
    /// The cell that says so.
    pub cell: CellId,
    /// What happened.
    pub event: Event,
}

const PREFIX: &str = "hive: ";
const DECIMALS: usize = 7;
const _: () = assert!(10u64.pow(DECIMALS as u32) == TIMEBASE_HZ);

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.time / TIMEBASE_HZ, self.time % TIMEBASE_HZ);
        write!(f, "{PREFIX}{seconds}.{rest:0DECIMALS$} cell {} {}", self.cell, self.event)
    }
}

impl Entry {
    /// Finds an entry in a line of console output; whatever stands before it is skipped (another
    /// program may have left a line unfinished). `None` if the line is not of the time line.
    pub fn parse(line: &str) -> Option<Entry> {
        let line = line.trim_end();
        let start = line.find(PREFIX)? + PREFIX.len();
        let (time, rest) = line.get(start..)?.split_once(" cell ")?;
        let (cell, event) = rest.split_once(' ')?;
        let (seconds, decimals) = time.split_once('.')?;
        if decimals.len() != DECIMALS {
            return None;
        }
        let seconds: u64 = seconds.parse().ok()?;
        let time = seconds.checked_mul(TIMEBASE_HZ)?.checked_add(decimals.parse().ok()?)?;
        Some(Entry { time, cell: CellId::new(cell.parse().ok()?)?, event: Event::parse(event)? })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    fn all() -> [Event; 18] {
        let accused = CellId::of(1);
        let live = CellSet(0b1101);
        let pid = Pid::new(accused, Incarnation(2), 3).unwrap();
        [
            Event::Booted { incarnation: Incarnation(2) },
            Event::Hint { accused, reason: Reason::ClockStopped },
            Event::Suspended { round: 5 },
            Event::Voted { accused, guilty: true },
            Event::VoteWord { cells: live },
            Event::VotedDown { accused },
            Event::Agreed { epoch: 1, live },
            Event::Recovery { epoch: 1 },
            Event::Barrier { number: 1, epoch: 7 },
            Event::Barrier { number: 2, epoch: 7 },
            Event::Killed { pid, lost: Lost::Page },
            Event::Resumed { epoch: 1 },
            Event::Master { epoch: 1 },
            Event::Diagnosed { cell: accused, usable: false },
            Event::Panic { cause: Cause::Panic },
            Event::TaskStarted { task: 1 },
            Event::TaskDone { task: 2 },
            Event::TaskLost { task: 3 },
        ]
    }

    #[test]
    fn every_event_round_trips_through_its_line() {
        for event in all() {
            let entry = Entry { time: 123_456, cell: CellId::of(2), event };
            let line = entry.to_string();
            assert_eq!(Entry::parse(&line), Some(entry), "{line}");
            assert_eq!(Entry::parse(&std::format!("$ ls{line}\r\n")), Some(entry));
        }
    }

    #[test]
    fn golden_line() {
        let event = Event::Hint { accused: CellId::of(1), reason: Reason::ClockStopped };
        let entry = Entry { time: 123_456, cell: CellId::of(2), event };
        let line = "hive: 0.0123456 cell 2 hint accused=1 reason=clock-stopped";
        assert_eq!(entry.to_string(), line);
        for bad in ["", "hive: ", "hive: 1 cell 2 x", "hive: 0.0123456 cell 64 resumed epoch=1"] {
            assert_eq!(Entry::parse(bad), None);
        }
    }

    #[test]
    fn mark_codes_differ() {
        let mut codes: std::vec::Vec<u16> = all().iter().map(|event| event.mark().0).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all().len());
        assert!(codes.iter().all(|code| *code < mark::USER));
    }
}
