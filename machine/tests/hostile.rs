//! Nothing a guest does crashes or hangs the host: random code, random accesses to every device,
//! random rings under a running disk.

mod asm;

use asm::*;
use hive_machine::dev::disk::Image;
use hive_machine::env::Input;
use hive_machine::fault::{Fault, When};
use hive_machine::machine::boot::Boot;
use hive_machine::machine::{Machine, Until};
use hive_machine::seed::{Random, Stream};
use hive_platform::{controller as reg, map};

const RUNS: u64 = 12;
const CYCLES: u64 = 60_000;

fn random(seed: u64) -> Random {
    Random::new(seed, Stream::Storm, 99)
}

fn start(seed: u64, image: Vec<u8>) -> Machine {
    let config = preset("flash4").with_seed(seed);
    let disks = vec![Image::from_bytes(vec![0x5a; 1 << 20])];
    Machine::new(&config, &Boot { kernel: Some(image), disks, ..Boot::default() }).unwrap()
}

#[test]
fn random_code() {
    for seed in 0..RUNS {
        let mut bytes = vec![0; 16 << 10];
        random(seed).fill(&mut bytes);
        let mut m = start(seed, bytes);
        m.run(Until::cycle(CYCLES), &mut ());
    }
}

/// A program that does `count` random loads and stores at random places of every device, from
/// every hart, with faults in between; traps are skipped.
fn pokes(random: &mut Random, count: usize) -> Vec<u8> {
    let mut a = Asm::new();
    a.la(T0, "trap").csrw(MTVEC, T0).addi(T0, ZERO, -1).csrw(PMPADDR0, T0);
    a.addi(T0, ZERO, 0x1f).csrw(PMPCFG0, T0).addi(T0, ZERO, 0).j("go");
    // Interrupts stay off: each trap is an exception to be skipped.
    a.label("trap").csrr(T0, MEPC).addi(T0, T0, 4).csrw(MEPC, T0).mret();
    a.label("go");
    for _ in 0..count {
        let node = random.below(4) as usize;
        let pa = match random.below(12) {
            0 => map::aclint(node) + random.below(map::ACLINT_SIZE),
            1 => map::plic(node) + random.below(map::PLIC_SIZE),
            2 => map::plic(node) + 0x20_0000 + random.below(0x3000),
            3 => map::uart(node) + random.below(0x10),
            4 | 5 => {
                let slot = random.below(map::VIRTIO_SLOTS as u64) as usize;
                map::virtio(node, slot) + random.below(0x110)
            }
            6 => map::controller(node) + random.below(0x3000),
            7 => map::controller(node) + reg::SIPS_SLOTS + random.below(1 << 19),
            8 => map::controller(node) + reg::FIREWALL + random.below(1 << 17),
            9 => map::RTC + random.below(0x20),
            10 => map::REMAP + random.below(map::REMAP_SIZE),
            _ => random.next() >> random.below(64),
        };
        let width = random.below(4);
        let value = match random.below(3) {
            0 => random.below(4),
            1 => map::DRAM + random.below(128 << 20),
            _ => random.next(),
        };
        a.li(S0, pa & !((1 << width) - 1)).li(A2, value);
        let (load, store) = (0x03 | T1 << 7, 0x23 | A2 << 20);
        let word = if random.below(3) == 0 { load } else { store };
        a.word(word | (width as u32) << 12 | S0 << 15);
    }
    a.label("end").wfi().j("end");
    a.finish()
}

#[test]
fn random_accesses_to_every_device() {
    for seed in 0..RUNS {
        let mut random = random(1000 + seed);
        let image = pokes(&mut random, 1500);
        let mut m = start(seed, image);
        let fault = match random.below(4) {
            0 => Fault::NodeFailure { node: random.below(4) as usize },
            1 => Fault::HartHalt { hart: random.below(4) as usize },
            2 => Fault::HardwareError { hart: random.below(4) as usize },
            _ => Fault::WildWrites { node: random.below(4) as usize },
        };
        m.inject(fault, When::At(random.below(CYCLES))).unwrap();
        let mut bytes = vec![0; 100];
        random.fill(&mut bytes);
        m.input(Input::Console { node: random.below(4) as usize, bytes }).unwrap();
        m.run(Until::cycle(CYCLES), &mut ());
        m.trace_hash();
    }
}

#[test]
fn a_running_disk_with_random_rings() {
    for seed in 0..RUNS {
        let mut random = random(2000 + seed);
        let mut a = Asm::new();
        let base = map::virtio(0, 0);
        let ring = map::DRAM + 0x10_0000;
        a.bne(A0, ZERO, "end").li(S0, base);
        for (offset, value) in [
            (0x070, 3),
            (0x024, 1),
            (0x020, 1),
            (0x070, 11),
            (0x038, 8),
            (0x080, ring),
            (0x090, ring + 0x1000),
            (0x0a0, ring + 0x2000),
            (0x044, 1),
            (0x070, 15),
        ] {
            a.li(T0, value).sw(T0, offset, S0);
        }
        a.label("loop").li(S1, ring);
        for _ in 0..40 {
            let value = match random.below(3) {
                0 => random.below(16),
                1 => ring + random.below(0x4000) | random.below(8) << 48 | random.below(8) << 32,
                _ => random.next(),
            };
            let at = ring + random.below(0x1400) / 8 * 8;
            a.li(S1, at).li(T0, value).sd(T0, 0, S1);
        }
        a.li(S1, ring + 0x1000).lw(T0, 0, S1).slli(T1, ZERO, 0).li(T1, 1 << 16).add(T0, T0, T1);
        a.sw(T0, 0, S1).sw(ZERO, 0x50, S0).sw(T0, 0x64, S0).j("loop");
        a.label("end").wfi().j("end");
        let mut m = start(seed, a.finish());
        m.run(Until::cycle(400_000), &mut ());
    }
}

#[test]
fn inputs_that_make_no_sense_are_refused() {
    let mut m = start(1, vec![0x6f, 0, 0, 0]);
    assert!(m.input(Input::Console { node: 4, bytes: vec![] }).is_err());
    assert!(m.inject(Fault::NodeFailure { node: 9 }, When::At(5)).is_err());
    assert!(m.inject(Fault::HartHalt { hart: 4 }, When::At(5)).is_err());
    m.run(Until::cycle(10_000), &mut ());
    assert!(m.input_at(100, Input::TimeOfDay { ns: 0 }).is_err());
}
