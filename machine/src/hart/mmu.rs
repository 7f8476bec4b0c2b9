//! From virtual to physical addresses: Sv39 and PMP (privileged specification, "Sv39").
//!
//! The walker only reads page tables (Svade: a leaf whose A bit, or D bit for a store, is clear is
//! a page fault). A page-table read that PMP or the bus denies is an access fault of the original
//! access' kind.

use super::csr::{SATP_SV39, status};
use super::pmp::Verdict;
use super::tlb::Context;
use super::{Exception, Hart, Trap};
use crate::platform::{Access, AccessFault, Origin, Platform, Privilege, Target};
use crate::ram::{Frame, PAGE, Ram, attr};

const V: u64 = 1 << 0;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const U: u64 = 1 << 4;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;
/// Bits that are reserved without Svnapot, Svpbmt and Svrsw60t59b.
const RESERVED: u64 = 0x3ff << 54;
const PPN_MASK: u64 = (1 << 44) - 1;

/// A translation that was granted for one access.
pub(crate) struct Translation {
    pub pa: u64,
    /// Bytes of the superpage it came from, if it did.
    pub superpage: Option<u64>,
    /// May the same context load there too?
    pub load_too: bool,
}

/// What a physical page is to the hart that looks.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Memory(Frame),
    Device,
}

impl Trap {
    /// The page fault of an access.
    pub(crate) fn page(access: Access, va: u64) -> Trap {
        let cause = match access {
            Access::Fetch => Exception::InstructionPage,
            Access::Load => Exception::LoadPage,
            Access::Store => Exception::StorePage,
        };
        Trap { cause, value: va }
    }

    /// The access fault, or hardware error, of an access.
    pub(crate) fn access(access: Access, va: u64, fault: AccessFault) -> Trap {
        let cause = match (fault, access) {
            (AccessFault::Hardware, _) => Exception::HardwareError,
            (AccessFault::Access, Access::Fetch) => Exception::InstructionAccess,
            (AccessFault::Access, Access::Load) => Exception::LoadAccess,
            (AccessFault::Access, Access::Store) => Exception::StoreAccess,
        };
        Trap { cause, value: va }
    }
}

impl Hart {
    /// Recomputes what depends on privilege and `mstatus`: the contexts of fetches and of data.
    pub(crate) fn update_context(&mut self) {
        let sum = self.csr.status & status::SUM != 0;
        self.fetch_context = Context::new(self.privilege, false);
        self.data_privilege =
            if self.privilege == Privilege::Machine && self.csr.status & status::MPRV != 0 {
                match self.csr.status >> status::MPP_SHIFT & 3 {
                    0 => Privilege::User,
                    1 => Privilege::Supervisor,
                    _ => Privilege::Machine,
                }
            } else {
                self.privilege
            };
        self.data_context = Context::new(self.data_privilege, sum);
    }

    /// Effective privilege of an access.
    pub(crate) fn effective(&self, access: Access) -> Privilege {
        if access == Access::Fetch { self.privilege } else { self.data_privilege }
    }

    /// Translates `va` for `access` and checks PMP for `size` bytes (which do not cross a page).
    pub(crate) fn translate<P: Platform>(
        &self,
        ram: &mut Ram,
        platform: &mut P,
        executed: u64,
        va: u64,
        size: u64,
        access: Access,
    ) -> Result<Translation, Trap> {
        let privilege = self.effective(access);
        let bare = privilege == Privilege::Machine || self.csr.satp >> 60 != SATP_SV39;
        let translation = if bare {
            // Physical addresses have 56 bits; what is above them is nowhere.
            if va >> 56 != 0 {
                return Err(Trap::access(access, va, AccessFault::Access));
            }
            Translation { pa: va, superpage: None, load_too: true }
        } else {
            self.walk(ram, platform, executed, va, access, privilege)?
        };
        match self.pmp.check(privilege, translation.pa, size, access) {
            Verdict::Granted => Ok(translation),
            Verdict::Denied => Err(Trap::access(access, va, AccessFault::Access)),
        }
    }

    fn walk<P: Platform>(
        &self,
        ram: &mut Ram,
        platform: &mut P,
        executed: u64,
        va: u64,
        access: Access,
        privilege: Privilege,
    ) -> Result<Translation, Trap> {
        let page_fault = Err(Trap::page(access, va));
        // Bits 63 to 39 must equal bit 38.
        if (va as i64) << 25 >> 25 != va as i64 {
            return page_fault;
        }
        let mut table = (self.csr.satp & PPN_MASK) << 12;
        for level in (0..3u32).rev() {
            let index = va >> (12 + 9 * level) & 511;
            let pte = self
                .read_pte(ram, platform, executed, table + 8 * index)
                .map_err(|fault| Trap::access(access, va, fault))?;
            if pte & V == 0 || pte & (R | W) == W || pte & RESERVED != 0 {
                return page_fault;
            }
            let ppn = pte >> 10 & PPN_MASK;
            if pte & (R | X) == 0 {
                if pte & (U | A | D) != 0 {
                    return page_fault;
                }
                table = ppn << 12;
                continue;
            }
            let bytes = (PAGE as u64) << (9 * level);
            if !self.leaf_grants(pte, access, privilege) || (ppn << 12) & (bytes - 1) != 0 {
                return page_fault;
            }
            return Ok(Translation {
                pa: ppn << 12 | va & (bytes - 1),
                superpage: (level > 0).then_some(bytes),
                load_too: self.leaf_grants(pte, Access::Load, privilege),
            });
        }
        page_fault
    }

    fn leaf_grants(&self, pte: u64, access: Access, privilege: Privilege) -> bool {
        let user_page = pte & U != 0;
        let mode = match privilege {
            Privilege::User => user_page,
            _ if !user_page => true,
            _ => access != Access::Fetch && self.csr.status & status::SUM != 0,
        };
        let mxr = self.csr.status & status::MXR != 0;
        let kind = match access {
            Access::Fetch => pte & X != 0,
            Access::Load => pte & R != 0 || (mxr && pte & X != 0),
            Access::Store => pte & W != 0 && pte & D != 0,
        };
        mode && kind && pte & A != 0
    }

    fn read_pte<P: Platform>(
        &self,
        ram: &mut Ram,
        platform: &mut P,
        executed: u64,
        pa: u64,
    ) -> Result<u64, AccessFault> {
        if self.pmp.check(Privilege::Supervisor, pa, 8, Access::Load) == Verdict::Denied {
            return Err(AccessFault::Access);
        }
        let Place::Memory(frame) = self.place(ram, platform, pa)? else {
            // Page tables in device registers are nobody's wish.
            return Err(AccessFault::Access);
        };
        let offset = pa as usize % PAGE;
        if ram.attr(frame) & attr::ASK_READ != 0 {
            let origin = Origin { hart: self.id, privilege: Privilege::Supervisor, executed };
            platform.check(ram, origin, frame, offset, 8, Access::Load)?;
        }
        Ok(ram.read_word(frame, offset))
    }

    /// What stands at physical address `pa`.
    pub(crate) fn place<P: Platform>(
        &self,
        ram: &Ram,
        platform: &mut P,
        pa: u64,
    ) -> Result<Place, AccessFault> {
        if let Some(frame) = ram.dram_frame(pa) {
            return Ok(Place::Memory(frame));
        }
        match platform.target(self.id, pa & !(PAGE as u64 - 1)) {
            Target::Frame(frame) => Ok(Place::Memory(frame)),
            Target::Device => Ok(Place::Device),
            Target::Nothing => Err(AccessFault::Access),
        }
    }

    /// A store of `bytes` (within a page) at physical address `pa` with the rights of
    /// `privilege`, by the path of every other store: PMP, then what the page's attributes ask
    /// for, then memory or device. What a wild-write storm does instead of instructions.
    pub(crate) fn store_physical<P: Platform>(
        &self,
        ram: &mut Ram,
        platform: &mut P,
        origin: Origin,
        pa: u64,
        bytes: &[u8],
    ) -> Result<(), AccessFault> {
        let size = bytes.len();
        if self.pmp.check(origin.privilege, pa, size as u64, Access::Store) == Verdict::Denied {
            return Err(AccessFault::Access);
        }
        match self.place(ram, platform, pa)? {
            Place::Memory(frame) => {
                let offset = pa as usize % PAGE;
                if ram.attr(frame) & attr::ASK_WRITE != 0 {
                    platform.check(ram, origin, frame, offset, size, Access::Store)?;
                }
                ram.write_by(self.id, frame, offset, bytes);
                Ok(())
            }
            Place::Device => {
                let mut word = [0; 8];
                word[..size].copy_from_slice(bytes);
                platform.store(ram, origin, pa, size, u64::from_le_bytes(word))
            }
        }
    }
}
