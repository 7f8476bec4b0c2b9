//! Differential test of translation and protection against QEMU: page-table entries of every
//! kind, SUM, MXR, privilege, PMP, for loads, stores and fetches.
//!
//! A table of cases drives one bare-metal program: it sets the three page-table entries, PMP and
//! `mstatus` of a case, makes the access, and keeps cause and value of the trap that follows (a
//! fetch lands on an ECALL). QEMU 7.2 updates A and D in hardware, so these are set in every case
//! here; that they fault when clear is tested in `hart.rs`.

mod bare;

use std::fmt::Write;

const ROOT: u64 = bare::BASE + 0x30_0000;
const MIDDLE: u64 = ROOT + 0x1000;
const LEAF: u64 = ROOT + 0x2000;
const PAGE: u64 = ROOT + 0x3000;
const RESULTS: u64 = bare::BASE + 0x80_0000;

/// Base of the virtual addresses under test: root entry 1.
const VA: u64 = 0x4000_0000;

const V: u64 = 1;
const RWX: u64 = 14;
const U: u64 = 16;
const AD: u64 = 0xc0;
const SUM: u64 = 1 << 18;
const MXR: u64 = 1 << 19;
/// PMP entry 1 over everything, RWX.
const PMP_ALL: u64 = 0x1f << 8;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Case {
    root: u64,
    middle: u64,
    leaf: u64,
    va: u64,
    /// SUM, MXR, and the mode in MPP's place.
    status: u64,
    /// 0 load, 1 store, 2 fetch.
    access: u64,
    pmpcfg0: u64,
    pmpaddr0: u64,
}

fn pte(pa: u64, flags: u64) -> u64 {
    pa >> 2 | flags
}

fn plain() -> Case {
    Case {
        root: pte(MIDDLE, V),
        middle: pte(LEAF, V),
        leaf: pte(PAGE, V | RWX | AD),
        va: VA,
        status: 1 << 11,
        access: 0,
        pmpcfg0: PMP_ALL,
        pmpaddr0: 0,
    }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut each = |case: Case| {
        for access in 0..3 {
            for mode in 0..2 {
                for extra in [0, SUM, MXR, SUM | MXR] {
                    all.push(Case { access, status: mode << 11 | extra, ..case });
                }
            }
        }
    };
    for flags in 0..64 {
        each(Case { leaf: pte(PAGE, flags | AD), ..plain() });
    }
    // Superpages, aligned and not.
    for flags in [V | RWX, V | RWX | U, V | 2 | U, V | 8] {
        each(Case { middle: pte(bare::BASE, flags | AD), va: VA + 0x10_3000, ..plain() });
        each(Case {
            middle: pte(bare::BASE + 0x20_0000, flags | AD),
            va: VA + 0x10_3000,
            ..plain()
        });
        each(Case { middle: pte(PAGE, flags | AD), ..plain() });
        each(Case { root: pte(bare::BASE, flags | AD), va: VA + 0x30_3000, ..plain() });
        each(Case { root: pte(bare::BASE + 0x20_0000, flags | AD), ..plain() });
    }
    // Pointers that are no pointers, tables that are nowhere, reserved bits.
    for flags in [0, V | U, V | 0x40, V | 0x80, V | 4, V | 0x20, V | 0x300] {
        each(Case { root: pte(MIDDLE, flags), ..plain() });
        each(Case { middle: pte(LEAF, flags), ..plain() });
    }
    for bit in [54, 58, 60] {
        each(Case { leaf: pte(PAGE, V | RWX | AD) | 1 << bit, ..plain() });
        each(Case { middle: pte(LEAF, V) | 1 << bit, ..plain() });
    }
    each(Case { leaf: pte(LEAF, V), ..plain() });
    for va in [VA | 1 << 39, VA | 1 << 38, VA | 1 << 63, u64::MAX << 39 | VA, VA + 0x1000, 0] {
        each(Case { va, ..plain() });
    }
    // PMP entry 0 over the page, over its second half, over each table, in every mode and right.
    for flags in [V | RWX | AD, V | RWX | U | AD] {
        for target in [ROOT, MIDDLE, LEAF, PAGE] {
            for config in [0x18, 0x19, 0x1b, 0x1c, 0x1d, 0x10, 0x11, 0x13, 0x14, 0x15] {
                let napot = if config >> 3 & 3 == 3 { 0x1ff } else { 0 };
                each(Case {
                    leaf: pte(PAGE, flags),
                    pmpcfg0: PMP_ALL | config,
                    pmpaddr0: target >> 2 | napot,
                    ..plain()
                });
            }
        }
        for config in [0x08, 0x09, 0x0b, 0x0d, 0x0f] {
            let pmpaddr0 = PAGE >> 2;
            each(Case { leaf: pte(PAGE, flags), pmpcfg0: PMP_ALL | config, pmpaddr0, ..plain() });
            each(Case {
                leaf: pte(PAGE, flags),
                pmpcfg0: config,
                pmpaddr0: pmpaddr0 + 2,
                ..plain()
            });
        }
        each(Case { leaf: pte(PAGE, flags), pmpcfg0: 0x1b, pmpaddr0: 0x3fff_ffff_ffff, ..plain() });
    }
    all
}

fn program(cases: &[Case]) -> String {
    let mut s = format!(
        ".globl _start\n_start:\n.option norelax\n la t0, trap\n csrw mtvec, t0\n\
         li t0, -1\n srli t0, t0, 10\n csrw pmpaddr1, t0\n\
         li t0, {PAGE:#x}\n li t1, 0x73\n sd t1, 0(t0)\n\
         li t0, {ROOT:#x} >> 12\n li t1, 8 << 60\n or s10, t0, t1\n\
         la s0, cases\n li s1, {RESULTS:#x}\n li s2, {}\n\
         next:\n\
         li t0, {ROOT:#x}\n ld t1, 0(s0)\n sd t1, 8(t0)\n\
         li t0, {MIDDLE:#x}\n ld t1, 8(s0)\n sd t1, 0(t0)\n\
         li t0, {LEAF:#x}\n ld t1, 16(s0)\n sd t1, 0(t0)\n\
         ld t2, 24(s0)\n ld t3, 32(s0)\n ld t4, 40(s0)\n\
         ld t1, 56(s0)\n csrw pmpaddr0, t1\n ld t1, 48(s0)\n csrw pmpcfg0, t1\n\
         csrw satp, s10\n sfence.vma\n\
         li a0, -1\n li a1, -1\n la s11, done\n\
         li t0, 0xc1800\n csrc mstatus, t0\n csrs mstatus, t3\n\
         li t0, 2\n beq t4, t0, fetch\n\
         li t0, 0x20000\n bnez t4, store\n\
         csrs mstatus, t0\n ld a1, 0(t2)\n li a0, 100\n j done\n\
         store:\n li a2, 0x73\n csrs mstatus, t0\n sd a2, 0(t2)\n li a0, 101\n j done\n\
         fetch:\n csrw mepc, t2\n mret\n\
         done:\n li t0, 0x20000\n csrc mstatus, t0\n\
         sd a0, 0(s1)\n sd a1, 8(s1)\n addi s1, s1, 16\n addi s0, s0, 64\n addi s2, s2, -1\n\
         bnez s2, next\n\
         li s0, {RESULTS:#x}\n li t1, 0x10000000\n\
         1: lbu t0, 0(s0)\n sb t0, 0(t1)\n addi s0, s0, 1\n bltu s0, s1, 1b\n\
         li t0, 0x100000\n li t1, 0x5555\n sw t1, 0(t0)\n 2: j 2b\n\
         .balign 4\n trap:\n csrr a0, mcause\n csrr a1, mtval\n csrw mepc, s11\n\
         li t0, 0x20000\n csrc mstatus, t0\n li t0, 0x1800\n csrs mstatus, t0\n mret\n\
         .balign 8\ncases:\n",
        cases.len()
    );
    for c in cases {
        let words = [c.root, c.middle, c.leaf, c.va, c.status, c.access, c.pmpcfg0, c.pmpaddr0];
        let list: Vec<String> = words.iter().map(|w| format!("{w:#x}")).collect();
        let _ = writeln!(s, ".quad {}", list.join(", "));
    }
    s
}

#[test]
fn translation_and_protection_as_on_qemu() {
    let cases = cases();
    let Some(image) = bare::assemble("privileged", &program(&cases)) else { return };
    let Some(theirs) = bare::run_qemu("privileged", &image) else { return };
    let mut rig = bare::Rig::new(1, &image);
    assert_eq!(rig.finish(200_000_000), 0x5555);
    let ours = &rig.bench.output;
    assert_eq!((ours.len(), theirs.len()), (cases.len() * 16, cases.len() * 16));
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let seen: std::collections::BTreeSet<u64> =
        ours.chunks(16).map(|result| word(&result[..8])).collect();
    assert_eq!(seen, [1, 5, 7, 8, 9, 12, 13, 15, 100, 101].into(), "kinds of outcome");
    let mut report = String::new();
    let mut differing = 0;
    for (n, case) in cases.iter().enumerate() {
        let at = |bytes: &[u8]| {
            (word(&bytes[n * 16..n * 16 + 8]), word(&bytes[n * 16 + 8..n * 16 + 16]))
        };
        if at(ours) != at(&theirs) {
            differing += 1;
            if differing <= 20 {
                let _ =
                    writeln!(report, "{case:x?}: ours {:x?}, QEMU {:x?}", at(ours), at(&theirs));
            }
        }
    }
    assert!(differing == 0, "{differing} of {} cases differ:\n{report}", cases.len());
    eprintln!("{} cases of translation and protection: as on QEMU", cases.len());
}
