//! Signals: sets, actions, what is pending, and the decisions. No hardware, no locks: the caller
//! holds whatever guards the state (docs/internals/processes.md).
//!
//! The life of a signal has three steps, each a pure function here:
//! 1. *generation* ([`Shared::generate`]): stop and continue signals cancel each other, an
//!    ignored signal vanishes, the rest becomes pending;
//! 2. *selection* ([`take`]): the lowest unmasked pending signal, faults of the thread first;
//! 3. *disposition* ([`Actions::disposition`]): handler, ignore, stop, continue, terminate.
//!
//! Layouts are those of riscv64 Linux (asm-generic/siginfo.h, asm-generic/signal.h; this
//! architecture has no `SA_RESTORER`). Absent: job-control of threads one by one, signalfd.

use alloc::collections::VecDeque;

/// Highest signal number.
pub const SIGNALS: u32 = 64;
/// First real-time signal: from here on instances queue.
pub const SIGRTMIN: u32 = 32;
/// Most queued instances of real-time signals per process: past it, `EAGAIN` to the sender.
pub const QUEUE_MAX: usize = 1024;

macro_rules! signals {
    ($($name:ident = $n:literal)*) => { $(#[allow(missing_docs)] pub const $name: u32 = $n;)* };
}
signals! {
    SIGHUP = 1 SIGINT = 2 SIGQUIT = 3 SIGILL = 4 SIGTRAP = 5 SIGABRT = 6 SIGBUS = 7 SIGFPE = 8
    SIGKILL = 9 SIGUSR1 = 10 SIGSEGV = 11 SIGUSR2 = 12 SIGPIPE = 13 SIGALRM = 14 SIGTERM = 15
    SIGCHLD = 17 SIGCONT = 18 SIGSTOP = 19 SIGTSTP = 20 SIGTTIN = 21 SIGTTOU = 22 SIGURG = 23
    SIGXCPU = 24 SIGXFSZ = 25 SIGVTALRM = 26 SIGPROF = 27 SIGWINCH = 28 SIGIO = 29 SIGPWR = 30
    SIGSYS = 31
}

/// Names for `kill -l`-like messages of the kernel.
pub const NAMES: [&str; 32] = [
    "0", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// A set of signals: bit n-1 is signal n.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SigSet(pub u64);

impl SigSet {
    /// No signal.
    pub const EMPTY: SigSet = SigSet(0);
    /// `SIGKILL` and `SIGSTOP`: never masked, caught or ignored.
    pub const UNMASKABLE: SigSet = SigSet::of(&[SIGKILL, SIGSTOP]);
    /// The signals whose default action stops.
    pub const STOPS: SigSet = SigSet::of(&[SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU]);

    /// The set of the given signals.
    pub const fn of(signals: &[u32]) -> SigSet {
        let mut bits = 0;
        let mut i = 0;
        while i < signals.len() {
            bits |= 1 << (signals[i] - 1);
            i += 1;
        }
        SigSet(bits)
    }
    /// Whether `signal` (1..=64) is in the set.
    pub const fn has(self, signal: u32) -> bool {
        signal >= 1 && signal <= SIGNALS && self.0 >> (signal - 1) & 1 == 1
    }
    /// Adds a signal.
    pub fn add(&mut self, signal: u32) {
        self.0 |= SigSet::of(&[signal]).0;
    }
    /// Removes a signal.
    pub fn remove(&mut self, signal: u32) {
        self.0 &= !SigSet::of(&[signal]).0;
    }
    /// This set without `other`.
    pub const fn without(self, other: SigSet) -> SigSet {
        SigSet(self.0 & !other.0)
    }
    /// Both sets.
    pub const fn union(self, other: SigSet) -> SigSet {
        SigSet(self.0 | other.0)
    }
    /// The lowest signal of the set.
    pub const fn lowest(self) -> Option<u32> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() + 1) }
    }
}

/// `sa_flags` bits.
pub mod sa {
    #![allow(missing_docs)]
    pub const NOCLDSTOP: u64 = 1;
    pub const NOCLDWAIT: u64 = 2;
    pub const SIGINFO: u64 = 4;
    pub const ONSTACK: u64 = 0x0800_0000;
    pub const RESTART: u64 = 0x1000_0000;
    pub const NODEFER: u64 = 0x4000_0000;
    pub const RESETHAND: u64 = 0x8000_0000;
    /// What the kernel keeps; glibc probes with others.
    pub const KNOWN: u64 =
        NOCLDSTOP | NOCLDWAIT | SIGINFO | ONSTACK | RESTART | NODEFER | RESETHAND;
}

/// `sa_handler` values that are not addresses.
pub const SIG_DFL: u64 = 0;
/// Ignore.
pub const SIG_IGN: u64 = 1;

/// One entry of rt_sigaction(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SigAction {
    /// Address of the handler, [`SIG_DFL`] or [`SIG_IGN`].
    pub handler: u64,
    /// [`sa`] bits.
    pub flags: u64,
    /// Masked besides while the handler runs.
    pub mask: SigSet,
}

/// Bytes of the kernel's `struct sigaction` on riscv64.
pub const SIGACTION_SIZE: usize = 24;

impl SigAction {
    /// From the bytes a user gave.
    pub fn decode(bytes: &[u8; SIGACTION_SIZE]) -> SigAction {
        let word = |i: usize| u64::from_le_bytes(core::array::from_fn(|k| bytes[i * 8 + k]));
        SigAction {
            handler: word(0),
            flags: word(1) & sa::KNOWN,
            mask: SigSet(word(2)).without(SigSet::UNMASKABLE),
        }
    }
    /// To the bytes a user gets.
    pub fn encode(&self) -> [u8; SIGACTION_SIZE] {
        let mut bytes = [0; SIGACTION_SIZE];
        bytes[..8].copy_from_slice(&self.handler.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes[16..].copy_from_slice(&self.mask.0.to_le_bytes());
        bytes
    }
}

/// `si_code` values.
pub mod si {
    #![allow(missing_docs)]
    pub const USER: i32 = 0;
    pub const KERNEL: i32 = 0x80;
    pub const TIMER: i32 = -2;
    pub const TKILL: i32 = -6;
    pub const ILL_ILLOPC: i32 = 1;
    pub const TRAP_BRKPT: i32 = 1;
    pub const SEGV_MAPERR: i32 = 1;
    pub const SEGV_ACCERR: i32 = 2;
    pub const BUS_ADRALN: i32 = 1;
    pub const BUS_ADRERR: i32 = 2;
    pub const CLD_EXITED: i32 = 1;
    pub const CLD_KILLED: i32 = 2;
    pub const CLD_DUMPED: i32 = 3;
    pub const CLD_STOPPED: i32 = 5;
    pub const CLD_CONTINUED: i32 = 6;
}

/// What a siginfo says beside number and code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Nothing more.
    None,
    /// From kill, tgkill, sigqueue: sender and value.
    Sender {
        /// Sender's process id.
        pid: i32,
        /// Sender's real user id.
        uid: u32,
        /// `si_value`.
        value: u64,
    },
    /// A child changed state.
    Child {
        /// Its process id.
        pid: i32,
        /// Its real user id.
        uid: u32,
        /// Exit code or signal.
        status: i32,
        /// User time, clock ticks.
        utime: i64,
        /// System time, clock ticks.
        stime: i64,
    },
    /// A fault, with its address.
    Fault(u64),
}

/// A signal with its story.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SigInfo {
    /// 1..=64.
    pub signo: u32,
    /// [`si`] code.
    pub code: i32,
    /// The rest.
    pub detail: Detail,
}

/// Bytes of `siginfo_t`.
pub const SIGINFO_SIZE: usize = 128;

impl SigInfo {
    /// From the kernel, without a sender.
    pub const fn kernel(signo: u32) -> SigInfo {
        SigInfo { signo, code: si::KERNEL, detail: Detail::None }
    }

    /// To the bytes a user gets.
    pub fn encode(&self) -> [u8; SIGINFO_SIZE] {
        let mut b = [0; SIGINFO_SIZE];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.signo.to_le_bytes());
        put(8, &self.code.to_le_bytes());
        match self.detail {
            Detail::None => {}
            Detail::Sender { pid, uid, value } => {
                put(16, &pid.to_le_bytes());
                put(20, &uid.to_le_bytes());
                put(24, &value.to_le_bytes());
            }
            Detail::Child { pid, uid, status, utime, stime } => {
                put(16, &pid.to_le_bytes());
                put(20, &uid.to_le_bytes());
                put(24, &status.to_le_bytes());
                put(32, &utime.to_le_bytes());
                put(40, &stime.to_le_bytes());
            }
            Detail::Fault(address) => put(16, &address.to_le_bytes()),
        }
        b
    }
}

/// Signals that wait for delivery, of a thread or of a process.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    set: SigSet,
    // At most one entry per standard signal; real-time ones queue.
    queue: VecDeque<SigInfo>,
}

/// The sender asked for more queued real-time signals than [`QUEUE_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

impl Pending {
    /// The numbers that wait.
    pub fn set(&self) -> SigSet {
        self.set
    }

    /// Makes `info` wait. A standard signal that waits already is not queued again.
    pub fn add(&mut self, info: SigInfo) -> Result<(), QueueFull> {
        if info.signo < SIGRTMIN && self.set.has(info.signo) {
            return Ok(());
        }
        if info.signo >= SIGRTMIN && self.queue.len() >= QUEUE_MAX {
            return Err(QueueFull);
        }
        self.set.add(info.signo);
        self.queue.push_back(info);
        Ok(())
    }

    /// Forgets every waiting signal of `set`.
    pub fn discard(&mut self, set: SigSet) {
        self.set = self.set.without(set);
        self.queue.retain(|info| !set.has(info.signo));
    }

    /// Takes the oldest instance of the lowest signal of `allowed`.
    pub fn take(&mut self, allowed: SigSet) -> Option<SigInfo> {
        let signo = SigSet(self.set.0 & allowed.0).lowest()?;
        let at = self.queue.iter().position(|info| info.signo == signo)?;
        let info = self.queue.remove(at)?;
        if !self.queue.iter().any(|other| other.signo == signo) {
            self.set.remove(signo);
        }
        Some(info)
    }
}

/// Faults of the thread itself come before everything else, as the instruction would only repeat.
const SYNCHRONOUS: SigSet = SigSet::of(&[SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGSYS]);

/// Selection: the next signal that a thread with mask `mask` gets.
pub fn take(own: &mut Pending, shared: &mut Pending, mask: SigSet) -> Option<SigInfo> {
    let allowed = SigSet(!mask.0).union(SigSet::UNMASKABLE);
    let urgent = SigSet(allowed.0 & SYNCHRONOUS.0);
    if let Some(info) = own.take(urgent) {
        return Some(info);
    }
    let lowest = |p: &Pending| SigSet(p.set().0 & allowed.0).lowest().unwrap_or(u32::MAX);
    if lowest(own) <= lowest(shared) { own.take(allowed) } else { shared.take(allowed) }
}

/// What a signal does if nothing was arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Default_ {
    /// The process ends; `core` says whether its status shows a core dump.
    Terminate {
        /// As signal(7)'s "Core".
        core: bool,
    },
    /// Nothing happens.
    Ignore,
    /// The process stops.
    Stop,
    /// A stopped process goes on.
    Continue,
}

/// signal(7), "Standard signals".
pub const fn default_action(signal: u32) -> Default_ {
    match signal {
        SIGQUIT | SIGILL | SIGTRAP | SIGABRT | SIGBUS | SIGFPE | SIGSEGV | SIGXCPU | SIGXFSZ
        | SIGSYS => Default_::Terminate { core: true },
        SIGCHLD | SIGURG | SIGWINCH => Default_::Ignore,
        SIGCONT => Default_::Continue,
        SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => Default_::Stop,
        _ => Default_::Terminate { core: false },
    }
}

/// What is to be done with a selected signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// Nothing.
    Ignore,
    /// End the process with this signal.
    Terminate {
        /// Shown in the wait status.
        core: bool,
    },
    /// Stop the process.
    Stop,
    /// Run the handler of this action.
    Handle(SigAction),
}

/// The action table of a process.
#[derive(Clone, Debug)]
pub struct Actions([SigAction; SIGNALS as usize]);

impl Default for Actions {
    fn default() -> Self {
        Actions([SigAction::default(); SIGNALS as usize])
    }
}

impl Actions {
    /// The action of `signal` (1..=64).
    pub fn get(&self, signal: u32) -> SigAction {
        self.0.get((signal as usize).wrapping_sub(1)).copied().unwrap_or_default()
    }

    /// Sets the action of `signal`.
    pub fn set(&mut self, signal: u32, action: SigAction) {
        if let Some(slot) = self.0.get_mut((signal as usize).wrapping_sub(1)) {
            *slot = action;
        }
    }

    /// Whether a `signal` sent now would come to nothing.
    pub fn ignores(&self, signal: u32) -> bool {
        match self.get(signal).handler {
            SIG_IGN => true,
            SIG_DFL => default_action(signal) == Default_::Ignore,
            _ => false,
        }
    }

    /// After execve: handlers are gone, ignored stays ignored (POSIX).
    pub fn reset_handlers(&mut self) {
        for (i, action) in self.0.iter_mut().enumerate() {
            let ignored = action.handler == SIG_IGN && i as u32 + 1 != SIGCHLD;
            *action = SigAction {
                handler: if ignored { SIG_IGN } else { SIG_DFL },
                ..SigAction::default()
            };
        }
    }

    /// Disposition of a selected signal; `SA_RESETHAND` takes effect here. `orphaned`: the
    /// process group has no one who could continue it, so that terminal stops are void.
    pub fn disposition(&mut self, signal: u32, orphaned: bool) -> Disposition {
        let action = self.get(signal);
        match action.handler {
            SIG_IGN => Disposition::Ignore,
            SIG_DFL => match default_action(signal) {
                Default_::Ignore | Default_::Continue => Disposition::Ignore,
                Default_::Stop if orphaned && signal != SIGSTOP => Disposition::Ignore,
                Default_::Stop => Disposition::Stop,
                Default_::Terminate { core } => Disposition::Terminate { core },
            },
            _ => {
                if action.flags & sa::RESETHAND != 0 {
                    self.set(signal, SigAction { handler: SIG_DFL, ..action });
                }
                Disposition::Handle(action)
            }
        }
    }
}

/// What sending a signal asks the caller to do at once, besides waking a thread that takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generated {
    /// The signal became pending: some thread must look.
    pub wake: bool,
    /// The process, if stopped, goes on.
    pub resume: bool,
}

/// Signal state that the threads of a process share.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Actions.
    pub actions: Actions,
    /// Sent to the process, not to one thread.
    pub pending: Pending,
}

impl Shared {
    /// Generation of `info` for the process (`own` = `None`) or for the thread whose own pending
    /// set and mask are given. `immune`: the first process of a cell, which a signal that it has
    /// no handler for cannot end or stop.
    pub fn generate(
        &mut self,
        info: SigInfo,
        own: Option<&mut Pending>,
        masked: bool,
        immune: bool,
    ) -> Result<Generated, QueueFull> {
        let signal = info.signo;
        let mut result = Generated { wake: false, resume: false };
        if signal == SIGCONT || signal == SIGKILL {
            self.pending.discard(SigSet::STOPS);
            result.resume = true;
        } else if SigSet::STOPS.has(signal) {
            self.pending.discard(SigSet::of(&[SIGCONT]));
        }
        let handled = self.actions.get(signal).handler > SIG_IGN;
        if immune && !handled && default_action(signal) != Default_::Ignore {
            return Ok(result);
        }
        // A masked signal waits even if ignored now: the action may change before it is unmasked.
        if self.actions.ignores(signal) && !masked {
            return Ok(result);
        }
        match own {
            Some(own) => own.add(info)?,
            None => self.pending.add(info)?,
        }
        result.wake = true;
        Ok(result)
    }
}

/// sigaltstack(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AltStack {
    /// Lowest address.
    pub base: u64,
    /// Bytes; 0: none.
    pub size: u64,
    /// `SS_AUTODISARM` or 0.
    pub flags: u32,
}

impl AltStack {
    /// `SS_ONSTACK`.
    pub const ONSTACK: u32 = 1;
    /// `SS_DISABLE`.
    pub const DISABLE: u32 = 2;
    /// `SS_AUTODISARM`.
    pub const AUTODISARM: u32 = 1 << 31;
    /// Smallest size that is accepted (`MINSIGSTKSZ`).
    pub const MIN: u64 = 2048;

    /// Whether `sp` stands on this stack.
    pub fn holds(&self, sp: u64) -> bool {
        self.size != 0 && sp > self.base && sp - self.base <= self.size
    }

    /// `ss_flags` as sigaltstack(2) reports them for a thread whose stack pointer is `sp`.
    pub fn flags_at(&self, sp: u64) -> u32 {
        match (self.size, self.holds(sp)) {
            (0, _) => AltStack::DISABLE,
            (_, true) => AltStack::ONSTACK | self.flags,
            _ => self.flags,
        }
    }

    /// Bytes of `stack_t`.
    pub const SIZE: usize = 24;

    /// To the bytes a user gets.
    pub fn encode(&self, sp: u64) -> [u8; AltStack::SIZE] {
        let mut b = [0; AltStack::SIZE];
        b[..8].copy_from_slice(&self.base.to_le_bytes());
        b[8..12].copy_from_slice(&self.flags_at(sp).to_le_bytes());
        b[16..].copy_from_slice(&self.size.to_le_bytes());
        b
    }
}

/// Registers that a signal frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Program counter.
    pub pc: u64,
    /// x1 to x31, at index register - 1.
    pub x: [u64; 31],
    /// f0 to f31.
    pub f: [u64; 32],
    /// Floating-point control and status.
    pub fcsr: u32,
}

/// `struct rt_sigframe` of riscv64 Linux (arch/riscv/kernel/signal.c): siginfo, then ucontext.
pub mod frame {
    use super::*;

    /// Offset of `struct ucontext`.
    pub const UCONTEXT: usize = SIGINFO_SIZE;
    const UC_STACK: usize = UCONTEXT + 16;
    const UC_SIGMASK: usize = UCONTEXT + 40;
    // 120 bytes are kept for longer masks, then mcontext at its alignment of 16.
    const MCONTEXT: usize = UCONTEXT + 176;
    const FPREGS: usize = MCONTEXT + 256;
    const FCSR: usize = FPREGS + 256;
    // union __riscv_fp_state is as long as the quad form: 32 * 16 + 16.
    const FPREGS_SIZE: usize = 528;
    // struct __riscv_extra_ext_header ends the union: `reserved` and an end header, all zero.
    const EXT_RESERVED: usize = FPREGS + 516;
    /// Bytes of the frame.
    pub const SIZE: usize = FPREGS + FPREGS_SIZE;

    const _: () = assert!(SIZE == 1088 && SIZE % 16 == 0);

    /// Where the frame goes: on the alternate stack if asked for and not there yet. `None` if it
    /// would leave the alternate stack or wrap.
    pub fn place(sp: u64, alt: &AltStack, on_alt: bool) -> Option<u64> {
        let top = if on_alt && alt.size != 0 && !alt.holds(sp) {
            alt.base.checked_add(alt.size)?
        } else {
            sp
        };
        let at = top.checked_sub(SIZE as u64)? & !15;
        (!alt.holds(sp) || alt.holds(at + 1)).then_some(at)
    }

    /// The frame's bytes.
    pub fn encode(info: &SigInfo, context: &Context, mask: SigSet, alt: &AltStack) -> [u8; SIZE] {
        let mut b = [0; SIZE];
        b[..SIGINFO_SIZE].copy_from_slice(&info.encode());
        let sp = context.x[1];
        b[UC_STACK..UC_STACK + AltStack::SIZE].copy_from_slice(&alt.encode(sp));
        b[UC_SIGMASK..UC_SIGMASK + 8].copy_from_slice(&mask.0.to_le_bytes());
        let mut words = |at: usize, values: &[u64]| {
            for (slot, value) in b[at..].chunks_exact_mut(8).zip(values) {
                slot.copy_from_slice(&value.to_le_bytes());
            }
        };
        words(MCONTEXT, &[context.pc]);
        words(MCONTEXT + 8, &context.x);
        words(FPREGS, &context.f);
        b[FCSR..FCSR + 4].copy_from_slice(&context.fcsr.to_le_bytes());
        b
    }

    /// What rt_sigreturn restores: registers, mask, alternate stack. `None` if the frame claims
    /// an extension that this kernel never wrote.
    pub fn decode(b: &[u8; SIZE]) -> Option<(Context, SigSet, AltStack)> {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|k| b[at + k]));
        if b[EXT_RESERVED..EXT_RESERVED + 12].iter().any(|&byte| byte != 0) {
            return None;
        }
        let context = Context {
            pc: word(MCONTEXT),
            x: core::array::from_fn(|i| word(MCONTEXT + 8 + 8 * i)),
            f: core::array::from_fn(|i| word(FPREGS + 8 * i)),
            fcsr: word(FCSR) as u32 & 0xff,
        };
        let mask = SigSet(word(UC_SIGMASK)).without(SigSet::UNMASKABLE);
        let flags = word(UC_STACK + 8) as u32;
        let alt = AltStack {
            base: word(UC_STACK),
            size: if flags & AltStack::DISABLE != 0 { 0 } else { word(UC_STACK + 16) },
            flags: flags & AltStack::AUTODISARM,
        };
        Some((context, mask, alt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(signo: u32) -> SigInfo {
        SigInfo { signo, code: si::USER, detail: Detail::Sender { pid: 1, uid: 0, value: 0 } }
    }

    #[test]
    fn standard_signals_merge_and_real_time_ones_queue_in_order() {
        let mut p = Pending::default();
        for _ in 0..3 {
            p.add(user(SIGUSR1)).unwrap();
        }
        for value in 0..3 {
            let detail = Detail::Sender { pid: 1, uid: 0, value };
            p.add(SigInfo { signo: 40, code: -1, detail }).unwrap();
        }
        assert_eq!(p.take(SigSet(!0)).unwrap().signo, SIGUSR1);
        for value in 0..3 {
            let detail = Detail::Sender { pid: 1, uid: 0, value };
            assert_eq!(p.take(SigSet(!0)).unwrap().detail, detail);
        }
        assert_eq!(p.take(SigSet(!0)), None);
        assert_eq!(p.set(), SigSet::EMPTY);
    }

    #[test]
    fn real_time_queue_has_an_end() {
        let mut p = Pending::default();
        for _ in 0..QUEUE_MAX {
            p.add(user(50)).unwrap();
        }
        assert_eq!(p.add(user(50)), Err(QueueFull));
        p.add(user(SIGTERM)).unwrap();
    }

    #[test]
    fn stop_and_continue_cancel_each_other() {
        let mut s = Shared::default();
        assert!(s.generate(user(SIGTSTP), None, false, false).unwrap().wake);
        let g = s.generate(user(SIGCONT), None, false, false).unwrap();
        assert!(g.resume);
        assert!(!s.pending.set().has(SIGTSTP) && s.pending.set().has(SIGCONT));
        s.generate(user(SIGSTOP), None, false, false).unwrap();
        assert!(!s.pending.set().has(SIGCONT));
    }

    #[test]
    fn ignored_signals_vanish_unless_masked() {
        let mut s = Shared::default();
        let ignore = SigAction { handler: SIG_IGN, ..Default::default() };
        s.actions.set(SIGTERM, ignore);
        assert!(!s.generate(user(SIGTERM), None, false, false).unwrap().wake);
        assert!(s.generate(user(SIGTERM), None, true, false).unwrap().wake);
        assert!(!s.generate(user(SIGCHLD), None, false, false).unwrap().wake);
    }

    #[test]
    fn the_first_process_is_immune_to_what_it_does_not_handle() {
        let mut s = Shared::default();
        for signal in [SIGKILL, SIGSTOP, SIGTERM, SIGINT] {
            assert!(!s.generate(user(signal), None, false, true).unwrap().wake);
        }
        s.actions.set(SIGTERM, SigAction { handler: 0x1000, ..Default::default() });
        assert!(s.generate(user(SIGTERM), None, false, true).unwrap().wake);
    }

    #[test]
    fn faults_come_first_and_the_mask_never_holds_kill() {
        let (mut own, mut shared) = (Pending::default(), Pending::default());
        shared.add(user(SIGHUP)).unwrap();
        own.add(user(SIGSEGV)).unwrap();
        assert_eq!(take(&mut own, &mut shared, SigSet::EMPTY).unwrap().signo, SIGSEGV);
        shared.add(user(SIGKILL)).unwrap();
        assert_eq!(take(&mut own, &mut shared, SigSet(!0)).unwrap().signo, SIGKILL);
        assert_eq!(take(&mut own, &mut shared, SigSet(!0)), None);
        assert_eq!(take(&mut own, &mut shared, SigSet::EMPTY).unwrap().signo, SIGHUP);
    }

    #[test]
    fn every_signal_has_a_disposition() {
        for signal in 1..=SIGNALS {
            let mut actions = Actions::default();
            let d = actions.disposition(signal, false);
            assert_ne!(matches!(d, Disposition::Handle(_)), true);
            actions.set(signal, SigAction { handler: 8, flags: sa::RESETHAND, mask: SigSet(0) });
            assert!(matches!(actions.disposition(signal, false), Disposition::Handle(_)));
            assert_eq!(actions.get(signal).handler, SIG_DFL);
        }
        let mut actions = Actions::default();
        assert_eq!(actions.disposition(SIGTSTP, true), Disposition::Ignore);
        assert_eq!(actions.disposition(SIGSTOP, true), Disposition::Stop);
    }

    #[test]
    fn exec_keeps_ignored_and_drops_handlers() {
        let mut a = Actions::default();
        a.set(SIGINT, SigAction { handler: SIG_IGN, flags: sa::RESTART, mask: SigSet(0) });
        a.set(SIGTERM, SigAction { handler: 0x4000, flags: 0, mask: SigSet(2) });
        a.reset_handlers();
        assert_eq!(a.get(SIGINT).handler, SIG_IGN);
        assert_eq!(a.get(SIGTERM), SigAction::default());
    }

    #[test]
    fn frames_round_trip() {
        let context = Context {
            pc: 0x1234,
            x: core::array::from_fn(|i| i as u64 * 3 + 1),
            f: core::array::from_fn(|i| i as u64 * 7 + 1),
            fcsr: 0x21,
        };
        let alt = AltStack { base: 0x8000, size: 0x4000, flags: 0 };
        let mask = SigSet::of(&[SIGINT, SIGUSR2]);
        let bytes = frame::encode(&user(SIGINT), &context, mask, &alt);
        assert_eq!(frame::decode(&bytes), Some((context, mask, alt)));
        // glibc reads these: uc_sigmask at 40, mcontext at 176, fpregs behind 32 registers.
        assert_eq!(bytes[128 + 40], mask.0 as u8);
        assert_eq!(bytes[128 + 176..128 + 178], [0x34, 0x12]);
        assert_eq!(bytes[128 + 176 + 256], 1);
        let mut bad = bytes;
        bad[128 + 176 + 256 + 520] = 1;
        assert_eq!(frame::decode(&bad), None);
    }

    #[test]
    fn frames_go_where_they_are_asked_to() {
        let alt = AltStack { base: 0x10000, size: 0x2000, flags: 0 };
        assert_eq!(frame::place(0x8_0008, &alt, false), Some(0x8_0008 - 1088 & !15));
        assert_eq!(frame::place(0x8_0000, &alt, true), Some(0x12000 - 1088));
        // Already on it: below, and not beyond its end.
        assert_eq!(frame::place(0x11000, &alt, true), Some(0x11000 - 1088));
        assert_eq!(frame::place(0x10100, &alt, true), None);
        assert_eq!(frame::place(8, &AltStack::default(), false), None);
    }

    #[test]
    fn layouts_are_those_of_linux() {
        let action = SigAction { handler: 5, flags: sa::RESTART, mask: SigSet(0xff) };
        let mask = SigSet(0xff).without(SigSet::UNMASKABLE);
        assert_eq!(SigAction::decode(&action.encode()), SigAction { mask, ..action });
        let child = Detail::Child { pid: 7, uid: 1, status: 3, utime: 4, stime: 5 };
        let b = SigInfo { signo: SIGCHLD, code: si::CLD_EXITED, detail: child }.encode();
        assert_eq!((b[0], b[8], b[16], b[20], b[24], b[32], b[40]), (17, 1, 7, 1, 3, 4, 5));
        let b = SigInfo { signo: SIGSEGV, code: 1, detail: Detail::Fault(0x99) }.encode();
        assert_eq!(b[16], 0x99);
    }
}
