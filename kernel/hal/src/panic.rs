//! The death of the cell: memory cutoff, the message on the console, the record, and the end.
//! Takes no lock that the dying code may hold, allocates nothing, survives a second panic.

use crate::trap::{self, KernelFrame};
use crate::{console, devicetree, hart, platform, sbi};
use core::fmt::Arguments;
use core::panic::PanicInfo;
use hive_sync::AtomicU32;

/// Return addresses kept.
pub const BACKTRACE: usize = 16;

/// Why the cell dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Rust panic.
    Panic,
    /// A trap of the kernel outside the exception table.
    Trap,
    /// A kernel stack ran over.
    StackOverflow,
}

/// What is known of a death.
pub struct Death<'a> {
    /// Why.
    pub kind: Kind,
    /// `scause` of the trap, or 0.
    pub scause: u64,
    /// `stval` of the trap, or 0.
    pub stval: u64,
    /// `pc`, then x1 to x31; zero where unknown.
    pub registers: [u64; 32],
    /// Return addresses, innermost first, 0-terminated.
    pub backtrace: [u64; BACKTRACE],
    /// What is to be said.
    pub message: Arguments<'a>,
    /// Which panic this is: 0 for the first, that kills; others came while it was handled.
    pub recursion: u32,
}

static PANICS: AtomicU32 = AtomicU32::new(0);

/// True once a hart of the cell has panicked: the others should call [`stop`].
pub fn panicked() -> bool {
    PANICS.advisory() != 0
}

#[panic_handler]
fn on_panic(info: &PanicInfo) -> ! {
    let frame: u64;
    // SAFETY: reads the frame pointer.
    unsafe { core::arch::asm!("mv {}, s0", out(reg) frame, options(nomem, nostack)) };
    let backtrace = backtrace(frame);
    let die = |message| die(Kind::Panic, 0, 0, [0; 32], backtrace, message);
    match info.location() {
        Some(at) => die(format_args!("panic at {at}: {}", info.message())),
        None => die(format_args!("panic: {}", info.message())),
    }
}

/// A fault of the kernel outside the exception table.
pub(crate) fn kernel_fault(frame: &KernelFrame, cause: u64, value: u64) -> ! {
    let what = match cause {
        0 | 4 | 6 => "misaligned access",
        1 | 5 | 7 => "access fault",
        2 => "illegal instruction",
        3 => "breakpoint",
        12 | 13 | 15 => "page fault",
        19 => "hardware error",
        _ => "trap",
    };
    let mut registers = frame.x;
    registers[0] = frame.pc;
    let message = format_args!("kernel {what} at {:#x}, address {value:#x}", frame.pc);
    die(Kind::Trap, cause, value, registers, backtrace(frame.x[8]), message)
}

pub(crate) fn stack_overflow(sp: u64, pc: u64, cause: u64) -> ! {
    let mut registers = [0; 32];
    (registers[0], registers[2]) = (pc, sp);
    let message = format_args!("kernel stack overflow: sp {sp:#x} at {pc:#x}");
    die(Kind::StackOverflow, cause, sp, registers, [0; BACKTRACE], message)
}

/// Return addresses along the frame pointers from `fp`, as far as they stay in one stack.
fn backtrace(mut fp: u64) -> [u64; BACKTRACE] {
    let mut found = [0; BACKTRACE];
    let slot = crate::stack::SLOT as u64;
    let stack = fp / slot;
    for ra in &mut found {
        // A stack pointer has this bit set (see `stack`), and frames go up.
        if !fp.is_multiple_of(8) || fp & crate::stack::SIZE as u64 == 0 || (fp - 16) / slot != stack
        {
            break;
        }
        let at: *const u64 = core::ptr::with_exposed_provenance((fp - 16) as usize);
        // SAFETY: inside the mapped half of one stack slot; if not, this is a second panic.
        let (next, here) = unsafe { (at.read(), at.add(1).read()) };
        *ra = here;
        if next <= fp {
            break;
        }
        fp = next;
    }
    found
}

fn die(
    kind: Kind,
    scause: u64,
    stval: u64,
    registers: [u64; 32],
    backtrace: [u64; BACKTRACE],
    message: Arguments,
) -> ! {
    // SAFETY: nothing runs on this hart any more that would want interrupts.
    unsafe { csr_clear!("sstatus", crate::csr::SSTATUS_SIE) };
    let recursion = PANICS.fetch_add(1);
    let death = Death { kind, scause, stval, registers, backtrace, message, recursion };
    if recursion > 0 {
        if recursion < 4 {
            say(&death);
        }
        if let Some(hooks) = trap::hooks().filter(|_| recursion == 1) {
            hooks.die(&death);
        }
        stop()
    }
    if let Some(platform) = platform::get() {
        platform.cutoff();
    }
    say(&death);
    if let Some(hooks) = trap::hooks() {
        hooks.die(&death);
    }
    for other in hart::all().iter().filter(|h| h.id() != hart::local().id()) {
        sbi::send_ipi(other.id());
    }
    // With others about, wait for their verdict: they reset this node, and it comes back. Alone,
    // the machine has ended.
    let alone = |m: &devicetree::Machine| m.harts.iter().all(|h| h.ours);
    if devicetree::machine_if_known().is_none_or(alone) {
        sbi::system_reset(sbi::Reset::Failure);
    }
    stop()
}

/// Prints a death on the console.
fn say(death: &Death) {
    console::emergency(&format_args!("hart {}: {}\n", hart::local().id(), death.message));
    if death.kind != Kind::Panic {
        const NAMES: [&str; 32] = [
            "pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3",
            "a4", "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11",
            "t3", "t4", "t5", "t6",
        ];
        let (cause, value) = (death.scause, death.stval);
        console::emergency(&format_args!("scause {cause} stval {value:#x}\n"));
        for (i, (name, value)) in NAMES.iter().zip(death.registers).enumerate() {
            let end = if i % 4 == 3 { "\n" } else { " " };
            console::emergency(&format_args!("{name:>3} {value:016x}{end}"));
        }
    }
    console::emergency(&format_args!("called from"));
    for ra in death.backtrace.iter().take_while(|&&ra| ra != 0) {
        console::emergency(&format_args!(" {ra:#x}"));
    }
    console::emergency(&format_args!("\n"));
}

/// Stops this hart for good.
pub fn stop() -> ! {
    // SAFETY: nothing runs on this hart any more that would want interrupts.
    unsafe { csr_clear!("sstatus", crate::csr::SSTATUS_SIE) };
    sbi::hart_stop();
    loop {
        // SAFETY: waiting changes nothing.
        unsafe { core::arch::asm!("wfi", options(nostack)) };
    }
}
