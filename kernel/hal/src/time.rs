//! The clock and its interrupt.

use crate::devicetree::Machine;
use crate::memory::Pa;
use crate::sbi;
use crate::uaccess::careful_load32;
use hive_sync::{AtomicBool, AtomicU64};

/// Nanoseconds per tick of the `time` CSR, in 32.32 fixed point.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);
static TICKS_PER_NS: AtomicU64 = AtomicU64::new(0);
static SSTC: AtomicBool = AtomicBool::new(false);

pub(crate) fn init(machine: &Machine) {
    NS_PER_TICK.store((1_000_000_000 << 32) / machine.timebase_hz);
    TICKS_PER_NS.store(((u128::from(machine.timebase_hz) << 32) / 1_000_000_000) as u64);
    SSTC.store(machine.harts.iter().all(|h| h.sstc));
    read_wall(machine);
}

fn scale(value: u64, by: u64) -> u64 {
    ((u128::from(value) * u128::from(by)) >> 32) as u64
}

/// The `time` CSR.
pub fn ticks() -> u64 {
    csr_read!("time")
}

/// The `cycle` CSR.
pub fn cycles() -> u64 {
    csr_read!("cycle")
}

/// Nanoseconds since power-on.
pub fn now_ns() -> u64 {
    scale(csr_read!("time"), NS_PER_TICK.advisory())
}

/// Wall-clock time when the clock stood at zero, in nanoseconds since 1970.
static WALL_BASE: AtomicU64 = AtomicU64::new(0);

/// Reads the time of day from the machine's clock, which may belong to another cell's node.
fn read_wall(machine: &Machine) {
    let Some(rtc) = machine.rtc else { return };
    // Reading the low half latches the high half.
    let low = careful_load32(rtc.base);
    let high = careful_load32(Pa(rtc.base.0 + 4));
    if let (Ok(low), Ok(high)) = (low, high) {
        let now = u64::from(low) | u64::from(high) << 32;
        WALL_BASE.store(now.saturating_sub(now_ns()));
    }
}

/// Wall-clock time in nanoseconds since 1970 (zero was boot, if the machine has no clock).
pub fn wall_ns() -> u64 {
    WALL_BASE.load() + now_ns()
}

/// Sets the wall clock of this cell.
pub fn set_wall_ns(now: u64) {
    WALL_BASE.store(now.saturating_sub(now_ns()));
}

/// Programs this hart's timer interrupt for `at_ns` (at once if that is past); `u64::MAX` is never.
pub fn set_timer(at_ns: u64) {
    let at = match at_ns {
        u64::MAX => u64::MAX,
        _ => scale(at_ns, TICKS_PER_NS.advisory()).saturating_add(1),
    };
    if SSTC.advisory() {
        // SAFETY: `stimecmp`: the device tree says that every hart has it.
        unsafe { core::arch::asm!("csrw 0x14d, {}", in(reg) at, options(nostack)) };
    } else {
        sbi::set_timer(at);
    }
}
