//! Execution of decoded instructions: one arm per instruction, in the manual's terms.
//!
//! [`run_blocks`] is the hot loop. What touches memory but misses the TLB is in [`mem`], atomics in
//! [`amo`], floating point in [`fp`], CSRs and privileged instructions in [`system`].

mod amo;
mod fp;
mod mem;
mod system;

pub(crate) use mem::{fetch_frame, fetch_one};

use crate::block::Blocks;
use crate::decode::{Insn, Op};
use crate::engine::Why;
use crate::hart::csr::status;
use crate::hart::{Exception, Hart, Trap};
use crate::platform::{Access, Origin, Platform};
use crate::ram::{PAGE, Ram};

/// What instructions need besides their hart.
pub(crate) struct Bus<'a, P> {
    pub ram: &'a mut Ram,
    pub platform: &'a mut P,
    /// Instructions begun in this run before the current block.
    pub base: u64,
    /// Instructions of the current block before the current one; kept where somebody may ask.
    pub index: u64,
    /// Address of the current instruction, where somebody may ask.
    pub at: u64,
    /// The run loop must look at evictions, stale code, interrupts and `end` before the next
    /// instruction.
    pub attention: bool,
    /// The run must end before the next instruction.
    pub end: Option<Why>,
}

impl<P: Platform> Bus<'_, P> {
    /// Instructions completed in this run before the current one.
    pub(crate) fn executed(&self) -> u64 {
        self.base + self.index
    }

    pub(crate) fn origin(&self, hart: &Hart, access: Access) -> Origin {
        Origin { hart: hart.id, privilege: hart.effective(access), executed: self.executed() }
    }
}

/// An illegal-instruction trap; the engine fills in the instruction bits.
pub(crate) const ILLEGAL: Trap = Trap { cause: Exception::IllegalInstruction, value: 0 };

/// How a sequence of blocks ended.
pub(crate) struct Ran {
    /// Trap raised by the last instruction; `hart.pc` is then that instruction.
    pub trap: Option<Trap>,
    /// Where the last block begins in memory (`Frame::base` numbering).
    pub address: u64,
    /// Bytes from there to the instruction that trapped.
    pub at: u16,
}

/// Executes the block `insns`, which begins at `hart.pc` and at `address` in memory, then the
/// blocks that follow as long as they are decoded and their pages translated, up to `budget`
/// instructions in `bus.base`, until an instruction needs attention or traps. Moves `hart.pc` and
/// counts what was begun and retired.
pub(crate) fn run_blocks<'a, P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    blocks: Option<&'a Blocks>,
    mut insns: &'a [Insn],
    mut address: u64,
    budget: u64,
) -> Ran {
    loop {
        let pc = hart.pc;
        let limit = usize::try_from(budget - bus.base).unwrap_or(usize::MAX);
        let (begun, result) = run_block(hart, bus, insns, limit);
        bus.base += begun as u64;
        bus.index = 0;
        hart.instret = hart.instret.wrapping_add(begun as u64);
        match result {
            Ok(next) => hart.pc = next,
            Err(trap) => {
                hart.instret = hart.instret.wrapping_sub(1);
                let at = start_of(insns, begun - 1);
                hart.pc = pc.wrapping_add(at.into());
                return Ran { trap: Some(trap), address, at };
            }
        }
        if bus.attention || bus.base >= budget {
            return Ran { trap: None, address, at: 0 };
        }
        let found = match () {
            () if hart.pc == pc => continue,
            // In the same page nothing can have changed without asking for attention.
            () if (hart.pc ^ pc) / PAGE as u64 == 0 => {
                Some(address.wrapping_add(hart.pc).wrapping_sub(pc))
            }
            () => hart
                .tlb
                .fetch(hart.fetch_context, hart.pc)
                .map(|frame| frame.base() + hart.pc % PAGE as u64),
        };
        let next = found.and_then(|at| Some((at, blocks?.get(at)?)));
        let Some(next) = next else { return Ran { trap: None, address, at: 0 } };
        (address, insns) = next;
    }
}

/// Offset of instruction `index` from the start of its block.
fn start_of(insns: &[Insn], index: usize) -> u16 {
    index.checked_sub(1).and_then(|before| insns.get(before)).map_or(0, |insn| insn.next)
}

/// Executes at most `limit` instructions of the block that begins at `hart.pc`, and stops earlier
/// after an instruction that needs attention. Returns how many it began, and where to go on or
/// why not. `hart.pc` stays where it was, but for MRET and SRET.
#[inline(always)]
fn run_block<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    block: &[Insn],
    limit: usize,
) -> (usize, Result<u64, Trap>) {
    let pc = hart.pc;
    // What is still to do, of so many: emptied when an instruction needs attention.
    let mut rest = block.get(..limit).unwrap_or(block);
    let mut total = rest.len();

    // Instructions begun, the current one included.
    macro_rules! begun {
        () => {
            total - rest.len()
        };
    }

    // Register operands. Indices are masked, so no bounds are checked.
    macro_rules! x {
        ($n:expr) => {
            hart.x[usize::from($n & 63)]
        };
    }
    // A trap ends the block at this instruction.
    macro_rules! trying {
        ($result:expr) => {{
            bus.index = begun!() as u64 - 1;
            let result = $result;
            if bus.attention {
                total = begun!();
                rest = &[];
            }
            match result {
                Ok(value) => value,
                Err(trap) => return (begun!(), Err(trap)),
            }
        }};
    }
    let next = loop {
        let Some((insn, after)) = rest.split_first() else {
            break u64::from(start_of(block, total));
        };
        rest = after;
        let imm = insn.imm as i64 as u64;
        // Shorthands of the manual: source values, and the value to write to rd.
        macro_rules! rs1 {
            () => {
                x!(insn.rs1)
            };
        }
        macro_rules! rs2 {
            () => {
                x!(insn.rs2)
            };
        }
        macro_rules! rd {
            ($value:expr) => {{
                let value: u64 = $value;
                x!(insn.rd) = value;
            }};
        }
        macro_rules! load {
            ($t:ty) => {{
                let va = rs1!().wrapping_add(imm);
                match hart.tlb.load::<{ size_of::<$t>() }>(hart.data_context, va) {
                    Some(bytes) => <$t>::from_le_bytes(bytes),
                    None => trying!(mem::load(hart, bus, va, size_of::<$t>())) as $t,
                }
            }};
        }
        macro_rules! store {
            ($t:ty, $value:expr) => {{
                let va = rs1!().wrapping_add(imm);
                let value = $value as $t;
                let bytes = value.to_le_bytes();
                if hart.tlb.store(hart.data_context, va, bytes).is_none() {
                    trying!(mem::store(hart, bus, va, size_of::<$t>(), u64::from(value)));
                }
            }};
        }
        macro_rules! branch {
            ($taken:expr) => {
                if $taken {
                    break imm;
                }
            };
        }
        match insn.op {
            Op::Lui => rd!(imm),
            Op::Auipc => rd!(pc.wrapping_add(imm)),
            Op::Addi => rd!(rs1!().wrapping_add(imm)),
            Op::Slti => rd!(u64::from((rs1!() as i64) < imm as i64)),
            Op::Sltiu => rd!(u64::from(rs1!() < imm)),
            Op::Xori => rd!(rs1!() ^ imm),
            Op::Ori => rd!(rs1!() | imm),
            Op::Andi => rd!(rs1!() & imm),
            Op::Slli => rd!(rs1!() << (imm & 63)),
            Op::Srli => rd!(rs1!() >> (imm & 63)),
            Op::Srai => rd!((rs1!() as i64 >> (imm & 63)) as u64),
            Op::Add => rd!(rs1!().wrapping_add(rs2!())),
            Op::Sub => rd!(rs1!().wrapping_sub(rs2!())),
            Op::Sll => rd!(rs1!() << (rs2!() & 63)),
            Op::Slt => rd!(u64::from((rs1!() as i64) < rs2!() as i64)),
            Op::Sltu => rd!(u64::from(rs1!() < rs2!())),
            Op::Xor => rd!(rs1!() ^ rs2!()),
            Op::Srl => rd!(rs1!() >> (rs2!() & 63)),
            Op::Sra => rd!((rs1!() as i64 >> (rs2!() & 63)) as u64),
            Op::Or => rd!(rs1!() | rs2!()),
            Op::And => rd!(rs1!() & rs2!()),

            Op::Addiw => rd!(sext32(rs1!().wrapping_add(imm))),
            Op::Slliw => rd!(sext32(rs1!() << (imm & 31))),
            Op::Srliw => rd!(sext32(u64::from(rs1!() as u32 >> (imm & 31)))),
            Op::Sraiw => rd!((rs1!() as i32 >> (imm & 31)) as u64),
            Op::Addw => rd!(sext32(rs1!().wrapping_add(rs2!()))),
            Op::Subw => rd!(sext32(rs1!().wrapping_sub(rs2!()))),
            Op::Sllw => rd!(sext32(rs1!() << (rs2!() & 31))),
            Op::Srlw => rd!(sext32(u64::from(rs1!() as u32 >> (rs2!() & 31)))),
            Op::Sraw => rd!((rs1!() as i32 >> (rs2!() & 31)) as u64),

            Op::Mul => rd!(rs1!().wrapping_mul(rs2!())),
            Op::Mulh => rd!(((i128::from(rs1!() as i64) * i128::from(rs2!() as i64)) >> 64) as u64),
            Op::Mulhsu => rd!(((i128::from(rs1!() as i64) * i128::from(rs2!())) >> 64) as u64),
            Op::Mulhu => rd!(((u128::from(rs1!()) * u128::from(rs2!())) >> 64) as u64),
            Op::Mulw => rd!(sext32(rs1!().wrapping_mul(rs2!()))),
            // Division by zero gives all ones and the dividend; overflow wraps.
            Op::Div => rd!(div(rs1!() as i64, rs2!() as i64) as u64),
            Op::Divu => rd!(rs1!().checked_div(rs2!()).unwrap_or(u64::MAX)),
            Op::Rem => rd!(rem(rs1!() as i64, rs2!() as i64) as u64),
            Op::Remu => rd!(rs1!().checked_rem(rs2!()).unwrap_or(rs1!())),
            Op::Divw => rd!(div((rs1!() as i32).into(), (rs2!() as i32).into()) as i32 as u64),
            Op::Divuw => {
                rd!((rs1!() as u32).checked_div(rs2!() as u32).unwrap_or(u32::MAX) as i32 as u64)
            }
            Op::Remw => rd!(rem((rs1!() as i32).into(), (rs2!() as i32).into()) as i32 as u64),
            Op::Remuw => {
                let dividend = rs1!() as u32;
                rd!(dividend.checked_rem(rs2!() as u32).unwrap_or(dividend) as i32 as u64)
            }

            Op::Lb => rd!(load!(u8) as i8 as u64),
            Op::Lh => rd!(load!(u16) as i16 as u64),
            Op::Lw => rd!(load!(u32) as i32 as u64),
            Op::Ld => rd!(load!(u64)),
            Op::Lbu => rd!(u64::from(load!(u8))),
            Op::Lhu => rd!(u64::from(load!(u16))),
            Op::Lwu => rd!(u64::from(load!(u32))),
            Op::Sb => store!(u8, rs2!()),
            Op::Sh => store!(u16, rs2!()),
            Op::Sw => store!(u32, rs2!()),
            Op::Sd => store!(u64, rs2!()),
            Op::Flw => {
                trying!(fp::enabled(hart));
                let value = load!(u32);
                fp::set_single(hart, insn.rd, value);
            }
            Op::Fld => {
                trying!(fp::enabled(hart));
                let value = load!(u64);
                hart.f[usize::from(insn.rd & 31)] = value;
                hart.csr.status |= status::FS;
            }
            Op::Fsw => {
                trying!(fp::enabled(hart));
                store!(u32, hart.f[usize::from(insn.rs2 & 31)]);
            }
            Op::Fsd => {
                trying!(fp::enabled(hart));
                store!(u64, hart.f[usize::from(insn.rs2 & 31)]);
            }
            // One hart runs at a time and stores are visible at once: order holds anyway.
            Op::Fence => {}

            Op::Jal => {
                rd!(pc.wrapping_add(insn.next.into()));
                break imm;
            }
            Op::Jalr => {
                let target = rs1!().wrapping_add(imm) & !1;
                rd!(pc.wrapping_add(insn.next.into()));
                break target.wrapping_sub(pc);
            }
            Op::Beq => branch!(rs1!() == rs2!()),
            Op::Bne => branch!(rs1!() != rs2!()),
            Op::Blt => branch!((rs1!() as i64) < rs2!() as i64),
            Op::Bge => branch!(rs1!() as i64 >= rs2!() as i64),
            Op::Bltu => branch!(rs1!() < rs2!()),
            Op::Bgeu => branch!(rs1!() >= rs2!()),

            Op::End => return (begun!() - 1, Ok(pc.wrapping_add(insn.next.into()))),
            Op::Illegal => return (begun!(), Err(ILLEGAL)),
            op if op < Op::FaddS => trying!(amo::execute(hart, bus, insn)),
            op if op < Op::Beq => trying!(fp::execute(hart, insn)),
            _ => {
                let fallthrough = pc.wrapping_add(insn.next.into());
                bus.at = pc.wrapping_add(start_of(block, begun!() - 1).into());
                bus.index = begun!() as u64 - 1;
                return (begun!(), system::execute(hart, bus, insn, fallthrough));
            }
        }
    };
    (begun!(), Ok(pc.wrapping_add(next)))
}

fn sext32(value: u64) -> u64 {
    value as i32 as u64
}

fn div(a: i64, b: i64) -> i64 {
    if b == 0 { -1 } else { a.wrapping_div(b) }
}

fn rem(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { a.wrapping_rem(b) }
}
