//! The page cache against a file that is a `Vec`.

use super::*;
use crate::testing::{Rng, TestFile, memory};
use alloc::vec;
use alloc::vec::Vec;
use std::thread;

fn open(frames: usize, bytes: &[u8]) -> (Cache, Arc<TestFile>, Arc<dyn Pager>) {
    let memory = memory(frames);
    let file = TestFile::new(&memory, 1, bytes);
    (Cache::new(memory), file.clone(), file)
}

fn read(cache: &Cache, pager: &Arc<dyn Pager>, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let got = cache.read(pager, offset, &mut &mut bytes[..]).unwrap();
    bytes.truncate(got);
    bytes
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

/// Random reads, writes, truncations and syncs of three files, in memories from far too small to
/// ample.
#[test]
fn behaves_as_a_vector_of_bytes() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let memory = memory([20, 40, 200][seed as usize % 3]);
        let cache = Cache::new(memory.clone());
        let files: Vec<_> = (0..3).map(|object| TestFile::new(&memory, object, b"start")).collect();
        let mut models: Vec<Vec<u8>> = vec![b"start".to_vec(); 3];
        for _ in 0..300 {
            let at = rng.below(3) as usize;
            let (file, model) = (&files[at], &mut models[at]);
            let pager: Arc<dyn Pager> = file.clone();
            let offset = rng.below(60_000);
            let long = rng.chance(20);
            let len = rng.below(if long { 30_000 } else { 3000 }) as usize;
            match rng.below(20) {
                0..=7 => {
                    let data = bytes(&mut rng, len);
                    assert_eq!(cache.write(&pager, offset, &mut &data[..]), Ok(len));
                    if len > 0 {
                        let end = (offset as usize + len).max(model.len());
                        model.resize(end, 0);
                        model[offset as usize..][..len].copy_from_slice(&data);
                    }
                }
                8..=15 => {
                    let end = (offset as usize + len).min(model.len());
                    let want = model.get(offset as usize..end).unwrap_or(&[]);
                    assert_eq!(read(&cache, &pager, offset, len), want, "seed {seed}");
                }
                16 => {
                    file.state.lock().size = offset;
                    cache.truncate(&pager, offset);
                    let mut state = file.state.lock();
                    let kept = state.disk.len().min(offset as usize);
                    state.disk.truncate(kept);
                    model.resize(offset as usize, 0);
                }
                17 => {
                    cache.sync(&pager).unwrap();
                    let mut disk = file.state.lock().disk.clone();
                    disk.resize(model.len(), 0);
                    assert!(disk == *model, "seed {seed}: the disk differs after sync");
                }
                18 => drop(cache.flush(rng.below(20) as usize)),
                _ => cache.sync_all().unwrap(),
            }
            memory.check();
        }
        cache.sync_all().unwrap();
        assert!(cache.dirty.lock().is_empty(), "clean objects are let go");
        for (file, model) in files.iter().zip(&models) {
            let mut disk = file.state.lock().disk.clone();
            disk.resize(model.len(), 0);
            assert!(disk == *model);
            cache.invalidate(file.tag());
        }
        let counts = memory.counts();
        assert_eq!(counts.free, counts.total);
    }
}

#[test]
fn pages_are_read_once_and_sequential_readers_are_read_ahead_for() {
    let data = vec![7; 40 * PAGE_SIZE];
    let (cache, file, pager) = open(200, &data);
    assert_eq!(read(&cache, &pager, 0, data.len()), data);
    assert_eq!(read(&cache, &pager, 0, data.len()), data);
    assert_eq!(file.state.lock().reads, 40usize.div_ceil(CLUSTER_PAGES));
    // A random reader gets one page.
    cache.invalidate(pager.tag());
    let _ = read(&cache, &pager, 20 * PAGE_SIZE as u64, 1);
    assert_eq!(cache.memory().counts().cached, 1);
}

#[test]
fn appending_reads_nothing() {
    let (cache, file, pager) = open(200, b"");
    for n in 0..20 {
        cache.write(&pager, n * 1000, &mut &[1; 1000][..]).unwrap();
    }
    assert_eq!(file.state.lock().reads, 0);
    cache.sync(&pager).unwrap();
    assert_eq!(file.state.lock().disk, [1; 20_000]);
    assert_eq!(file.state.lock().writes, 1, "neighbours are written together");
}

#[test]
fn errors_reach_the_reader_and_leave_nothing_behind() {
    let (cache, file, pager) = open(50, &[1; 9000]);
    file.state.lock().broken = true;
    assert_eq!(cache.page(&pager, 0).err(), Some(Error::Io));
    assert_eq!(cache.memory().counts().free, 50);
    file.state.lock().broken = false;
    assert_eq!(read(&cache, &pager, 8999, 10), [1]);
}

#[test]
fn pages_that_cannot_be_written_stay_dirty() {
    let (cache, file, pager) = open(50, b"");
    cache.write(&pager, 0, &mut &b"kept"[..]).unwrap();
    file.state.lock().broken = true;
    assert_eq!(cache.sync(&pager), Err(Error::Io));
    assert_eq!(cache.memory().counts().dirty, 1);
    file.state.lock().broken = false;
    assert_eq!(cache.sync_all(), Ok(()));
    assert_eq!(file.state.lock().disk, b"kept");
    cache.memory().check();
}

#[test]
fn discard_drops_dirty_pages_and_tells_the_file() {
    let (cache, file, pager) = open(50, &[1; 3 * PAGE_SIZE]);
    cache.write(&pager, 0, &mut &[2; 10][..]).unwrap();
    let _ = read(&cache, &pager, PAGE_SIZE as u64, 2 * PAGE_SIZE);
    // Clean pages only: nobody needs to know.
    cache.discard(|page| !page.dirty);
    assert_eq!(file.state.lock().generation, 0);
    let other = TestFile::new(cache.memory(), 2, b"");
    let clean: Arc<dyn Pager> = other.clone();
    cache.write(&clean, 0, &mut &b"safe"[..]).unwrap();
    cache.discard(|page| page.id.tag.object == 1);
    assert_eq!(file.state.lock().generation, 1);
    assert_eq!(other.state.lock().generation, 0);
    assert_eq!(read(&cache, &pager, 0, 10), [1; 10], "later openers read the disk");
    cache.sync_all().unwrap();
    assert_eq!(other.state.lock().disk, b"safe");
}

/// The file system gives blocks to other files after a truncation: no write may come later.
#[test]
fn truncation_waits_for_write_backs_under_way() {
    let (cache, file, pager) = open(50, b"");
    cache.write(&pager, 0, &mut &[1; 100][..]).unwrap();
    file.stuck.store(true);
    let done = hive_sync::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| cache.sync(&pager).unwrap());
        while file.state.lock().writes == 0 {
            thread::yield_now();
        }
        // The page is read and written meanwhile all the same.
        assert_eq!(read(&cache, &pager, 0, 1), [1]);
        cache.write(&pager, 0, &mut &[2][..]).unwrap();
        scope.spawn(|| {
            cache.truncate(&pager, 0);
            done.store(true);
        });
        for _ in 0..1000 {
            thread::yield_now();
            assert!(!done.load());
        }
        file.stuck.store(false);
    });
    assert!(done.load());
    assert_eq!(cache.memory().counts().free, 50);
}

/// Readers and writers of the same few pages on several threads, in a memory that is short.
#[test]
fn threads_that_share_pages_see_whole_records() {
    const RECORD: usize = 512;
    let (cache, _file, pager) = open(24, &[0; 64 * PAGE_SIZE]);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, pager) = (&cache, &pager);
            scope.spawn(move || {
                // Each thread writes records of its own; neighbours on a page are others'.
                let mut rng = Rng(thread);
                let mut mine = std::collections::BTreeMap::new();
                for _ in 0..400 {
                    let record = rng.below(64 * 2) * 4 + thread;
                    let offset = record * RECORD as u64;
                    if rng.chance(50) {
                        let value = rng.next() as u8;
                        cache.write(pager, offset, &mut &[value; RECORD][..]).unwrap();
                        mine.insert(record, value);
                    } else {
                        let want = mine.get(&record).copied().unwrap_or(0);
                        assert_eq!(read(cache, pager, offset, RECORD), [want; RECORD]);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                cache.sync_all().unwrap();
                thread::yield_now();
            }
        });
    });
    cache.memory().check();
}
