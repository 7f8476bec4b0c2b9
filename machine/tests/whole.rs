//! The machine as guests see it: boot, console, interrupts, interleaving, determinism, replay.

mod asm;

use asm::*;
use hive_machine::config::Config;
use hive_machine::env::{Input, Recorder};
use hive_machine::machine::{Machine, Stop, Until};
use hive_platform::map;

fn hello() -> Vec<u8> {
    let mut a = Asm::new();
    a.bne(A0, ZERO, "rest").li(S0, map::uart(0));
    for byte in b"hello\n" {
        a.addi(T0, ZERO, i32::from(*byte)).sb(T0, 0, S0);
    }
    a.addi(A0, ZERO, 7).exit_a0();
    a.label("rest").wfi().j("rest");
    a.finish()
}

#[test]
fn prints_and_exits_with_the_guests_code() {
    for name in ["smp4", "flash4", "wide64"] {
        let (stop, seen) = run(&mut machine(&preset(name), hello()));
        assert_eq!(stop, Stop::Exit(7), "{name}");
        assert_eq!(seen.text(0), "hello\n");
    }
}

#[test]
fn a_machine_where_all_wait_is_stuck_and_an_input_goes_on() {
    // Echoes one byte when its interrupt comes through the PLIC, M-mode context 0.
    let mut a = Asm::new();
    a.bne(A0, ZERO, "rest").la(T0, "trap").csrw(MTVEC, T0);
    a.li(S0, map::plic(0)).addi(T0, ZERO, 1).sw(T0, 4 * map::UART_IRQ as i32, S0);
    a.li(T1, map::plic(0) + 0x2000).li(T0, 1 << map::UART_IRQ).sw(T0, 0, T1);
    a.li(S1, map::uart(0)).addi(T0, ZERO, 1).sb(T0, 1, S1);
    a.li(T0, 1 << 11).csrw(MIE, T0).addi(T0, ZERO, 8).csrw(MSTATUS, T0);
    a.label("rest").wfi().j("rest");
    a.label("trap").lbu(A0, 0, S1).sb(A0, 0, S1).exit_a0();
    let image = a.finish();
    let mut m = machine(&preset("smp4"), image.clone());
    let mut seen = Recorder::default();
    assert_eq!(m.run(Until::END, &mut seen), Stop::Stuck);
    let at = m.input(Input::Console { node: 0, bytes: vec![42] }).unwrap();
    assert!(at >= m.cycle());
    assert_eq!(m.run(Until::END, &mut seen), Stop::Exit(42));
    assert_eq!(seen.console[0], [42]);
    // The log drives a second machine to the same end.
    let mut again = machine(&preset("smp4"), image.clone());
    again.replay(m.log()).unwrap();
    assert_eq!(again.run(Until::END, &mut ()), Stop::Exit(42));
    assert_eq!(again.trace_hash(), m.trace_hash());
    assert_eq!(again.instructions(), m.instructions());
    let mut other = machine(&preset("smp4").with_seed(9), image);
    assert!(other.replay(m.log()).is_err());
}

/// Every hart adds to a counter until it has seen it reach a bound, pausing now and then.
fn contend() -> Vec<u8> {
    let mut a = Asm::new();
    a.la(S0, "counter").addi(T1, ZERO, 1).li(A2, 20_000);
    a.label("loop").amoadd(T0, T1, S0).add(S1, S1, T0).bltu(T0, A2, "loop").mark(5);
    a.bne(A0, ZERO, "rest").pass();
    a.label("rest").wfi().j("rest");
    a.align().label("counter").word(0).word(0);
    a.finish()
}

fn hash(config: &Config, image: &[u8]) -> (String, u64) {
    let mut m = machine(config, image.to_vec());
    assert_eq!(run(&mut m).0, Stop::Exit(0));
    (m.trace_hash(), m.instructions())
}

#[test]
fn same_seed_same_run_and_stops_do_not_show() {
    let config = preset("smp4");
    let image = contend();
    let reference = hash(&config, &image);
    assert_eq!(hash(&config, &image), reference);
    // Stopping after every few instructions, mid-slice, changes nothing.
    let mut m = machine(&config, image.clone());
    let mut n = 0;
    loop {
        n += 137;
        match m.run(Until::instructions(n), &mut ()) {
            Stop::Instructions => assert_eq!(m.instructions(), n),
            Stop::Exit(0) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((m.trace_hash(), m.instructions()), reference);
    // Nor does stopping at cycles or marks.
    let mut m = machine(&config, image.clone());
    let mut c = 0;
    while m.exit_code().is_none() {
        c += 777;
        m.run(Until::cycle(c).or_mark(5), &mut ());
    }
    assert_eq!((m.trace_hash(), m.instructions()), reference);
    // The interleaving is part of the machine: another slice length is another machine.
    let mut other = config.clone();
    other.slice_cycles = 90;
    assert_ne!(hash(&other, &image).0, reference.0);
}

#[test]
fn a_fork_goes_its_own_way() {
    let config = preset("smp4");
    let mut m = machine(&config, contend());
    m.run(Until::instructions(5000), &mut ());
    let mut twin = m.fork();
    assert_eq!(twin.trace_hash(), m.trace_hash());
    assert_eq!(run(&mut m).0, Stop::Exit(0));
    assert!(twin.instructions() == 5000);
    assert_eq!(run(&mut twin).0, Stop::Exit(0));
    assert_eq!(twin.trace_hash(), m.trace_hash());
}

#[test]
fn slices_alternate_in_order_of_cycle_and_id() {
    // Each hart writes down which hart ran before it; with WFI absent, slices of 500 cycles
    // alternate 0 1 2 3 0 ...; marks show it.
    let mut a = Asm::new();
    a.label("loop").mark(1).j("loop");
    let mut m = machine(&preset("smp4"), a.finish());
    let mut seen = Recorder::default();
    m.run(Until::cycle(3000), &mut seen);
    let mut order: Vec<(usize, u64)> = Vec::new();
    for mark in &seen.marks {
        if order.last().is_none_or(|(h, _)| *h != mark.hart) {
            order.push((mark.hart, mark.cycle));
        }
    }
    let expected: Vec<(usize, u64)> =
        (0..6).flat_map(|r| (0..4).map(move |h| (h, r * 500))).collect();
    assert_eq!(order, expected);
}

#[test]
fn the_timer_wakes_at_its_cycle_and_time_jumps() {
    let config = preset("smp4");
    let mut a = Asm::new();
    a.bne(A0, ZERO, "rest");
    // mtimecmp of hart 0 = 1000 ticks: 20,000 cycles at 200 MHz.
    a.li(S0, map::aclint(0) + 0x4000).addi(T0, ZERO, 1000).sd(T0, 0, S0);
    a.li(T0, 1 << 7).csrw(MIE, T0).wfi().csrr(A0, TIME).mark(9).pass();
    a.label("rest").wfi().j("rest");
    let (stop, seen) = run(&mut machine(&config, a.finish()));
    assert_eq!(stop, Stop::Exit(0));
    assert_eq!(seen.marks[0].arg, 1000);
    assert!((20_000..20_010).contains(&seen.marks[0].cycle), "{}", seen.marks[0].cycle);
}

#[test]
fn pause_gives_up_the_slice() {
    let mut a = Asm::new();
    a.bne(A0, ZERO, "rest").mark(1).pause().mark(2).pass();
    a.label("rest").wfi().j("rest");
    let (_, seen) = run(&mut machine(&preset("smp4"), a.finish()));
    assert_eq!(seen.marks[1].cycle, 500);
}

#[test]
fn the_device_tree_is_where_a1_points() {
    let mut a = Asm::new();
    a.bne(A0, ZERO, "rest").lw(A0, 0, A1).mark(3).pass();
    a.label("rest").wfi().j("rest");
    let (_, seen) = run(&mut machine(&preset("duo"), a.finish()));
    assert_eq!(seen.marks[0].arg as u32, 0xd00d_feedu32.swap_bytes());
}

#[test]
fn bad_images_are_refused_in_one_line() {
    use hive_machine::machine::boot::{Boot, Firmware};
    let config = preset("flash4");
    let refuse = |boot: Boot| {
        let error = Machine::new(&config, &boot).map(|_| ()).unwrap_err().to_string();
        assert!(!error.contains('\n') && !error.is_empty(), "{error}");
    };
    refuse(Boot::default());
    refuse(Boot { kernel: Some(vec![]), ..Boot::default() });
    refuse(Boot { kernel: Some(vec![0; 200 << 20]), ..Boot::default() });
    refuse(Boot { kernel: Some(hello()), initrd: Some(vec![0; 64 << 20]), ..Boot::default() });
    let firmware = Firmware::Window(vec![0; 3 << 20]);
    refuse(Boot { firmware, ..Boot::default() });
    let image = hive_machine::dev::disk::Image::from_bytes(vec![0; 512]);
    refuse(Boot { kernel: Some(hello()), disks: vec![image; 3], ..Boot::default() });
}
