//! All of the firmware's unsafe code: CSRs, memory-mapped registers, entry and trap assembly.
//!
//! Everything above this module is safe Rust over [`Controller`], [`probe_load`] and the CSR
//! functions; a wrong value there can break the machine's promises but not this program's memory.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};

use crate::hart::{Boot, Hart};
use hive_platform::{MAX_NODES, controller, map};

/// Bytes of stack and state that a hart has in the window; `link.ld` reserves as many for 64.
pub const HART_AREA: usize = 0x4000;
/// Most harts a node may have: bounded by `link.ld`.
pub const HARTS_PER_NODE_MAX: usize = 64;

/// Reads a CSR by name.
macro_rules! csr_read {
    ($name:literal) => {{
        let value: usize;
        // SAFETY: reading the named CSR has no effect on memory.
        unsafe { asm!(concat!("csrr {0}, ", $name), out(reg) value, options(nomem, nostack)) };
        value
    }};
}
/// Writes a CSR by name.
macro_rules! csr_write {
    ($name:literal, $value:expr) => {{
        let value: usize = $value;
        // SAFETY: the callers below write only values that keep M-mode running as compiled.
        unsafe { asm!(concat!("csrw ", $name, ", {0}"), in(reg) value, options(nostack)) };
    }};
}
/// Sets bits of a CSR.
macro_rules! csr_set {
    ($name:literal, $value:expr) => {{
        let value: usize = $value;
        // SAFETY: as for `csr_write`.
        unsafe { asm!(concat!("csrs ", $name, ", {0}"), in(reg) value, options(nostack)) };
    }};
}

/// S-mode software interrupt, as a bit of `mip`.
const SSIP: usize = 1 << 1;
/// M-mode software interrupt, as a bit of `mie`.
const MSIE: usize = 1 << 3;

// Every hart of every node starts here with a0 = hart id, a1 = device tree, a2 = hand-over block.
// It finds its node by asking each controller in turn: only its own answers.
global_asm!(
    r#"
    .section .text.entry, "ax"
    .option arch, +m
    .global _start
_start:
    csrw    mie, zero
    csrw    mscratch, zero
    la      t0, 3f
    csrw    mtvec, t0
    li      t1, {first}
    li      t2, {stride}
    li      t3, {nodes}
    li      t5, {id}
1:  ld      t4, 0(t1)           # an access fault continues at 3 with t4 = 0
2:  beq     t4, t5, 4f
    add     t1, t1, t2
    addi    t3, t3, -1
    bnez    t3, 1b
5:  wfi                         # no controller: not our machine
    j       5b
    .balign 4
3:  li      t4, 0
    la      t0, 2b
    csrw    mepc, t0
    mret
4:  ld      t2, {node}(t1)
    ld      t3, {per_node}(t1)
    mul     t2, t2, t3
    sub     t2, a0, t2          # local hart number
    li      t3, {limit}
    bgeu    t2, t3, 5b
    li      t4, {area}
    la      sp, __harts
    addi    t2, t2, 1
    mul     t2, t2, t4
    add     sp, sp, t2
    mv      a3, t1
    call    {enter}
6:  j       6b
"#,
    first = const map::controller(0),
    stride = const map::CONTROLLER_SIZE,
    nodes = const MAX_NODES,
    id = const controller::ID_VALUE,
    node = const controller::NODE,
    per_node = const controller::HARTS_PER_NODE,
    limit = const HARTS_PER_NODE_MAX,
    area = const HART_AREA,
    enter = sym enter,
);

/// First Rust code of a hart.
extern "C" fn enter(hart_id: usize, device_tree: usize, hand_over: usize, base: usize) -> ! {
    crate::boot::start(Boot { hart_id, device_tree, hand_over }, Controller { base })
}

/// The registers of this hart's own coherence controller.
#[derive(Clone, Copy)]
pub struct Controller {
    base: usize,
}

impl Controller {
    /// Reads the register at `offset` (see [`hive_platform::controller`]).
    pub fn read(&self, offset: u64) -> u64 {
        // SAFETY: `base` is this hart's controller, found at start; all its registers take
        // aligned 64-bit loads, and none of them is memory of this program.
        unsafe { ((self.base + offset as usize) as *const u64).read_volatile() }
    }

    /// Writes the register at `offset`.
    pub fn write(&self, offset: u64, value: u64) {
        // SAFETY: as for `read`.
        unsafe { ((self.base + offset as usize) as *mut u64).write_volatile(value) }
    }
}

/// Stores `value` to the test finisher, which ends or resets the machine.
pub fn finisher(value: u32) {
    // SAFETY: the finisher is a device register.
    unsafe { (map::FINISHER as *mut u32).write_volatile(value) }
}

/// Reads a byte register of the 16550 at `base`.
pub fn uart_read(base: u64, register: u64) -> u8 {
    // SAFETY: `base` is a device's address from the platform map.
    unsafe { ((base + register) as *const u8).read_volatile() }
}

/// Writes a byte register of the 16550 at `base`.
pub fn uart_write(base: u64, register: u64, value: u8) {
    // SAFETY: as for `uart_read`.
    unsafe { ((base + register) as *mut u8).write_volatile(value) }
}

/// Loads a byte from anywhere outside the remap window; `None` if the access faults.
pub fn probe_load(address: u64) -> Option<u8> {
    probe(address, |address| {
        let value: usize;
        let fault: usize;
        // SAFETY: `mtvec` points at the landing below for this one load, so that a fault comes
        // back with `fault` = 1; it is restored at once. A load has no effect on memory.
        unsafe {
            asm!(
                "la      {t}, 2f",
                "csrrw   {t}, mtvec, {t}",
                "li      {f}, 1",
                "lbu     {v}, 0({a})",
                "li      {f}, 0",
                "j       3f",
                ".balign 4",
                "2: la   {v}, 3f",
                "csrw    mepc, {v}",
                "csrr    {v}, mstatus",
                "mret",
                "3: csrw mtvec, {t}",
                t = out(reg) _, f = out(reg) fault, v = out(reg) value, a = in(reg) address,
                options(nostack)
            );
        }
        (fault == 0).then_some(value as u8)
    })
}

/// Stores a byte anywhere outside the remap window; `None` if the access faults.
pub fn probe_store(address: u64, value: u8) -> Option<()> {
    probe(address, |address| {
        let fault: usize;
        // SAFETY: as for `probe_load`; the address is outside this program's memory, and the
        // caller (S-mode) asked for the store to its own.
        unsafe {
            asm!(
                "la      {t}, 2f",
                "csrrw   {t}, mtvec, {t}",
                "li      {f}, 1",
                "sb      {v}, 0({a})",
                "li      {f}, 0",
                "j       3f",
                ".balign 4",
                "2: la   {v}, 3f",
                "csrw    mepc, {v}",
                "mret",
                "3: csrw mtvec, {t}",
                t = out(reg) _, f = out(reg) fault, v = inout(reg) value as usize => _,
                a = in(reg) address,
                options(nostack)
            );
        }
        (fault == 0).then_some(())
    })
}

/// Runs `access` with the trap state that the interrupted S-mode still needs kept aside.
fn probe<T>(address: u64, access: impl Fn(u64) -> Option<T>) -> Option<T> {
    if (map::REMAP..map::REMAP + map::REMAP_SIZE).contains(&address) {
        return None;
    }
    let (status, epc) = (csr_read!("mstatus"), csr_read!("mepc"));
    let result = access(address);
    csr_write!("mepc", epc);
    csr_write!("mstatus", status);
    result
}

/// Copies `length` bytes (a multiple of 8) from flash to DRAM.
pub fn copy_image(from: u64, to: u64, length: u64) {
    for offset in (0..length).step_by(8) {
        // SAFETY: `from` lies in the boot flash, which is read-only memory; `to` in this
        // partition's DRAM, where nothing runs yet. Neither is memory of this program.
        unsafe {
            let word = ((from + offset) as *const u64).read_volatile();
            ((to + offset) as *mut u64).write_volatile(word);
        }
    }
}

/// Reads 8 bytes from the boot ROM.
pub fn rom_read(address: u64) -> u64 {
    // SAFETY: the boot ROM is read-only memory.
    unsafe { (address as *const u64).read_volatile() }
}

/// Sets up protection, delegation and counters of this hart; see the privileged specification.
pub fn set_up(hart: &mut Hart) {
    // PMP entry 0 fences the firmware's frames off, whatever node's they are; 1 allows the rest.
    let napot = |base: u64, size: u64| (base >> 2 | ((size >> 3) - 1)) as usize;
    csr_write!("pmpaddr0", napot(map::REMAP, map::REMAP_SIZE));
    csr_write!("pmpaddr1", usize::MAX >> 10);
    csr_write!("pmpcfg0", 0x1f_18);
    // Everything a kernel can handle itself, hardware error (19) included; not its own ecalls.
    csr_write!("medeleg", 0xb1ff | 1 << 19);
    let sips = map::SIPS_INTERRUPT.iter().fold(0, |bits, i| bits | 1 << i);
    csr_write!("mideleg", 0x222 | 1 << 13 | sips);
    csr_write!("mcounteren", 7);
    // Sstc, and all cache-block operations, for S-mode.
    csr_write!("0x30a", 1 << 63 | 1 << 7 | 1 << 6 | 3 << 4);
    csr_write!("0x14d", usize::MAX);
    unsafe extern "C" {
        safe fn trap_entry();
    }
    csr_write!("mtvec", trap_entry as *const () as usize);
    csr_write!("mscratch", core::ptr::from_mut(hart) as usize);
    csr_write!("mie", MSIE);
}

/// Enters S-mode at `entry` with paging off, a0 = hart id, a1 = `argument`. The M-mode stack is
/// empty again from here on.
pub fn enter_supervisor(entry: u64, hart_id: u64, argument: u64) -> ! {
    csr_write!("satp", 0);
    csr_write!("sie", 0);
    csr_write!("mepc", entry as usize);
    // MPP = S, MPIE = 0 (M-mode interrupts are taken from S-mode regardless), SIE = 0, FS off.
    csr_write!("mstatus", 1 << 11 | 0xa_0000_0000);
    // SAFETY: `mret` leaves this program for the kernel; nothing of this frame is used again.
    unsafe {
        asm!("fence.i", "sfence.vma", "mret",
            in("a0") hart_id, in("a1") argument, options(noreturn))
    }
}

/// Machine-defined ids: `mvendorid`, `marchid`, `mimpid`.
pub fn machine_ids() -> [usize; 3] {
    [csr_read!("mvendorid"), csr_read!("marchid"), csr_read!("mimpid")]
}

/// Why the current trap was taken: `mcause`, `mepc`, `mtval`.
pub fn trap_cause() -> [usize; 3] {
    [csr_read!("mcause"), csr_read!("mepc"), csr_read!("mtval")]
}

/// Moves the return address of the current trap past the `ecall`.
pub fn skip_ecall() {
    csr_write!("mepc", csr_read!("mepc") + 4);
}

/// Sets the S-mode timer of this hart (Sstc).
pub fn set_timer(time: u64) {
    csr_write!("0x14d", time as usize);
}

/// Raises the S-mode software interrupt of this hart.
pub fn raise_software_interrupt() {
    csr_set!("mip", SSIP);
}

/// Clears the S-mode software interrupt of this hart.
pub fn clear_software_interrupt() {
    // SAFETY: clears one pending bit.
    unsafe { asm!("csrc mip, {0}", in(reg) SSIP, options(nostack)) };
}

/// Now, in ticks of the `time` CSR.
pub fn time() -> u64 {
    csr_read!("time") as u64
}

/// Waits for an interrupt; returns at once if one is pending.
pub fn wait_for_interrupt() {
    // SAFETY: no effect on memory.
    unsafe { asm!("wfi", options(nostack)) };
}

/// Waits for a message (`machine`) or for anything that would interrupt S-mode.
pub fn suspend(also_supervisor: bool) {
    let enabled = csr_read!("mie");
    if !also_supervisor {
        csr_write!("mie", MSIE);
    }
    wait_for_interrupt();
    csr_write!("mie", enabled);
}

/// Yields the rest of this hart's slice in a polling loop.
pub fn pause() {
    core::hint::spin_loop();
}

/// Orders instruction fetches after earlier stores.
pub fn fence_i() {
    // SAFETY: no effect on data.
    unsafe { asm!("fence.i", options(nostack)) };
}

/// Pages up to which a remote fence is done page by page; beyond, the whole TLB goes.
const PAGES_ONE_BY_ONE: u64 = 16;

/// `sfence.vma` over a range; size 0 or `u64::MAX`, or a large range, means everything.
pub fn sfence_vma(start: u64, size: u64) {
    let pages = size.div_ceil(hive_platform::PAGE_SIZE);
    if size == 0 || pages > PAGES_ONE_BY_ONE {
        // SAFETY: forgets translations, never changes them.
        unsafe { asm!("sfence.vma", options(nostack)) };
        return;
    }
    for page in 0..pages {
        let address = start.wrapping_add(page * hive_platform::PAGE_SIZE);
        // SAFETY: as above.
        unsafe { asm!("sfence.vma {0}", in(reg) address, options(nostack)) };
    }
}

/// Registers that a trap saves: x1 and x5..x31 by number; the others are not used.
pub type Registers = [usize; 32];

// Trap entry from S- or U-mode. `mscratch` holds this hart's `Hart`, which lies at the top of its
// stack; interrupts stay off in M-mode, so traps do not nest (a fault of the firmware's own ends
// up in `trap::handle` as well and stops the hart). Registers go to their number times eight.
global_asm!(
    r#"
    .section .text
    .balign 4
trap_entry:
    csrrw   sp, mscratch, sp
    addi    sp, sp, -256
    .irp    r, 1,5,6,7,10,11,12,13,14,15,16,17,28,29,30,31
    sd      x\r, \r * 8(sp)
    .endr
    addi    a1, sp, 256
    csrrw   t0, mscratch, a1
    sd      t0, 16(sp)
    mv      a0, sp
    call    {handle}
    .irp    r, 1,5,6,7,10,11,12,13,14,15,16,17,28,29,30,31
    ld      x\r, \r * 8(sp)
    .endr
    ld      sp, 16(sp)
    mret
"#,
    handle = sym handle,
);

/// From assembly to Rust: the two pointers become references.
extern "C" fn handle(registers: *mut Registers, hart: *mut Hart) {
    // SAFETY: `trap_entry` passes its own frame and the `Hart` whose only user is this hart;
    // traps do not nest, so neither is borrowed elsewhere.
    let (registers, hart) = unsafe { (&mut *registers, &mut *hart) };
    crate::trap::handle(registers, hart);
}

/// Puts `hart` at the top of this hart's stack area, below which its trap frames are made, and
/// runs `then` with it.
pub fn on_hart_stack(hart: Hart, then: fn(&'static mut Hart) -> !) -> ! {
    let local = hart.local;
    let size = size_of::<Hart>().next_multiple_of(16);
    // SAFETY: `__harts` is `HARTS_PER_NODE_MAX` areas in `link.ld`, and `local` is below that
    // (checked at entry). The middle of the area is free: the frames of `enter` and `start` are
    // at its top, and nothing else has run. They are given up by moving `sp` below `place`.
    unsafe {
        unsafe extern "C" {
            static __harts: u8;
        }
        let top = (&raw const __harts).add((local + 1) * HART_AREA) as usize;
        let place = top - size;
        let spare = (top - HART_AREA / 2) as *mut Hart;
        spare.write(hart);
        asm!("mv sp, {place}", "tail {settle}", place = in(reg) place, settle = sym settle,
            in("a0") spare, in("a1") place, in("a2") then, options(noreturn))
    }
}

/// Moves the hart's record to where it stays. On the new stack, because the record goes where the
/// old frames were: a copy made from there is one that the compiler may read from the original.
extern "C" fn settle(spare: *const Hart, place: *mut Hart, then: fn(&'static mut Hart) -> !) -> ! {
    // SAFETY: called by `on_hart_stack` only, with a whole `Hart` at `spare` and room for one at
    // `place`, above this stack and used by nothing else any more.
    unsafe {
        place.copy_from_nonoverlapping(spare, 1);
        then(&mut *place)
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        wait_for_interrupt();
    }
}
