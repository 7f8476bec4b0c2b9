//! Decoding: instruction bits to [`Insn`], the form that is executed and printed.
//!
//! Sources: unprivileged specification, "RV32/64G Instruction Set Listings"; compressed forms in
//! [`compressed`]. Decoding is total: what is not an instruction of RV64GC, Zicsr, Zifencei,
//! Zicbom or Zicboz is [`Op::Illegal`]. Whether an instruction is allowed now (privilege, FS) is
//! found out at execution.

mod compressed;
mod op;

use crate::hart::SINK;
pub use op::Op;

/// A decoded instruction. Which fields mean something depends on `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// What it does.
    pub op: Op,
    /// Destination; integer instructions that write `x0` have 32.
    pub rd: u8,
    /// First source.
    pub rs1: u8,
    /// Second source.
    pub rs2: u8,
    /// Immediate. Branches, JAL and AUIPC: relative to the block ([`Insn::relocate`]). Fused
    /// multiply-adds: rs3. Floating point: rounding mode in bits 8 to 10. CSR: the number.
    pub imm: i32,
    /// Bytes from the start of the block to the next instruction; fresh from the decoder: its
    /// length.
    pub next: u16,
}

/// Where the rounding mode stands in [`Insn::imm`].
pub(crate) const RM_SHIFT: u32 = 8;

impl Insn {
    fn new(op: Op, rd: u32, rs1: u32, rs2: u32, imm: i32) -> Insn {
        Insn { op, rd: rd as u8, rs1: rs1 as u8, rs2: rs2 as u8, imm, next: 4 }
    }

    /// An instruction that writes general register `rd`.
    fn int(op: Op, rd: u32, rs1: u32, rs2: u32, imm: i32) -> Insn {
        let rd = if rd == 0 { u32::from(SINK) } else { rd };
        Insn::new(op, rd, rs1, rs2, imm)
    }

    fn illegal() -> Insn {
        Insn::new(Op::Illegal, 0, 0, 0, 0)
    }

    /// What stands behind a block that was cut off `at` bytes from its start.
    pub(crate) fn end(at: u16) -> Insn {
        Insn { next: at, ..Insn::new(Op::End, 0, 0, 0, 0) }
    }

    /// Moves a freshly decoded instruction to byte `at` of its block.
    pub(crate) fn relocate(mut self, at: u16) -> Insn {
        if self.op.is_pc_relative() {
            // AUIPC immediates end in twelve zero bits and blocks are shorter than 4 KB.
            self.imm += i32::from(at);
        }
        self.next += at;
        self
    }
}

/// Bytes of the instruction that begins with `low`.
pub fn length(low: u16) -> u64 {
    if low & 3 == 3 { 4 } else { 2 }
}

/// Decodes one instruction; the upper half of `bits` does not matter to a compressed one.
pub fn decode(bits: u32) -> Insn {
    if bits & 3 != 3 {
        return Insn { next: 2, ..compressed::decode(bits as u16) };
    }
    let rd = bits >> 7 & 31;
    let rs1 = bits >> 15 & 31;
    let rs2 = bits >> 20 & 31;
    let funct3 = bits >> 12 & 7;
    let funct7 = bits >> 25;
    let imm_i = bits as i32 >> 20;
    let imm_s = (bits as i32 >> 25) << 5 | rd as i32;
    match bits >> 2 & 31 {
        0b00000 => match op::LOADS[funct3 as usize] {
            Op::Illegal => Insn::illegal(),
            op => Insn::int(op, rd, rs1, 0, imm_i),
        },
        0b00001 => match funct3 {
            2 => Insn::new(Op::Flw, rd, rs1, 0, imm_i),
            3 => Insn::new(Op::Fld, rd, rs1, 0, imm_i),
            _ => Insn::illegal(),
        },
        0b00011 => misc_mem(bits, rd, rs1, funct3),
        0b00100 => op_imm(bits, rd, rs1, funct3, imm_i),
        0b00101 => Insn::int(Op::Auipc, rd, 0, 0, (bits & 0xffff_f000) as i32),
        0b00110 => match (funct3, funct7) {
            (0, _) => Insn::int(Op::Addiw, rd, rs1, 0, imm_i),
            (1, 0) => Insn::int(Op::Slliw, rd, rs1, 0, rs2 as i32),
            (5, 0) => Insn::int(Op::Srliw, rd, rs1, 0, rs2 as i32),
            (5, 0x20) => Insn::int(Op::Sraiw, rd, rs1, 0, rs2 as i32),
            _ => Insn::illegal(),
        },
        0b01000 => match funct3 {
            0..=3 => Insn::new(op::STORES[funct3 as usize], 0, rs1, rs2, imm_s),
            _ => Insn::illegal(),
        },
        0b01001 => match funct3 {
            2 => Insn::new(Op::Fsw, 0, rs1, rs2, imm_s),
            3 => Insn::new(Op::Fsd, 0, rs1, rs2, imm_s),
            _ => Insn::illegal(),
        },
        0b01011 => amo(bits, rd, rs1, rs2, funct3),
        0b01100 => {
            let op = match funct7 {
                0 => op::INT[funct3 as usize],
                1 => op::MUL_DIV[funct3 as usize],
                0x20 if funct3 == 0 => Op::Sub,
                0x20 if funct3 == 5 => Op::Sra,
                _ => Op::Illegal,
            };
            if op == Op::Illegal { Insn::illegal() } else { Insn::int(op, rd, rs1, rs2, 0) }
        }
        0b01101 => Insn::int(Op::Lui, rd, 0, 0, (bits & 0xffff_f000) as i32),
        0b01110 => {
            let op = match (funct7, funct3) {
                (0, 0) => Op::Addw,
                (0, 1) => Op::Sllw,
                (0, 5) => Op::Srlw,
                (0x20, 0) => Op::Subw,
                (0x20, 5) => Op::Sraw,
                (1, 0) => Op::Mulw,
                (1, 4) => Op::Divw,
                (1, 5) => Op::Divuw,
                (1, 6) => Op::Remw,
                (1, 7) => Op::Remuw,
                _ => Op::Illegal,
            };
            if op == Op::Illegal { Insn::illegal() } else { Insn::int(op, rd, rs1, rs2, 0) }
        }
        0b10000..=0b10011 => fused(bits, rd, rs1, rs2, funct3),
        0b10100 => float(bits, rd, rs1, rs2, funct3),
        0b11000 => {
            let imm = (bits as i32 >> 31) << 12
                | ((bits >> 7 & 1) << 11 | (bits >> 25 & 63) << 5 | (bits >> 8 & 15) << 1) as i32;
            match op::BRANCHES[funct3 as usize] {
                Op::Illegal => Insn::illegal(),
                op => Insn::new(op, 0, rs1, rs2, imm),
            }
        }
        0b11001 if funct3 == 0 => Insn::int(Op::Jalr, rd, rs1, 0, imm_i),
        0b11011 => {
            let imm = (bits as i32 >> 31) << 20
                | (bits & 0xf_f000 | (bits >> 20 & 1) << 11 | (bits >> 21 & 0x3ff) << 1) as i32;
            Insn::int(Op::Jal, rd, 0, 0, imm)
        }
        0b11100 => system(bits, rd, rs1, rs2, funct3, funct7),
        _ => Insn::illegal(),
    }
}

fn op_imm(bits: u32, rd: u32, rs1: u32, funct3: u32, imm: i32) -> Insn {
    if let Some(code) = hive_platform::mark::decode(bits) {
        return Insn::new(Op::Mark, 0, 0, 0, i32::from(code));
    }
    let shamt = imm & 63;
    match (funct3, bits >> 26) {
        (1, 0) => Insn::int(Op::Slli, rd, rs1, 0, shamt),
        (5, 0) => Insn::int(Op::Srli, rd, rs1, 0, shamt),
        (5, 0x10) => Insn::int(Op::Srai, rd, rs1, 0, shamt),
        (1 | 5, _) => Insn::illegal(),
        _ => Insn::int(op::INT_IMM[funct3 as usize], rd, rs1, 0, imm),
    }
}

fn misc_mem(bits: u32, rd: u32, rs1: u32, funct3: u32) -> Insn {
    match funct3 {
        // PAUSE is the FENCE with pred = W, succ = none; every other FENCE form is a fence here.
        0 if bits == 0x0100_000f => Insn::new(Op::Pause, 0, 0, 0, 0),
        0 => Insn::new(Op::Fence, 0, 0, 0, 0),
        1 => Insn::new(Op::FenceI, 0, 0, 0, 0),
        2 if rd == 0 => match bits >> 20 {
            0 => Insn::new(Op::CboInval, 0, rs1, 0, 0),
            1 => Insn::new(Op::CboClean, 0, rs1, 0, 0),
            2 => Insn::new(Op::CboFlush, 0, rs1, 0, 0),
            4 => Insn::new(Op::CboZero, 0, rs1, 0, 0),
            _ => Insn::illegal(),
        },
        _ => Insn::illegal(),
    }
}

fn amo(bits: u32, rd: u32, rs1: u32, rs2: u32, funct3: u32) -> Insn {
    let pair = match bits >> 27 {
        0b00010 if rs2 == 0 => [Op::LrW, Op::LrD],
        0b00011 => [Op::ScW, Op::ScD],
        0b00001 => [Op::AmoSwapW, Op::AmoSwapD],
        0b00000 => [Op::AmoAddW, Op::AmoAddD],
        0b00100 => [Op::AmoXorW, Op::AmoXorD],
        0b01100 => [Op::AmoAndW, Op::AmoAndD],
        0b01000 => [Op::AmoOrW, Op::AmoOrD],
        0b10000 => [Op::AmoMinW, Op::AmoMinD],
        0b10100 => [Op::AmoMaxW, Op::AmoMaxD],
        0b11000 => [Op::AmoMinuW, Op::AmoMinuD],
        0b11100 => [Op::AmoMaxuW, Op::AmoMaxuD],
        _ => return Insn::illegal(),
    };
    match funct3 {
        2 => Insn::int(pair[0], rd, rs1, rs2, 0),
        3 => Insn::int(pair[1], rd, rs1, rs2, 0),
        _ => Insn::illegal(),
    }
}

fn system(bits: u32, rd: u32, rs1: u32, rs2: u32, funct3: u32, funct7: u32) -> Insn {
    let op = match funct3 {
        0 if rd != 0 => Op::Illegal,
        0 if funct7 == 0b0001001 => return Insn::new(Op::SfenceVma, 0, rs1, rs2, 0),
        0 => match bits {
            0x0000_0073 => Op::Ecall,
            0x0010_0073 => Op::Ebreak,
            0x1020_0073 => Op::Sret,
            0x3020_0073 => Op::Mret,
            0x1050_0073 => Op::Wfi,
            _ => Op::Illegal,
        },
        1 => Op::Csrrw,
        2 => Op::Csrrs,
        3 => Op::Csrrc,
        5 => Op::Csrrwi,
        6 => Op::Csrrsi,
        7 => Op::Csrrci,
        _ => Op::Illegal,
    };
    match op {
        Op::Illegal => Insn::illegal(),
        // The executor must tell a CSRRW without destination (it does not read): rs2 keeps rd.
        _ => Insn { rs2: rd as u8, ..Insn::int(op, rd, rs1, 0, (bits >> 20) as i32) },
    }
}

/// Rounding modes 5 and 6 are reserved: an instruction that names one is illegal.
fn rounding(bits: u32) -> Option<i32> {
    let rm = bits >> 12 & 7;
    (rm != 5 && rm != 6).then_some((rm << RM_SHIFT) as i32)
}

fn fused(bits: u32, rd: u32, rs1: u32, rs2: u32, _funct3: u32) -> Insn {
    let Some(rm) = rounding(bits) else { return Insn::illegal() };
    let rs3 = (bits >> 27) as i32;
    let pair = [
        [Op::FmaddS, Op::FmaddD],
        [Op::FmsubS, Op::FmsubD],
        [Op::FnmsubS, Op::FnmsubD],
        [Op::FnmaddS, Op::FnmaddD],
    ][(bits >> 2 & 3) as usize];
    match bits >> 25 & 3 {
        0 => Insn::new(pair[0], rd, rs1, rs2, rm | rs3),
        1 => Insn::new(pair[1], rd, rs1, rs2, rm | rs3),
        _ => Insn::illegal(),
    }
}

fn float(bits: u32, rd: u32, rs1: u32, rs2: u32, funct3: u32) -> Insn {
    let double = match bits >> 25 & 3 {
        0 => false,
        1 => true,
        _ => return Insn::illegal(),
    };
    let pick = |s, d| if double { d } else { s };
    // Operations with a rounding mode, and those whose funct3 selects something else.
    let rounded = match (bits >> 27, rs2) {
        (0b00000, _) => pick(Op::FaddS, Op::FaddD),
        (0b00001, _) => pick(Op::FsubS, Op::FsubD),
        (0b00010, _) => pick(Op::FmulS, Op::FmulD),
        (0b00011, _) => pick(Op::FdivS, Op::FdivD),
        (0b01011, 0) => pick(Op::FsqrtS, Op::FsqrtD),
        (0b01000, 1) if !double => Op::FcvtSD,
        (0b01000, 0) if double => Op::FcvtDS,
        (0b11000, 0) => pick(Op::FcvtWS, Op::FcvtWD),
        (0b11000, 1) => pick(Op::FcvtWuS, Op::FcvtWuD),
        (0b11000, 2) => pick(Op::FcvtLS, Op::FcvtLD),
        (0b11000, 3) => pick(Op::FcvtLuS, Op::FcvtLuD),
        (0b11010, 0) => pick(Op::FcvtSW, Op::FcvtDW),
        (0b11010, 1) => pick(Op::FcvtSWu, Op::FcvtDWu),
        (0b11010, 2) => pick(Op::FcvtSL, Op::FcvtDL),
        (0b11010, 3) => pick(Op::FcvtSLu, Op::FcvtDLu),
        _ => Op::Illegal,
    };
    if rounded != Op::Illegal {
        let Some(rm) = rounding(bits) else { return Insn::illegal() };
        let to_integer = bits >> 27 == 0b11000;
        let make = if to_integer { Insn::int } else { Insn::new };
        return make(rounded, rd, rs1, rs2, rm);
    }
    let (op, to_integer) = match (bits >> 27, funct3, rs2) {
        (0b00100, 0, _) => (pick(Op::FsgnjS, Op::FsgnjD), false),
        (0b00100, 1, _) => (pick(Op::FsgnjnS, Op::FsgnjnD), false),
        (0b00100, 2, _) => (pick(Op::FsgnjxS, Op::FsgnjxD), false),
        (0b00101, 0, _) => (pick(Op::FminS, Op::FminD), false),
        (0b00101, 1, _) => (pick(Op::FmaxS, Op::FmaxD), false),
        (0b10100, 0, _) => (pick(Op::FleS, Op::FleD), true),
        (0b10100, 1, _) => (pick(Op::FltS, Op::FltD), true),
        (0b10100, 2, _) => (pick(Op::FeqS, Op::FeqD), true),
        (0b11100, 0, 0) => (pick(Op::FmvXW, Op::FmvXD), true),
        (0b11100, 1, 0) => (pick(Op::FclassS, Op::FclassD), true),
        (0b11110, 0, 0) => (pick(Op::FmvWX, Op::FmvDX), false),
        _ => return Insn::illegal(),
    };
    if to_integer { Insn::int(op, rd, rs1, rs2, 0) } else { Insn::new(op, rd, rs1, rs2, 0) }
}
