//! A tiny assembler, so that the machine's tests need no cross compiler. Raw images for
//! `--bios none`: loaded at the bottom of DRAM, every hart starts at the first word.
#![allow(dead_code)]

use hive_machine::config::Config;
use hive_machine::env::Recorder;
use hive_machine::machine::boot::Boot;
use hive_machine::machine::{Machine, Stop, Until};
use std::collections::BTreeMap;

pub const ZERO: u32 = 0;
pub const RA: u32 = 1;
pub const T0: u32 = 5;
pub const T1: u32 = 6;
pub const T2: u32 = 7;
pub const S0: u32 = 8;
pub const S1: u32 = 9;
pub const A0: u32 = 10;
pub const A1: u32 = 11;
pub const A2: u32 = 12;
pub const A3: u32 = 13;
pub const A4: u32 = 14;

pub const MSTATUS: u32 = 0x300;
pub const MEDELEG: u32 = 0x302;
pub const MIE: u32 = 0x304;
pub const MTVEC: u32 = 0x305;
pub const MEPC: u32 = 0x341;
pub const MCAUSE: u32 = 0x342;
pub const MIP: u32 = 0x344;
pub const PMPCFG0: u32 = 0x3a0;
pub const PMPADDR0: u32 = 0x3b0;
pub const TIME: u32 = 0xc01;

#[derive(Clone, Copy)]
enum Fix {
    Branch,
    Jump,
    /// `auipc` here, `addi` in the next word.
    Address,
}

#[derive(Default)]
pub struct Asm {
    words: Vec<u32>,
    labels: BTreeMap<&'static str, usize>,
    fixes: Vec<(usize, &'static str, Fix)>,
}

impl Asm {
    pub fn new() -> Asm {
        Asm::default()
    }
    pub fn word(&mut self, word: u32) -> &mut Asm {
        self.words.push(word);
        self
    }
    pub fn label(&mut self, name: &'static str) -> &mut Asm {
        // Labels are 4-byte aligned, as mtvec wants.
        self.labels.insert(name, self.words.len());
        self
    }
    /// Fills up to a multiple of 64 bytes.
    pub fn align(&mut self) -> &mut Asm {
        while self.words.len() % 16 != 0 {
            self.word(0x13);
        }
        self
    }
    pub fn addi(&mut self, rd: u32, rs: u32, imm: i32) -> &mut Asm {
        self.word((imm as u32) << 20 | rs << 15 | rd << 7 | 0x13)
    }
    pub fn slli(&mut self, rd: u32, rs: u32, shift: u32) -> &mut Asm {
        self.word(shift << 20 | rs << 15 | 1 << 12 | rd << 7 | 0x13)
    }
    pub fn add(&mut self, rd: u32, a: u32, b: u32) -> &mut Asm {
        self.word(b << 20 | a << 15 | rd << 7 | 0x33)
    }
    /// Any 64-bit constant, in eleven bits at a time.
    pub fn li(&mut self, rd: u32, value: u64) -> &mut Asm {
        self.addi(rd, ZERO, (value >> 55) as i32);
        for part in (0..5).rev() {
            self.slli(rd, rd, 11);
            self.addi(rd, rd, (value >> (part * 11) & 0x7ff) as i32);
        }
        self
    }
    fn store(&mut self, width: u32, rs: u32, offset: i32, base: u32) -> &mut Asm {
        let o = offset as u32;
        self.word((o >> 5) << 25 | rs << 20 | base << 15 | width << 12 | (o & 31) << 7 | 0x23)
    }
    pub fn sb(&mut self, rs: u32, offset: i32, base: u32) -> &mut Asm {
        self.store(0, rs, offset, base)
    }
    pub fn sw(&mut self, rs: u32, offset: i32, base: u32) -> &mut Asm {
        self.store(2, rs, offset, base)
    }
    pub fn sd(&mut self, rs: u32, offset: i32, base: u32) -> &mut Asm {
        self.store(3, rs, offset, base)
    }
    pub fn ld(&mut self, rd: u32, offset: i32, base: u32) -> &mut Asm {
        self.word((offset as u32) << 20 | base << 15 | 3 << 12 | rd << 7 | 0x03)
    }
    pub fn lw(&mut self, rd: u32, offset: i32, base: u32) -> &mut Asm {
        self.word((offset as u32) << 20 | base << 15 | 2 << 12 | rd << 7 | 0x03)
    }
    pub fn lbu(&mut self, rd: u32, offset: i32, base: u32) -> &mut Asm {
        self.word((offset as u32) << 20 | base << 15 | 4 << 12 | rd << 7 | 0x03)
    }
    pub fn amoadd(&mut self, rd: u32, rs: u32, base: u32) -> &mut Asm {
        self.word(rs << 20 | base << 15 | 3 << 12 | rd << 7 | 0x2f)
    }
    pub fn csrw(&mut self, csr: u32, rs: u32) -> &mut Asm {
        self.word(csr << 20 | rs << 15 | 1 << 12 | 0x73)
    }
    pub fn csrr(&mut self, rd: u32, csr: u32) -> &mut Asm {
        self.word(csr << 20 | 2 << 12 | rd << 7 | 0x73)
    }
    fn branch(&mut self, kind: u32, a: u32, b: u32, to: &'static str) -> &mut Asm {
        self.fixes.push((self.words.len(), to, Fix::Branch));
        self.word(b << 20 | a << 15 | kind << 12 | 0x63)
    }
    pub fn beq(&mut self, a: u32, b: u32, to: &'static str) -> &mut Asm {
        self.branch(0, a, b, to)
    }
    pub fn bne(&mut self, a: u32, b: u32, to: &'static str) -> &mut Asm {
        self.branch(1, a, b, to)
    }
    pub fn bltu(&mut self, a: u32, b: u32, to: &'static str) -> &mut Asm {
        self.branch(6, a, b, to)
    }
    pub fn j(&mut self, to: &'static str) -> &mut Asm {
        self.fixes.push((self.words.len(), to, Fix::Jump));
        self.word(0x6f)
    }
    pub fn la(&mut self, rd: u32, to: &'static str) -> &mut Asm {
        self.fixes.push((self.words.len(), to, Fix::Address));
        self.word(rd << 7 | 0x17).word(rd << 15 | rd << 7 | 0x13)
    }
    pub fn wfi(&mut self) -> &mut Asm {
        self.word(0x1050_0073)
    }
    pub fn pause(&mut self) -> &mut Asm {
        self.word(0x0100_000f)
    }
    pub fn mret(&mut self) -> &mut Asm {
        self.word(0x3020_0073)
    }
    pub fn mark(&mut self, code: u16) -> &mut Asm {
        self.word(hive_platform::mark::instruction(code))
    }
    /// Ends the machine with the code in `a0` (clobbers t0, t1).
    pub fn exit_a0(&mut self) -> &mut Asm {
        self.li(T0, hive_platform::map::FINISHER);
        self.slli(T1, A0, 16).li(T2, 0x3333).add(T1, T1, T2).sw(T1, 0, T0);
        self.word(0x6f)
    }
    pub fn pass(&mut self) -> &mut Asm {
        self.li(T0, hive_platform::map::FINISHER).li(T1, 0x5555).sw(T1, 0, T0).word(0x6f)
    }

    pub fn finish(&mut self) -> Vec<u8> {
        for (at, label, kind) in self.fixes.drain(..) {
            let offset = (self.labels[label] as i64 - at as i64) * 4;
            let o = offset as u32;
            match kind {
                Fix::Branch => {
                    self.words[at] |= (o >> 12 & 1) << 31
                        | (o >> 5 & 0x3f) << 25
                        | (o >> 1 & 0xf) << 8
                        | (o >> 11 & 1) << 7;
                }
                Fix::Jump => {
                    self.words[at] |= (o >> 20 & 1) << 31
                        | (o >> 1 & 0x3ff) << 21
                        | (o >> 11 & 1) << 20
                        | (o >> 12 & 0xff) << 12;
                }
                Fix::Address => {
                    let high = o.wrapping_add(0x800) & !0xfff;
                    self.words[at] |= high;
                    self.words[at + 1] |= o.wrapping_sub(high) << 20;
                }
            }
        }
        self.words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }
}

pub fn preset(name: &str) -> Config {
    Config::preset(name).unwrap()
}

pub fn machine(config: &Config, image: Vec<u8>) -> Machine {
    Machine::new(config, &Boot { kernel: Some(image), ..Boot::default() }).unwrap()
}

/// Runs to the end, within a generous limit.
pub fn run(machine: &mut Machine) -> (Stop, Recorder) {
    let mut seen = Recorder::default();
    let stop = machine.run(Until::cycle(3_000_000), &mut seen);
    (stop, seen)
}
