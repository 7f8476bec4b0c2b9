//! The cell's console: the 16550 of its first node. Output is polled; input comes by interrupt and
//! goes to a handler at interrupt level.
//!
//! A hart of another node cannot touch the device once the firewall is on: its output waits in a
//! ring that a hart of the device's node empties ([`service`], on its next tick or IPI).

use crate::devicetree::{Device, Machine};
use crate::mmio::Mmio;
use crate::{hart, plic, sbi};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt::{self, Write};
use hive_sync::{Once, SpinLock, rank};

const RBR_THR: u64 = 0;
const IER: u64 = 1;
const FCR: u64 = 2;
const MCR: u64 = 4;
const LSR: u64 = 5;
const LSR_DATA: u8 = 1;
const LSR_THR_EMPTY: u8 = 0x20;

/// Bytes that may wait for a hart of the device's node; more are lost, oldest first.
const RING: usize = 16 << 10;
/// Polls of a full transmitter before a byte is given up: a dead device must not hang the cell.
const TX_PATIENCE: u32 = 100_000;

struct Uart {
    regs: Mmio,
    device: Device,
}

static UART: Once<Uart> = Once::new();
static OUTPUT: SpinLock<VecDeque<u8>> = SpinLock::ranked(rank::CONSOLE, VecDeque::new());
static INPUT: Once<Box<dyn Fn(u8) + Send + Sync>> = Once::new();

/// Finds the console of this cell; output goes to the firmware's until then.
pub fn init(machine: &Machine) {
    let first = machine.cell_nodes.first().copied().unwrap_or(0);
    let found = machine.uarts.iter().find(|u| u.node == first);
    let Some(&device) =
        found.or(machine.uarts.iter().find(|u| machine.cell_nodes.contains(&u.node)))
    else {
        return;
    };
    // SAFETY: the device tree says that a 16550 is there.
    let regs = unsafe { Mmio::new(device.base, device.size.max(8)) };
    OUTPUT.lock().reserve(RING);
    let _ = UART.set(Uart { regs, device });
}

/// Gives each byte of input to `handler`, at interrupt level, from now on.
pub fn on_input(handler: impl Fn(u8) + Send + Sync + 'static) {
    if INPUT.set(Box::new(handler)).is_err() {
        panic!("console input has a handler already");
    }
    let Some(uart) = UART.get() else { return };
    if uart.here() {
        start_input(uart);
    } else {
        plic::run_on_node(uart.device.node, || {
            if let Some(uart) = UART.get() {
                start_input(uart);
            }
        });
    }
}

fn start_input(uart: &'static Uart) {
    plic::register(uart.device, receive);
    uart.regs.write8(FCR, 1); // FIFOs on
    uart.regs.write8(MCR, 0x0b);
    uart.regs.write8(IER, 1); // received data
}

fn receive() {
    let Some(uart) = UART.get() else { return };
    while uart.regs.read8(LSR) & LSR_DATA != 0 {
        let byte = uart.regs.read8(RBR_THR);
        if let Some(handler) = INPUT.get() {
            handler(byte);
        }
    }
}

impl Uart {
    fn here(&self) -> bool {
        crate::platform::get().is_none() || hart::local().node() == self.device.node
    }

    fn put(&self, byte: u8) {
        for _ in 0..TX_PATIENCE {
            if self.regs.read8(LSR) & LSR_THR_EMPTY != 0 {
                break;
            }
            hive_sync::pause();
        }
        self.regs.write8(RBR_THR, byte);
    }
}

/// Writes bytes as they are.
pub fn write(bytes: &[u8]) {
    let mut waiting = OUTPUT.lock();
    match UART.get() {
        None => bytes.iter().for_each(|&b| sbi::console_byte(b)),
        Some(uart) if uart.here() => {
            waiting.drain(..).for_each(|b| uart.put(b));
            bytes.iter().for_each(|&b| uart.put(b));
        }
        Some(uart) => {
            let first = waiting.is_empty();
            for &b in bytes {
                if waiting.len() == RING {
                    waiting.pop_front();
                }
                waiting.push_back(b);
            }
            drop(waiting);
            if first {
                plic::run_on_node(uart.device.node, service);
            }
        }
    }
}

/// Writes what harts of other nodes left behind; any hart may call it.
pub fn service() {
    if UART.get().is_some_and(Uart::here) {
        write(&[]);
    }
}

/// Writes without locks, for a dying cell.
pub fn emergency(message: &fmt::Arguments) {
    struct Raw;
    impl Write for Raw {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            for b in s.bytes() {
                if b == b'\n' {
                    raw(b'\r');
                }
                raw(b);
            }
            Ok(())
        }
    }
    fn raw(byte: u8) {
        match UART.get() {
            Some(uart) if uart.here() => uart.put(byte),
            _ => sbi::console_byte(byte),
        }
    }
    let _ = Raw.write_fmt(*message);
}

/// Writes a formatted kernel message.
pub fn print(message: fmt::Arguments) {
    struct Lines;
    impl Write for Lines {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            for part in s.split_inclusive('\n') {
                match part.strip_suffix('\n') {
                    Some(line) => {
                        write(line.as_bytes());
                        write(b"\r\n");
                    }
                    None => write(part.as_bytes()),
                }
            }
            Ok(())
        }
    }
    // Formatted first, so that a line of one hart is not cut by another's.
    let text = alloc::fmt::format(message);
    let _ = Lines.write_str(&text);
}

/// Prints a line on the cell's console.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => {
        $crate::console::print(core::format_args!("{}\n", core::format_args!($($arg)*)))
    };
}
