//! What the comparison with QEMU cannot show: exact budgets, slices, interrupts, reservations
//! between harts, self-modifying code, copy-on-write memory, counters, A and D bits, devices that
//! deny.

mod bare;

use bare::{BASE, Rig, assemble};
use hive_machine::engine::Why;
use hive_machine::hart::{Exception, Trap, csr::number};
use hive_machine::platform::{AccessFault, Privilege};
use hive_machine::ram::{Frame, attr};
use hive_platform::map;

fn rig(name: &str, harts: usize, source: &str) -> Option<Rig> {
    let source =
        format!(".globl _start\n_start:\n.option norelax\n{}\n", source.replace(';', "\n"));
    Some(Rig::new(harts, &assemble(name, &source)?))
}

fn state(rig: &Rig, hart: usize) -> Vec<u64> {
    let mut words = Vec::new();
    rig.harts[hart].visit_state(|w| words.push(w));
    words
}

/// A program with loops, calls, memory, traps, atomics and floating point.
const MIXED: &str = "la t0, trap; csrw mtvec, t0; li t0, 0x6000; csrs mstatus, t0; la sp, stack; li s0, 200
    1: jal f; ecall; amoadd.d a0, s0, (sp); fcvt.d.l fa0, s0; fdiv.d fa1, fa0, fa1; fsd fa1, 8(sp)
    lr.d a1, (sp); addi a1, a1, 3; sc.d a2, a1, (sp); ld a3, 1(sp); addi s0, s0, -1; bnez s0, 1b
    2: j 2b
    f: addi sp, sp, -16; sd ra, 0(sp); mul a4, a4, s0; ld ra, 0(sp); addi sp, sp, 16; ret
    .balign 4; trap: csrr t1, mepc; addi t1, t1, 4; csrw mepc, t1; csrr t2, minstret; csrr t3, mcycle; mret
    .balign 4096; .skip 4096; stack: .skip 64";

#[test]
fn slices_do_not_show() {
    let total = 6000;
    let mut reference = None;
    for slice in [6000, 1, 2, 7, 100, 999] {
        let Some(mut rig) = rig("slices", 1, MIXED) else { return };
        let mut left = total;
        while left > 0 {
            let budget = slice.min(left);
            let outcome = rig.run(0, budget);
            assert_eq!((outcome.executed, outcome.why), (budget, Why::Budget));
            left -= budget;
        }
        let words = state(&rig, 0);
        match &reference {
            None => reference = Some(words),
            Some(first) => assert_eq!(&words, first, "slices of {slice}"),
        }
    }
}

#[test]
fn instret_counts_what_retired_and_writes_stick() {
    let Some(mut rig) = rig(
        "instret",
        1,
        "la t0, trap; csrw mtvec, t0; csrr a0, minstret; nop; nop; csrr a1, minstret; ecall; csrr a2, minstret;
         li t0, 1000; csrw minstret, t0; csrr a3, minstret; nop; csrr a4, minstret; 1: j 1b
         .balign 4; trap: csrr t1, mepc; addi t1, t1, 4; csrw mepc, t1; mret",
    ) else {
        return;
    };
    rig.run(0, 30);
    let x = |n| rig.harts[0].x(n);
    assert_eq!(x(11) - x(10), 3);
    // ECALL does not retire; the handler's four instructions and the read before it do.
    assert_eq!(x(12) - x(11), 1 + 4);
    assert_eq!((x(13), x(14)), (1000, 1002));
}

#[test]
fn a_hart_waits_until_an_enabled_line_rises() {
    let Some(mut rig) = rig(
        "wfi",
        1,
        "la t0, trap + 1; csrw mtvec, t0; li t0, 0x80; csrw mie, t0; wfi; li a0, 1; csrsi mstatus, 8; li a0, 2; 1: j 1b
         .balign 4; trap: .option norvc; j bad; j bad; j bad; j bad; j bad; j bad; j bad; csrr a1, mcause; 2: j 2b; bad: li a1, 3; j bad",
    ) else {
        return;
    };
    let outcome = rig.run(0, 100);
    assert_eq!(outcome.why, Why::Wait);
    assert!(rig.harts[0].waiting());
    assert_eq!(rig.run(0, 100).executed, 0);
    rig.bench.lines = 1 << 11;
    assert_eq!(rig.run(0, 100).executed, 0, "an interrupt that is not enabled does not wake");
    rig.bench.lines = 1 << 7;
    let outcome = rig.run(0, 100);
    assert_eq!((outcome.executed, outcome.why), (100, Why::Budget));
    assert_eq!(rig.harts[0].x(10), 1, "the interrupt comes before the next instruction");
    assert_eq!(rig.harts[0].x(11), 1 << 63 | 7, "vectored to entry 7");
}

#[test]
fn pause_gives_up_the_slice_and_marks_are_seen() {
    let word = hive_platform::mark::instruction(77);
    let source = format!("li a0, 5; .word {word:#x}; .word 0x0100000f; li a1, 6; 1: j 1b");
    let Some(mut rig) = rig("pause", 1, &source) else { return };
    let outcome = rig.run(0, 100);
    assert_eq!((outcome.executed, outcome.why), (3, Why::Pause));
    assert_eq!(rig.bench.marks, [(77, 5)]);
    assert_eq!(rig.harts[0].x(10), 5);
    rig.run(0, 1);
    assert_eq!(rig.harts[0].x(11), 6);
}

#[test]
fn the_harts_own_timer_interrupts_supervisor_mode() {
    let Some(mut rig) = rig(
        "sstc",
        1,
        "la t0, strap; csrw stvec, t0; li t0, 0x20; csrw mideleg, t0; li t0, 1; slli t0, t0, 63; csrw menvcfg, t0;
         li t0, 2; csrw mcounteren, t0; li t0, -1; csrw pmpaddr0, t0; li t0, 31; csrw pmpcfg0, t0;
         la t0, s; csrw mepc, t0; li t0, 0x800; csrs mstatus, t0; mret
         s: csrr a0, time; addi a0, a0, 10; csrw stimecmp, a0; csrwi sie, 0; li t0, 0x20; csrw sie, t0; csrsi sstatus, 2; 1: j 1b
         .balign 4; strap: csrr a1, scause; csrr a2, time; li t0, -1; csrw stimecmp, t0; csrr a3, sip; 2: j 2b",
    ) else {
        return;
    };
    for _ in 0..100 {
        rig.run(0, 20);
    }
    let x = |n| rig.harts[0].x(n);
    assert_eq!(x(11), 1 << 63 | 5);
    assert!(x(12) >= x(10) && x(12) <= x(10) + 2, "at {} for {}", x(12), x(10));
    assert_eq!(x(13) & 0x20, 0);
}

#[test]
fn another_harts_store_breaks_a_reservation_and_only_there() {
    for (offset, succeeds) in [(0, false), (63, false), (64, true)] {
        let source = format!(
            "la t0, cell; bnez a0, 1f; lr.d a1, (t0); nop; sc.d a2, t0, (t0); 2: j 2b
             1: sb a0, {offset}(t0); 3: j 3b
             .balign 4096; cell: .skip 128"
        );
        let Some(mut rig) = rig("reservation", 2, &source) else { return };
        rig.harts[0].set_x(12, 7);
        // Give hart 1 a cached write permission first: it must be taken away.
        let mut warm = rig.harts[1].clone();
        rig.run(1, 4);
        std::mem::swap(&mut warm, &mut rig.harts[1]);
        rig.run(0, 4);
        rig.run(1, 4);
        rig.run(0, 3);
        assert_eq!(rig.harts[0].x(12), u64::from(!succeeds), "store at {offset}");
    }
}

#[test]
fn a_cached_write_permission_does_not_hide_a_store_from_a_reservation() {
    let Some(mut rig) = rig(
        "reservation-warm",
        2,
        "la t0, cell; bnez a0, 1f; lr.d a1, (t0); nop; sc.d a2, t0, (t0); 2: j 2b
         1: sb a0, 0(t0); j 1b
         .balign 4096; cell: .skip 128",
    ) else {
        return;
    };
    rig.run(1, 50);
    rig.run(0, 4);
    rig.run(1, 2);
    rig.run(0, 3);
    assert_eq!(rig.harts[0].x(12), 1);
}

#[test]
fn stored_code_runs_at_once() {
    // The patched instruction is in the same block, later in it, and in another block.
    let Some(mut rig) = rig(
        "smc",
        1,
        ".option norvc; la t0, 1f; la t1, new; lw t2, 0(t1); li a0, 0; li s0, 3
         again: sw t2, 0(t0); 1: addi a0, a0, 1; addi a1, a1, 1; addi s0, s0, -1; bnez s0, again; 2: j 2b
         new: addi a0, a0, 100",
    ) else {
        return;
    };
    rig.run(0, 60);
    assert_eq!((rig.harts[0].x(10), rig.harts[0].x(11)), (300, 3));
}

#[test]
fn another_harts_and_a_devices_stores_into_code_are_seen() {
    let Some(mut rig) = rig(
        "smc-remote",
        2,
        ".option norvc; la t0, 1f; la t1, new; lw t2, 0(t1); bnez a0, 3f; 2: nop; 1: addi a1, a1, 1; j 2b
         3: sw t2, 0(t0); 4: j 4b; new: addi a2, a2, 1",
    ) else {
        return;
    };
    rig.run(0, 100);
    assert_eq!(rig.harts[0].x(12), 0);
    let before = rig.harts[0].x(11);
    rig.run(1, 20);
    rig.run(0, 30);
    assert_eq!(rig.harts[0].x(11), before);
    assert_eq!(rig.harts[0].x(12), 10);
    let nop = 0x13u32.to_le_bytes();
    let at = rig.harts[0].x(5) - BASE;
    rig.ram.write(at, &nop).expect("in memory");
    rig.run(0, 30);
    assert_eq!(rig.harts[0].x(12), 10);
}

#[test]
fn an_instruction_may_cross_into_a_changed_page() {
    let Some(mut rig) = rig(
        "straddle",
        1,
        "la t0, page + 4096; j page + 4094; .balign 4096; page: .skip 4094; .option norvc; .word 0x00150513; li t1, 0x0025; sh t1, 0(t0); j page + 4094",
    ) else {
        return;
    };
    rig.harts[0].set_x(10, 0);
    rig.run(0, 4);
    assert_eq!(rig.harts[0].x(10), 1, "addi a0, a0, 1");
    rig.run(0, 4);
    assert_eq!(rig.harts[0].x(10), 3, "addi a0, a0, 2 after the upper half changed");
}

#[test]
fn a_fork_shares_nothing_it_writes() {
    let Some(mut rig) = rig(
        "fork",
        1,
        "la t0, cell; li a1, 0; 1: addi a1, a1, 1; sd a1, 0(t0); j 1b; .balign 4096; cell: .quad 0",
    ) else {
        return;
    };
    rig.run(0, 100);
    let cell = rig.harts[0].x(5) - BASE;
    let read = |rig: &Rig| {
        let mut bytes = [0; 8];
        rig.ram.read(cell, &mut bytes).expect("in memory");
        u64::from_le_bytes(bytes)
    };
    let before = read(&rig);
    let mut child = Rig {
        ram: rig.ram.fork(),
        bench: bare::Bench::default(),
        engine: Default::default(),
        harts: rig.harts.clone(),
    };
    rig.run(0, 300);
    assert_eq!(read(&child), before);
    assert_eq!(read(&rig), before + 100);
    child.run(0, 30);
    assert_eq!(read(&child), before + 10);
    assert_eq!(read(&rig), before + 100);
}

#[test]
fn untouched_memory_has_no_storage() {
    let Some(mut rig) = rig(
        "untouched",
        1,
        "li t0, 0x80400000; li s0, 1000; 1: ld a0, 0(t0); li t1, 4096; add t0, t0, t1; addi s0, s0, -1; bnez s0, 1b; sd t0, 0(t0); 2: j 2b",
    ) else {
        return;
    };
    let before = rig.ram.touched().count();
    rig.run(0, 7000);
    assert_eq!(rig.ram.touched().count(), before + 1);
}

#[test]
fn denials_are_precise_and_not_remembered() {
    let Some(mut rig) = rig(
        "deny",
        1,
        "la t0, trap; csrw mtvec, t0; la s1, cell; li s2, 0; 1: sd s2, 8(s1); addi s2, s2, 1; j 1b
         .balign 4; trap: csrr a1, mcause; csrr a2, mtval; addi a3, a3, 1; csrr t1, mepc; .option norvc; addi t1, t1, 4; csrw mepc, t1; mret
         .balign 4096; cell: .skip 4096",
    ) else {
        return;
    };
    rig.run(0, 100);
    let cell = rig.harts[0].x(9);
    assert_eq!(rig.harts[0].x(13), 0);
    let frame = Frame(((cell - BASE) / 4096) as u32);
    rig.bench.deny = Some(AccessFault::Access);
    rig.ram.set_attr(frame, attr::FIREWALL, 0);
    let before = rig.harts[0].x(18);
    rig.run(0, 1000);
    assert!(rig.harts[0].x(13) > 10, "every store is denied");
    assert_eq!((rig.harts[0].x(11), rig.harts[0].x(12)), (7, cell + 8));
    let mut bytes = [0; 8];
    rig.ram.read(cell + 8 - BASE, &mut bytes).expect("in memory");
    assert!(u64::from_le_bytes(bytes) <= before, "memory keeps its value");
    rig.bench.deny = None;
    let denied = rig.harts[0].x(13);
    rig.run(0, 1000);
    assert!(rig.harts[0].x(13) <= denied + 1, "permission granted again works at once");
    rig.bench.deny = Some(AccessFault::Hardware);
    rig.ram.set_attr(frame, attr::POISON, 0);
    rig.run(0, 1000);
    assert_eq!(rig.harts[0].x(11), 19);
}

#[test]
fn an_injected_exception_takes_the_place_of_an_instruction() {
    let Some(mut rig) = rig(
        "inject",
        1,
        "la t0, trap; csrw mtvec, t0; 1: addi a3, a3, 1; j 1b; .balign 4; trap: csrr a1, mcause; csrr a2, mtval; mret",
    ) else {
        return;
    };
    rig.run(0, 50);
    rig.harts[0].inject(Trap { cause: Exception::HardwareError, value: 0x1234 });
    assert_eq!(rig.run(0, 4).executed, 4);
    assert_eq!((rig.harts[0].x(11), rig.harts[0].x(12)), (19, 0x1234));
}

#[test]
fn accessed_and_dirty_bits_fault_when_clear() {
    // S-mode, one gigabyte page over DRAM and a 4 KB page with flags from s3.
    for (flags, load, store) in [(0xc7, 0, 0), (0x47, 0, 15), (0x87, 13, 15), (0x07, 13, 15)] {
        let source = format!(
            "la t0, trap; csrw mtvec, t0; li t0, -1; csrw pmpaddr0, t0; li t0, 31; csrw pmpcfg0, t0
             li t0, 0x80000000 >> 2 | 0xcf; la t1, root; sd t0, 16(t1); la t2, middle; srli t0, t2, 2; ori t0, t0, 1; sd t0, 0(t1)
             la t3, leaf; srli t0, t3, 2; ori t0, t0, 1; sd t0, 0(t2); li t0, (0x80000000 >> 2) | {flags:#x}; sd t0, 0(t3)
             srli t1, t1, 12; li t0, 8 << 60; or t0, t0, t1; csrw satp, t0; sfence.vma
             li t0, 0x20800; csrs mstatus, t0; li s1, 0; la s3, 1f; ld a0, 0(s1); 1: mv s4, a1; li a1, 0; la s3, 2f; ld s5, 8(s1); sd s5, 8(s1); 2: mv s5, a1; 3: j 3b
             .balign 4; trap: csrr a1, mcause; csrw mepc, s3; li t0, 0x1800; csrs mstatus, t0; li t0, 0x20000; csrc mstatus, t0; la t0, 4f; mret
             4: nop; .balign 4096; root: .skip 4096; middle: .skip 4096; leaf: .skip 4096"
        );
        // After a trap MPRV is off, so each access gets its own program run.
        let Some(mut rig) = rig("accessed", 1, &source) else { return };
        rig.run(0, 200);
        let h = &rig.harts[0];
        assert_eq!(h.x(20), load, "load with flags {flags:#x}");
        if load == 0 {
            assert_eq!(h.x(21), store, "store with flags {flags:#x}");
        }
        let mut pte = [0; 8];
        let leaf = h.x(28) - BASE;
        rig.ram.read(leaf, &mut pte).expect("in memory");
        assert_eq!(pte[0], flags, "the walker writes nothing");
    }
}

#[test]
fn a_debugger_sees_and_writes_csrs() {
    let mut rig = Rig::new(3, &[]);
    assert_eq!(rig.harts[2].csr(number::MHARTID, 0, 0), Some(2));
    assert_eq!(rig.harts[0].csr(0x7c0, 0, 0), None);
    assert_eq!(rig.harts[0].set_csr(number::SATP, 5 << 60), Some(()));
    assert_eq!(rig.harts[0].csr(number::SATP, 0, 0), Some(0), "no such mode");
    rig.harts[0].set_privilege(Privilege::User);
    assert_eq!(rig.harts[0].csr(number::MSCRATCH, 0, 0), Some(0));
    assert_eq!(rig.harts[0].csr(number::MISA, 0, 0), Some(0x8000_0000_0014_112d));
}

#[test]
fn a_fetch_from_nowhere_is_an_access_fault() {
    let Some(mut rig) = rig(
        "nowhere",
        1,
        "la t0, trap; csrw mtvec, t0; li t0, 0x70000000; jr t0; .balign 4; trap: csrr a1, mcause; csrr a2, mtval; csrr a3, mepc; 1: j 1b",
    ) else {
        return;
    };
    rig.run(0, 30);
    let x = |n| rig.harts[0].x(n);
    assert_eq!((x(11), x(12), x(13)), (1, 0x7000_0000, 0x7000_0000));
    assert_eq!(map::DRAM, BASE);
}
