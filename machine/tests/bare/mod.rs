//! Bare-metal programs for tests: assembled with Debian's cross compiler, run on one or more harts
//! over the smallest platform that can end a run and print.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::Command;

use hive_machine::engine::{Engine, Outcome};
use hive_machine::hart::Hart;
use hive_machine::platform::{Access, AccessFault, Origin, Platform, Target};
use hive_machine::ram::{Frame, Ram};
use hive_platform::map;

/// Where programs are loaded and started.
pub const BASE: u64 = map::DRAM;

/// A bus with a 16550's transmit register and the test finisher.
#[derive(Default)]
pub struct Bench {
    pub output: Vec<u8>,
    pub finished: Option<u32>,
    pub lines: u64,
    pub marks: Vec<(u16, u64)>,
    pub clock: u64,
    /// Answer of `check`.
    pub deny: Option<AccessFault>,
}

impl Platform for Bench {
    fn target(&mut self, _hart: usize, pa: u64) -> Target {
        if pa == map::uart(0) || pa == map::FINISHER { Target::Device } else { Target::Nothing }
    }

    fn check(
        &mut self,
        _ram: &Ram,
        _origin: Origin,
        _frame: Frame,
        _offset: usize,
        _size: usize,
        _access: Access,
    ) -> Result<(), AccessFault> {
        self.deny.map_or(Ok(()), Err)
    }

    fn load(&mut self, _: &mut Ram, _: Origin, pa: u64, _: usize) -> Result<u64, AccessFault> {
        // Line status: transmitter empty.
        if pa == map::uart(0) + 5 { Ok(0x60) } else { Ok(0) }
    }

    fn store(
        &mut self,
        _: &mut Ram,
        _: Origin,
        pa: u64,
        _: usize,
        value: u64,
    ) -> Result<(), AccessFault> {
        match pa {
            map::FINISHER => self.finished = Some(value as u32),
            _ if pa == map::uart(0) => self.output.push(value as u8),
            _ => {}
        }
        Ok(())
    }

    fn lines(&mut self, _hart: usize) -> u64 {
        self.lines
    }

    fn time(&mut self, _hart: usize, executed: u64) -> u64 {
        (self.clock + executed) / 20
    }

    fn cycle(&mut self, _hart: usize, executed: u64) -> u64 {
        self.clock + executed
    }

    fn mark(&mut self, _origin: Origin, code: u16, value: u64) {
        self.marks.push((code, value));
    }

    fn stop(&mut self, _hart: usize) -> bool {
        self.finished.is_some()
    }
}

/// One machine of the bench: memory, engine, harts.
pub struct Rig {
    pub ram: Ram,
    pub bench: Bench,
    pub engine: Engine,
    pub harts: Vec<Hart>,
}

impl Rig {
    /// A machine with `harts` harts at [`BASE`] and `image` loaded there.
    pub fn new(harts: usize, image: &[u8]) -> Rig {
        let mut ram = Ram::new(harts, 64 << 20);
        ram.write(0, image).expect("the image fits");
        let harts = (0..harts)
            .map(|id| {
                let mut hart = Hart::new(id);
                hart.reset(BASE);
                hart.set_x(10, id as u64);
                hart
            })
            .collect();
        Rig { ram, bench: Bench::default(), engine: Engine::new(), harts }
    }

    /// Runs one hart.
    pub fn run(&mut self, hart: usize, budget: u64) -> Outcome {
        let outcome =
            self.engine.run(&mut self.harts[hart], &mut self.ram, &mut self.bench, budget);
        self.bench.clock += outcome.executed;
        outcome
    }

    /// Runs hart 0 until the program stores to the finisher; panics after `limit` instructions.
    pub fn finish(&mut self, limit: u64) -> u32 {
        let mut left = limit;
        while left > 0 && self.bench.finished.is_none() {
            left -= self.run(0, left).executed.clamp(1, left);
        }
        self.bench.finished.unwrap_or_else(|| {
            let h = &self.harts[0];
            panic!("not finished after {limit} instructions, pc {:#x}", h.pc())
        })
    }
}

/// The cross compiler's name, if it is installed; says so if it is not.
pub fn cross_compiler() -> Option<&'static str> {
    let name = "riscv64-linux-gnu-gcc";
    let found = Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: {name} is missing (Debian: gcc-riscv64-linux-gnu)");
    }
    found.then_some(name)
}

/// A directory for a test's files.
pub fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("can make a scratch directory");
    dir
}

/// Assembles `source` to a flat image that starts at [`BASE`]. `None` without a cross compiler.
pub fn assemble(name: &str, source: &str) -> Option<Vec<u8>> {
    let compiler = cross_compiler()?;
    let dir = scratch(name);
    let (s, elf, bin) = (dir.join("t.S"), dir.join("t.elf"), dir.join("t.bin"));
    std::fs::write(&s, source).expect("can write the source");
    let ok = Command::new(compiler)
        .args(["-march=rv64gc_zicbom_zicboz", "-mabi=lp64d", "-nostdlib", "-static", "-fno-pic"])
        .args(["-Wl,--build-id=none", "-Wl,--no-relax"])
        .arg(format!("-Wl,-Ttext={BASE:#x}"))
        .arg("-o")
        .args([&elf, &s])
        .status();
    assert!(ok.is_ok_and(|s| s.success()), "{} does not assemble", s.display());
    let ok = Command::new("riscv64-linux-gnu-objcopy")
        .args(["-O", "binary"])
        .args([&elf, &bin])
        .status();
    assert!(ok.is_ok_and(|s| s.success()), "objcopy failed");
    Some(std::fs::read(bin).expect("objcopy wrote the image"))
}

/// Runs a flat image on QEMU until it stores to the finisher; what it sent through its console.
/// `None` without QEMU.
pub fn run_qemu(name: &str, image: &[u8]) -> Option<Vec<u8>> {
    let qemu = "qemu-system-riscv64";
    if !Command::new(qemu).arg("--version").output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: {qemu} is missing (Debian: qemu-system-misc)");
        return None;
    }
    let dir = scratch(name);
    let (bin, out) = (dir.join("image.bin"), dir.join("console.bin"));
    std::fs::write(&bin, image).expect("can write the image");
    let status = Command::new("timeout")
        .args(["120", qemu, "-M", "virt", "-m", "128", "-bios", "none", "-display", "none"])
        .args(["-cpu", "rv64,h=false", "-monitor", "none"])
        .args(["-serial", &format!("file:{}", out.display())])
        .args(["-device", &format!("loader,file={},addr={:#x}", bin.display(), BASE)])
        .status();
    assert!(status.is_ok_and(|s| s.success()), "QEMU did not finish the program");
    Some(std::fs::read(out).expect("QEMU wrote its console"))
}
