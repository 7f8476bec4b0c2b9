//! Copy-on-write trees against processes that copy everything at fork.

use super::*;
use crate::pfdat::Use;
use crate::testing::{Rng, memory};
use alloc::vec;

const NUMBERS: u64 = 24;

/// A process: its leaf, and what it must see.
struct Process {
    leaf: Leaf,
    model: BTreeMap<u64, u64>,
}

fn write(memory: &Memory, leaf: &mut Leaf, number: u64, value: u64) {
    leaf.collapse();
    let page = match leaf.find(memory, number) {
        Some(found) if found.exclusive => found.page,
        _ => {
            let new = memory.allocate_page(memory.local(Use::Page)).unwrap();
            leaf.insert(number, new.clone());
            new
        }
    };
    memory.phys().write(page.frame(), 0, &value.to_le_bytes());
}

fn read(memory: &Memory, leaf: &Leaf, number: u64) -> Option<u64> {
    let found = leaf.find(memory, number)?;
    let mut bytes = [0; 8];
    memory.phys().read(found.page.frame(), 0, &mut bytes);
    Some(u64::from_le_bytes(bytes))
}

fn in_use(memory: &Memory) -> usize {
    let counts = memory.counts();
    counts.total - counts.free
}

#[test]
fn behaves_as_copying_at_fork() {
    for seed in 0..120 {
        let memory = memory(NUMBERS as usize * 40);
        let mut rng = Rng(seed);
        let first = Process { leaf: Leaf::new(memory.clone()), model: BTreeMap::new() };
        let mut all = vec![first];
        for step in 0..400 {
            let at = rng.below(all.len() as u64) as usize;
            let count = all.len();
            let one = &mut all[at];
            match rng.below(20) {
                0..=7 => {
                    let number = rng.below(NUMBERS);
                    write(&memory, &mut one.leaf, number, step);
                    one.model.insert(number, step);
                }
                8..=11 if count < 8 => {
                    let (leaf, model) = (one.leaf.fork(), one.model.clone());
                    all.push(Process { leaf, model });
                }
                12..=14 if count > 1 => {
                    all.swap_remove(at);
                }
                15..=16 => {
                    let start = rng.below(NUMBERS);
                    let end = (start + rng.below(6)).min(NUMBERS);
                    one.leaf.discard(start..end);
                    one.model.retain(|number, _| !(start..end).contains(number));
                }
                17 => {
                    let half = NUMBERS / 2;
                    let (from, to, count) = (rng.below(half), half + rng.below(8), 4);
                    if from + count <= half {
                        one.leaf.shift(from, to, count);
                        one.model.retain(|number, _| !(to..to + count).contains(number));
                        for number in from..from + count {
                            if let Some(value) = one.model.remove(&number) {
                                one.model.insert(number - from + to, value);
                            }
                        }
                    }
                }
                _ => one.leaf.collapse(),
            }
            for (pid, process) in all.iter().enumerate() {
                assert!(process.leaf.depth() <= DEPTH_MAX);
                for number in 0..NUMBERS {
                    let sees = read(&memory, &process.leaf, number);
                    let must = process.model.get(&number).copied();
                    assert_eq!(sees, must, "seed {seed} step {step} process {pid} page {number}");
                }
            }
            memory.check();
        }
        drop(all);
        assert_eq!(in_use(&memory), 0, "seed {seed}: pages leak");
    }
}

/// A server that always has one child alive, each outliving the next fork: no node ever has a
/// single child at the moment it could be taken over.
#[test]
fn overlapping_children_do_not_make_memory_grow() {
    let memory = memory(1024);
    let mut server = Leaf::new(memory.clone());
    let mut child = None;
    for round in 0..5000 {
        for number in 0..10 {
            write(&memory, &mut server, number, round);
        }
        let mut next = server.fork();
        write(&memory, &mut next, 3, round);
        drop(child.replace(next));
        assert!(in_use(&memory) <= 10 * (DEPTH_MAX as usize + 3), "round {round}");
    }
    drop((child, server));
    assert_eq!(in_use(&memory), 0);
    memory.check();
}

/// A chain of daemons, each the child of the one before, which exits.
#[test]
fn generations_do_not_make_memory_grow() {
    let memory = memory(1024);
    let mut process = Leaf::new(memory.clone());
    for round in 0..5000 {
        for number in 0..10 {
            write(&memory, &mut process, number, round);
        }
        process = process.fork();
        assert!(in_use(&memory) <= 20, "round {round}");
    }
    // A shell: children come and go, the parent stays.
    for round in 0..5000 {
        let mut child = process.fork();
        write(&memory, &mut child, 1, round);
        write(&memory, &mut process, 2, round);
        drop(child);
        write(&memory, &mut process, 2, round + 1);
        assert!(in_use(&memory) <= 20 && process.depth() <= 1, "round {round}");
    }
    drop(process);
    assert_eq!(in_use(&memory), 0);
}

#[test]
fn the_last_child_writes_in_place() {
    let memory = memory(64);
    let mut parent = Leaf::new(memory.clone());
    write(&memory, &mut parent, 7, 1);
    let frame = parent.find(&memory, 7).unwrap().page.frame();
    let child = parent.fork();
    assert!(!parent.find(&memory, 7).unwrap().exclusive);
    drop(child);
    parent.collapse();
    let found = parent.find(&memory, 7).unwrap();
    assert!(found.exclusive && found.page.frame() == frame);
}

#[test]
fn shared_objects_live_as_long_as_any_mapping() {
    let memory = memory(64);
    let object = SharedAnon::new(memory.clone());
    let frame = object.page(5).unwrap().frame();
    memory.phys().write(frame, 9, b"x");
    assert_eq!(object.page(5).unwrap().frame(), frame);
    assert_ne!(object.page(6).unwrap().frame(), frame);
    assert_eq!(in_use(&memory), 2);
    drop(object);
    assert_eq!(in_use(&memory), 0);
    memory.check();
}
