//! Nodes among themselves: firewall, cutoff, SIPS, votes, mailboxes, failures, storms. Programs
//! run in M-mode on `flash4` (one hart per node) and show what happened by marks.

mod asm;

use asm::*;
use hive_machine::config::Config;
use hive_machine::env::Recorder;
use hive_machine::fault::{Aim, Fault, Mode, When};
use hive_machine::machine::{Machine, Stop, Until};
use hive_platform::controller as reg;
use hive_platform::map;
use hive_platform::sips::Class;

/// Mark of a trap: its argument is `mcause`.
const TRAP: u16 = 100;
/// Marks of values that programs read.
const VALUE: u16 = 101;

const NODE_MEMORY: u64 = 32 << 20;
/// Where harts agree on whose turn it is: in node 0's memory, never closed.
const TURN: u64 = map::DRAM + 0x10_0000;

fn dram(node: u64) -> u64 {
    map::DRAM + node * NODE_MEMORY + 0x20_0000
}

/// Every hart: traps show their cause and skip the instruction; PMP lets S-mode do everything.
/// Then hart n goes to label "n".
fn prologue(a: &mut Asm) {
    a.la(T0, "trap").csrw(MTVEC, T0).addi(T0, ZERO, -1).csrw(PMPADDR0, T0);
    a.addi(T0, ZERO, 0x1f).csrw(PMPCFG0, T0).li(S1, TURN);
    for (n, label) in ["0", "1", "2", "3"].into_iter().enumerate() {
        a.addi(T0, ZERO, n as i32).beq(A0, T0, label);
    }
    a.label("trap").addi(A4, A0, 0).csrr(A0, MCAUSE).mark(TRAP).addi(A0, A4, 0);
    a.csrr(T0, MEPC).addi(T0, T0, 4).csrw(MEPC, T0).mret();
}

/// Waits until it is turn `n`.
fn await_turn(a: &mut Asm, n: i32, label: &'static str) {
    a.label(label).ld(T0, 0, S1).addi(T1, ZERO, n).bne(T0, T1, label);
}

fn give_turn(a: &mut Asm, n: i32) {
    a.addi(T0, ZERO, n).sd(T0, 0, S1);
}

fn show(a: &mut Asm, from: u32) {
    a.addi(A0, from, 0).mark(VALUE);
}

fn marks(seen: &Recorder, code: u16) -> Vec<(usize, u64)> {
    seen.marks.iter().filter(|m| m.code == code).map(|m| (m.hart, m.arg)).collect()
}

fn idle(a: &mut Asm, labels: &[&'static str]) {
    for label in labels {
        a.label(label);
    }
    a.label("idle").wfi().j("idle").j("idle");
}

#[test]
fn the_firewall_denies_grants_and_revokes_at_the_store() {
    let target = dram(1);
    let vector = map::controller(1) + reg::FIREWALL + (target - map::DRAM - NODE_MEMORY) / 4096 * 8;
    let mut a = Asm::new();
    prologue(&mut a);
    a.label("0");
    await_turn(&mut a, 1, "w1");
    a.li(S0, target).addi(A2, ZERO, 55).sd(A2, 0, S0); // denied
    a.ld(A3, 0, S0);
    show(&mut a, A3); // reads are not checked, and nothing changed
    a.amoadd(A3, A2, S0); // denied too
    give_turn(&mut a, 2);
    await_turn(&mut a, 3, "w3");
    a.sd(A2, 0, S0).ld(A3, 0, S0);
    show(&mut a, A3);
    give_turn(&mut a, 4);
    await_turn(&mut a, 5, "w5");
    a.sd(ZERO, 0, S0).ld(A3, 0, S0); // revoked: denied
    show(&mut a, A3);
    a.li(S0, vector).sd(A2, 0, S0); // another node's controller: fault
    a.li(S0, map::uart(1)).lbu(T0, 5, S0); // another node's console: fault
    a.li(S0, map::uart(0)).lbu(A3, 5, S0); // our own firewall is off
    show(&mut a, A3);
    a.pass();
    a.label("1").li(S0, map::controller(1)).addi(T0, ZERO, 1).li(T1, reg::FIREWALL_ON);
    a.add(S0, S0, T1).sd(T0, 0, S0);
    give_turn(&mut a, 1);
    await_turn(&mut a, 2, "w2");
    a.li(S0, vector).addi(T0, ZERO, 3).sd(T0, 0, S0);
    give_turn(&mut a, 3);
    await_turn(&mut a, 4, "w4");
    a.addi(T0, ZERO, 2).sd(T0, 0, S0);
    give_turn(&mut a, 5);
    idle(&mut a, &["2", "3"]);
    let image = a.finish();
    let (stop, seen) = run(&mut machine(&preset("flash4"), image.clone()));
    assert_eq!(stop, Stop::Exit(0));
    assert_eq!(marks(&seen, TRAP), [(0, 7), (0, 7), (0, 7), (0, 7), (0, 5)]);
    assert_eq!(marks(&seen, VALUE), [(0, 0), (0, 55), (0, 55), (0, 0x60)]);
    // Without firewall the same program meets no denial but the controller's.
    let config = preset("flash4").with_firewall(false);
    let (_, seen) = run(&mut machine(&config, image));
    assert_eq!(marks(&seen, TRAP), [(0, 7)]);
}

#[test]
fn cutoff_bars_everyone_else_until_reset() {
    let mut a = Asm::new();
    prologue(&mut a);
    a.label("0");
    await_turn(&mut a, 1, "w1");
    a.li(S0, dram(1)).ld(T0, 0, S0).sd(T0, 0, S0);
    give_turn(&mut a, 2);
    await_turn(&mut a, 3, "w3");
    a.ld(T0, 0, S0).pass();
    a.label("1").li(S0, dram(1)).li(A2, map::controller(1) + reg::CUTOFF).addi(T0, ZERO, 1);
    a.ld(T1, 0, S1).bne(T1, ZERO, "again"); // second life
    a.sd(T0, 0, A2).sd(ZERO, 0, A2).sd(T0, 0, S0);
    give_turn(&mut a, 1);
    await_turn(&mut a, 2, "w2");
    a.li(A2, map::controller(1) + reg::RESET).sd(T0, 0, A2);
    a.label("again").li(A2, map::controller(1) + reg::RESET_CAUSE).ld(A3, 0, A2);
    show(&mut a, A3);
    give_turn(&mut a, 3);
    idle(&mut a, &["2", "3"]);
    let (stop, seen) = run(&mut machine(&preset("flash4"), a.finish()));
    assert_eq!(stop, Stop::Exit(0));
    assert_eq!(marks(&seen, TRAP), [(0, 5), (0, 7)]);
    assert_eq!(marks(&seen, VALUE), [(1, reg::RESET_WARM)]);
}

#[test]
fn a_line_wakes_its_receiver_by_a_local_interrupt() {
    let mut a = Asm::new();
    prologue(&mut a);
    a.label("0").li(S0, map::controller(0) + reg::SIPS_TX).addi(T0, ZERO, 99).sd(T0, 8, S0);
    await_turn(&mut a, 1, "w1");
    a.li(T0, reg::sips_send(2, Class::Agreement)).sd(T0, 0x80, S0).ld(A3, 0x88, S0);
    show(&mut a, A3);
    a.label("spin").j("spin");
    a.label("2").li(S0, map::controller(2)).addi(T0, ZERO, 1);
    a.li(T1, reg::READY).add(T1, T1, S0).sd(T0, 0, T1);
    a.li(T0, 1 << map::SIPS_INTERRUPT[2]).csrw(MIE, T0);
    give_turn(&mut a, 1);
    a.wfi().csrr(A3, MIP);
    show(&mut a, A3);
    a.li(T1, reg::SIPS_RX + 8 * Class::Agreement as u64).add(T1, T1, S0).ld(A2, 0, T1);
    show(&mut a, A2);
    a.addi(A2, A2, -1).slli(A2, A2, 7).li(T1, reg::SIPS_SLOTS).add(T1, T1, S0).add(T1, T1, A2);
    a.ld(A3, 8, T1);
    show(&mut a, A3);
    a.pass();
    idle(&mut a, &["1", "3"]);
    let (stop, seen) = run(&mut machine(&preset("flash4"), a.finish()));
    assert_eq!(stop, Stop::Exit(0));
    let id = reg::rx_id(Class::Agreement, 0, 0);
    let values = marks(&seen, VALUE);
    assert!(values.contains(&(0, 0)), "{values:x?}");
    let of_two: Vec<u64> = values.iter().filter(|v| v.0 == 2).map(|v| v.1).collect();
    assert_eq!(of_two, [1 << 26, id + 1, 99]);
}

#[test]
fn votes_reset_a_node_and_nothing_less() {
    let mut a = Asm::new();
    prologue(&mut a);
    for n in ["0", "1", "2", "3"] {
        a.label(n).addi(A0, ZERO, n.parse().unwrap());
        a.j("all");
    }
    a.label("all").slli(S0, A0, 24).li(T0, map::controller(0)).add(S0, S0, T0);
    a.ld(A3, reg::RESET_CAUSE as i32, S0);
    show_with_hart(&mut a);
    a.addi(T0, ZERO, 1).sd(T0, reg::READY as i32, S0);
    a.csrr(A0, 0xf14).addi(T0, ZERO, 3).beq(A0, T0, "idle").addi(T0, ZERO, 2).beq(A0, T0, "idle");
    // Let everyone get ready, then harts 0 and 1 name node 3: two of three others.
    a.li(T1, 2000).label("delay").addi(T1, T1, -1).bne(T1, ZERO, "delay");
    a.addi(T0, ZERO, 8).sd(T0, reg::VOTE as i32, S0);
    idle(&mut a, &[]);
    let mut m = machine(&preset("flash4"), a.finish());
    let mut seen = Recorder::default();
    assert_eq!(m.run(Until::cycle(2_000_000), &mut seen), Stop::Stuck);
    let causes = marks(&seen, VALUE);
    let cold = |h| (h, reg::RESET_COLD);
    assert_eq!(causes, [cold(0), cold(1), cold(2), cold(3), (3, reg::RESET_VOTED)]);
}

fn show_with_hart(a: &mut Asm) {
    a.addi(A0, A3, 0).mark(VALUE);
}

#[test]
fn letters_raise_the_software_interrupt() {
    let mut a = Asm::new();
    prologue(&mut a);
    a.label("0").li(S0, map::controller(0) + reg::MAILBOX_TX).addi(T0, ZERO, 77).sd(T0, 16, S0);
    a.addi(T0, ZERO, 3).sd(T0, 0x18, S0).sd(T0, 0x18, S0).ld(A3, 0x20, S0);
    show(&mut a, A3); // the second one: full
    a.label("spin").j("spin");
    a.label("3").addi(T0, ZERO, 8).csrw(MIE, T0).wfi();
    a.li(S0, map::controller(3) + reg::MAILBOX_TX).ld(A3, 0x28, S0);
    show(&mut a, A3);
    a.ld(A3, 0x40, S0);
    show(&mut a, A3);
    a.sd(ZERO, 0x48, S0).csrr(A3, MIP);
    show(&mut a, A3);
    a.pass();
    idle(&mut a, &["1", "2"]);
    let (stop, seen) = run(&mut machine(&preset("flash4"), a.finish()));
    assert_eq!(stop, Stop::Exit(0));
    let mut values = marks(&seen, VALUE);
    values.sort();
    assert_eq!(values, [(0, 1), (3, 0), (3, 1), (3, 77)]);
}

/// Harts turn their firewalls on; hart 0 then reads node 1's memory for ever, others count up a
/// word of their own memory.
fn busy() -> Vec<u8> {
    let mut a = Asm::new();
    prologue(&mut a);
    a.label("0").li(S0, map::controller(0)).addi(T0, ZERO, 1).sd(T0, reg::FIREWALL_ON as i32, S0);
    a.li(S0, dram(1)).label("r").ld(T0, 0, S0).j("r");
    for (n, again) in [("1", "c1"), ("2", "c2"), ("3", "c3")] {
        let node = n.parse::<u64>().unwrap();
        a.label(n).li(S0, map::controller(node as usize)).addi(T0, ZERO, 1);
        a.sd(T0, reg::FIREWALL_ON as i32, S0);
        a.li(S0, dram(node)).label(again).addi(T0, T0, 1).sd(T0, 0, S0).j(again);
    }
    a.finish()
}

fn word(m: &Machine, pa: u64) -> u64 {
    let mut bytes = [0; 8];
    m.ram().read(pa - map::DRAM, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn a_failed_node_answers_with_faults_from_its_cycle_on() {
    let mut m = machine(&preset("flash4"), busy());
    m.inject(Fault::NodeFailure { node: 1 }, When::At(40_001)).unwrap();
    let mut seen = Recorder::default();
    m.run(Until::cycle(80_000), &mut seen);
    let first = seen.marks.iter().find(|m| m.code == TRAP).unwrap();
    assert_eq!((first.hart, first.arg), (0, 5));
    assert!((40_001..40_020).contains(&first.cycle), "{}", first.cycle);
    let injection = &m.injections()[0];
    assert_eq!((injection.cycle, m.mode(1)), (40_001, Mode::Stopped));
    assert!(injection.modes.iter().all(|mode| *mode == Mode::Firmware));
    assert!(m.clock(1) <= 40_001 && m.clock(2) >= 80_000);
}

#[test]
fn a_halted_hart_stands_and_its_memory_stays() {
    let mut m = machine(&preset("flash4"), busy());
    m.inject(Fault::HartHalt { hart: 1 }, When::At(30_000)).unwrap();
    let mut seen = Recorder::default();
    m.run(Until::cycle(40_000), &mut seen);
    let before = word(&m, dram(1));
    m.run(Until::cycle(90_000), &mut seen);
    assert_eq!(word(&m, dram(1)), before);
    assert!(before > 1000 && marks(&seen, TRAP).is_empty());
}

#[test]
fn a_hardware_error_is_cause_19_and_when_waits_for_a_mode() {
    let mut a = Asm::new();
    prologue(&mut a);
    a.label("2").li(T1, 5000).label("d").addi(T1, T1, -1).bne(T1, ZERO, "d");
    idle(&mut a, &["0", "1", "3"]);
    let mut m = machine(&preset("flash4"), a.finish());
    // The handler skips an instruction: there are two jumps back.
    let when = When::InMode { hart: 2, mode: Mode::Idle, after: 1000 };
    m.inject(Fault::HardwareError { hart: 2 }, when).unwrap();
    let mut seen = Recorder::default();
    assert_eq!(m.run(Until::cycle(2_000_000), &mut seen), Stop::Stuck);
    assert_eq!(marks(&seen, TRAP), [(2, 19)]);
    assert!(m.injections()[0].cycle > 10_000);
    assert_eq!(m.fault_counts().hardware_errors, 1);
}

#[test]
fn wild_writes_stay_in_their_node_unless_there_is_no_firewall() {
    let storm = |config: &Config| {
        let mut m = machine(config, busy());
        m.inject(Fault::WildWrites { node: 2 }, When::At(20_000)).unwrap();
        m.run(Until::cycle(120_000), &mut ());
        (m.injections()[0].storm.clone().unwrap(), m.trace_hash(), m.exit_code())
    };
    let config = preset("flash4");
    let (report, hash, exit) = storm(&config);
    let total: u64 = report.shots.values().map(|s| s.tried).sum();
    assert_eq!(total, 100_000);
    for aim in [Aim::OtherMemory, Aim::OtherDevice, Aim::OtherController, Aim::Board] {
        let shots = report.shots[&aim];
        assert!(shots.tried > 500 && shots.landed == 0, "{aim:?} {shots:?}");
    }
    assert!(report.shots[&Aim::OwnMemory].landed > 1000);
    assert!(report.changed.is_empty() && exit.is_none());
    assert_eq!(storm(&config), (report, hash, exit), "same seed, same storm");
    let (report, ..) = storm(&config.clone().with_firewall(false));
    assert!(report.changed.len() > 100 && report.escapes().count() == report.changed.len());
}
