//! Translation cache of a hart: what a virtual page is, in each context, as far as a check passed.
//!
//! Invariants:
//! - An entry grants only what translation, PMP and the platform all granted for the whole page;
//!   denials are never kept.
//! - Entries carry the generation in which they were made. [`Tlb::flush`] starts a new generation,
//!   so a full flush (sfence.vma, satp, PMP) costs an increment.
//! - Contexts keep privilege modes apart, so that traps flush nothing.
//!
//! Absent: ASIDs (a satp write flushes) and superpage entries (they are kept as 4 KB entries, and
//! the superpages seen are remembered for `sfence.vma` with an address).

use crate::platform::Privilege;
use crate::ram::{Frame, PAGE, Window};

/// Entries of the data part, per context.
const DATA: usize = 256;
/// Entries of the fetch part, per context.
const FETCH: usize = 64;
/// Contexts: U, S, S with SUM, M.
const CONTEXTS: usize = 4;
/// Superpages remembered; beyond this an address sfence flushes everything.
const SUPERPAGES: usize = 8;

/// The part of the page offset that holds the generation; below are the bits that a misaligned
/// access leaves set, so that it never matches.
const GENERATION_STEP: u64 = 8;
const GENERATION_MASK: u64 = (PAGE as u64 - 1) & !(GENERATION_STEP - 1);
/// Matches no access: its generation is 0.
const EMPTY: u64 = 7;

#[derive(Clone, Copy)]
struct DataEntry {
    load: u64,
    store: u64,
    window: Window,
    frame: Frame,
}

#[derive(Clone, Copy)]
struct FetchEntry {
    tag: u64,
    frame: Frame,
}

const NO_FRAME: Frame = Frame(u32::MAX);
const NO_DATA: DataEntry =
    DataEntry { load: EMPTY, store: EMPTY, window: Window::NOWHERE, frame: NO_FRAME };
const NO_FETCH: FetchEntry = FetchEntry { tag: EMPTY, frame: NO_FRAME };

/// Which of the separately kept sets of translations an access uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(usize);

impl Context {
    /// Context of accesses with the given effective privilege.
    pub(crate) fn new(privilege: Privilege, sum: bool) -> Context {
        Context(match (privilege, sum) {
            (Privilege::User, _) => 0,
            (Privilege::Supervisor, false) => 1,
            (Privilege::Supervisor, true) => 2,
            (Privilege::Machine, _) => 3,
        })
    }
}

pub(crate) struct Tlb {
    data: Box<[DataEntry; DATA * CONTEXTS]>,
    fetch: Box<[FetchEntry; FETCH * CONTEXTS]>,
    generation: u64,
    /// (base, bytes) of superpages that entries of this generation came from.
    superpages: Vec<(u64, u64)>,
    /// [`crate::ram::Ram::epoch`] that the windows belong to.
    pub(crate) epoch: u64,
}

impl Clone for Tlb {
    /// Windows are recorded for one hart only: a copy starts empty.
    fn clone(&self) -> Tlb {
        Tlb::new()
    }
}

impl Tlb {
    pub(crate) fn new() -> Tlb {
        Tlb {
            data: Box::new([NO_DATA; DATA * CONTEXTS]),
            fetch: Box::new([NO_FETCH; FETCH * CONTEXTS]),
            generation: GENERATION_STEP,
            superpages: Vec::new(),
            epoch: 0,
        }
    }

    /// Forgets everything.
    pub(crate) fn flush(&mut self) {
        self.superpages.clear();
        self.generation += GENERATION_STEP;
        if self.generation > GENERATION_MASK {
            self.generation = GENERATION_STEP;
            self.data.fill(NO_DATA);
            self.fetch.fill(NO_FETCH);
        }
    }

    /// Forgets the translations of one virtual address.
    pub(crate) fn flush_page(&mut self, va: u64) {
        if self.superpages.len() >= SUPERPAGES
            || self.superpages.iter().any(|(base, bytes)| va.wrapping_sub(*base) < *bytes)
        {
            return self.flush();
        }
        let page = va / PAGE as u64;
        for context in 0..CONTEXTS {
            self.data[context * DATA + page as usize % DATA] = NO_DATA;
            self.fetch[context * FETCH + page as usize % FETCH] = NO_FETCH;
        }
    }

    /// Forgets every window and permission for `frame`.
    pub(crate) fn evict(&mut self, frame: Frame) {
        self.data.iter_mut().filter(|e| e.frame == frame).for_each(|e| *e = NO_DATA);
        self.fetch.iter_mut().filter(|e| e.frame == frame).for_each(|e| *e = NO_FETCH);
    }

    /// Notes that entries made from now on may come from this superpage.
    pub(crate) fn note_superpage(&mut self, va: u64, bytes: u64) {
        let base = va & !(bytes - 1);
        if self.superpages.len() < SUPERPAGES && !self.superpages.contains(&(base, bytes)) {
            self.superpages.push((base, bytes));
        }
    }

    #[inline(always)]
    fn data_slot(context: Context, va: u64) -> usize {
        (context.0 * DATA + (va / PAGE as u64) as usize % DATA) & (DATA * CONTEXTS - 1)
    }

    #[inline(always)]
    fn tag<const N: usize>(&self, va: u64) -> u64 {
        va & (!(PAGE as u64 - 1) | (N as u64 - 1)) | self.generation
    }

    /// Loads `N` bytes at `va` if that is granted and aligned.
    #[inline(always)]
    pub(crate) fn load<const N: usize>(&self, context: Context, va: u64) -> Option<[u8; N]> {
        let entry = &self.data[Self::data_slot(context, va)];
        (entry.load == self.tag::<N>(va)).then(|| entry.window.load::<N>(va))
    }

    /// Stores `N` bytes at `va` if that is granted and aligned.
    #[inline(always)]
    pub(crate) fn store<const N: usize>(
        &self,
        context: Context,
        va: u64,
        bytes: [u8; N],
    ) -> Option<()> {
        let entry = &self.data[Self::data_slot(context, va)];
        (entry.store == self.tag::<N>(va)).then(|| entry.window.store::<N>(va, bytes))
    }

    /// The window and frame to write `va`, if a store of `N` aligned bytes is granted.
    #[inline(always)]
    pub(crate) fn writable<const N: usize>(
        &self,
        context: Context,
        va: u64,
    ) -> Option<(Window, Frame)> {
        let entry = &self.data[Self::data_slot(context, va)];
        (entry.store == self.tag::<N>(va)).then_some((entry.window, entry.frame))
    }

    /// The frame that instructions at `va` come from.
    #[inline(always)]
    pub(crate) fn fetch(&self, context: Context, va: u64) -> Option<Frame> {
        let slot = context.0 * FETCH + (va / PAGE as u64) as usize % FETCH;
        let entry = &self.fetch[slot & (FETCH * CONTEXTS - 1)];
        (entry.tag == va & !(PAGE as u64 - 1) | self.generation).then_some(entry.frame)
    }

    /// Grants fetches from `frame` at the page of `va`.
    pub(crate) fn fill_fetch(&mut self, context: Context, va: u64, frame: Frame) {
        let slot = context.0 * FETCH + (va / PAGE as u64) as usize % FETCH;
        self.fetch[slot] = FetchEntry { tag: va & !(PAGE as u64 - 1) | self.generation, frame };
    }

    /// Grants loads, and stores if `write`, through `window`.
    pub(crate) fn fill_data(
        &mut self,
        context: Context,
        va: u64,
        frame: Frame,
        window: Window,
        read: bool,
        write: bool,
    ) {
        let tag = va & !(PAGE as u64 - 1) | self.generation;
        let entry = &mut self.data[Self::data_slot(context, va)];
        let keep = |granted: bool, old: u64, same: bool| match granted {
            true => tag,
            false if same && old == tag => tag,
            false => EMPTY,
        };
        let same = entry.frame == frame;
        let load = keep(read, entry.load, same);
        let store = keep(write, entry.store, same);
        *entry = DataEntry { load, store, window, frame };
    }
}
