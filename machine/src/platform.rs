//! What a hart asks of the rest of the machine: everything that is not its own state and not a
//! page it may touch without asking.
//!
//! Rules a platform keeps:
//! - Answers depend on machine state only, never on the host.
//! - [`Platform::check`] is asked when a page's [`crate::ram::attr`] bits say so. Its `Ok` is
//!   cached by the hart unless one of [`crate::ram::attr::PER_ACCESS`] is set; its `Err` never is.
//!   Whoever changes a later answer to `Err` sets the attribute or calls
//!   [`crate::ram::Ram::evict`], which drops the cached permission of every hart at once.
//! - What `lines`, `time` and `target` answer changes within one `Engine::run` only as an effect
//!   of this hart's own `load` or `store` (other harts and events wait for the slice to end).

use crate::ram::{Frame, Ram};

/// What an access is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Instruction fetch.
    Fetch,
    /// Load, LR, or a page-table read on behalf of any access.
    Load,
    /// Store, SC, AMO, cbo.zero.
    Store,
}

/// Why an access to physical memory did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFault {
    /// An access fault of the access' kind (causes 1, 5, 7).
    Access,
    /// A hardware error exception (cause 19): poisoned memory.
    Hardware,
}

/// RISC-V privilege modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Privilege {
    /// U-mode.
    User = 0,
    /// S-mode.
    Supervisor = 1,
    /// M-mode.
    Machine = 3,
}

/// Who makes an access, and when.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Machine-wide hart id.
    pub hart: usize,
    /// Effective privilege of the access (MPRV applied).
    pub privilege: Privilege,
    /// Instructions this hart has completed since the current `Engine::run` began.
    pub executed: u64,
}

/// What stands at a physical page outside DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Memory: the hart accesses the frame directly, under the frame's attributes.
    Frame(Frame),
    /// Registers: every access goes to [`Platform::load`] or [`Platform::store`].
    Device,
    /// Nothing: every access is an access fault.
    Nothing,
}

/// The machine around a hart. Addresses are physical; sizes are 1, 2, 4 or 8 bytes and accesses
/// are naturally aligned.
pub trait Platform {
    /// What stands at page `pa` (outside DRAM) for `hart`: boot ROM, remap window, flash, devices.
    fn target(&mut self, hart: usize, pa: u64) -> Target;

    /// May `hart` make this access to memory? Asked as the module head says. A write to read-only
    /// memory, a firewall denial and failed memory are `Err`. Observers (watchpoints, taint) see
    /// their accesses here.
    fn check(
        &mut self,
        ram: &Ram,
        origin: Origin,
        frame: Frame,
        offset: usize,
        size: usize,
        access: Access,
    ) -> Result<(), AccessFault>;

    /// A load from a device page.
    fn load(
        &mut self,
        ram: &mut Ram,
        origin: Origin,
        pa: u64,
        size: usize,
    ) -> Result<u64, AccessFault>;

    /// A store to a device page.
    fn store(
        &mut self,
        ram: &mut Ram,
        origin: Origin,
        pa: u64,
        size: usize,
        value: u64,
    ) -> Result<(), AccessFault>;

    /// Interrupt lines of `hart` in `mip` positions: MSIP, MTIP, MEIP, SEIP and the platform's
    /// local interrupts from bit 16 up. Read when a run begins and after each device access.
    fn lines(&mut self, hart: usize) -> u64;

    /// `time` CSR: ticks of [`hive_platform::TIMEBASE_HZ`], `executed` instructions into the run.
    fn time(&mut self, hart: usize, executed: u64) -> u64;

    /// Clock cycles since reset, `executed` instructions into the run (base of `mcycle`).
    fn cycle(&mut self, hart: usize, executed: u64) -> u64;

    /// A mark ([`hive_platform::mark`]) was executed with `value` in `a0`.
    fn mark(&mut self, origin: Origin, code: u16, value: u64);

    /// Must the run end before the next instruction? Asked after each device access and mark: for
    /// instance when the access switched the node off, or moved the next event.
    fn stop(&mut self, hart: usize) -> bool;
}
