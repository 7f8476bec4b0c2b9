//! How fast the interpreter is: run with `cargo test --release -p hive-machine --test speed --
//! --ignored --nocapture`.

mod bare;

use std::time::Instant;

fn measure(name: &str, body: &str) {
    let source = format!(
        ".globl _start\n_start: la sp, stack; li s0, 3000000\n1: {body}\n addi s0, s0, -1; bnez s0, 1b\n\
         li t0, 0x100000; li t1, 0x5555; sw t1, 0(t0); j .\n.balign 4096\n.skip 4096\nstack: .skip 4096\n"
    );
    let Some(image) = bare::assemble(name, &source) else { return };
    let mut rig = bare::Rig::new(1, &image);
    let start = Instant::now();
    let mut executed = 0;
    while rig.bench.finished.is_none() {
        executed += rig.run(0, 500).executed;
    }
    let seconds = start.elapsed().as_secs_f64();
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
}
