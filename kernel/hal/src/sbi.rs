//! Calls to the firmware (RISC-V SBI 1.0; debug console of 2.0 where present).

use core::arch::asm;

/// An SBI error code (negative).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SbiError(pub i64);

fn call(extension: u64, function: u64, a: [u64; 5]) -> Result<u64, SbiError> {
    let error: i64;
    let value: u64;
    // SAFETY: the SBI calling convention keeps all registers but a0 and a1; the calls made below
    // hand over no memory but what their callers own.
    unsafe {
        asm!("ecall",
            inlateout("a0") a[0] => error, inlateout("a1") a[1] => value,
            in("a2") a[2], in("a3") a[3], in("a4") a[4],
            in("a6") function, in("a7") extension, options(nostack));
    }
    if error == 0 { Ok(value) } else { Err(SbiError(error)) }
}

const BASE: u64 = 0x10;
const TIME: u64 = 0x5449_4d45;
const IPI: u64 = 0x73_5049;
const RFENCE: u64 = 0x5246_4e43;
const HSM: u64 = 0x48_534d;
const SRST: u64 = 0x5352_5354;
const DBCN: u64 = 0x4442_434e;
const LEGACY_PUTCHAR: u64 = 1;

/// True if the firmware has `extension`.
fn probe(extension: u64) -> bool {
    call(BASE, 3, [extension, 0, 0, 0, 0]).is_ok_and(|v| v != 0)
}

/// Programs the timer interrupt of this hart for `time` (in `time` CSR ticks).
pub fn set_timer(time: u64) {
    let _ = call(TIME, 0, [time, 0, 0, 0, 0]);
}

/// Sends a software interrupt to the hart with SBI id `hart`.
pub fn send_ipi(hart: usize) {
    let _ = call(IPI, 0, [1, hart as u64, 0, 0, 0]);
}

/// Makes the hart with SBI id `hart` fetch instructions anew.
pub fn remote_fence_i(hart: usize) {
    let _ = call(RFENCE, 0, [1, hart as u64, 0, 0, 0]);
}

/// Makes the hart with SBI id `hart` forget translations of `[start, start + len)`; `len` of
/// `u64::MAX` means all.
pub fn remote_sfence_vma(hart: usize, start: u64, len: u64) {
    let _ = call(RFENCE, 1, [1, hart as u64, start, len, 0]);
}

/// Starts a hart at physical address `entry` with `a1` = `argument`.
pub fn hart_start(hart: usize, entry: u64, argument: u64) -> Result<(), SbiError> {
    call(HSM, 0, [hart as u64, entry, argument, 0, 0]).map(drop)
}

/// Stops this hart. Returns only if the firmware cannot.
pub fn hart_stop() {
    let _ = call(HSM, 1, [0; 5]);
}

/// True if the hart is in this cell's partition: firmware knows no other.
pub fn hart_exists(hart: usize) -> bool {
    call(HSM, 2, [hart as u64, 0, 0, 0, 0]).is_ok()
}

/// Ends or restarts the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Power off, all well.
    Shutdown,
    /// Power off after a failure.
    Failure,
    /// Power off; the low byte of a platform-specific reason is an exit code.
    Exit(u8),
    /// Start again.
    Reboot,
}

/// First reset reason of the range that the SBI leaves to platforms (SRST extension).
const PLATFORM_REASON: u64 = 0xe000_0000;

/// Asks for `reset`. Returns only if the firmware cannot.
pub fn system_reset(reset: Reset) {
    let (kind, reason) = match reset {
        Reset::Shutdown => (0, 0),
        Reset::Failure => (0, 1),
        Reset::Exit(code) => (0, PLATFORM_REASON | code as u64),
        Reset::Reboot => (1, 0),
    };
    let _ = call(SRST, 0, [kind, reason, 0, 0, 0]);
}

/// Writes one byte to the firmware's console: for messages before ours is found.
pub fn console_byte(byte: u8) {
    if probe(DBCN) {
        let _ = call(DBCN, 2, [byte.into(), 0, 0, 0, 0]);
    } else {
        let _ = call(LEGACY_PUTCHAR, 0, [byte.into(), 0, 0, 0, 0]);
    }
}
