//! The C extension: each 16-bit form is decoded to the instruction that it abbreviates
//! (unprivileged specification, "RVC Instruction Set Listings", RV64DC).

use super::{Insn, Op};

/// Bits `high..=low` of `c`, moved to start at `to`.
fn field(c: u16, high: u32, low: u32, to: u32) -> u32 {
    (u32::from(c) >> low & ((1 << (high - low + 1)) - 1)) << to
}

/// Sign-extends the `bits` low bits of `value`.
fn signed(value: u32, bits: u32) -> i32 {
    (value << (32 - bits)) as i32 >> (32 - bits)
}

pub(super) fn decode(c: u16) -> Insn {
    let funct3 = c >> 13;
    match c & 3 {
        0 => quadrant_0(c, funct3),
        1 => quadrant_1(c, funct3),
        _ => quadrant_2(c, funct3),
    }
}

fn quadrant_0(c: u16, funct3: u16) -> Insn {
    let rs1 = 8 + field(c, 9, 7, 0);
    let r2 = 8 + field(c, 4, 2, 0);
    let offset_w = (field(c, 12, 10, 3) | field(c, 6, 6, 2) | field(c, 5, 5, 6)) as i32;
    let offset_d = (field(c, 12, 10, 3) | field(c, 6, 5, 6)) as i32;
    match funct3 {
        0 => {
            let imm =
                field(c, 12, 11, 4) | field(c, 10, 7, 6) | field(c, 6, 6, 2) | field(c, 5, 5, 3);
            if imm == 0 { Insn::illegal() } else { Insn::int(Op::Addi, r2, 2, 0, imm as i32) }
        }
        1 => Insn::new(Op::Fld, r2, rs1, 0, offset_d),
        2 => Insn::int(Op::Lw, r2, rs1, 0, offset_w),
        3 => Insn::int(Op::Ld, r2, rs1, 0, offset_d),
        5 => Insn::new(Op::Fsd, 0, rs1, r2, offset_d),
        6 => Insn::new(Op::Sw, 0, rs1, r2, offset_w),
        7 => Insn::new(Op::Sd, 0, rs1, r2, offset_d),
        _ => Insn::illegal(),
    }
}

fn quadrant_1(c: u16, funct3: u16) -> Insn {
    let rd = field(c, 11, 7, 0);
    let imm6 = signed(field(c, 12, 12, 5) | field(c, 6, 2, 0), 6);
    match funct3 {
        0 => Insn::int(Op::Addi, rd, rd, 0, imm6),
        1 if rd != 0 => Insn::int(Op::Addiw, rd, rd, 0, imm6),
        2 => Insn::int(Op::Addi, rd, 0, 0, imm6),
        3 if rd == 2 => {
            let imm = field(c, 12, 12, 9)
                | field(c, 6, 6, 4)
                | field(c, 5, 5, 6)
                | field(c, 4, 3, 7)
                | field(c, 2, 2, 5);
            if imm == 0 { Insn::illegal() } else { Insn::int(Op::Addi, 2, 2, 0, signed(imm, 10)) }
        }
        3 if imm6 != 0 => Insn::int(Op::Lui, rd, 0, 0, imm6 << 12),
        4 => arithmetic(c, imm6),
        5 => {
            let imm = field(c, 12, 12, 11)
                | field(c, 11, 11, 4)
                | field(c, 10, 9, 8)
                | field(c, 8, 8, 10)
                | field(c, 7, 7, 6)
                | field(c, 6, 6, 7)
                | field(c, 5, 3, 1)
                | field(c, 2, 2, 5);
            Insn::int(Op::Jal, 0, 0, 0, signed(imm, 12))
        }
        6 | 7 => {
            let imm = field(c, 12, 12, 8)
                | field(c, 11, 10, 3)
                | field(c, 6, 5, 6)
                | field(c, 4, 3, 1)
                | field(c, 2, 2, 5);
            let op = if funct3 == 6 { Op::Beq } else { Op::Bne };
            Insn::new(op, 0, 8 + field(c, 9, 7, 0), 0, signed(imm, 9))
        }
        _ => Insn::illegal(),
    }
}

fn arithmetic(c: u16, imm6: i32) -> Insn {
    let rd = 8 + field(c, 9, 7, 0);
    let rs2 = 8 + field(c, 4, 2, 0);
    match (c >> 10 & 3, c >> 12 & 1, c >> 5 & 3) {
        (0, _, _) => Insn::int(Op::Srli, rd, rd, 0, imm6 & 63),
        (1, _, _) => Insn::int(Op::Srai, rd, rd, 0, imm6 & 63),
        (2, _, _) => Insn::int(Op::Andi, rd, rd, 0, imm6),
        (_, 0, 0) => Insn::int(Op::Sub, rd, rd, rs2, 0),
        (_, 0, 1) => Insn::int(Op::Xor, rd, rd, rs2, 0),
        (_, 0, 2) => Insn::int(Op::Or, rd, rd, rs2, 0),
        (_, 0, 3) => Insn::int(Op::And, rd, rd, rs2, 0),
        (_, 1, 0) => Insn::int(Op::Subw, rd, rd, rs2, 0),
        (_, 1, 1) => Insn::int(Op::Addw, rd, rd, rs2, 0),
        _ => Insn::illegal(),
    }
}

fn quadrant_2(c: u16, funct3: u16) -> Insn {
    let rd = field(c, 11, 7, 0);
    let rs2 = field(c, 6, 2, 0);
    let load_w = (field(c, 12, 12, 5) | field(c, 6, 4, 2) | field(c, 3, 2, 6)) as i32;
    let load_d = (field(c, 12, 12, 5) | field(c, 6, 5, 3) | field(c, 4, 2, 6)) as i32;
    let store_w = (field(c, 12, 9, 2) | field(c, 8, 7, 6)) as i32;
    let store_d = (field(c, 12, 10, 3) | field(c, 9, 7, 6)) as i32;
    match funct3 {
        0 => Insn::int(Op::Slli, rd, rd, 0, (field(c, 12, 12, 5) | rs2) as i32),
        1 => Insn::new(Op::Fld, rd, 2, 0, load_d),
        2 if rd != 0 => Insn::int(Op::Lw, rd, 2, 0, load_w),
        3 if rd != 0 => Insn::int(Op::Ld, rd, 2, 0, load_d),
        4 => match (c >> 12 & 1, rd, rs2) {
            (0, 0, 0) => Insn::illegal(),
            (0, _, 0) => Insn::int(Op::Jalr, 0, rd, 0, 0),
            (0, _, _) => Insn::int(Op::Add, rd, 0, rs2, 0),
            (_, 0, 0) => Insn::new(Op::Ebreak, 0, 0, 0, 0),
            (_, _, 0) => Insn::int(Op::Jalr, 1, rd, 0, 0),
            (_, _, _) => Insn::int(Op::Add, rd, rd, rs2, 0),
        },
        5 => Insn::new(Op::Fsd, 0, 2, rs2, store_d),
        6 => Insn::new(Op::Sw, 0, 2, rs2, store_w),
        7 => Insn::new(Op::Sd, 0, 2, rs2, store_d),
        _ => Insn::illegal(),
    }
}
