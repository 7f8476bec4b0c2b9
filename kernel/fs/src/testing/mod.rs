//! What the host tests stand on: memory in a `Vec`, a disk in another, a clock that ticks.

pub mod model;

use crate::abi::Time;
use crate::block::{BlockDevice, SECTOR, Segment};
use crate::errno::{Errno, Result};
use crate::ext2::Clock;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_sync::AtomicU64;
use hive_vm::cache::Cache;
use hive_vm::{CellNumber, Frame, Memory, PAGE_SIZE, PhysMem};
use std::sync::Mutex;

/// First frame of the test memory: not 0, so that a forgotten base shows.
const FIRST: u64 = 0x80000;

/// The bytes of the frames.
#[derive(Clone)]
pub struct Ram(Arc<Mutex<Vec<u8>>>);

impl Ram {
    fn at(frame: Frame) -> usize {
        (frame.0 - FIRST) as usize * PAGE_SIZE
    }
}

impl PhysMem for Ram {
    fn read(&self, frame: Frame, offset: usize, dst: &mut [u8]) {
        let at = Self::at(frame) + offset;
        assert!(offset + dst.len() <= PAGE_SIZE);
        dst.copy_from_slice(&self.0.lock().unwrap()[at..at + dst.len()]);
    }
    fn write(&self, frame: Frame, offset: usize, src: &[u8]) {
        let at = Self::at(frame) + offset;
        assert!(offset + src.len() <= PAGE_SIZE);
        self.0.lock().unwrap()[at..at + src.len()].copy_from_slice(src);
    }
    fn zero(&self, frame: Frame, offset: usize, len: usize) {
        let at = Self::at(frame) + offset;
        assert!(offset + len <= PAGE_SIZE);
        self.0.lock().unwrap()[at..at + len].fill(0);
    }
    fn copy(&self, from: Frame, to: Frame) {
        let (from, to) = (Self::at(from), Self::at(to));
        self.0.lock().unwrap().copy_within(from..from + PAGE_SIZE, to);
    }
}

/// A page cache over `frames` frames full of rubbish.
pub fn cache(frames: usize) -> (Arc<Cache>, Ram) {
    let ram = Ram(Arc::new(Mutex::new(alloc::vec![0xa5; frames * PAGE_SIZE])));
    let (first, end) = (Frame(FIRST), Frame(FIRST + frames as u64));
    let usable = [first..end];
    let memory = Memory::new(CellNumber(0), first, frames, &usable, Box::new(ram.clone()));
    (Arc::new(Cache::new(Arc::new(memory))), ram)
}

/// A disk in memory.
pub struct MemDisk {
    /// Its bytes.
    pub data: Mutex<Vec<u8>>,
    ram: Ram,
}

impl MemDisk {
    /// A disk that holds `data`.
    pub fn new(data: Vec<u8>, ram: Ram) -> Arc<MemDisk> {
        Arc::new(MemDisk { data: Mutex::new(data), ram })
    }
}

impl BlockDevice for MemDisk {
    fn sectors(&self) -> u64 {
        (self.data.lock().unwrap().len() / SECTOR) as u64
    }
    fn read(&self, sector: u64, to: &[Segment]) -> Result<()> {
        let data = self.data.lock().unwrap();
        let mut at = sector as usize * SECTOR;
        for s in to {
            let bytes = data.get(at..at + s.len).ok_or(Errno::EIO)?;
            self.ram.write(s.frame, s.offset, bytes);
            at += s.len;
        }
        Ok(())
    }
    fn write(&self, sector: u64, from: &[Segment]) -> Result<()> {
        let mut data = self.data.lock().unwrap();
        let mut at = sector as usize * SECTOR;
        for s in from {
            let bytes = data.get_mut(at..at + s.len).ok_or(Errno::EIO)?;
            self.ram.read(s.frame, s.offset, bytes);
            at += s.len;
        }
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// A clock that ticks once per look.
pub struct StepClock(AtomicU64);

impl StepClock {
    /// From some day in 2026 on.
    pub fn new() -> Arc<StepClock> {
        Arc::new(StepClock(AtomicU64::new(1_790_000_000_000)))
    }
}

impl Clock for StepClock {
    fn now(&self) -> Time {
        let ms = self.0.fetch_add(1);
        Time { sec: (ms / 1000) as i64, nsec: (ms % 1000) as u32 * 1_000_000 }
    }
}

/// Random numbers from a seed (xorshift64*).
pub struct Rng(pub u64);

impl Rng {
    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % n
    }
}
