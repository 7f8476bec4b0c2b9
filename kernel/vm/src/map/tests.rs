//! Address spaces against a model that knows each page by itself and copies all at fork.

use super::*;
use crate::cache::Cache;
use crate::cow::SharedAnon;
use crate::memory::Memory;
use crate::pager::Pager;
use crate::table::PageTable;
use crate::testing::{Rng, TestFile, memory};
use crate::types::{Error, Frame, Prot};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::thread;

const PAGE: u64 = PAGE_SIZE as u64;
pub(crate) const RW: Prot = Prot(3);
const R: Prot = Prot::READ;

/// A page table with a translation buffer that forgets only when flushed.
pub(crate) struct TestTable {
    memory: Arc<Memory>,
    entries: BTreeMap<u64, (Frame, Prot)>,
    stale: BTreeMap<u64, (Frame, Prot)>,
}

impl TestTable {
    pub(crate) fn boxed(memory: &Arc<Memory>) -> Box<TestTable> {
        let memory = memory.clone();
        Box::new(TestTable { memory, entries: BTreeMap::new(), stale: BTreeMap::new() })
    }
}

impl PageTable for TestTable {
    fn map(&mut self, va: u64, frame: Frame, prot: Prot) -> Result<(), Error> {
        assert!(va.is_multiple_of(PAGE) && va < USER_END && prot != Prot::NONE);
        if let Some(old) = self.entries.insert(va, (frame, prot)) {
            self.stale.insert(va, old);
        }
        Ok(())
    }
    fn get(&self, va: u64) -> Option<(Frame, Prot)> {
        assert!(!self.stale.contains_key(&va), "a call left a stale entry behind");
        self.entries.get(&va).copied()
    }
    fn take(&mut self, from: u64, to: u64) -> Option<(u64, Frame, Prot)> {
        let (&va, &(frame, prot)) = self.entries.range(from..to).next()?;
        self.entries.remove(&va);
        self.stale.insert(va, (frame, prot));
        Some((va, frame, prot))
    }
    fn restrict(&mut self, from: u64, to: u64, allow: Prot) {
        assert!(allow.contains(R));
        for (va, entry) in self.entries.range_mut(from..to) {
            if !allow.contains(entry.1) {
                self.stale.insert(*va, *entry);
                entry.1 = entry.1 & allow;
            }
        }
    }
    fn flush(&mut self, from: u64, to: u64) {
        let table = self.memory.table();
        self.stale.retain(|va, (frame, _)| {
            let flushed = (from..to).contains(va);
            // A hart may have used the entry until now.
            let id = table.by_frame(*frame).unwrap();
            assert!(!flushed || table.refs(id) > 0, "a frame was given back too early");
            !flushed
        });
    }
}

impl Drop for TestTable {
    fn drop(&mut self) {
        assert!(self.stale.is_empty() || thread::panicking());
        assert!(
            self.entries.is_empty() || thread::panicking(),
            "an address space leaves its table empty"
        );
    }
}

pub(crate) fn space(cache: &Arc<Cache>) -> AddressSpace {
    AddressSpace::new(cache.clone(), TestTable::boxed(cache.memory()))
}

/// A load or store as a hart does it: by the page table, with faults in between.
pub(crate) fn access(space: &AddressSpace, va: u64, store: Option<u64>) -> Result<u64, Fault> {
    let (right, access) =
        if store.is_some() { (Prot::WRITE, Access::Write) } else { (R, Access::Read) };
    let page = va & !(PAGE - 1);
    let within = (va % PAGE) as usize;
    for _ in 0..10 {
        let done = space.with_table(|table| {
            let (frame, prot) = table.get(page)?;
            if !prot.contains(right) {
                return None;
            }
            let phys = space.cache().memory().phys();
            let mut bytes = [0; 8];
            if let Some(value) = store {
                phys.write(frame, within, &value.to_le_bytes());
            }
            phys.read(frame, within, &mut bytes);
            Some(u64::from_le_bytes(bytes))
        });
        match done {
            Some(value) => return Ok(value),
            None => space.fault(va, access)?,
        }
    }
    panic!("{access:?} at {va:#x} faults for ever");
}

pub(crate) fn map(
    space: &AddressSpace,
    placement: Placement,
    pages: u64,
    prot: Prot,
    backing: Backing,
) -> Result<u64, Error> {
    space.mmap(MapRequest { placement, len: pages * PAGE, prot, backing, role: Role::Plain })
}

pub(crate) fn mapped_file(file: &Arc<TestFile>, writable: bool) -> Arc<MappedFile> {
    let pager: Arc<dyn Pager> = file.clone();
    let generation = pager.tag().generation;
    let path = "/lib/file".to_string();
    Arc::new(MappedFile { pager, generation, writable, path, device: (254, 0), inode: 12 })
}

// ---------------------------------------------------------------------- the model

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Own(u64),
    File(usize, u64),
    SharedFile(usize, u64),
    SharedAnon(usize, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    prot: Prot,
    content: Content,
}

struct Process {
    space: AddressSpace,
    pages: BTreeMap<u64, Page>,
}

const WINDOW: u64 = 0x4000_0000;
const WINDOW_PAGES: u64 = 40;
const FILE_PAGES: u64 = 12;

struct World {
    rng: Rng,
    cache: Arc<Cache>,
    files: Vec<Arc<TestFile>>,
    file_bytes: Vec<Vec<u64>>,
    objects: Vec<Arc<SharedAnon>>,
    object_bytes: Vec<BTreeMap<u64, u64>>,
    all: Vec<Process>,
}

impl World {
    fn new(seed: u64) -> World {
        let memory = memory(1500);
        let cache = Arc::new(Cache::new(memory.clone()));
        let mut files = Vec::new();
        let mut file_bytes = Vec::new();
        for object in 1..3 {
            let words: Vec<u64> = (0..FILE_PAGES).map(|page| object * 1000 + page).collect();
            let mut bytes = vec![0; (FILE_PAGES * PAGE) as usize];
            for (page, word) in words.iter().enumerate() {
                bytes[page * PAGE_SIZE..][..8].copy_from_slice(&word.to_le_bytes());
            }
            files.push(TestFile::new(&memory, object, &bytes));
            file_bytes.push(words);
        }
        let objects: Vec<_> = (0..2).map(|_| Arc::new(SharedAnon::new(memory.clone()))).collect();
        let first = Process { space: space(&cache), pages: BTreeMap::new() };
        let object_bytes = vec![BTreeMap::new(); 2];
        World { rng: Rng(seed), cache, files, file_bytes, objects, object_bytes, all: vec![first] }
    }

    fn value(&self, content: Content) -> u64 {
        match content {
            Content::Own(value) => value,
            Content::File(file, page) | Content::SharedFile(file, page) => {
                self.file_bytes[file][page as usize]
            }
            Content::SharedAnon(object, page) => {
                self.object_bytes[object].get(&page).copied().unwrap_or(0)
            }
        }
    }

    /// What the access at page `number` of process `at` must give.
    fn expect(&self, at: usize, number: u64, right: Prot) -> Result<u64, Fault> {
        let page = self.all[at].pages.get(&number).ok_or(Fault::NotMapped)?;
        let readable = right == R && page.prot.contains(Prot::WRITE);
        if page.prot.contains(right) || readable {
            Ok(self.value(page.content))
        } else {
            Err(Fault::Protection)
        }
    }

    fn a_range(&mut self) -> (u64, u64) {
        let start = self.rng.below(WINDOW_PAGES);
        let pages = 1 + self.rng.below(10);
        (WINDOW / PAGE + start, pages)
    }

    fn a_prot(&mut self) -> Prot {
        [RW, RW, RW, R, Prot::ALL, Prot::NONE, Prot(5), Prot::WRITE][self.rng.below(8) as usize]
    }

    fn mmap(&mut self, at: usize) {
        let (mut start, pages) = self.a_range();
        let prot = self.a_prot();
        let which = self.rng.below(2) as usize;
        let page = self.rng.below(FILE_PAGES - pages);
        let (backing, first): (Backing, Content) = match self.rng.below(6) {
            0 => {
                let file = mapped_file(&self.files[which], true);
                (Backing::File { file, page, shared: true }, Content::SharedFile(which, page))
            }
            1 => {
                let file = mapped_file(&self.files[which], false);
                (Backing::File { file, page, shared: false }, Content::File(which, page))
            }
            2 => {
                let object = self.objects[which].clone();
                (Backing::SharedAnon { object, page }, Content::SharedAnon(which, page))
            }
            _ => (Backing::Anon, Content::Own(0)),
        };
        let one = &mut self.all[at];
        let taken = (start..start + pages).any(|n| one.pages.contains_key(&n));
        match self.rng.below(3) {
            0 => {
                let got =
                    map(&one.space, Placement::FixedNoReplace(start * PAGE), pages, prot, backing);
                if taken {
                    assert_eq!(got, Err(Error::Exists));
                    return;
                }
                assert_eq!(got, Ok(start * PAGE));
            }
            1 => {
                let got =
                    map(&one.space, Placement::Hint(start * PAGE), pages, prot, backing).unwrap();
                if !taken {
                    assert_eq!(got, start * PAGE);
                }
                start = got / PAGE;
                assert!((start..start + pages).all(|n| !one.pages.contains_key(&n)));
            }
            _ => {
                let got = map(&one.space, Placement::Fixed(start * PAGE), pages, prot, backing);
                assert_eq!(got, Ok(start * PAGE));
            }
        }
        for n in 0..pages {
            let content = match first {
                Content::Own(_) => Content::Own(0),
                Content::File(f, p) => Content::File(f, p + n),
                Content::SharedFile(f, p) => Content::SharedFile(f, p + n),
                Content::SharedAnon(o, p) => Content::SharedAnon(o, p + n),
            };
            one.pages.insert(start + n, Page { prot, content });
        }
    }

    fn store(&mut self, at: usize) {
        let number = self.a_range().0;
        let value = self.rng.next();
        let expect = self.expect(at, number, Prot::WRITE);
        let got = access(&self.all[at].space, number * PAGE, Some(value));
        match expect {
            Err(fault) => assert_eq!(got, Err(fault)),
            Ok(_) => {
                assert_eq!(got, Ok(value));
                let page = self.all[at].pages.get_mut(&number).unwrap();
                match page.content {
                    Content::Own(_) | Content::File(..) => page.content = Content::Own(value),
                    Content::SharedFile(f, p) => self.file_bytes[f][p as usize] = value,
                    Content::SharedAnon(o, p) => {
                        self.object_bytes[o].insert(p, value);
                    }
                }
            }
        }
    }

    fn protect(&mut self, at: usize) {
        let ((start, pages), prot) = (self.a_range(), self.a_prot());
        let one = &mut self.all[at];
        let whole = (start..start + pages).all(|n| one.pages.contains_key(&n));
        let got = one.space.mprotect(start * PAGE, pages * PAGE, prot);
        assert_eq!(got, if whole { Ok(()) } else { Err(Error::NotMapped) });
        if whole {
            one.pages.range_mut(start..start + pages).for_each(|(_, page)| page.prot = prot);
        }
    }

    fn discard(&mut self, at: usize) {
        let (start, pages) = self.a_range();
        let one = &mut self.all[at];
        let whole = (start..start + pages).all(|n| one.pages.contains_key(&n));
        let regions = one.space.regions();
        let got = one.space.discard(start * PAGE, pages * PAGE);
        assert_eq!(got, if whole { Ok(()) } else { Err(Error::NotMapped) });
        if !whole {
            return;
        }
        for n in start..start + pages {
            // What a page was at first is what its region says.
            let region = regions.iter().find(|r| r.start <= n * PAGE && n * PAGE < r.end).unwrap();
            let page = one.pages.get_mut(&n).unwrap();
            if let Content::Own(_) = page.content {
                page.content = match &region.backing {
                    Backing::File { file, page, .. } => {
                        let which = file.pager.tag().object as usize - 1;
                        Content::File(which, page + n - region.start / PAGE)
                    }
                    _ => Content::Own(0),
                };
            }
        }
    }

    fn remap(&mut self, at: usize) {
        let ((start, pages), new) = (self.a_range(), 1 + self.rng.below(12));
        let fixed = self.rng.chance(40).then(|| self.a_range().0);
        let one = &mut self.all[at];
        let before: Vec<_> = (start..start + pages).map(|n| one.pages.get(&n).copied()).collect();
        let before_regions = one.space.regions();
        let got =
            one.space.mremap(start * PAGE, pages * PAGE, new * PAGE, true, fixed.map(|n| n * PAGE));
        let region = before_regions
            .iter()
            .find(|r| r.start <= start * PAGE && (start + pages) * PAGE <= r.end);
        let overlaps = |to: u64| to < start + pages && start < to + new;
        let Some(region) = region else {
            assert_eq!(got, Err(Error::BadAddress));
            return;
        };
        if fixed.is_some_and(overlaps) {
            assert_eq!(got, Err(Error::Invalid));
            return;
        }
        let to = got.unwrap() / PAGE;
        if let Some(fixed) = fixed {
            assert_eq!(to, fixed);
            (to..to + new).for_each(|n| _ = one.pages.remove(&n));
        }
        (start..start + pages).for_each(|n| _ = one.pages.remove(&n));
        for n in 0..new {
            // What is new is as the region would have gone on.
            let content = match before.get(n as usize).copied().flatten() {
                Some(page) => page.content,
                None => match &region.backing {
                    Backing::File { file, page, shared } => {
                        let which = file.pager.tag().object as usize - 1;
                        let page = page + start - region.start / PAGE + n;
                        if *shared {
                            Content::SharedFile(which, page)
                        } else {
                            Content::File(which, page)
                        }
                    }
                    Backing::SharedAnon { object, page } => {
                        let which =
                            self.objects.iter().position(|o| Arc::ptr_eq(o, object)).unwrap();
                        Content::SharedAnon(which, page + start - region.start / PAGE + n)
                    }
                    _ => Content::Own(0),
                },
            };
            assert!(!one.pages.contains_key(&(to + n)), "mremap took what was there");
            // The model has no pages beyond the end of a file.
            one.pages.insert(to + n, Page { prot: region.prot, content });
        }
        let beyond = |c: &Content| matches!(c, Content::File(_, p) | Content::SharedFile(_, p) if *p >= FILE_PAGES);
        if one.pages.values().any(|page| beyond(&page.content)) {
            let (from, to) = (to, to + new);
            one.space.munmap(from * PAGE, (to - from) * PAGE).unwrap();
            (from..to).for_each(|n| _ = one.pages.remove(&n));
        }
    }

    fn step(&mut self) {
        let at = self.rng.below(self.all.len() as u64) as usize;
        match self.rng.below(40) {
            0..=5 => self.mmap(at),
            6..=8 => {
                let (start, pages) = self.a_range();
                let one = &mut self.all[at];
                one.space.munmap(start * PAGE, pages * PAGE).unwrap();
                one.pages.retain(|n, _| !(start..start + pages).contains(n));
            }
            9..=11 => self.protect(at),
            12..=13 => self.discard(at),
            14..=16 => self.remap(at),
            17..=18 if self.all.len() < 5 => {
                let one = &self.all[at];
                let space = one.space.fork(TestTable::boxed(self.cache.memory()));
                let pages = one.pages.clone();
                self.all.push(Process { space, pages });
            }
            19..=20 if self.all.len() > 1 => drop(self.all.swap_remove(at)),
            21 => {
                // A write call to a file that may be mapped.
                let (file, page) = (self.rng.below(2) as usize, self.rng.below(FILE_PAGES));
                let value = self.rng.next();
                let pager: Arc<dyn Pager> = self.files[file].clone();
                self.cache.write(&pager, page * PAGE, &mut &value.to_le_bytes()[..]).unwrap();
                self.file_bytes[file][page as usize] = value;
            }
            22 => {
                self.cache.sync_all().unwrap();
                for (file, words) in self.files.iter().zip(&self.file_bytes) {
                    let state = file.state.lock();
                    for (page, word) in words.iter().enumerate() {
                        assert_eq!(state.disk[page * PAGE_SIZE..][..8], word.to_le_bytes());
                    }
                }
            }
            23..=26 => {
                let number = self.a_range().0;
                let got = access(&self.all[at].space, number * PAGE, None);
                assert_eq!(got, self.expect(at, number, R));
            }
            _ => self.store(at),
        }
    }

    fn compare(&self, seed: u64, step: u64) {
        for (at, one) in self.all.iter().enumerate() {
            one.space.with_table(|table| {
                // Every entry maps what it must and allows no more than it may.
                let mut from = 0;
                while let Some((va, ..)) = next_entry(table, from) {
                    assert!(one.pages.contains_key(&(va / PAGE)), "seed {seed} step {step}");
                    from = va + PAGE;
                }
            });
            let mapped: Vec<u64> =
                one.space.regions().iter().flat_map(|r| r.start / PAGE..r.end / PAGE).collect();
            assert!(mapped.iter().eq(one.pages.keys()), "seed {seed} step {step} process {at}");
            for number in one.pages.keys() {
                let mut bytes = [0; 8];
                let got = one.space.copy_in(number * PAGE, &mut bytes);
                let got = got.map(|()| u64::from_le_bytes(bytes));
                let want = self.expect(at, *number, R);
                assert_eq!(got, want, "seed {seed} step {step} process {at} page {number:#x}");
            }
        }
        self.cache.memory().check();
    }
}

fn next_entry(table: &mut dyn PageTable, from: u64) -> Option<(u64, Frame, Prot)> {
    let (va, frame, prot) = table.take(from, USER_END)?;
    table.map(va, frame, prot).unwrap();
    table.flush(va, va + PAGE);
    Some((va, frame, prot))
}

#[test]
fn behaves_as_the_model_page_by_page() {
    for seed in 0..80 {
        let mut world = World::new(seed);
        for step in 0..300 {
            world.step();
            if step % 10 == 0 {
                world.compare(seed, step);
            }
        }
        world.compare(seed, 300);
        let World { cache, all, objects, files, .. } = world;
        drop((all, objects));
        cache.sync_all().unwrap();
        files.iter().for_each(|file| cache.invalidate(file.tag()));
        let counts = cache.memory().counts();
        assert_eq!(counts.free, counts.total, "seed {seed}: frames leak");
    }
}
