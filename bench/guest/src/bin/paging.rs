//! Traps and paging: system calls from U-mode, demand faults, TLB flushes, page-table switches.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(unsafe_code)]

#[cfg(target_os = "none")]
mod program {
    use core::arch::{asm, global_asm};
    use hive_bench_guest::finish;

    const ENTRIES: usize = 512;
    const ROUNDS: usize = 250;
    /// Pages that U-mode touches in each round, every one by a fault.
    const PAGES: usize = 256;
    /// Where U-mode sees them: the second gigabyte.
    const WINDOW: usize = 0x4000_0000;
    const LEAF: u64 = 0xc0;
    const VALID: u64 = 1;
    const RW: u64 = 6;
    const X: u64 = 8;
    const USER: u64 = 16;

    #[repr(C, align(4096))]
    struct Table([u64; ENTRIES]);
    #[repr(C, align(4096))]
    struct Frames([[u64; ENTRIES]; PAGES]);

    static mut ROOTS: [Table; 2] = [const { Table([0; ENTRIES]) }; 2];
    static mut MIDDLE: Table = Table([0; ENTRIES]);
    static mut LOW: Table = Table([0; ENTRIES]);
    static mut FRAMES: Frames = Frames([[0; ENTRIES]; PAGES]);
    static mut CALLS: u64 = 0;
    static mut FAULTS: u64 = 0;

    // The handler keeps only what the C code may change; U-mode's loop below uses a0-a7 and t0.
    global_asm!(
        r#"
        .balign 4
    supervisor_trap:
        csrrw   sp, sscratch, sp
        addi    sp, sp, -96
        .irp    r, 1,5,6,7,10,11,12,13,14,15,16,17
        sd      x\r, (\r % 12) * 8(sp)
        .endr
        csrr    a0, scause
        csrr    a1, stval
        call    supervisor
        .irp    r, 1,5,6,7,10,11,12,13,14,15,16,17
        ld      x\r, (\r % 12) * 8(sp)
        .endr
        addi    sp, sp, 96
        csrrw   sp, sscratch, sp
        sret
        .balign 4096
    user:
        li      a2, {rounds}
    1:  li      a0, {window}
        li      a1, {pages}
    2:  ld      a3, 0(a0)
        add     a3, a3, a1
        sd      a3, 8(a0)
        ecall
        ecall
        li      a4, 4096
        add     a0, a0, a4
        addi    a1, a1, -1
        bnez    a1, 2b
        li      a7, 1
        ecall
        li      a7, 0
        addi    a2, a2, -1
        bnez    a2, 1b
        li      a7, 2
        ecall
        j       .
        .balign 4096
    "#,
        rounds = const ROUNDS,
        window = const WINDOW,
        pages = const PAGES,
    );

    fn entry(address: usize, bits: u64) -> u64 {
        (address as u64) >> 12 << 10 | bits | VALID
    }

    #[unsafe(no_mangle)]
    extern "C" fn supervisor(cause: usize, address: usize) {
        let call: usize;
        // SAFETY: one hart, traps do not nest: the statics are this function's. a7 is still the
        // caller's, since the trap entry does not change it.
        unsafe {
            asm!("mv {0}, a7", out(reg) call, options(nomem, nostack));
            match cause {
                8 => {
                    let pc: usize;
                    asm!("csrr {0}, sepc", out(reg) pc);
                    asm!("csrw sepc, {0}", in(reg) pc + 4);
                    CALLS += 1;
                    match call {
                        1 => next_round(),
                        2 => {
                            let frames = &*(&raw const FRAMES);
                            let sum = frames
                                .0
                                .iter()
                                .fold(0u64, |s, f| s.wrapping_mul(31).wrapping_add(f[1]));
                            finish("paging", sum ^ CALLS << 32 ^ FAULTS)
                        }
                        _ => {}
                    }
                }
                13 | 15 => {
                    FAULTS += 1;
                    let page = (address - WINDOW) >> 12;
                    let frame = &raw const FRAMES.0[page] as usize;
                    LOW.0[page] = entry(frame, RW | USER | LEAF);
                    asm!("sfence.vma {0}", in(reg) address);
                }
                _ => panic!("trap {cause} at {address:#x}"),
            }
        }
    }

    /// Unmaps the window and switches to the other page table.
    unsafe fn next_round() {
        // SAFETY: as in `supervisor`; both roots map the running code alike.
        unsafe {
            LOW.0[..PAGES].fill(0);
            let satp: usize;
            asm!("csrr {0}, satp", out(reg) satp);
            let roots = &raw const ROOTS;
            let tables = [&raw const (*roots)[0] as usize, &raw const (*roots)[1] as usize];
            let other =
                if satp & 0xfff_ffff_ffff == tables[0] >> 12 { tables[1] } else { tables[0] };
            asm!("csrw satp, {0}", "sfence.vma", in(reg) 8 << 60 | other >> 12);
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn main() -> ! {
        unsafe extern "C" {
            safe fn user();
            safe fn supervisor_trap();
        }
        // SAFETY: one hart sets up its own tables before it uses them; PMP is opened as the
        // privileged specification asks before S-mode may touch memory.
        unsafe {
            for root in &mut *(&raw mut ROOTS) {
                root.0[0] = entry(0, RW | X | LEAF);
                root.0[1] = entry(&raw const MIDDLE as usize, 0);
                root.0[2] = entry(0x8000_0000, RW | X | LEAF);
                // U-mode sees its code in the fourth gigabyte: a page may not be both.
                root.0[3] = entry(0x8000_0000, RW | X | USER | LEAF);
            }
            MIDDLE.0[0] = entry(&raw const LOW as usize, 0);
            let stack: usize;
            asm!("mv {0}, sp", out(reg) stack);
            asm!("csrw pmpaddr0, {0}", "csrwi pmpcfg0, 0x1f", in(reg) usize::MAX >> 10);
            asm!("csrw medeleg, {0}", in(reg) 0xb1ff);
            asm!("csrw stvec, {0}", "csrw sscratch, {1}",
                in(reg) supervisor_trap as *const () as usize, in(reg) stack - 1024);
            let root = &raw const ROOTS as usize;
            asm!("csrw satp, {0}", "sfence.vma", in(reg) 8 << 60 | root >> 12);
            let entry = user as *const () as usize + 0x4000_0000;
            asm!("csrw mepc, {0}", "csrc mstatus, {1}", "mret",
                in(reg) entry, in(reg) 3 << 11, in("a7") 0, options(noreturn))
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("a guest program: build it with `cargo xtask guest`");
}
