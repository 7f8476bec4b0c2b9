//! What the tests share: a seeded random number generator, frames in a `Vec`, a file in a `Vec`.

use crate::types::{CellNumber, Error, Frame, Kind, PAGE_SIZE, Tag};
use crate::{Memory, Pager, PhysMem};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use hive_sync::{AtomicBool, SpinLock};

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Number of the first frame of test memories.
pub const FIRST: u64 = 0x80200;

/// Frames as vectors; a frame starts full of rubbish, as after another use.
pub struct Frames(Vec<SpinLock<Vec<u8>>>);

impl Frames {
    fn at(&self, frame: Frame) -> &SpinLock<Vec<u8>> {
        &self.0[(frame.0 - FIRST) as usize]
    }
}

impl PhysMem for Frames {
    fn read(&self, frame: Frame, offset: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.at(frame).lock()[offset..][..dst.len()]);
    }
    fn write(&self, frame: Frame, offset: usize, src: &[u8]) {
        self.at(frame).lock()[offset..][..src.len()].copy_from_slice(src);
    }
    fn zero(&self, frame: Frame, offset: usize, len: usize) {
        self.at(frame).lock()[offset..][..len].fill(0);
    }
    fn copy(&self, from: Frame, to: Frame) {
        let bytes = self.at(from).lock().clone();
        self.at(to).lock().copy_from_slice(&bytes);
    }
}

/// A memory of `count` frames, all free.
pub fn memory(count: usize) -> Arc<Memory> {
    let frames = (0..count).map(|_| SpinLock::new(vec![0xa5; PAGE_SIZE])).collect();
    let all = Frame(FIRST)..Frame(FIRST + count as u64);
    let phys = Box::new(Frames(frames));
    Arc::new(Memory::new(CellNumber(0), Frame(FIRST), count, &[all], phys))
}

/// A file on a disk that is a `Vec`.
pub struct TestFile {
    pub memory: Arc<Memory>,
    pub object: u64,
    pub state: SpinLock<FileState>,
    /// Write-backs do not end while it is set.
    pub stuck: AtomicBool,
}

#[derive(Default)]
pub struct FileState {
    pub disk: Vec<u8>,
    pub size: u64,
    pub generation: u32,
    pub reads: usize,
    pub writes: usize,
    /// The next operations fail.
    pub broken: bool,
}

impl TestFile {
    pub fn new(memory: &Arc<Memory>, object: u64, bytes: &[u8]) -> Arc<TestFile> {
        let state =
            FileState { disk: bytes.to_vec(), size: bytes.len() as u64, ..Default::default() };
        Arc::new(TestFile {
            memory: memory.clone(),
            object,
            state: SpinLock::new(state),
            stuck: AtomicBool::new(false),
        })
    }
}

impl Pager for TestFile {
    fn tag(&self) -> Tag {
        let generation = self.state.lock().generation;
        Tag { home: CellNumber(0), kind: Kind::File, object: self.object, generation }
    }
    fn size(&self) -> u64 {
        self.state.lock().size
    }
    fn page_in(&self, index: u64, frames: &[Frame]) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.reads += 1;
        if state.broken {
            return Err(Error::Io);
        }
        for (n, frame) in frames.iter().enumerate() {
            let start = ((index as usize + n) * PAGE_SIZE).min(state.disk.len());
            let end = (start + PAGE_SIZE).min(state.disk.len());
            self.memory.phys().write(*frame, 0, &state.disk[start..end]);
            self.memory.phys().zero(*frame, end - start, PAGE_SIZE - (end - start));
        }
        Ok(())
    }
    fn page_out(&self, index: u64, frames: &[Frame]) -> Result<(), Error> {
        self.state.lock().writes += 1;
        while self.stuck.load() {
            std::thread::yield_now();
        }
        let mut state = self.state.lock();
        if state.broken {
            return Err(Error::Io);
        }
        let size = state.size as usize;
        state.disk.resize(size, 0);
        for (n, frame) in frames.iter().enumerate() {
            let start = ((index as usize + n) * PAGE_SIZE).min(size);
            let end = (start + PAGE_SIZE).min(size);
            self.memory.phys().read(*frame, 0, &mut state.disk[start..end]);
        }
        Ok(())
    }
    fn extend(&self, end: u64) {
        let mut state = self.state.lock();
        state.size = state.size.max(end);
    }
    fn discarded(&self) {
        self.state.lock().generation += 1;
    }
}
