//! How fast the interpreter is: run with `cargo test --release -p hive-machine --test speed --
//! --ignored --nocapture`.

mod bare;

/// CPU time of this process: steadier than wall time on a shared host.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(11));
    ticks.and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}

fn measure(name: &str, body: &str) {
    let source = format!(
        ".globl _start\n_start: li t0, 0x6000; csrs mstatus, t0; la sp, stack; li s0, 3000000\n1: {body}\n addi s0, s0, -1; bnez s0, 1b\n\
         li t0, 0x100000; li t1, 0x5555; sw t1, 0(t0); j .\n.balign 4096\n.skip 4096\nstack: .skip 4096\n"
    );
    let Some(image) = bare::assemble(name, &source) else { return };
    let mut rig = bare::Rig::new(1, &image);
    let start = cpu_seconds();
    let mut executed = 0;
    while rig.bench.finished.is_none() {
        executed += rig.run(0, 500).executed;
    }
    let seconds = cpu_seconds() - start;
    eprintln!("{name}: {executed} instructions, {:.0} MIPS", executed as f64 / seconds / 1e6);
}

#[test]
#[ignore = "a measurement, not a check"]
fn mips() {
    measure("alu", &"addi a0, a0, 1; xor a1, a1, a0; slli a2, a1, 3; add a3, a3, a2;".repeat(8));
    measure("short", "addi a0, a0, 1; xor a1, a1, a0; beq a0, x0, 2f; add a3, a3, a2; 2:");
    measure(
        "mem",
        &"ld a0, 0(sp); addi a0, a0, 1; sd a0, 0(sp); lw a1, 8(sp); sw a1, 12(sp);".repeat(4),
    );
    measure(
        "calls",
        "jal ra, 3f; j 4f; 3: addi sp, sp, -16; sd ra, 0(sp); ld ra, 0(sp); addi sp, sp, 16; ret; 4:",
    );
    measure(
        "muldiv",
        &"mul a0, a0, s0; addi a0, a0, 3; divu a1, a0, s0; remu a2, a0, s0;".repeat(4),
    );
    measure(
        "csr",
        "csrr a0, mscratch; csrw mscratch, a0; csrrsi a1, mstatus, 2; csrrci a1, mstatus, 2;",
    );
    measure(
        "trap",
        "la t0, 5f; csrw mtvec, t0; ecall; j 6f; .balign 4; 5: csrr t1, mepc; addi t1, t1, 4; csrw mepc, t1; mret; 6:",
    );
    measure("fences", "sfence.vma; ld a0, 0(sp); sfence.vma a0; fence.i;");
    // One access in each of 4096 pages: every one misses the TLB.
    measure(
        "tlb misses",
        "li t0, 0x81000000; li t1, 4096; slli t2, s0, 12; slli t2, t2, 40; srli t2, t2, 40; add t0, t0, t2; sd t0, 0(t0);",
    );
    measure(
        "float",
        "fcvt.d.l fa0, s0; fadd.d fa1, fa1, fa0; fmul.d fa2, fa1, fa0; fdiv.d fa3, fa2, fa1; fmadd.d fa4, fa1, fa2, fa3; fld fa5, 0(sp); fsd fa4, 0(sp);",
    );
}
