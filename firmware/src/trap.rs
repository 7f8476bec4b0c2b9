//! What brings a hart back into M-mode: an SBI call, a message, or a fault of the firmware's own.

use crate::hart::Hart;
use crate::hw::{self, Registers};
use crate::{console, mailbox, sbi};

/// `mcause` of an ecall from S-mode.
const ECALL_FROM_SUPERVISOR: usize = 9;
/// `mcause` of a machine software interrupt: a message.
const MESSAGE: usize = 1 << 63 | 3;

/// Called by the trap entry with the interrupted registers.
pub fn handle(registers: &mut Registers, hart: &mut Hart) {
    let [cause, epc, tval] = hw::trap_cause();
    match cause {
        ECALL_FROM_SUPERVISOR => {
            hw::skip_ecall();
            let arguments = [10, 11, 12, 13, 14, 15].map(|r| registers[r]);
            match sbi::call(hart, registers[17], registers[16], arguments) {
                sbi::Answer::Pair(error, value) => (registers[10], registers[11]) = (error, value),
                sbi::Answer::Legacy(value) => registers[10] = value,
            }
        }
        MESSAGE => mailbox::serve(hart),
        _ => {
            console::print(hart, "firmware: unexpected trap");
            for value in [cause, epc, tval] {
                console::print(hart, " 0x");
                console::print_hex(hart, value as u64);
            }
            console::print(hart, "; hart stopped\r\n");
            loop {
                hw::wait_for_interrupt();
            }
        }
    }
}
