//! The pfdat table against a model that is a list of pages, under random operations.

use super::*;
use crate::testing::{FIRST, Rng};
use crate::types::Kind;
use std::collections::BTreeMap;

const FRAMES: usize = 48;

fn table() -> Table {
    let (first, end) = (Frame(FIRST), Frame(FIRST + FRAMES as u64));
    // A kernel image in front, a hole in the middle.
    let usable = [Frame(FIRST + 4)..Frame(FIRST + 20), Frame(FIRST + 24)..end];
    Table::new(CellNumber(0), first, FRAMES, &usable)
}

fn request(use_: Use, reserve: bool) -> Request {
    Request { use_, cells: 1, preferred: CellNumber(0), reserve }
}

fn page(n: u64) -> LogicalId {
    let tag = Tag { home: CellNumber(0), kind: Kind::File, object: n % 3, generation: 0 };
    LogicalId { tag, page: n / 3 }
}

/// What the model knows of a frame that is in use or holds a page.
#[derive(Clone, Copy, Debug, Default)]
struct Model {
    refs: u32,
    page: Option<u64>,
    dirty: bool,
    writing: u32,
    writers: u32,
}

struct Run {
    table: Table,
    model: BTreeMap<PfdatId, Model>,
    rng: Rng,
}

impl Run {
    fn pick(&mut self, wanted: impl Fn(&Model) -> bool) -> Option<PfdatId> {
        let ids: Vec<_> = self.model.iter().filter(|(_, m)| wanted(m)).map(|(id, _)| *id).collect();
        (!ids.is_empty()).then(|| ids[self.rng.below(ids.len() as u64) as usize])
    }

    fn drop_if_free(&mut self, id: PfdatId) {
        self.model.retain(|at, m| *at != id || m.refs > 0 || m.page.is_some());
    }

    /// A frame was taken: if it held a page, that page must have been clean and unreferenced.
    fn took(&mut self, id: PfdatId) {
        if let Some(old) = self.model.insert(id, Model { refs: 1, ..Model::default() }) {
            assert!(old.refs == 0 && !old.dirty, "{old:?} was reused");
        }
    }

    fn step(&mut self) {
        match self.rng.below(12) {
            0..=2 => {
                let reserve = self.rng.chance(30);
                let counts = self.table.counts();
                let floor = if reserve { 0 } else { self.table.reserve };
                match self.table.allocate(request(Use::Page, reserve)) {
                    Ok(id) => {
                        assert!(counts.free + counts.cached > floor);
                        if counts.free > 0 {
                            assert!(!self.model.contains_key(&id), "a cached page went too early");
                        }
                        self.took(id);
                    }
                    Err(error) => {
                        assert_eq!(error, Error::NoMemory);
                        assert!(counts.free + counts.cached <= floor);
                    }
                }
            }
            3 => {
                let count = 1 + self.rng.below(4) as usize;
                if let Ok(id) = self.table.allocate_contiguous(count, Use::Kernel) {
                    for at in id.0..id.0 + count as u32 {
                        self.took(PfdatId(at));
                    }
                }
            }
            4 => {
                let n = self.rng.below(60);
                let known = self.model.values().any(|m| m.page == Some(n));
                let unnamed = self.pick(|m| m.page.is_none() && m.refs > 0);
                if let Some(id) = unnamed.filter(|id| !known && self.table.use_of(*id) == Use::Page)
                {
                    self.table.name(id, page(n), false);
                    self.model.get_mut(&id).unwrap().page = Some(n);
                }
            }
            5 => {
                if let Some(id) = self.pick(|_| true) {
                    self.table.get(id);
                    self.model.get_mut(&id).unwrap().refs += 1;
                }
            }
            6..=7 => {
                let spare = |m: &Model| m.refs > m.writing + m.writers;
                if let Some(id) = self.pick(spare) {
                    self.table.put(id);
                    self.model.get_mut(&id).unwrap().refs -= 1;
                    self.drop_if_free(id);
                }
            }
            8 => {
                if let Some(id) = self.pick(|m| m.page.is_some()) {
                    assert!(self.table.set_dirty(id));
                    self.model.get_mut(&id).unwrap().dirty = true;
                }
            }
            9 => {
                if let Some(id) = self.pick(|_| true) {
                    let m = self.model.get_mut(&id).unwrap();
                    let can = m.dirty && m.writing == 0;
                    assert_eq!(self.table.write_begin(id), can);
                    if can {
                        m.writing = 1;
                        m.refs += 1;
                        m.dirty = m.writers > 0;
                    }
                }
            }
            10 => {
                if let Some(id) = self.pick(|m| m.writing > 0) {
                    let ok = self.rng.chance(70);
                    let m = self.model.get_mut(&id).unwrap();
                    m.writing = 0;
                    m.refs -= 1;
                    m.dirty |= !ok && m.page.is_some();
                    self.table.write_end(id, ok);
                    self.drop_if_free(id);
                }
            }
            _ => {
                if self.rng.chance(50) {
                    if let Some(id) = self.pick(|m| m.page.is_some()) {
                        self.table.forget(id);
                        let m = self.model.get_mut(&id).unwrap();
                        (m.page, m.dirty) = (None, false);
                        self.drop_if_free(id);
                    }
                } else if let Some(id) = self.pick(|m| m.refs > m.writing + m.writers) {
                    // One of its references becomes that of a writable entry, or stops being it.
                    let m = self.model.get_mut(&id).unwrap();
                    let change = if m.writers > 0 { -1 } else { 1 };
                    self.table.writer(id, change);
                    m.writers = m.writers.checked_add_signed(change).unwrap();
                }
            }
        }
    }

    fn compare(&self) {
        self.table.check();
        for (id, m) in &self.model {
            assert_eq!(self.table.refs(*id), m.refs);
            assert_eq!(self.table.page(*id), m.page.map(page));
            assert_eq!(self.table.is_dirty(*id), m.dirty);
        }
        for n in 0..60 {
            let want = self.model.iter().find(|(_, m)| m.page == Some(n)).map(|(id, _)| *id);
            assert_eq!(self.table.lookup(&page(n)), want);
        }
        let counts = self.table.counts();
        assert_eq!((counts.total, counts.reserved), (FRAMES, 8));
        assert_eq!(counts.free, FRAMES - 8 - self.model.len());
        let cached = self.model.values().filter(|m| m.refs == 0 && !m.dirty).count();
        assert_eq!(counts.cached, cached);
        for object in 0..3 {
            let tag = page(object).tag;
            let dirty = |m: &Model| m.page.filter(|n| n % 3 == object && m.dirty);
            let want = self.model.values().filter_map(dirty).min().map(page);
            let found = self.table.first_of(&tag, 0..u64::MAX, |t, id| t.is_dirty(id));
            assert_eq!(found.and_then(|id| self.table.page(id)), want);
        }
    }
}

#[test]
fn behaves_as_the_model_under_random_operations() {
    for seed in 0..60 {
        let mut run = Run { table: table(), model: BTreeMap::new(), rng: Rng(seed) };
        for _ in 0..600 {
            run.step();
            run.compare();
        }
    }
}

#[test]
fn cached_pages_are_found_until_reused_oldest_first() {
    let mut table = table();
    let mut ids = Vec::new();
    while let Ok(id) = table.allocate(request(Use::Page, true)) {
        table.name(id, page(ids.len() as u64), false);
        ids.push(id);
    }
    for id in &ids {
        table.put(*id);
    }
    // The first page is used again: it becomes the youngest.
    table.get(ids[0]);
    table.put(ids[0]);
    for n in 1..ids.len() {
        assert_eq!(table.lookup(&page(n as u64)), Some(ids[n]));
        assert_eq!(table.allocate(request(Use::Kernel, true)), Ok(ids[n]));
        assert_eq!(table.lookup(&page(n as u64)), None);
        assert_eq!(table.lookup(&page(0)), Some(ids[0]));
    }
    table.check();
}

#[test]
fn only_the_kernel_takes_the_last_frames() {
    let mut table = table();
    let mut users = 0;
    while table.allocate(request(Use::Page, false)).is_ok() {
        users += 1;
    }
    assert_eq!(users, 40 - 40 / 16);
    assert!(table.allocate(request(Use::PageTable, true)).is_ok());
}

#[test]
fn frames_of_cells_that_do_not_suit_are_refused() {
    let mut table = table();
    let elsewhere = Request { cells: 0b10, ..request(Use::Page, true) };
    assert_eq!(table.allocate(elsewhere), Err(Error::NoMemory));
}

#[test]
fn contiguous_frames_are_contiguous_and_skip_holes() {
    let mut table = table();
    // 40 frames in runs of 16 and 24: 17 fit only in the second.
    let run = table.allocate_contiguous(17, Use::Kernel).unwrap();
    assert!(table.frame(run).0 >= FIRST + 24);
    assert_eq!(table.allocate_contiguous(17, Use::Kernel), Err(Error::NoMemory));
    assert!(table.allocate_contiguous(16, Use::Kernel).is_ok());
    table.check();
}
