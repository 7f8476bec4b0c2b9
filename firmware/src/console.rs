//! The node's 16550, polled: for the debug console and for the firmware's own last words.

use crate::hart::Hart;
use crate::hw;
use hive_platform::map;

/// Line status register.
const LSR: u64 = 5;
/// A received byte waits.
const LSR_DATA: u8 = 1;
/// The transmit holding register is empty.
const LSR_EMPTY: u8 = 0x20;

/// Sends one byte. A transmitter that never empties does not hold the hart up.
pub fn put(hart: &Hart, byte: u8) {
    let base = map::uart(hart.partition.node);
    let deadline = hw::time() + crate::mailbox::PATIENCE_TICKS;
    while hw::uart_read(base, LSR) & LSR_EMPTY == 0 && hw::time() < deadline {
        hw::pause();
    }
    hw::uart_write(base, 0, byte);
}

/// Takes a received byte, if there is one.
pub fn get(hart: &Hart) -> Option<u8> {
    let base = map::uart(hart.partition.node);
    (hw::uart_read(base, LSR) & LSR_DATA != 0).then(|| hw::uart_read(base, 0))
}

/// Prints `text`.
pub fn print(hart: &Hart, text: &str) {
    text.bytes().for_each(|byte| put(hart, byte));
}

/// Prints `value` in hexadecimal without leading zeros.
pub fn print_hex(hart: &Hart, value: u64) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        put(hart, b"0123456789abcdef"[(value >> (digit * 4) & 15) as usize]);
    }
}
