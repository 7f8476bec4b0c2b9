//! Address spaces: one promise at a time.

use super::tests::{RW, TestTable, access, map, mapped_file, space};
use super::*;
use crate::cache::Cache;
use crate::cow::SharedAnon;
use crate::pager::Pager;
use crate::testing::{Rng, TestFile, memory};
use crate::types::{Error, Prot};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::thread;

const PAGE: u64 = PAGE_SIZE as u64;
const AT: u64 = 0x10_0000;

fn cache(frames: usize) -> Arc<Cache> {
    Arc::new(Cache::new(memory(frames)))
}

fn file_backing(file: &Arc<TestFile>, shared: bool) -> Backing {
    Backing::File { file: mapped_file(file, true), page: 0, shared }
}

#[test]
fn the_stack_grows_to_its_limit_and_no_nearer_to_others_than_its_guard() {
    let space = space(&cache(64));
    let stack = |start: u64, len| MapRequest {
        placement: Placement::FixedNoReplace(start),
        len,
        prot: RW,
        backing: Backing::Anon,
        role: Role::Stack,
    };
    space.mmap(stack(STACK_TOP - PAGE, PAGE)).unwrap();
    assert_eq!(access(&space, STACK_TOP - 5 * PAGE, Some(1)), Ok(1));
    assert_eq!(space.regions()[0].start, STACK_TOP - 5 * PAGE);
    assert_eq!(access(&space, STACK_TOP - STACK_LIMIT - 8, Some(1)), Err(Fault::NotMapped));
    assert_eq!(access(&space, STACK_TOP - STACK_LIMIT, Some(2)), Ok(2));
    // A second stack with a neighbour.
    let other = AT + STACK_GUARD + 3 * PAGE;
    map(&space, Placement::Fixed(AT), 1, RW, Backing::Anon).unwrap();
    space.mmap(stack(other, PAGE)).unwrap();
    assert_eq!(access(&space, AT + PAGE + STACK_GUARD - 8, None), Err(Fault::NotMapped));
    assert_eq!(access(&space, AT + PAGE + STACK_GUARD, None), Ok(0));
}

#[test]
fn the_heap_grows_shrinks_and_stops_at_what_is_in_its_way() {
    let space = space(&cache(64));
    space.set_brk(AT);
    assert_eq!(space.brk(0), AT);
    assert_eq!(space.brk(AT + 100), AT + 100);
    assert_eq!(access(&space, AT + 96, Some(7)), Ok(7));
    assert_eq!(access(&space, AT + PAGE, Some(7)), Err(Fault::NotMapped));
    assert_eq!(space.brk(AT + 3 * PAGE), AT + 3 * PAGE);
    assert_eq!(access(&space, AT + 96, None), Ok(7));
    assert_eq!(access(&space, AT + 2 * PAGE, Some(8)), Ok(8));
    assert_eq!(space.regions().len(), 1);
    assert_eq!(space.brk(AT + PAGE), AT + PAGE);
    assert_eq!(space.brk(AT + 3 * PAGE), AT + 3 * PAGE);
    assert_eq!(access(&space, AT + 2 * PAGE, None), Ok(0), "what was given back is zero");
    map(&space, Placement::Fixed(AT + 5 * PAGE), 1, RW, Backing::Anon).unwrap();
    assert_eq!(space.brk(AT + 6 * PAGE), AT + 3 * PAGE);
    assert_eq!(space.brk(AT - 1), AT + 3 * PAGE);
}

#[test]
fn regions_print_as_lines_of_proc_maps() {
    let cache = cache(64);
    let space = space(&cache);
    let file = TestFile::new(cache.memory(), 1, &[0; 3 * PAGE_SIZE]);
    let mapped = mapped_file(&file, false);
    let backing = Backing::File { file: mapped, page: 1, shared: false };
    map(&space, Placement::Fixed(AT), 2, Prot(5), backing).unwrap();
    map(&space, Placement::Fixed(0x3f_0000_0000), 1, Prot(2), Backing::Anon).unwrap();
    space.set_brk(0x40_0000);
    space.brk(0x40_0001);
    let object = Arc::new(SharedAnon::new(cache.memory().clone()));
    let shared = Backing::SharedAnon { object, page: 0 };
    map(&space, Placement::Fixed(0x3f_0000_1000), 1, RW, shared).unwrap();
    let lines: Vec<_> = space.regions().iter().map(|r| r.to_string()).collect();
    assert_eq!(
        lines,
        [
            "00100000-00102000 r-xp 00001000 fe:00 12                                 /lib/file",
            "00400000-00401000 rw-p 00000000 00:00 0                                  [heap]",
            "3f00000000-3f00001000 -w-p 00000000 00:00 0 ",
            "3f00001000-3f00002000 rw-s 00000000 00:01 0                              /dev/zero (deleted)",
        ]
    );
}

#[test]
fn files_fault_beyond_their_end_and_after_damage() {
    let cache = cache(64);
    let space = space(&cache);
    let file = TestFile::new(cache.memory(), 1, &[9; 5000]);
    map(&space, Placement::Fixed(AT), 4, RW, file_backing(&file, false)).unwrap();
    map(&space, Placement::Fixed(2 * AT), 4, RW, file_backing(&file, true)).unwrap();
    for base in [AT, 2 * AT] {
        assert_eq!(access(&space, base + PAGE, None), Ok(u64::from_le_bytes([9; 8])));
        assert_eq!(access(&space, base + 4992, None), Ok(u64::from_le_bytes([9; 8])));
        assert_eq!(access(&space, base + 5000, None), Ok(0), "the rest of the page is zero");
        assert_eq!(access(&space, base + 2 * PAGE, None), Err(Fault::Bus(Error::Invalid)));
        assert_eq!(access(&space, base + 2 * PAGE, Some(1)), Err(Fault::Bus(Error::Invalid)));
    }
    file.discarded();
    assert_eq!(access(&space, AT, None), Err(Fault::Bus(Error::Stale)));
    assert_eq!(access(&space, 2 * AT, None), Err(Fault::Bus(Error::Stale)));
    file.state.lock().broken = true;
    let again = file_backing(&file, false);
    map(&space, Placement::Fixed(AT), 4, RW, again).unwrap();
    assert_eq!(access(&space, AT, None), Err(Fault::Bus(Error::Io)));
}

#[test]
fn stores_to_shared_mappings_reach_the_file_at_every_sync() {
    let cache = cache(64);
    let space = space(&cache);
    let file = TestFile::new(cache.memory(), 1, &[0; 2 * PAGE_SIZE]);
    map(&space, Placement::Fixed(AT), 2, RW, file_backing(&file, true)).unwrap();
    let on_disk = || file.state.lock().disk[8];
    for value in 1..4 {
        access(&space, AT + 8, Some(value)).unwrap();
        cache.sync_all().unwrap();
        assert_eq!(u64::from(on_disk()), value, "the page is still mapped writable");
    }
    access(&space, AT + 8, Some(4)).unwrap();
    space.munmap(AT, 2 * PAGE).unwrap();
    cache.sync_all().unwrap();
    assert_eq!(on_disk(), 4);
    assert_eq!(cache.memory().counts().dirty, 0);
    // Reading makes nothing dirty.
    map(&space, Placement::Fixed(AT), 2, RW, file_backing(&file, true)).unwrap();
    access(&space, AT, None).unwrap();
    assert_eq!(cache.memory().counts().dirty, 0);
}

#[test]
fn calls_refuse_what_makes_no_sense() {
    let cache = cache(64);
    let space = space(&cache);
    let file = TestFile::new(cache.memory(), 1, &[0; PAGE_SIZE]);
    let read_only = || Backing::File { file: mapped_file(&file, false), page: 0, shared: true };
    let fixed = Placement::Fixed;
    assert_eq!(map(&space, fixed(AT), 0, RW, Backing::Anon), Err(Error::Invalid));
    assert_eq!(map(&space, fixed(AT + 1), 1, RW, Backing::Anon), Err(Error::Invalid));
    assert_eq!(map(&space, fixed(0), 1, RW, Backing::Anon), Err(Error::Denied));
    assert_eq!(map(&space, fixed(USER_END - PAGE), 1, RW, Backing::Anon), Err(Error::NoMemory));
    assert_eq!(map(&space, fixed(!(PAGE - 1)), 1, RW, Backing::Anon), Err(Error::NoMemory));
    assert_eq!(map(&space, Placement::Hint(0), 1 << 51, RW, Backing::Anon), Err(Error::NoMemory));
    assert_eq!(
        map(&space, Placement::Hint(0), (1 << 26) - 1, RW, Backing::Anon),
        Err(Error::NoMemory)
    );
    assert_eq!(map(&space, fixed(AT), 1, RW, read_only()), Err(Error::Denied));
    map(&space, fixed(AT), 1, Prot::READ, read_only()).unwrap();
    assert_eq!(space.mprotect(AT, PAGE, RW), Err(Error::Denied));
    assert_eq!(space.munmap(AT + 1, PAGE), Err(Error::Invalid));
    assert_eq!(space.munmap(AT, u64::MAX), Err(Error::Invalid));
    assert_eq!(space.mremap(AT, PAGE, 0, true, None), Err(Error::Invalid));
    assert_eq!(space.mprotect(AT, 2 * PAGE, Prot::READ), Err(Error::NotMapped));
    assert_eq!(access(&space, AT, Some(1)), Err(Fault::Protection));
    assert_eq!(space.fault(AT, Access::Exec), Err(Fault::Protection));
}

#[test]
fn a_process_that_wants_too_much_faults_and_gives_all_back() {
    let cache = cache(64);
    // Dirty file pages make room by being written.
    let file = TestFile::new(cache.memory(), 1, b"");
    let pager: Arc<dyn Pager> = file.clone();
    cache.write(&pager, 0, &mut &vec![1; 8 * PAGE_SIZE][..]).unwrap();
    let space = space(&cache);
    map(&space, Placement::Fixed(AT), 100, RW, Backing::Anon).unwrap();
    let got = (0..100).find(|n| access(&space, AT + n * PAGE, Some(*n)).is_err()).unwrap();
    assert!(got >= 60, "only {got} pages");
    assert_eq!(access(&space, AT + got * PAGE, Some(0)), Err(Fault::NoMemory));
    assert_eq!(access(&space, AT + 5 * PAGE, None), Ok(5));
    assert_eq!(space.usage(), (got as usize, 100));
    drop(space);
    let counts = cache.memory().counts();
    assert_eq!(counts.free + counts.cached, counts.total);
    assert_eq!(file.state.lock().disk.len(), 8 * PAGE_SIZE);
}

#[test]
fn futex_words_have_one_name_for_all_who_share_them() {
    let cache = cache(64);
    let one = space(&cache);
    let file = TestFile::new(cache.memory(), 1, &[0; PAGE_SIZE]);
    map(&one, Placement::Fixed(AT), 1, RW, file_backing(&file, true)).unwrap();
    map(&one, Placement::Fixed(2 * AT), 1, RW, Backing::Anon).unwrap();
    let object = Arc::new(SharedAnon::new(cache.memory().clone()));
    let shared = Backing::SharedAnon { object, page: 3 };
    map(&one, Placement::Fixed(3 * AT), 1, RW, shared).unwrap();
    let two = one.fork(TestTable::boxed(cache.memory()));
    map(&two, Placement::Fixed(4 * AT), 1, RW, file_backing(&file, true)).unwrap();
    assert_eq!(one.futex_key(AT + 4), two.futex_key(4 * AT + 4));
    assert_ne!(one.futex_key(AT + 4), two.futex_key(AT + 8));
    assert_ne!(one.futex_key(2 * AT), two.futex_key(2 * AT));
    assert_eq!(one.futex_key(3 * AT), two.futex_key(3 * AT));
    assert_eq!(one.futex_key(5 * AT), Err(Fault::NotMapped));
}

#[test]
fn copies_to_and_from_user_memory_cross_pages_and_stop_at_holes() {
    let space = space(&cache(64));
    map(&space, Placement::Fixed(AT), 3, RW, Backing::Anon).unwrap();
    let data: Vec<u8> = (0..9000).map(|n| n as u8).collect();
    assert_eq!(space.copy_out(AT + 100, &data), Ok(()));
    let mut back = vec![0; 9000];
    assert_eq!(space.copy_in(AT + 100, &mut back), Ok(()));
    assert_eq!(back, data);
    assert_eq!(space.copy_out(AT + 2 * PAGE, &data), Err(Fault::NotMapped));
    assert_eq!(space.copy_in(u64::MAX - 10, &mut back), Err(Fault::NotMapped));
    assert_eq!(space.copy_in(AT, &mut []), Ok(()));
}

/// Harts of one process fault on the same pages while another maps, unmaps and forks.
#[test]
fn faults_of_several_harts_cross_safely() {
    let cache = cache(256);
    let space = space(&cache);
    let file = TestFile::new(cache.memory(), 1, &[3; 16 * PAGE_SIZE]);
    map(&space, Placement::Fixed(AT), 16, RW, Backing::Anon).unwrap();
    map(&space, Placement::Fixed(2 * AT), 16, RW, file_backing(&file, true)).unwrap();
    map(&space, Placement::Fixed(3 * AT), 16, RW, file_backing(&file, false)).unwrap();
    thread::scope(|scope| {
        for hart in 0..4u64 {
            let space = &space;
            scope.spawn(move || {
                let mut rng = Rng(hart);
                let mut mine = [[0u64; 16]; 2];
                for n in 1..1500 {
                    let page = rng.below(16);
                    let kind = rng.below(3);
                    let word = (kind + 1) * AT + page * PAGE + hart * 8;
                    if kind == 1 {
                        // Page 8 of it comes and goes: it may be missing now.
                        if page == 8 {
                            continue;
                        }
                        access(space, word, rng.chance(50).then_some(n)).unwrap();
                        continue;
                    }
                    let last = &mut mine[kind as usize / 2][page as usize];
                    if rng.chance(50) {
                        access(space, word, Some(n)).unwrap();
                        *last = n;
                    } else if *last != 0 {
                        assert_eq!(access(space, word, None), Ok(*last));
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                let child = space.fork(TestTable::boxed(cache.memory()));
                access(&child, AT, Some(1)).unwrap();
                space.munmap(2 * AT + PAGE * 8, PAGE).unwrap();
                let backing =
                    Backing::File { file: mapped_file(&file, true), page: 8, shared: true };
                map(&space, Placement::Fixed(2 * AT + PAGE * 8), 1, RW, backing).unwrap();
                cache.sync_all().unwrap();
            }
        });
    });
    drop(space);
    cache.sync_all().unwrap();
    cache.invalidate(file.tag());
    cache.memory().check();
    assert_eq!(cache.memory().counts().free, 256);
}
