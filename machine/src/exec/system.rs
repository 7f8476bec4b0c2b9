//! CSR, privileged, fence and cache-block instructions: everything that ends a block without
//! being a jump.

use super::mem::{self, BlockOp};
use super::{Bus, ILLEGAL};
use crate::decode::{Insn, Op};
use crate::engine::Why;
use crate::hart::csr::{envcfg, number, status};
use crate::hart::{Effect, Exception, Hart, Now, Trap};
use crate::platform::{Access, Platform, Privilege};

/// Executes `insn`, after which execution goes on at the address returned, usually
/// `fallthrough`.
#[inline(never)]
pub(super) fn execute<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    insn: &Insn,
    fallthrough: u64,
) -> Result<u64, Trap> {
    let rs1 = hart.x[usize::from(insn.rs1 & 63)];
    match insn.op {
        // Code is always coherent (see crate::engine).
        Op::FenceI => {}
        Op::Pause => end(bus, Why::Pause),
        Op::Mark => {
            let origin = bus.origin(hart, Access::Fetch);
            bus.platform.mark(origin, insn.imm as u16, hart.x[10]);
            bus.attention = true;
        }
        Op::CboInval => cbo(hart, bus, rs1, 3 << envcfg::CBIE_SHIFT, BlockOp::Manage)?,
        Op::CboClean | Op::CboFlush => cbo(hart, bus, rs1, envcfg::CBCFE, BlockOp::Manage)?,
        Op::CboZero => cbo(hart, bus, rs1, envcfg::CBZE, BlockOp::Zero)?,
        Op::Ecall => {
            let cause = match hart.privilege {
                Privilege::User => Exception::CallFromUser,
                Privilege::Supervisor => Exception::CallFromSupervisor,
                Privilege::Machine => Exception::CallFromMachine,
            };
            return Err(Trap { cause, value: 0 });
        }
        Op::Ebreak => return Err(Trap { cause: Exception::Breakpoint, value: bus.at }),
        Op::Sret => {
            require(hart, Privilege::Supervisor, status::TSR)?;
            hart.return_from_supervisor();
            bus.attention = true;
            return Ok(hart.pc);
        }
        Op::Mret => {
            require(hart, Privilege::Machine, 0)?;
            hart.return_from_machine();
            bus.attention = true;
            return Ok(hart.pc);
        }
        Op::Wfi => {
            require(hart, Privilege::Supervisor, status::TW)?;
            hart.waiting = true;
            end(bus, Why::Wait);
        }
        Op::SfenceVma => {
            require(hart, Privilege::Supervisor, status::TVM)?;
            if insn.rs1 == 0 {
                hart.tlb.flush();
            } else {
                hart.tlb.flush_page(rs1);
            }
            // The next instruction may come from elsewhere.
            bus.attention = true;
        }
        Op::Csrrw | Op::Csrrs | Op::Csrrc => csr(hart, bus, insn, rs1)?,
        Op::Csrrwi | Op::Csrrsi | Op::Csrrci => csr(hart, bus, insn, insn.rs1.into())?,
        _ => return Err(ILLEGAL),
    }
    Ok(fallthrough)
}

fn end<P>(bus: &mut Bus<P>, why: Why) {
    bus.end = Some(why);
    bus.attention = true;
}

/// Illegal below `least`, and in S-mode while `mstatus` has `trap` set.
fn require(hart: &Hart, least: Privilege, trap: u64) -> Result<(), Trap> {
    let trapped = hart.privilege == Privilege::Supervisor && hart.csr.status & trap != 0;
    if hart.privilege < least || trapped { Err(ILLEGAL) } else { Ok(()) }
}

/// A cache-block operation, if `menvcfg` (below M) and `senvcfg` (in U) have a bit of `enable`.
fn cbo<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    enable: u64,
    op: BlockOp,
) -> Result<(), Trap> {
    let machine = hart.privilege == Privilege::Machine || hart.csr.menvcfg & enable != 0;
    let supervisor = hart.privilege != Privilege::User || hart.csr.senvcfg & enable != 0;
    if machine && supervisor { mem::cache_block(hart, bus, va, op) } else { Err(ILLEGAL) }
}

/// CSRRW, CSRRS, CSRRC and their immediate forms with operand `value`. `insn.rs2` is rd as
/// written (0 to 31).
fn csr<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    insn: &Insn,
    value: u64,
) -> Result<(), Trap> {
    let number = insn.imm as u16 & 0xfff;
    let replaces = matches!(insn.op, Op::Csrrw | Op::Csrrwi);
    let writes = replaces || insn.rs1 != 0;
    if !hart.may_access_csr(number, writes) {
        return Err(ILLEGAL);
    }
    let now = now(hart, bus, number);
    let old = hart.read_csr(number, now).ok_or(ILLEGAL)?;
    if writes {
        // SEIP: software's own bit, not the line, takes part in read-modify-write.
        let base =
            if number == number::MIP { old & !hart.csr.lines | hart.csr.pending } else { old };
        let new = match insn.op {
            Op::Csrrs | Op::Csrrsi => base | value,
            Op::Csrrc | Op::Csrrci => base & !value,
            _ => value,
        };
        match hart.write_csr(number, new, now) {
            Effect::None => {}
            Effect::Status => bus.attention = true,
            Effect::Translation => {
                hart.tlb.flush();
                hart.update_context();
                bus.attention = true;
            }
            Effect::Timer => end(bus, Why::Timer),
        }
    }
    hart.x[usize::from(insn.rd & 63)] = old;
    Ok(())
}

/// The counters, if CSR `number` shows one.
fn now<P: Platform>(hart: &Hart, bus: &mut Bus<P>, number: u16) -> Now {
    use number::*;
    let executed = bus.executed();
    match number {
        CYCLE | MCYCLE | TIME | INSTRET | MINSTRET | MIP | SIP => Now {
            cycle: bus.platform.cycle(hart.id, executed),
            time: bus.platform.time(hart.id, executed),
            instret: hart.instret.wrapping_add(bus.index),
        },
        _ => Now::default(),
    }
}
