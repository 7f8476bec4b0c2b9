//! The operations, in groups that the executor tells apart by order.

/// An operation; its name is the manual's mnemonic.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[rustfmt::skip]
pub enum Op {
    Illegal,
    /// No instruction: the end of a block that no jump ends.
    End,
    // Integer, no memory.
    Lui, Auipc, Addi, Slti, Sltiu, Xori, Ori, Andi, Slli, Srli, Srai,
    Add, Sub, Sll, Slt, Sltu, Xor, Srl, Sra, Or, And,
    Addiw, Slliw, Srliw, Sraiw, Addw, Subw, Sllw, Srlw, Sraw,
    Mul, Mulh, Mulhsu, Mulhu, Div, Divu, Rem, Remu, Mulw, Divw, Divuw, Remw, Remuw,
    // Memory.
    Lb, Lh, Lw, Ld, Lbu, Lhu, Lwu, Sb, Sh, Sw, Sd, Flw, Fld, Fsw, Fsd, Fence,
    // Atomics.
    LrW, LrD, ScW, ScD,
    AmoSwapW, AmoAddW, AmoXorW, AmoAndW, AmoOrW, AmoMinW, AmoMaxW, AmoMinuW, AmoMaxuW,
    AmoSwapD, AmoAddD, AmoXorD, AmoAndD, AmoOrD, AmoMinD, AmoMaxD, AmoMinuD, AmoMaxuD,
    // Floating point, no memory.
    FaddS, FsubS, FmulS, FdivS, FsqrtS, FmaddS, FmsubS, FnmsubS, FnmaddS,
    FsgnjS, FsgnjnS, FsgnjxS, FminS, FmaxS, FleS, FltS, FeqS, FclassS, FmvXW, FmvWX,
    FcvtWS, FcvtWuS, FcvtLS, FcvtLuS, FcvtSW, FcvtSWu, FcvtSL, FcvtSLu, FcvtSD,
    FaddD, FsubD, FmulD, FdivD, FsqrtD, FmaddD, FmsubD, FnmsubD, FnmaddD,
    FsgnjD, FsgnjnD, FsgnjxD, FminD, FmaxD, FleD, FltD, FeqD, FclassD, FmvXD, FmvDX,
    FcvtWD, FcvtWuD, FcvtLD, FcvtLuD, FcvtDW, FcvtDWu, FcvtDL, FcvtDLu, FcvtDS,
    // Branches.
    Beq, Bne, Blt, Bge, Bltu, Bgeu,
    // Jumps: end a block.
    Jal, Jalr,
    // System: ends a block.
    FenceI, Pause, Mark, CboInval, CboClean, CboFlush, CboZero,
    Ecall, Ebreak, Sret, Mret, Wfi, SfenceVma,
    Csrrw, Csrrs, Csrrc, Csrrwi, Csrrsi, Csrrci,
}

impl Op {
    /// Is the instruction the last of its block?
    pub(crate) fn ends_block(self) -> bool {
        self >= Op::Jal || self == Op::Illegal
    }

    /// Is the immediate relative to the instruction's address?
    pub(crate) fn is_pc_relative(self) -> bool {
        self == Op::Auipc || self == Op::Jal || (Op::Beq..=Op::Bgeu).contains(&self)
    }
}

/// By funct3.
#[rustfmt::skip]
pub(super) const LOADS: [Op; 8] =
    [Op::Lb, Op::Lh, Op::Lw, Op::Ld, Op::Lbu, Op::Lhu, Op::Lwu, Op::Illegal];
pub(super) const STORES: [Op; 4] = [Op::Sb, Op::Sh, Op::Sw, Op::Sd];
#[rustfmt::skip]
pub(super) const INT_IMM: [Op; 8] =
    [Op::Addi, Op::Slli, Op::Slti, Op::Sltiu, Op::Xori, Op::Srli, Op::Ori, Op::Andi];
#[rustfmt::skip]
pub(super) const INT: [Op; 8] =
    [Op::Add, Op::Sll, Op::Slt, Op::Sltu, Op::Xor, Op::Srl, Op::Or, Op::And];
#[rustfmt::skip]
pub(super) const MUL_DIV: [Op; 8] =
    [Op::Mul, Op::Mulh, Op::Mulhsu, Op::Mulhu, Op::Div, Op::Divu, Op::Rem, Op::Remu];
#[rustfmt::skip]
pub(super) const BRANCHES: [Op; 8] =
    [Op::Beq, Op::Bne, Op::Illegal, Op::Illegal, Op::Blt, Op::Bge, Op::Bltu, Op::Bgeu];
