//! What the timing programs share: start on every hart, a line on the console, the end.
//!
//! Each program prints one checksum and ends the machine through the test finisher, so that one
//! ELF runs here and under QEMU and the two must print the same. RAM is zero at power-on on both.
#![cfg_attr(target_os = "none", no_std)]
#![cfg(target_os = "none")]
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::fmt::Write;
use hive_platform::map;

global_asm!(
    r#"
    .section .text.entry, "ax"
    .global _start
_start:
    li      t0, 0x6000          # mstatus.FS = dirty
    csrs    mstatus, t0
    csrr    a0, mhartid
    la      sp, __stacks
    addi    t0, a0, 1
    slli    t0, t0, 16
    add     sp, sp, t0
    call    main
1:  wfi
    j       1b
"#
);

/// A pseudorandom sequence (xorshift64*): cheap, and no part of what is measured.
pub struct Random(pub u64);

impl Random {
    /// The next value.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the transmit register of node 0's 16550; QEMU's stands at the same place.
            unsafe { (map::uart(0) as *mut u8).write_volatile(byte) };
        }
        Ok(())
    }
}

/// Prints the checksum and ends the machine.
pub fn finish(name: &str, checksum: u64) -> ! {
    let _ = writeln!(Console, "{name} {checksum:016x}");
    end(map::FINISHER_PASS)
}

fn end(value: u32) -> ! {
    loop {
        // SAFETY: the test finisher is a device register.
        unsafe { (map::FINISHER as *mut u32).write_volatile(value) };
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let _ = writeln!(Console, "{info}");
    end(1 << 16 | map::FINISHER_FAIL)
}
