//! Consoles and marks become facts: who noticed, what was agreed, which tasks ended.
//!
//! Times are the machine's own (marks); what the kernels print of the same events is kept beside
//! them, and the report checks one against the other.

use super::{Tell, survivors};
use crate::lab::Lab;
use hive_machine::bus::Mark;
use hive_protocol::CellSet;
use hive_protocol::event::{Entry, Event};
use std::collections::{BTreeMap, BTreeSet};

/// One heartbeat process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Its process id; a second one would be another process.
    pub pid: u64,
    /// Its counter, when last heard.
    pub count: u64,
    /// Every line so far had this pid and the next count.
    pub unbroken: bool,
}

/// What is known of one cell.
#[derive(Clone, Debug, Default)]
struct Cell {
    drivers: usize,
    finished: usize,
    missing: u64,
    heartbeat: Option<Heartbeat>,
    resumed: bool,
}

/// See the module head.
pub struct Watch {
    cells: Vec<Cell>,
    /// Time line as printed, in order of reading.
    pub entries: Vec<Entry>,
    /// Marks of the kernels, in order of cycles.
    pub marks: Vec<Mark>,
    /// Names of tasks that ended with a status other than 0.
    pub failures: Vec<String>,
    ended: BTreeSet<String>,
    begun: BTreeMap<String, usize>,
    tasks: usize,
}

impl Watch {
    pub fn new(cells: usize, tasks: usize) -> Watch {
        Watch {
            cells: vec![Cell::default(); cells],
            entries: Vec::new(),
            marks: Vec::new(),
            failures: Vec::new(),
            ended: BTreeSet::new(),
            begun: BTreeMap::new(),
            tasks,
        }
    }

    /// Takes in what was shown since the last look.
    pub fn look(&mut self, lab: &mut Lab, tell: Tell<'_>) {
        self.marks.extend(lab.take_marks());
        lab.take_output();
        for cell in 0..self.cells.len() {
            let node = lab.node_of(cell);
            while let Some(line) = lab.console(node).take_line() {
                self.line(cell, &line, lab.now_us(), tell);
            }
        }
    }

    fn line(&mut self, cell: usize, line: &str, now_us: u64, tell: Tell<'_>) {
        if let Some(entry) = Entry::parse(line) {
            tell(entry.time / 10, &format!("cell {}: {}", entry.cell, entry.event));
            self.cells[cell].resumed |= matches!(entry.event, Event::Resumed { .. });
            self.entries.push(entry);
            return;
        }
        let Some(fact) = line.find("demo: ").map(|at| &line[at + "demo: ".len()..]) else { return };
        let words: Vec<&str> = fact.split_whitespace().collect();
        match words.as_slice() {
            ["heartbeat", "pid", pid, "count", count] => {
                let (Ok(pid), Ok(count)) = (pid.parse(), count.parse()) else { return };
                let old = self.cells[cell].heartbeat;
                let unbroken =
                    old.is_none_or(|h| h.unbroken && h.pid == pid && h.count + 1 == count);
                self.cells[cell].heartbeat = Some(Heartbeat { pid, count, unbroken });
            }
            ["start", name, "round", _] => {
                let times = self.begun.entry((*name).into()).or_default();
                *times += 1;
                let again = if *times > 1 { " again" } else { "" };
                tell(now_us, &format!("{name} begins{again}"));
            }
            ["end", name, "status", status] => {
                if *status == "0" {
                    self.ended.insert((*name).into());
                } else {
                    self.failures.push(format!("{name} on cell {cell}: status {status}"));
                }
                let count = self.ended.len();
                let total = self.tasks;
                tell(now_us, &format!("{name} ends, status {status} ({count}/{total})"));
            }
            ["finished", "missing", missing] => {
                self.cells[cell].finished += 1;
                self.cells[cell].missing += missing.parse::<u64>().unwrap_or(1);
            }
            _ => {}
        }
    }

    /// A driver was started.
    pub fn driven(&mut self, cell: usize) {
        self.cells[cell].drivers += 1;
    }

    /// Tasks that were begun more than once, and how often beyond the first time.
    pub fn reruns(&self) -> (usize, usize) {
        let again = self.begun.values().filter(|times| **times > 1);
        (again.clone().count(), again.map(|times| times - 1).sum())
    }

    /// Every survivor runs user processes again.
    pub fn all_resumed(&self, victim: usize) -> bool {
        self.survivors(victim).all(|cell| cell.resumed)
    }

    /// Every survivor's drivers are through.
    pub fn all_finished(&self, victim: usize) -> bool {
        self.survivors(victim).all(|cell| cell.finished >= cell.drivers)
    }

    /// Tasks that the survivors' drivers could not do.
    pub fn missing(&self, victim: usize) -> u64 {
        self.survivors(victim).map(|cell| cell.missing).sum()
    }

    /// The heartbeats of the survivors.
    pub fn heartbeats(&self, victim: usize) -> Vec<Option<Heartbeat>> {
        self.survivors(victim).map(|cell| cell.heartbeat).collect()
    }

    fn survivors(&self, victim: usize) -> impl Iterator<Item = &Cell> {
        let cells = self.cells.iter().enumerate();
        cells.filter(move |(cell, _)| *cell != victim).map(|(_, known)| known)
    }

    /// Whether every survivor's last agreement left out exactly the victim.
    pub fn agreed(&self, cells: usize, victim: usize) -> bool {
        let expected = survivors(cells, victim);
        expected.iter().all(|cell| {
            let mut sets = self.entries.iter().filter(|entry| entry.cell == cell);
            let last = sets.rfind(|entry| matches!(entry.event, Event::Agreed { .. }));
            let live: Option<CellSet> = last.and_then(|entry| match entry.event {
                Event::Agreed { live, .. } => Some(live),
                _ => None,
            });
            live == Some(expected)
        })
    }
}
