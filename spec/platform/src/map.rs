//! The physical memory map.
//!
//! Node 0's devices stand where QEMU's `virt` board has them, so that images written for that
//! board run unchanged; further nodes repeat them at a stride. Everything a kernel needs is also
//! in the device tree, with `numa-node-id` naming the node.
//!
//! | from | what |
//! |---|---|
//! | `0x0000_1000` | boot ROM: device tree, firmware hand-over block (read-only, never fails) |
//! | `0x0010_0000` | test finisher (`sifive,test1`) |
//! | `0x0010_1000` | real-time clock (`google,goldfish-rtc`) |
//! | `0x0200_0000` | ACLINT of node n, stride 64 KB, in CLINT layout |
//! | `0x0c00_0000` | PLIC of node n < 10, stride 6 MB; from node 10 see [`plic`] |
//! | `0x1000_0000` | 16550 and virtio-mmio slots of node n, stride 1 MB |
//! | `0x8000_0000` | DRAM of node 0, then node 1, and so on, contiguous |
//! | `0x10_0000_0000` | coherence controller of node n, stride 16 MB |
//! | `0x11_0000_0000` | remap window: each hart sees its own node's firmware frames |
//! | `0x20_0000_0000` | boot flash of node n, stride 256 MB |

/// Boot ROM.
pub const BOOT_ROM: u64 = 0x1000;
/// Bytes of the boot ROM: up to the test finisher.
pub const BOOT_ROM_SIZE: u64 = 0xf_f000;

/// Test finisher: a 32-bit store of [`FINISHER_PASS`], `(code << 16) | FINISHER_FAIL` or
/// [`FINISHER_RESET`] ends (or resets) the whole machine. Once any firewall is on it answers
/// M-mode only, or one cell's wild store could switch off another.
pub const FINISHER: u64 = 0x10_0000;
/// Ends the machine with exit code 0.
pub const FINISHER_PASS: u32 = 0x5555;
/// Low half: ends the machine with the code in the high half.
pub const FINISHER_FAIL: u32 = 0x3333;
/// Cold reset.
pub const FINISHER_RESET: u32 = 0x7777;

/// Goldfish real-time clock.
pub const RTC: u64 = 0x10_1000;

/// Local interrupt numbers (bits of `mip`/`sip`) of the SIPS queues, in the range that the
/// privileged architecture leaves to the platform. Level: set while the queue holds a message.
/// Indexed by [`crate::sips::Class`].
pub const SIPS_INTERRUPT: [u32; 3] = [24, 25, 26];

/// Bytes of one ACLINT: `msip` at 0, `mtimecmp` at 0x4000, `mtime` at 0xbff8, by local hart.
pub const ACLINT_SIZE: u64 = 0x1_0000;
/// ACLINT of `node`.
pub const fn aclint(node: usize) -> u64 {
    0x200_0000 + node as u64 * ACLINT_SIZE
}

/// Bytes of one PLIC. Contexts: local hart i has M-mode context 2i and S-mode context 2i+1.
pub const PLIC_SIZE: u64 = 0x60_0000;
/// Interrupt sources of a PLIC, 1-based: virtio slots, then the console.
pub const PLIC_SOURCES: u32 = 96;
/// PLIC of `node`: the first ten as the sockets of QEMU's `virt`, the others above the consoles.
pub const fn plic(node: usize) -> u64 {
    if node < 10 {
        0xc00_0000 + node as u64 * PLIC_SIZE
    } else {
        0x3000_0000 + (node - 10) as u64 * PLIC_SIZE
    }
}

/// Stride of the console and virtio block of a node.
pub const IO_STRIDE: u64 = 0x10_0000;
/// The 16550 of `node`.
pub const fn uart(node: usize) -> u64 {
    0x1000_0000 + node as u64 * IO_STRIDE
}
/// PLIC source of the 16550.
pub const UART_IRQ: u32 = 10;
/// Input clock of the 16550 in Hz, as in QEMU's device tree.
pub const UART_CLOCK_HZ: u32 = 3_686_400;

/// virtio-mmio slots of a node. Slot 0 holds the disk, 1 the NIC, 2 the entropy source.
pub const VIRTIO_SLOTS: usize = 8;
/// Bytes of one virtio-mmio slot.
pub const VIRTIO_SIZE: u64 = 0x1000;
/// virtio-mmio slot `slot` of `node`.
pub const fn virtio(node: usize, slot: usize) -> u64 {
    uart(node) + (slot as u64 + 1) * VIRTIO_SIZE
}
/// PLIC source of virtio-mmio slot `slot`.
pub const fn virtio_irq(slot: usize) -> u32 {
    1 + slot as u32
}

/// DRAM of node 0; the other nodes follow without a gap.
pub const DRAM: u64 = 0x8000_0000;
/// Offset of a kernel image from the start of its cell's DRAM (as OpenSBI on `virt`).
pub const KERNEL_OFFSET: u64 = 0x20_0000;

/// Coherence controller of `node`: see [`crate::controller`].
pub const fn controller(node: usize) -> u64 {
    0x10_0000_0000 + node as u64 * CONTROLLER_SIZE
}
/// Bytes of one controller's window.
pub const CONTROLLER_SIZE: u64 = 0x100_0000;

/// Remap window (Hive table 8.1): the same address on every hart, the frames of its own node.
/// They have no other address, so one PMP entry fences firmware and durable memory of all nodes.
pub const REMAP: u64 = 0x11_0000_0000;
/// Bytes of the remap window: a power of two, so that one NAPOT PMP entry covers it.
pub const REMAP_SIZE: u64 = 0x20_0000;

/// Boot flash of `node`: read-only memory that answers its own node only.
pub const fn flash(node: usize) -> u64 {
    0x20_0000_0000 + node as u64 * FLASH_SIZE
}
/// Address range of one boot flash.
pub const FLASH_SIZE: u64 = 0x1000_0000;

/// End of the physical addresses in use.
pub const PHYSICAL_END: u64 = flash(crate::MAX_NODES);

const _: () = {
    assert!(BOOT_ROM + BOOT_ROM_SIZE == FINISHER);
    assert!(aclint(crate::MAX_NODES) <= plic(0));
    assert!(plic(9) + PLIC_SIZE <= uart(0));
    assert!(virtio(0, VIRTIO_SLOTS) <= uart(1));
    assert!(uart(crate::MAX_NODES) <= plic(10));
    assert!(plic(crate::MAX_NODES) <= DRAM);
    assert!(controller(crate::MAX_NODES) <= REMAP);
    assert!(REMAP % REMAP_SIZE == 0 && REMAP_SIZE.is_power_of_two());
    assert!(REMAP + REMAP_SIZE <= flash(0));
};
