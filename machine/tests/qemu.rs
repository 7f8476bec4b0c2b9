//! Differential test of every RV64GC instruction against QEMU over random and special operands.
//!
//! One bare-metal program executes each instruction on a table of operands and keeps two words for
//! each case: the result, and `fflags`, memory, or the cause of a trap. It runs on QEMU, which
//! sends the words through its console, and on our hart; a difference names instruction and
//! operands. Skipped, with a message, where QEMU or the cross compiler is missing.

mod bare;

use std::fmt::Write;

/// Where the program keeps its results.
const RESULTS: u64 = bare::BASE + 0x40_0000;
/// Operand tuples of each table.
const TUPLES: usize = 320;

/// One instruction under test: `body` takes operands from a0, a1 (or fa0, fa1, fa2) and leaves
/// results in a2 and a3.
struct Group {
    name: String,
    table: &'static str,
    body: String,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn integer(&mut self) -> u64 {
        const SPECIAL: [u64; 10] = [
            0,
            1,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            1 << 31,
            (1 << 31) - 1,
            0xffff_ffff,
            0xffff_ffff_8000_0000,
            2,
        ];
        match self.next() % 4 {
            0 => SPECIAL[self.next() as usize % SPECIAL.len()],
            1 => self.next() >> (self.next() % 64),
            2 => self.next() as i32 as u64,
            _ => self.next(),
        }
    }

    fn float(&mut self, exponent_bits: u32, fraction_bits: u32) -> u64 {
        let sign = self.next() & 1;
        let max = (1u64 << exponent_bits) - 1;
        let bias = max >> 1;
        let fraction = self.next() & ((1 << fraction_bits) - 1);
        let (e, f) = match self.next() % 10 {
            0 => (0, 0),
            1 => (max, 0),
            2 => (max, fraction),
            3 => (0, fraction),
            4 => (max - 1, fraction),
            5 => (1, fraction),
            6 => (bias + self.next() % 66, fraction & !0xff),
            7 | 8 => (bias - 3 + self.next() % 6, fraction),
            _ => (self.next() & max, fraction),
        };
        (sign << exponent_bits | e) << fraction_bits | f
    }
}

fn table(name: &str, random: &mut Random) -> Vec<[u64; 3]> {
    (0..TUPLES)
        .map(|_| match name {
            "int" => [random.integer(), random.integer(), 0],
            "double" => [random.float(11, 52), random.float(11, 52), random.float(11, 52)],
            _ => [(); 3].map(|()| {
                let single = random.float(8, 23);
                // Some operands are not NaN-boxed.
                if random.next() % 16 == 0 { single } else { single | 0xffff_ffff << 32 }
            }),
        })
        .collect()
}

fn groups() -> Vec<Group> {
    let mut all = Vec::new();
    let mut add = |table, name: &str, body: &str| {
        all.push(Group { name: name.into(), table, body: body.replace(';', "\n") });
    };
    integer(&mut add);
    compressed(&mut add);
    memory(&mut add);
    system(&mut add);
    float(&mut add);
    all
}

type Add<'a> = dyn FnMut(&'static str, &str, &str) + 'a;

fn integer(add: &mut Add) {
    for op in "add sub sll slt sltu xor srl sra or and addw subw sllw srlw sraw mul mulh mulhsu \
               mulhu div divu rem remu mulw divw divuw remw remuw"
        .split_whitespace()
    {
        add("int", op, &format!("{op} a2, a0, a1"));
    }
    for op in ["addi", "slti", "sltiu", "xori", "ori", "andi", "addiw"] {
        for imm in [-2048, -1, 0, 1, 77, 2047] {
            add(
                "int",
                &format!("{op} {imm}"),
                &format!(".option norvc; {op} a2, a0, {imm}; .option rvc"),
            );
        }
    }
    for (op, top) in
        [("slli", 63), ("srli", 63), ("srai", 63), ("slliw", 31), ("srliw", 31), ("sraiw", 31)]
    {
        for amount in [0, 1, 13, 31, top] {
            add(
                "int",
                &format!("{op} {amount}"),
                &format!(".option norvc; {op} a2, a0, {amount}; .option rvc"),
            );
        }
    }
    for op in ["beq", "bne", "blt", "bge", "bltu", "bgeu"] {
        add("int", op, &format!("li a2, 1; {op} a0, a1, 1f; li a2, 0; 1: mv a3, a2"));
        add("int", &format!("{op} same"), &format!("li a2, 1; {op} a0, a0, 1f; li a2, 0; 1:"));
        add(
            "int",
            &format!("{op} back"),
            &format!("li a2, 9; j 2f; 1: li a2, 5; j 3f; 2: {op} a0, a1, 1b; 3:"),
        );
    }
    add("int", "lui", "lui a2, 0x80000; lui a3, 0x12345");
    add("int", "auipc", "auipc a2, 0x80000; auipc a3, 0x12345");
    add("int", "jal", "jal a2, 1f; li a3, 3; 1:");
    add(
        "int",
        "jalr",
        "la t0, 1f; addi t0, t0, 1; jalr a2, 0(t0); li a3, 3; .option norvc; 1: jalr a3, 12(a2); nop; nop; nop; .option rvc",
    );
    add("int", "x0", "add x0, a0, a1; addi x0, a0, 5; mv a2, x0; lui x0, 5");
}

fn compressed(add: &mut Add) {
    for op in ["c.sub", "c.xor", "c.or", "c.and", "c.subw", "c.addw", "c.mv", "c.add"] {
        add("int", op, &format!("mv a2, a0; {op} a2, a1"));
    }
    for (op, immediates) in [
        ("c.addi", "-32 -1 1 31"),
        ("c.addiw", "-32 -1 0 31"),
        ("c.li", "-32 0 31"),
        ("c.lui", "1 31 0xfffe0 0xfffff"),
        ("c.slli", "1 31 32 63"),
        ("c.srli", "1 31 32 63"),
        ("c.srai", "1 31 32 63"),
        ("c.andi", "-32 -1 0 31"),
    ] {
        for imm in immediates.split_whitespace() {
            add("int", &format!("{op} {imm}"), &format!("mv a2, a0; {op} a2, {imm}"));
        }
    }
    for imm in [-512, -16, 16, 496] {
        add(
            "int",
            &format!("c.addi16sp {imm}"),
            &format!("mv t0, sp; mv sp, a0; c.addi16sp sp, {imm}; mv a2, sp; mv sp, t0"),
        );
    }
    for imm in [4, 8, 64, 1020] {
        add(
            "int",
            &format!("c.addi4spn {imm}"),
            &format!("mv t0, sp; mv sp, a0; c.addi4spn a2, sp, {imm}; mv sp, t0"),
        );
    }
    for op in ["c.beqz", "c.bnez"] {
        add("int", op, &format!("li a2, 1; {op} a0, 1f; li a2, 0; 1:"));
    }
    add("int", "c.j", "li a2, 1; c.j 1f; li a2, 0; 1:");
    add("int", "c.jr", "la t0, 1f; li a2, 1; c.jr t0; li a2, 0; 1:");
    add("int", "c.jalr", "la t0, 1f; c.jalr t0; li a3, 9; 1: mv a2, ra");
    for (op, reg) in [("c.lw", "a2"), ("c.ld", "a2"), ("c.fld", "fa2")] {
        for offset in [0, 8, 56, 120] {
            add(
                "int",
                &format!("{op} {offset}"),
                &format!("mv a4, gp; sd a0, {offset}(a4); {op} {reg}, {offset}(a4); {}", from(reg)),
            );
        }
    }
    for (op, reg) in [("c.lwsp", "a2"), ("c.ldsp", "a2"), ("c.fldsp", "fa2")] {
        for offset in [0, 8, 64, 248] {
            add(
                "int",
                &format!("{op} {offset}"),
                &format!(
                    "mv t0, sp; mv sp, gp; sd a0, {offset}(gp); {op} {reg}, {offset}(sp); mv sp, t0; {}",
                    from(reg)
                ),
            );
        }
    }
    for (op, reg) in [("c.sw", "a0"), ("c.sd", "a0"), ("c.fsd", "fa0")] {
        for offset in [0, 8, 56, 120] {
            add(
                "int",
                &format!("{op} {offset}"),
                &format!(
                    "mv a4, gp; sd a1, {offset}(a4); {} {op} {reg}, {offset}(a4); ld a2, {offset}(a4)",
                    to(reg)
                ),
            );
        }
    }
    for (op, reg) in [("c.swsp", "a0"), ("c.sdsp", "a0"), ("c.fsdsp", "fa0")] {
        for offset in [0, 8, 64, 248] {
            add(
                "int",
                &format!("{op} {offset}"),
                &format!(
                    "mv t0, sp; mv sp, gp; sd a1, {offset}(gp); {} {op} {reg}, {offset}(sp); mv sp, t0; ld a2, {offset}(gp)",
                    to(reg)
                ),
            );
        }
    }
}

fn from(reg: &str) -> &'static str {
    if reg.starts_with('f') { "fmv.x.d a2, fa2" } else { "" }
}

fn to(reg: &str) -> &'static str {
    if reg.starts_with('f') { "fmv.d.x fa0, a0;" } else { "" }
}

fn memory(add: &mut Add) {
    // gp points 64 bytes below a page end; offsets from 57 up cross it.
    for op in ["lb", "lh", "lw", "ld", "lbu", "lhu", "lwu"] {
        for offset in [0, 1, 2, 3, 4, 5, 6, 7, 57, 61, 63] {
            add(
                "int",
                &format!("{op} {offset}"),
                &format!(
                    "sd a0, 0(gp); sd a1, 8(gp); sd a1, 56(gp); sd a0, 64(gp); .option norvc; {op} a2, {offset}(gp); .option rvc"
                ),
            );
        }
    }
    for op in ["sb", "sh", "sw", "sd"] {
        for offset in [0, 1, 2, 3, 4, 5, 6, 7] {
            add(
                "int",
                &format!("{op} {offset}"),
                &format!(
                    "sd a0, 0(gp); sd a0, 8(gp); .option norvc; {op} a1, {offset}(gp); .option rvc; ld a2, 0(gp); ld a3, 8(gp)"
                ),
            );
        }
        for offset in [57, 61, 63] {
            add(
                "int",
                &format!("{op} {offset}"),
                &format!(
                    "sd a0, 56(gp); sd a0, 64(gp); {op} a1, {offset}(gp); ld a2, 56(gp); ld a3, 64(gp)"
                ),
            );
        }
    }
    for op in
        ["amoswap", "amoadd", "amoxor", "amoand", "amoor", "amomin", "amomax", "amominu", "amomaxu"]
    {
        for size in ["w", "d", "w.aqrl", "d.aq"] {
            add(
                "int",
                &format!("{op}.{size}"),
                &format!("sd a0, 0(gp); {op}.{size} a2, a1, (gp); ld a3, 0(gp)"),
            );
        }
        add(
            "int",
            &format!("{op}.w upper"),
            &format!("sd a0, 0(gp); addi t0, gp, 4; {op}.w a2, a1, (t0); ld a3, 0(gp)"),
        );
    }
    for size in ["w", "d"] {
        add("int", &format!("lr.{size}"), &format!("sd a0, 0(gp); lr.{size} a2, (gp); li a3, 0"));
        add(
            "int",
            &format!("sc.{size}"),
            &format!("sd a0, 0(gp); lr.{size} a2, (gp); sc.{size} a2, a1, (gp); ld a3, 0(gp)"),
        );
        add(
            "int",
            &format!("sc.{size} twice"),
            &format!(
                "sd a0, 0(gp); lr.{size} a2, (gp); sc.{size} a2, a1, (gp); sc.{size} a2, a0, (gp); ld a3, 0(gp)"
            ),
        );
    }
    add(
        "int",
        "flw",
        "sd a0, 0(gp); flw fa2, 0(gp); fmv.x.d a2, fa2; flw fa2, 4(gp); fmv.x.d a3, fa2",
    );
    add("int", "fld", "sd a0, 0(gp); fld fa2, 0(gp); fmv.x.d a2, fa2");
    add("int", "fsw", "sd a1, 0(gp); fmv.d.x fa0, a0; fsw fa0, 4(gp); ld a2, 0(gp)");
    add("int", "fsd", "sd a1, 0(gp); fmv.d.x fa0, a0; fsd fa0, 0(gp); ld a2, 0(gp)");
    add("int", "fence", "fence; fence.tso; fence.i; fence rw, w; add a2, a0, a1");
}

fn system(add: &mut Add) {
    for op in ["csrrw", "csrrs", "csrrc"] {
        add("int", op, &format!("csrw mscratch, a0; {op} a2, mscratch, a1; csrr a3, mscratch"));
        add(
            "int",
            &format!("{op} x0"),
            &format!("csrw mscratch, a0; {op} x0, mscratch, a1; csrr a3, mscratch"),
        );
        add(
            "int",
            &format!("{op}i"),
            &format!("csrw mscratch, a0; {op}i a2, mscratch, 21; csrr a3, mscratch"),
        );
    }
    for csr in [
        "fflags",
        "frm",
        "fcsr",
        "mepc",
        "mcause",
        "mtval",
        "sscratch",
        "sepc",
        "scause",
        "stval",
        "medeleg",
        "scounteren",
        "stvec",
    ] {
        // Where QEMU 7.2 keeps bits that the specification says are zero, or does not delegate.
        let mask = match csr {
            "medeleg" => "li t0, 0xb1ff; and a0, a0, t0;",
            "mepc" | "sepc" => "andi a0, a0, -2;",
            "scounteren" => "slli a0, a0, 32; srli a0, a0, 32;",
            _ => "",
        };
        add(
            "int",
            csr,
            &format!(
                "{mask} csrw {csr}, a0; csrr a2, {csr}; csrw {csr}, zero; fsflags zero; fsrm zero"
            ),
        );
    }
    add(
        "int",
        "mstatus",
        "csrr t0, mstatus; li t1, 0x7e09aa; and a0, a0, t1; li t1, 0x20008; not t1, t1; and a0, a0, t1; csrw mstatus, a0; csrr a2, mstatus; csrr a3, sstatus; csrw mstatus, t0",
    );
    add("int", "satp", "srli a0, a0, 4; csrw satp, a0; csrr a2, satp; csrw satp, zero");
    add("int", "ecall", "ecall");
    add("int", "ebreak", "ebreak; li a2, 0");
    add("int", "illegal", ".word 0xffffffff");
    add("int", "illegal csr", "csrr a2, 0x8ff");
    add("int", "read-only csr", "csrw mhartid, a0");
    add("int", "reserved rounding", "fmv.d.x fa0, a0; .word 0x02a57553 | 5 << 12");
    add("int", "c.illegal", ".half 0");
}

fn float(add: &mut Add) {
    let mut put = |table: &'static str, name: &str, body: &str| {
        add(table, name, &format!("fsflags zero; li a2, 0; {body}; frflags a3"));
    };
    const MODES: [&str; 5] = ["rne", "rtz", "rdn", "rup", "rmm"];
    for (size, table, mv) in [("s", "single", "fmv.x.d"), ("d", "double", "fmv.x.d")] {
        let mut rounded = |name: &str, insn: &str, to_x: bool| {
            let result = if to_x { String::new() } else { format!("{mv} a2, fa3") };
            for mode in MODES {
                put(table, &format!("{name} {mode}"), &format!("{insn}, {mode}; {result}"));
            }
            for (n, mode) in MODES.iter().enumerate() {
                put(
                    table,
                    &format!("{name} dyn={mode}"),
                    &format!("fsrmi {n}; {insn}, dyn; fsrmi 0; {result}"),
                );
            }
            // NX already set: the fast path.
            put(table, &format!("{name} sticky"), &format!("fsflagsi 1; {insn}, rne; {result}"));
            put(
                table,
                &format!("{name} bad frm"),
                &format!("fsrmi 6; {insn}, dyn; fsrmi 0; {result}"),
            );
        };
        for op in ["fadd", "fsub", "fmul", "fdiv"] {
            rounded(&format!("{op}.{size}"), &format!("{op}.{size} fa3, fa0, fa1"), false);
        }
        rounded(&format!("fsqrt.{size}"), &format!("fsqrt.{size} fa3, fa0"), false);
        for op in ["fmadd", "fmsub", "fnmadd", "fnmsub"] {
            rounded(&format!("{op}.{size}"), &format!("{op}.{size} fa3, fa0, fa1, fa2"), false);
        }
        for integer in ["w", "wu", "l", "lu"] {
            rounded(
                &format!("fcvt.{integer}.{size}"),
                &format!("fcvt.{integer}.{size} a2, fa0"),
                true,
            );
        }
        for op in ["fsgnj", "fsgnjn", "fsgnjx", "fmin", "fmax"] {
            put(
                table,
                &format!("{op}.{size}"),
                &format!("{op}.{size} fa3, fa0, fa1; {mv} a2, fa3"),
            );
        }
        for op in ["feq", "flt", "fle"] {
            put(table, &format!("{op}.{size}"), &format!("{op}.{size} a2, fa0, fa1"));
            put(table, &format!("{op}.{size} same"), &format!("{op}.{size} a2, fa0, fa0"));
        }
        put(table, &format!("fclass.{size}"), &format!("fclass.{size} a2, fa0"));
        for integer in ["w", "wu", "l", "lu"] {
            for mode in MODES {
                // Widening conversions are exact and have no mode to name.
                let exact = size == "d" && integer.starts_with('w');
                let suffix = if exact { String::new() } else { format!(", {mode}") };
                put(
                    "int",
                    &format!("fcvt.{size}.{integer} {mode}"),
                    &format!("fcvt.{size}.{integer} fa3, a0{suffix}; {mv} a2, fa3"),
                );
            }
        }
    }
    put("single", "fmv.x.w", "fmv.x.w a2, fa0");
    put("double", "fmv.x.d", "fmv.x.d a2, fa0");
    put("int", "fmv.w.x", "fmv.w.x fa3, a0; fmv.x.d a2, fa3");
    put("int", "fmv.d.x", "fmv.d.x fa3, a0; fmv.x.d a2, fa3");
    put("single", "fcvt.d.s", "fcvt.d.s fa3, fa0; fmv.x.d a2, fa3");
    for mode in MODES {
        put(
            "double",
            &format!("fcvt.s.d {mode}"),
            &format!("fcvt.s.d fa3, fa0, {mode}; fmv.x.d a2, fa3"),
        );
    }
}

/// The program: set-up, one loop per group, then every result byte to the console.
fn program(groups: &[Group], tables: &[(&str, Vec<[u64; 3]>)]) -> String {
    let mut s = String::from(
        ".globl _start\n_start:\n.option norelax\n\
         la t0, trap\n csrw mtvec, t0\n li t0, 0x6000\n csrs mstatus, t0\n\
         la gp, scratch\n la sp, stack\n",
    );
    let _ = writeln!(s, "li s1, {RESULTS:#x}");
    for (n, group) in groups.iter().enumerate() {
        let _ = writeln!(
            s,
            "la s0, table_{}\nli s2, {TUPLES}\nloop_{n}:\nld a0, 0(s0)\nld a1, 8(s0)\n\
             fld fa0, 0(s0)\nfld fa1, 8(s0)\nfld fa2, 16(s0)\nli a2, 0\nli a3, 0\n{}\n\
             sd a2, 0(s1)\nsd a3, 8(s1)\naddi s0, s0, 24\naddi s1, s1, 16\naddi s2, s2, -1\n\
             beqz s2, 1f\nj loop_{n}\n1:",
            group.table, group.body
        );
    }
    let _ = writeln!(
        s,
        "li s0, {RESULTS:#x}\nli t1, 0x10000000\n\
         1: lbu t0, 0(s0)\nsb t0, 0(t1)\naddi s0, s0, 1\nbltu s0, s1, 1b\n\
         li t0, 0x100000\nli t1, 0x5555\nsw t1, 0(t0)\n2: j 2b\n\
         .balign 4\ntrap:\n\
         csrr a3, mcause\ncsrr a2, mtval\ncsrr t2, mepc\nlhu t3, 0(t2)\nandi t3, t3, 3\n\
         addi t2, t2, 2\nli t4, 3\nbne t3, t4, 1f\naddi t2, t2, 2\n1: csrw mepc, t2\n\
         li t2, 0x1800\ncsrs mstatus, t2\nslli a3, a3, 8\nmret"
    );
    for (name, tuples) in tables {
        let _ = writeln!(s, ".balign 8\ntable_{name}:");
        for [a, b, c] in tuples {
            let _ = writeln!(s, ".quad {a:#x}, {b:#x}, {c:#x}");
        }
    }
    s.push_str(".balign 4096\n.skip 4096 - 64\nscratch: .skip 8192\n.skip 256\nstack:\n");
    s
}

#[test]
fn every_instruction_as_on_qemu() {
    let groups = groups();
    let mut random = Random(7);
    let tables = ["int", "single", "double"].map(|name| (name, table(name, &mut random)));
    let Some(image) = bare::assemble("qemu", &program(&groups, &tables)) else { return };
    let Some(theirs) = bare::run_qemu("qemu", &image) else { return };

    let mut rig = bare::Rig::new(1, &image);
    assert_eq!(rig.finish(200_000_000), 0x5555);
    let ours = &rig.bench.output;
    assert_eq!(ours.len(), groups.len() * TUPLES * 16, "our hart left the program early");
    assert_eq!(theirs.len(), ours.len(), "QEMU left the program early");

    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let mut report = String::new();
    for (n, group) in groups.iter().enumerate() {
        let operands = &tables.iter().find(|t| t.0 == group.table).expect("a table").1;
        let at = |case: usize| (n * TUPLES + case) * 16;
        let differs =
            (0..TUPLES).filter(|c| ours[at(*c)..at(*c) + 16] != theirs[at(*c)..at(*c) + 16]);
        let cases: Vec<usize> = differs.collect();
        let Some(case) = cases.first() else { continue };
        let o = at(*case);
        let _ = writeln!(
            report,
            "{}: {} of {TUPLES} cases differ; operands {:x?}: ours {:#x} {:#x}, QEMU {:#x} {:#x}",
            group.name,
            cases.len(),
            operands[*case],
            word(&ours[o..o + 8]),
            word(&ours[o + 8..o + 16]),
            word(&theirs[o..o + 8]),
            word(&theirs[o + 8..o + 16]),
        );
    }
    assert!(report.is_empty(), "{report}");
    eprintln!("{} instructions, {} cases: as on QEMU", groups.len(), groups.len() * TUPLES);
}
