//! Memory accesses that the TLB does not answer: translation, permission, devices, misaligned
//! accesses, and what to keep for the next time.

use super::Bus;
use crate::decode::{self, Insn};
use crate::hart::{Hart, Place, Trap};
use crate::platform::{Access, AccessFault, Platform};
use crate::ram::{Frame, LINE, PAGE, Window, attr};

/// An access that passed every check.
struct Resolved {
    place: Place,
    pa: u64,
    /// Read (write) access to the whole page may be kept for this context.
    keep_read: bool,
    keep_write: bool,
}

/// Translates and checks an access of `size` bytes at `va` that does not cross a page.
fn resolve<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
    access: Access,
) -> Result<Resolved, Trap> {
    let executed = bus.executed();
    let at = hart.translate(bus.ram, bus.platform, executed, va, size as u64, access)?;
    let fault = |fault| Trap::access(access, va, fault);
    let place = hart.place(bus.ram, bus.platform, at.pa).map_err(fault)?;
    let Place::Memory(frame) = place else {
        return Ok(Resolved { place, pa: at.pa, keep_read: false, keep_write: false });
    };
    let word = bus.ram.attr(frame);
    let ask = if access == Access::Store { attr::ASK_WRITE } else { attr::ASK_READ };
    if word & ask != 0 {
        let origin = bus.origin(hart, access);
        let offset = at.pa as usize % PAGE;
        bus.platform.check(bus.ram, origin, frame, offset, size, access).map_err(fault)?;
    }
    let page = at.pa & !(PAGE as u64 - 1);
    let keep = word & attr::PER_ACCESS == 0 && hart.pmp.uniform(page);
    if keep && let Some(bytes) = at.superpage {
        hart.tlb.note_superpage(va, bytes);
    }
    // The page may also be kept for the other kind of access, if nobody would have to be asked.
    let also = |kind, bits, granted| granted && word & bits == 0 && hart.pmp_grants(page, kind);
    Ok(Resolved {
        place,
        pa: at.pa,
        keep_read: keep
            && (access != Access::Store || also(Access::Load, attr::ASK_READ, at.load_too)),
        keep_write: keep && access == Access::Store,
    })
}

/// Drops what others have made wrong in this hart's TLB since it was last asked.
fn apply_evictions<P: Platform>(hart: &mut Hart, bus: &mut Bus<P>) {
    for frame in bus.ram.take_evicted(hart.id).into_iter().flatten() {
        hart.tlb.evict(frame);
    }
}

/// Keeps a read window on `frame`.
fn keep_read<P: Platform>(hart: &mut Hart, bus: &mut Bus<P>, va: u64, frame: Frame) -> Window {
    let window = bus.ram.window_to_read(frame, hart.id);
    hart.tlb.fill_data(hart.data_context, va, frame, window, true, false);
    window
}

/// Keeps a write window on `frame`, if nobody must see the writes.
fn keep_write<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    frame: Frame,
    read: bool,
) -> Option<Window> {
    let window = bus.ram.window_to_write(frame, hart.id);
    apply_evictions(hart, bus);
    let window = window?;
    hart.tlb.fill_data(hart.data_context, va, frame, window, read, true);
    Some(window)
}

/// A device access is over: interrupt lines may have changed, the machine may want to stop, and
/// the reservation is given up (the device may have written memory).
fn after_device<P: Platform>(hart: &mut Hart, bus: &mut Bus<P>) {
    hart.reservation = None;
    bus.attention = true;
}

fn crosses_page(va: u64, size: usize) -> bool {
    va as usize % PAGE + size > PAGE
}

/// A load of 1, 2, 4 or 8 bytes, zero-extended.
#[cold]
#[inline(never)]
pub(super) fn load<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
) -> Result<u64, Trap> {
    if va & (size as u64 - 1) != 0 {
        return load_misaligned(hart, bus, va, size);
    }
    let at = resolve(hart, bus, va, size, Access::Load)?;
    match at.place {
        Place::Memory(frame) => {
            if at.keep_read {
                keep_read(hart, bus, va, frame);
            }
            let word = bus.ram.read_word(frame, at.pa as usize % PAGE) >> (8 * (va & 7));
            Ok(word & u64::MAX >> (64 - 8 * size))
        }
        Place::Device => {
            let origin = bus.origin(hart, Access::Load);
            let value = bus.platform.load(bus.ram, origin, at.pa, size);
            after_device(hart, bus);
            value.map_err(|fault| Trap::access(Access::Load, va, fault))
        }
    }
}

/// A store of the low 1, 2, 4 or 8 bytes of `value`.
#[cold]
#[inline(never)]
pub(super) fn store<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
    value: u64,
) -> Result<(), Trap> {
    if va & (size as u64 - 1) != 0 {
        return store_misaligned(hart, bus, va, size, value);
    }
    let at = resolve(hart, bus, va, size, Access::Store)?;
    match at.place {
        Place::Memory(frame) => {
            write(hart, bus, frame, at.pa as usize % PAGE, &value.to_le_bytes()[..size]);
            if at.keep_write {
                keep_write(hart, bus, va, frame, at.keep_read);
            }
            Ok(())
        }
        Place::Device => {
            let origin = bus.origin(hart, Access::Store);
            let result = bus.platform.store(bus.ram, origin, at.pa, size, value);
            after_device(hart, bus);
            result.map_err(|fault| Trap::access(Access::Store, va, fault))
        }
    }
}

/// Writes bytes of one frame outside a window. Attention: there may have been code.
fn write<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    frame: Frame,
    offset: usize,
    bytes: &[u8],
) {
    if bus.ram.write_by(hart.id, frame, offset, bytes) {
        bus.attention = true;
    }
    apply_evictions(hart, bus);
}

/// The parts of a misaligned access, at most one per page: (address, first byte, bytes).
fn parts(va: u64, size: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let first = if crosses_page(va, size) { PAGE - va as usize % PAGE } else { size };
    [(va, 0, first), (va.wrapping_add(first as u64), first, size - first)]
        .into_iter()
        .filter(|part| part.2 != 0)
}

/// Checks a part of a misaligned access: devices take aligned ones only.
fn resolve_part<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
    access: Access,
) -> Result<(Frame, usize), Trap> {
    let at = resolve(hart, bus, va, size, access)?;
    match at.place {
        Place::Memory(frame) => Ok((frame, at.pa as usize % PAGE)),
        Place::Device => Err(Trap::access(access, va, AccessFault::Access)),
    }
}

fn load_misaligned<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
) -> Result<u64, Trap> {
    let mut bytes = [0; 8];
    for (va, from, len) in parts(va, size) {
        let (frame, offset) = resolve_part(hart, bus, va, len, Access::Load)?;
        // A resolved range lies in memory, so the copy cannot fail.
        let _ = bus.ram.read(frame.base() + offset as u64, &mut bytes[from..from + len]);
    }
    Ok(u64::from_le_bytes(bytes))
}

/// Both pages are checked before either is written.
fn store_misaligned<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
    value: u64,
) -> Result<(), Trap> {
    let bytes = value.to_le_bytes();
    let mut places = [None, None];
    for (slot, (va, from, len)) in places.iter_mut().zip(parts(va, size)) {
        let (frame, offset) = resolve_part(hart, bus, va, len, Access::Store)?;
        *slot = Some((frame, offset, from..from + len));
    }
    for (frame, offset, range) in places.into_iter().flatten() {
        write(hart, bus, frame, offset, &bytes[range]);
    }
    Ok(())
}

/// The frame to fetch from at `pc`; `None` if each instruction of the page must be asked for.
#[cold]
#[inline(never)]
pub(crate) fn fetch_frame<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    pc: u64,
) -> Result<Option<Frame>, Trap> {
    let at = resolve(hart, bus, pc, 2, Access::Fetch)?;
    match at.place {
        Place::Memory(frame) if at.keep_read => {
            bus.ram.window_to_read(frame, hart.id);
            hart.tlb.fill_fetch(hart.fetch_context, pc, frame);
            Ok(Some(frame))
        }
        Place::Memory(_) => Ok(None),
        Place::Device => Err(Trap::access(Access::Fetch, pc, AccessFault::Access)),
    }
}

/// Fetches one instruction by halves, each with its own checks: where a page ends inside the
/// instruction, or may not be kept. Returns its bits too.
#[cold]
#[inline(never)]
pub(crate) fn fetch_one<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    pc: u64,
) -> Result<(Insn, u32), Trap> {
    let mut half = |va| {
        let (frame, offset) = resolve_part(hart, bus, va, 2, Access::Fetch)?;
        Ok((bus.ram.read_word(frame, offset) >> (8 * (offset & 6))) as u16)
    };
    let low = half(pc)?;
    let mut bits = u32::from(low);
    if decode::length(low) == 4 {
        bits |= u32::from(half(pc.wrapping_add(2))?) << 16;
    }
    Ok((decode::decode(bits), bits))
}

/// Memory that an atomic instruction may read and write, after every check for a store.
pub(super) struct Atomic {
    frame: Frame,
    offset: usize,
    window: Option<Window>,
}

impl Atomic {
    /// Checks an aligned access of `N` bytes. `reads`: AMOs read before they write, and observers
    /// see both.
    pub(super) fn open<P: Platform, const N: usize>(
        hart: &mut Hart,
        bus: &mut Bus<P>,
        va: u64,
        reads: bool,
    ) -> Result<Atomic, Trap> {
        let offset = va as usize % PAGE;
        if let Some((window, frame)) = hart.tlb.writable::<N>(hart.data_context, va) {
            return Ok(Atomic { frame, offset, window: Some(window) });
        }
        let at = resolve(hart, bus, va, N, Access::Store)?;
        let Place::Memory(frame) = at.place else {
            return Err(Trap::access(Access::Store, va, AccessFault::Access));
        };
        if reads && bus.ram.attr(frame) & attr::PER_ACCESS != 0 {
            let origin = bus.origin(hart, Access::Load);
            bus.platform
                .check(bus.ram, origin, frame, offset, N, Access::Load)
                .map_err(|fault| Trap::access(Access::Store, va, fault))?;
        }
        let window =
            if at.keep_write { keep_write(hart, bus, va, frame, at.keep_read) } else { None };
        Ok(Atomic { frame, offset, window })
    }

    /// The reservation set it lies in.
    pub(super) fn line(&self) -> u64 {
        reservation_line(self.frame, self.offset)
    }

    /// The old value.
    pub(super) fn load<P, const N: usize>(&self, bus: &Bus<P>) -> [u8; N] {
        let mut bytes = [0; N];
        // The range was checked, so the copy cannot fail.
        let _ = bus.ram.read(self.frame.base() + self.offset as u64, &mut bytes);
        bytes
    }

    /// Writes the new value.
    pub(super) fn store<P: Platform, const N: usize>(
        &self,
        hart: &mut Hart,
        bus: &mut Bus<P>,
        bytes: [u8; N],
    ) {
        match self.window {
            Some(window) => window.store(self.offset as u64, bytes),
            None => write(hart, bus, self.frame, self.offset, &bytes),
        }
    }
}

fn reservation_line(frame: Frame, offset: usize) -> u64 {
    (frame.base() + offset as u64) & !(LINE - 1)
}

/// An aligned load that also tells the reservation set: LR.
pub(super) fn load_reserved<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    size: usize,
) -> Result<(u64, u64), Trap> {
    let at = resolve(hart, bus, va, size, Access::Load)?;
    let Place::Memory(frame) = at.place else {
        return Err(Trap::access(Access::Load, va, AccessFault::Access));
    };
    let offset = at.pa as usize % PAGE;
    let word = bus.ram.read_word(frame, offset) >> (8 * (va & 7));
    Ok((word & u64::MAX >> (64 - 8 * size), reservation_line(frame, offset)))
}

/// What a cache-block management instruction asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockOp {
    /// CBO.INVAL, CBO.CLEAN, CBO.FLUSH: need a load or a store permission; nothing to do while
    /// caches are coherent.
    Manage,
    /// CBO.ZERO: a store.
    Zero,
}

/// A cache-block operation on the 64-byte block around `va`. Faults are store faults and carry
/// `va` itself.
pub(super) fn cache_block<P: Platform>(
    hart: &mut Hart,
    bus: &mut Bus<P>,
    va: u64,
    op: BlockOp,
) -> Result<(), Trap> {
    let block = va & !(LINE - 1);
    let with_va = |trap: Trap| Trap { value: va, ..trap };
    let stored = resolve(hart, bus, block, LINE as usize, Access::Store);
    let at = match stored {
        Err(trap) if op == BlockOp::Manage => {
            match resolve(hart, bus, block, LINE as usize, Access::Load) {
                Ok(_) => return Ok(()),
                Err(_) => return Err(with_va(trap)),
            }
        }
        other => other.map_err(with_va)?,
    };
    match (op, at.place) {
        (BlockOp::Manage, _) => Ok(()),
        (BlockOp::Zero, Place::Memory(frame)) => {
            write(hart, bus, frame, at.pa as usize % PAGE, &[0; LINE as usize]);
            Ok(())
        }
        (BlockOp::Zero, Place::Device) => Err(Trap::access(Access::Store, va, AccessFault::Access)),
    }
}
