//! The death of the cell: the message on the console, the record, memory cutoff, and the machine's
//! attention. Takes no lock that the dying code may hold, allocates nothing, survives a second
//! panic.

use crate::trap::KernelFrame;
use crate::{console, hart, platform, sbi, trap};
use core::panic::PanicInfo;
use hive_sync::AtomicU32;

/// Harts that have entered [`die`], first one first.
static PANICS: AtomicU32 = AtomicU32::new(0);

/// True once a hart of the cell has panicked: the others should call [`stop`].
pub fn panicked() -> bool {
    PANICS.advisory() != 0
}

#[panic_handler]
fn on_panic(info: &PanicInfo) -> ! {
    match info.location() {
        Some(at) => die(&format_args!("panic at {at}: {}", info.message())),
        None => die(&format_args!("panic: {}", info.message())),
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
    console::emergency(&format_args!("kernel {what} (scause {cause}, stval {value:#x})\n"));
    registers(frame);
    backtrace(frame);
    panic!("kernel {what} at {:#x}, address {value:#x}, scause {cause}", frame.pc)
}

fn registers(frame: &KernelFrame) {
    const NAMES: [&str; 32] = [
        "pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
        "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
        "t5", "t6",
    ];
    for (i, (name, x)) in NAMES.iter().zip(frame.x).enumerate() {
        let value = if i == 0 { frame.pc } else { x };
        let end = if i % 4 == 3 { "\n" } else { " " };
        console::emergency(&format_args!("{name:>3} {value:016x}{end}"));
    }
}

/// Return addresses along the frame pointers, as far as they make sense.
fn backtrace(frame: &KernelFrame) {
    let (mut fp, low) = (frame.x[8], frame.x[2]);
    console::emergency(&format_args!("called from"));
    for _ in 0..16 {
        if fp < low || fp > low + crate::stack::SIZE as u64 || !fp.is_multiple_of(8) || fp < 16 {
            break;
        }
        let at: *const u64 = core::ptr::with_exposed_provenance((fp - 16) as usize);
        // SAFETY: inside the stack that the frame's sp is in; a fault here is a second panic.
        let (next, ra) = unsafe { (at.read(), at.add(1).read()) };
        console::emergency(&format_args!(" {ra:#x}"));
        fp = next;
    }
    console::emergency(&format_args!("\n"));
}

fn die(message: &core::fmt::Arguments) -> ! {
    // SAFETY: nothing runs on this hart any more that would want interrupts.
    unsafe { csr_clear!("sstatus", crate::csr::SSTATUS_SIE) };
    if PANICS.fetch_add(1) == 0 {
        if let Some(platform) = platform::get() {
            platform.cutoff();
        }
        console::emergency(&format_args!("hart {}: {message}\n", hart::local().id()));
        if let Some(hooks) = trap::hooks() {
            hooks.die(message);
        }
        for other in hart::all().iter().filter(|h| h.id() != hart::local().id()) {
            sbi::send_ipi(other.id());
        }
        sbi::system_reset(sbi::Reset::Failure);
    } else {
        console::emergency(&format_args!("hart {} too: {message}\n", hart::local().id()));
    }
    stop()
}

/// Stops this hart for good.
pub fn stop() -> ! {
    // SAFETY: nothing runs on this hart any more that would want interrupts.
    unsafe { csr_clear!("sstatus", crate::csr::SSTATUS_SIE) };
    let _ = csr_read!("scause");
    sbi::hart_stop();
    loop {
        // SAFETY: waiting changes nothing.
        unsafe { core::arch::asm!("wfi", options(nostack)) };
    }
}
