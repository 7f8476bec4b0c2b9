//! `selftest=1` among the boot arguments: what only a hart can show, then power off.
//! `selftest=panic|fault|overflow`: a death of that kind.

use crate::{cell, sched};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_hal::devicetree::Machine;
use hive_hal::paging::{Perm, UserTable};
use hive_hal::user::{Trap, UserContext};
use hive_hal::virtio_blk::{Disk, SECTOR};
use hive_hal::{hart, memory, println, sbi, uaccess};
use hive_sync::{AtomicU64, Mutex, WaitQueue, now_ns};

/// Runs everything; the exit code of the machine is the answer.
pub fn run(machine: &Machine) {
    match machine.argument("selftest") {
        Some("panic") => panic!("asked for"),
        Some("fault") => fault(),
        Some("overflow") => {
            println!("{}", overflow(1));
        }
        _ => {}
    }
    threads();
    ticks();
    careful(machine);
    user_mode();
    disks(machine);
    println!("selftest: all passed");
    crate::console::let_out();
    sbi::system_reset(sbi::Reset::Shutdown);
}

/// A store to nowhere: a kernel trap.
#[allow(unsafe_code)]
fn fault() {
    // SAFETY: nothing is mapped there, so nothing changes: the cell dies.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(0x1234_5678).write_volatile(1) };
}

#[allow(unconditional_recursion)]
fn overflow(depth: u64) -> u64 {
    let room = core::hint::black_box([depth; 64]);
    overflow(depth + 1) + room[depth as usize % 64]
}

fn threads() {
    static SUM: Mutex<u64> = Mutex::new(0);
    static HARTS: AtomicU64 = AtomicU64::new(0);
    static LEFT: AtomicU64 = AtomicU64::new(0);
    static DONE: WaitQueue = WaitQueue::new();
    const N: u64 = 32;
    LEFT.store(N);
    for _ in 0..N {
        sched::spawn_kernel("test", || {
            for i in 0..200 {
                let mut sum = SUM.lock();
                let old = *sum;
                if i % 8 == 0 {
                    sched::yield_now();
                }
                *sum = old + 1;
                drop(sum);
                HARTS.fetch_or(1 << hart::index());
            }
            LEFT.fetch_sub(1);
            DONE.wake_all();
        });
    }
    DONE.wait_until(|| (LEFT.load() == 0).then_some(()));
    assert_eq!(*SUM.lock(), N * 200);
    println!("selftest: {N} threads ran on harts {:#b}", HARTS.load());
}

fn ticks() {
    let words = || (0..hart::count()).map(|i| cell::clock(i).load()).collect::<Vec<_>>();
    // On a busy host an emulated hart may come up late: its first tick is waited for.
    for _ in 0..100 {
        if words().iter().all(|word| *word > 0) {
            break;
        }
        hive_sync::sched::sleep_ns(100_000_000);
    }
    let (before, start) = (words(), now_ns());
    hive_sync::sched::sleep_ns(100_000_000);
    let slept = now_ns() - start;
    let ticked: Vec<u64> = words().iter().zip(before).map(|(a, b)| a - b).collect();
    assert!(slept >= 100_000_000, "slept {slept} ns only");
    println!("selftest: slept {} us, ticks {ticked:?}", slept / 1000);
    assert!(ticked.iter().all(|&t| t >= 15), "a hart does not tick");
}

/// Careful copy at every byte offset, good and bad.
fn careful(machine: &Machine) {
    let frame = memory::alloc_frame().expect("a frame");
    let pattern: Vec<u8> = (0..128).map(|i| i as u8 ^ 0x5a).collect();
    for at in 0..16 {
        for len in 0..64 {
            let start = hive_hal::Pa(frame.0 + at as u64);
            put(start, &pattern[at..at + len]);
            let mut got = [0; 64];
            uaccess::careful_copy(&mut got[..len], start).expect("own memory answers");
            assert_eq!(got[..len], pattern[at..at + len]);
        }
    }
    // Beyond all memory nothing answers.
    let end = machine.memory.iter().map(|m| m.end).max().expect("memory");
    for before in 0..16 {
        let start = hive_hal::Pa(end.0 - before);
        let mut got = [0; 32];
        assert!(uaccess::careful_copy(&mut got, start).is_err(), "nothing at {start:?}");
    }
    assert!(uaccess::careful_load(end).is_err());
    println!("selftest: careful copy");
}

#[allow(unsafe_code)]
fn put(at: hive_hal::Pa, bytes: &[u8]) {
    // SAFETY: the test's own frame.
    unsafe { uaccess::careful_write(at, bytes) }.expect("own memory answers");
}

/// `li a7, 64; ecall; ebreak; fcvt.d.w fa0, a7; .word 0; ld a0, 0(zero)` and a wild jump.
const BLOB: [u32; 6] =
    [0x0400_0893, 0x0000_0073, 0x0010_0073, 0xd208_8553, 0x0000_0000, 0x0000_3503];

fn user_mode() {
    const CODE: u64 = 0x10000;
    let space = Arc::new(UserTable::new().expect("a table"));
    let frame = memory::alloc_frame().expect("a frame");
    space.map(CODE, frame, Perm { write: true, execute: true }).expect("memory for tables");
    sched::current().set_space(Some(space.clone()));
    let bytes: Vec<u8> = BLOB.iter().flat_map(|w| w.to_le_bytes()).collect();
    uaccess::copy_to_user(CODE, &bytes).expect("mapped");
    space.protect(CODE, Perm { write: false, execute: true });
    space.flush(CODE, memory::PAGE);
    hive_hal::paging::fence_i();
    assert!(uaccess::copy_to_user(CODE, &bytes).is_err(), "the page is read-only now");
    assert!(uaccess::copy_from_user(&mut [0; 8], CODE + 4092).is_err(), "runs off the page");
    let mut back = [0; 24];
    uaccess::copy_from_user(&mut back, CODE).expect("mapped");
    assert_eq!(back[..], bytes[..]);

    let mut ctx = UserContext::new(CODE, 0);
    let mut next = || loop {
        match ctx.run() {
            Trap::Interrupt => sched::yield_now(),
            trap => return (trap, ctx.regs().pc, ctx.regs().x[17], *ctx.fp(), ctx.clone()),
        }
    };
    let (trap, pc, a7, ..) = next();
    assert_eq!((trap, pc, a7), (Trap::Syscall, CODE + 8, 64));
    let (trap, pc, ..) = next();
    assert_eq!((trap, pc), (Trap::Breakpoint, CODE + 8));
    skip(&mut ctx);
    let trap = loop {
        match ctx.run() {
            Trap::Interrupt => {}
            trap => break trap,
        }
    };
    assert!(matches!(trap, Trap::Illegal { .. }), "{trap:?}");
    assert_eq!(ctx.fp().f[10], 64f64.to_bits());
    skip(&mut ctx);
    let trap = ctx.run();
    assert!(matches!(trap, Trap::PageFault { addr: 0, .. } | Trap::Interrupt), "{trap:?}");
    sched::current().set_space(None);
    println!("selftest: user mode");
}

fn skip(ctx: &mut UserContext) {
    ctx.regs_mut().pc += 4;
}

fn disks(machine: &Machine) {
    for &slot in &machine.virtio {
        let Ok(Some(disk)) = Disk::start(slot) else { continue };
        let mut sector = [0; SECTOR as usize * 4];
        disk.read(0, &mut sector).expect("the disk reads");
        let magic = u16::from_le_bytes([sector[1024 + 56], sector[1024 + 57]]);
        println!(
            "selftest: disk at {:#x}: {} sectors, ext2 {}",
            slot.base.0,
            disk.sectors(),
            magic == 0xef53
        );
        assert!(disk.read(disk.sectors(), &mut sector).is_err());
    }
}
