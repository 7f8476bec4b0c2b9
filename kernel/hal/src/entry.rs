//! The first instructions: position-independent, at the physical address the image was loaded to.
//!
//! The image starts with a Linux `Image` header, so that QEMU and OpenSBI take it. Early page
//! tables map the direct map, the image at its link address (2 MB pages, all rights) and the
//! gigabyte we run in at its own address; [`crate::paging::build_kernel_tables`] replaces them.
//! Later harts go the same way and change to the kernel's tables before their first use of a
//! stack.

use crate::hart::{HARTS, Hart};
use crate::memory::{DIRECT_BASE, IMAGE_BASE, Pa};
use crate::{MAX_HARTS, hart, sbi};
use core::arch::global_asm;
use hive_sync::AtomicU64;

/// Bytes of a page table.
#[repr(C, align(4096))]
pub(crate) struct Table(pub [u64; 512]);

/// Gigabytes of the direct map.
const DIRECT_PAGES: u64 = crate::memory::DIRECT_SIZE >> 30;
/// 2 MB pages of the early mapping of the image: 32 MB, more than any image will have.
const IMAGE_PAGES: u64 = 16;
/// The boot stack, laid out as [`crate::stack`] lays out all of them.
const STACK_SLOT: usize = crate::stack::SLOT;

#[unsafe(no_mangle)]
static mut EARLY_ROOT: Table = Table([0; 512]);
#[unsafe(no_mangle)]
static mut EARLY_IMAGE: Table = Table([0; 512]);

#[repr(C, align(65536))]
struct BootStack([u8; STACK_SLOT]);
const _: () = assert!(align_of::<BootStack>() == STACK_SLOT);
#[unsafe(no_mangle)]
static mut BOOT_STACK: BootStack = BootStack([0; STACK_SLOT]);

/// What a later hart needs before it has a stack. Read at its physical address, once `satp` is
/// not zero.
#[repr(C, align(64))]
struct Handover {
    satp: AtomicU64,
    stack: AtomicU64,
    tp: AtomicU64,
    hart: AtomicU64,
}

global_asm!(
    r#"
    .section .text.entry, "ax"
    .option arch, +a
    .option push
    .option norvc
    .global _start
_start:
    j   1f
    nop
    .dword 0x200000                 // text offset from the start of DRAM
    .dword __image_end - {image}
    .dword 0                        // little-endian
    .word  2                        // header version 0.2
    .word  0
    .dword 0
    .ascii "RISCV\0\0\0"
    .ascii "RSC\x05"
    .word  0
1:
    .option pop
    csrw sie, zero
    csrw sscratch, zero
    lla  t0, hal_lottery
    li   t1, 1
    amoswap.w t1, t1, (t0)
    bnez t1, 7f
    mv   s0, a0
    mv   s1, a1
    lla  t0, __bss_start
    lla  t1, __bss_end
2:  sd   zero, (t0)
    addi t0, t0, 8
    bltu t0, t1, 2b
    lla  t0, hal_lottery            // bss may be read
    li   t1, 2
    fence rw, w
    sw   t1, (t0)

    lla  s2, _start                 // where we are
    lla  s3, EARLY_ROOT
    srli t0, s2, 30                 // identity: the gigabyte around us
    slli t1, t0, 28
    ori  t1, t1, 0xcf
    slli t0, t0, 3
    add  t0, t0, s3
    sd   t1, (t0)

    li   t0, {direct_first}         // direct map: gigapages, read and write
    slli t0, t0, 3
    add  t0, t0, s3
    li   t1, 0xc7
    li   t2, {direct_pages}
    li   t3, 1 << 28
3:  sd   t1, (t0)
    add  t1, t1, t3
    addi t0, t0, 8
    addi t2, t2, -1
    bnez t2, 3b

    lla  t0, EARLY_IMAGE            // the image at its link address
    srli t1, t0, 2
    ori  t1, t1, 1
    li   t2, {image_first}
    slli t2, t2, 3
    add  t2, t2, s3
    sd   t1, (t2)
    srli t1, s2, 2
    ori  t1, t1, 0xcf
    li   t2, {image_pages}
    li   t3, 1 << 19
4:  sd   t1, (t0)
    add  t1, t1, t3
    addi t0, t0, 8
    addi t2, t2, -1
    bnez t2, 4b

    srli t0, s3, 12
    li   t1, 8 << 60
    or   t0, t0, t1
    sfence.vma
    csrw satp, t0
    sfence.vma
    lla  t0, 5f
    ld   t0, (t0)
    jr   t0
    .balign 8
5:  .dword hal_boot_virtual
6:  .dword hal_later_virtual

    // A later hart that the firmware sent to the start of the image: OpenSBI up to 1.1 does so if
    // the hart wakes between its change of state and the note of where to start it. What it
    // should have been told is found by its id, a0.
7:  .insn i 0x0f, 0, x0, x0, 0x010  // pause
    lla  t0, hal_lottery
    lw   t1, (t0)
    li   t2, 2
    bne  t1, t2, 7b
    lla  t0, HAL_HANDOVERS
    li   t1, {harts_max}
8:  ld   t2, 0(t0)
    beqz t2, 9f
    ld   t2, 24(t0)
    bne  t2, a0, 9f
    fence r, rw
    mv   a1, t0
    j    hal_later
9:  addi t0, t0, {handover}
    addi t1, t1, -1
    bnez t1, 8b
    j    7b

    .pushsection .data
    .balign 4
hal_lottery:
    .word 0                         // 0 untouched, 1 a hart boots, 2 bss is clear
    .popsection

    // Later harts: a0 = hart id, a1 = physical address of a Handover.
    .global hal_later
hal_later:
    csrw sie, zero
    csrw sscratch, zero
    ld   s2, 0(a1)
    ld   s3, 8(a1)
    ld   s4, 16(a1)
    lla  t0, EARLY_ROOT
    srli t0, t0, 12
    li   t1, 8 << 60
    or   t0, t0, t1
    sfence.vma
    csrw satp, t0
    sfence.vma
    lla  t0, 6b
    ld   t0, (t0)
    jr   t0

    .section .text
hal_boot_virtual:
    lla  sp, BOOT_STACK
    li   t0, {slot}
    add  sp, sp, t0
    lla  tp, {harts}
    lla  t0, hal_trap_vector
    csrw stvec, t0
    mv   a0, s0
    mv   a1, s1
    mv   a2, s2
    li   s0, 0
    li   ra, 0
    tail {boot}

hal_later_virtual:
    csrw satp, s2
    sfence.vma
    mv   sp, s3
    mv   tp, s4
    lla  t0, hal_trap_vector
    csrw stvec, t0
    li   s0, 0
    li   ra, 0
    tail {later}
    "#,
    image = const IMAGE_BASE,
    direct_first = const (DIRECT_BASE >> 30) & 511,
    direct_pages = const DIRECT_PAGES,
    image_first = const (IMAGE_BASE >> 30) & 511,
    image_pages = const IMAGE_PAGES,
    slot = const STACK_SLOT,
    harts = sym HARTS,
    harts_max = const MAX_HARTS,
    handover = const size_of::<Handover>(),
    boot = sym boot,
    later = sym later,
);

unsafe extern "Rust" {
    /// The kernel proper, on the boot hart: see [`crate::entry!`].
    fn hive_kernel_main(boot: Boot) -> !;
    /// The kernel proper, on every other hart.
    fn hive_hart_main() -> !;
}

unsafe extern "C" {
    static hal_later: u8;
}

/// Names the kernel's two entry functions: `fn(Boot) -> !` for the boot hart and `fn() -> !`
/// for each hart that [`start_hart`] starts.
#[macro_export]
macro_rules! entry {
    ($main:path, $hart:path) => {
        #[unsafe(no_mangle)]
        fn hive_kernel_main(boot: $crate::entry::Boot) -> ! {
            $main(boot)
        }
        #[unsafe(no_mangle)]
        fn hive_hart_main() -> ! {
            $hart()
        }
    };
}

/// What the boot hart hands to the kernel: it exists once.
#[derive(Debug)]
pub struct Boot {
    /// The machine, from the device tree.
    pub machine: &'static crate::devicetree::Machine,
    /// Start of the image in memory.
    pub image: Pa,
}

/// The boot hart in Rust: interrupts off, early page tables.
unsafe extern "C" fn boot(hart_id: usize, device_tree: u64, image: u64) -> ! {
    // One hart, once: nothing else runs.
    hive_sync::hart::irq_push();
    hive_sync::hart::set_irq_was_on(false);
    hart::local().set(hart_id, 0);
    crate::trap::quiet();
    crate::memory::init_heap();
    let machine = crate::devicetree::read(Pa(device_tree));
    hart::local().set(hart_id, machine.node_of_hart(hart_id).unwrap_or(0));
    crate::memory::init_early(Pa(image), machine);
    crate::paging::build_kernel_tables(Pa(image));
    crate::time::init(machine);
    // SAFETY: the kernel defines it with `entry!`, with this signature.
    unsafe { hive_kernel_main(Boot { machine, image: Pa(image) }) }
}

unsafe extern "C" fn later() -> ! {
    hive_sync::hart::irq_push();
    hive_sync::hart::set_irq_was_on(false);
    crate::trap::quiet();
    // SAFETY: the kernel defines it with `entry!`, with this signature.
    unsafe { hive_hart_main() }
}

#[unsafe(no_mangle)]
static HAL_HANDOVERS: [Handover; MAX_HARTS] = [const {
    Handover {
        satp: AtomicU64::new(0),
        stack: AtomicU64::new(0),
        tp: AtomicU64::new(0),
        hart: AtomicU64::new(0),
    }
}; MAX_HARTS];

/// Starts the hart with SBI id `id`, of `node`, as hart `index` of this cell.
pub fn start_hart(index: usize, id: usize, node: usize) -> Result<(), sbi::SbiError> {
    let block: &'static Hart = &HARTS[index];
    block.set(id, node);
    hart::set_count(index + 1);
    let stack = crate::stack::Stack::new().map_err(|_| sbi::SbiError(-1))?;
    let handover = &HAL_HANDOVERS[index];
    handover.stack.store(stack.top() as u64);
    handover.tp.store(core::ptr::from_ref(block).addr() as u64);
    handover.hart.store(id as u64);
    handover.satp.store(crate::paging::kernel_satp());
    core::mem::forget(stack); // the hart's idle thread never ends
    let argument = crate::memory::image_pa(core::ptr::from_ref(handover).addr() as u64);
    // SAFETY: the address of a symbol.
    let entry = crate::memory::image_pa((&raw const hal_later).addr() as u64);
    hive_sync::fence();
    sbi::hart_start(id, entry.0, argument.0)
}
