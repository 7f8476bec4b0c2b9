//! Threads: each hart has a queue and runs it in turn; no kernel preemption.
//!
//! A thread that waits is *parked* and has a wake token (see [`hive_sync::sched::Scheduler`]). The
//! way from parked to ready is [`unpark`], under the thread's state lock; only the hart that takes
//! a ready thread from a queue makes it running. A thread may be in a queue before its old hart
//! has left its stack: the HAL's switch waits for that.
//!
//! Absent: priorities, migration of running threads, gang scheduling.

use crate::time;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};
use hive_hal::context::{self, HasContext, KernelContext};
use hive_hal::hart::{self, PerHart};
use hive_hal::memory::NoMemory;
use hive_hal::paging::{self, UserTable};
use hive_hal::{MAX_HARTS, sbi};
use hive_sync::hart as irq;
use hive_sync::sched::Scheduler;
use hive_sync::{AtomicBool, AtomicU64, AtomicUsize, SpinLock, ThreadId, rank};

/// Most threads of a cell: what 32 MB of kernel stacks hold.
pub const THREADS_MAX: usize = 1024;

type Start = Box<dyn FnOnce() + Send>;

/// A kernel thread, or the kernel half of a user thread.
pub struct Thread {
    id: ThreadId,
    name: String,
    context: KernelContext,
    state: SpinLock<State>,
    /// Hart that ran it last: where it goes first.
    hart: AtomicUsize,
    interrupted: AtomicBool,
    /// Time it ran, ns, up to when it was last switched to.
    ran_ns: AtomicU64,
    /// When it was last switched to, ns since boot.
    since_ns: AtomicU64,
    start: SpinLock<Option<Start>>,
    space: SpinLock<Option<Arc<UserTable>>>,
    local: SpinLock<Option<Arc<dyn Any + Send + Sync>>>,
}

struct State {
    run: Run,
    token: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Ready,
    Running,
    Parked,
    Dead,
}

impl HasContext for Thread {
    fn context(&self) -> &KernelContext {
        &self.context
    }
}

static SLOTS: [SpinLock<Option<Arc<Thread>>>; THREADS_MAX] =
    [const { SpinLock::ranked(rank::THREADS, None) }; THREADS_MAX];
static QUEUES: [SpinLock<VecDeque<Arc<Thread>>>; MAX_HARTS] =
    [const { SpinLock::ranked(rank::RUN_QUEUE, VecDeque::new()) }; MAX_HARTS];
/// Harts that wait for work, one bit each.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Switches between threads since boot.
pub static SWITCHES: AtomicU64 = AtomicU64::new(0);

struct Here {
    current: RefCell<Option<Arc<Thread>>>,
    idle: RefCell<Option<Arc<Thread>>>,
    should_yield: Cell<bool>,
}

static HERE: PerHart<Here> = PerHart::new(
    [const {
        Here {
            current: RefCell::new(None),
            idle: RefCell::new(None),
            should_yield: Cell::new(false),
        }
    }; MAX_HARTS],
);

impl Thread {
    fn new(name: &str, context: KernelContext, start: Option<Start>) -> Option<Arc<Thread>> {
        for (i, slot) in SLOTS.iter().enumerate() {
            let mut slot = slot.lock();
            if slot.is_some() {
                continue;
            }
            let run = if start.is_some() { Run::Parked } else { Run::Running };
            let thread = Arc::new(Thread {
                id: ThreadId(i),
                name: name.into(),
                context,
                state: SpinLock::ranked(rank::THREAD, State { run, token: false }),
                hart: AtomicUsize::new(hart::index()),
                interrupted: AtomicBool::new(false),
                ran_ns: AtomicU64::new(0),
                since_ns: AtomicU64::new(hive_hal::time::now_ns()),
                start: SpinLock::new(start),
                space: SpinLock::new(None),
                local: SpinLock::new(None),
            });
            *slot = Some(thread.clone());
            return Some(thread);
        }
        None
    }

    /// The thread's id, as `hive-sync` knows it.
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// The name given at birth.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the wake token: ends the thread's wait, or its next one.
    pub fn unpark(self: &Arc<Self>) {
        let mut state = self.state.lock();
        match state.run {
            Run::Parked => {
                state.run = Run::Ready;
                drop(state);
                enqueue(self.clone());
            }
            Run::Ready | Run::Running => state.token = true,
            Run::Dead => {}
        }
    }

    /// Ends interruptible waits of the thread, until [`Thread::clear_interrupt`].
    pub fn interrupt(self: &Arc<Self>) {
        self.interrupted.store(true);
        self.unpark();
    }

    /// True if interruptible waits end.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load()
    }

    /// Lets interruptible waits wait again.
    pub fn clear_interrupt(&self) {
        self.interrupted.store(false);
    }

    /// Time it has run so far, ns.
    pub fn ran_ns(&self) -> u64 {
        let running = self.state.lock().run == Run::Running;
        let since = self.since_ns.advisory();
        let now = if running { hive_hal::time::now_ns().saturating_sub(since) } else { 0 };
        self.ran_ns.advisory() + now
    }

    /// Whether it runs or could run.
    pub fn is_runnable(&self) -> bool {
        matches!(self.state.lock().run, Run::Running | Run::Ready)
    }

    /// The hart that runs it or ran it last.
    pub fn hart(&self) -> usize {
        self.hart.load()
    }

    /// The user half that the thread translates by from now on; for the running thread, and for
    /// one that has not run yet.
    pub fn set_space(self: &Arc<Self>, space: Option<Arc<UserTable>>) {
        let old = irq::without_irq(|| {
            let mine = Arc::ptr_eq(self, &current());
            let mut slot = self.space.lock();
            if mine {
                paging::switch_user(slot.as_deref(), space.as_deref());
            }
            core::mem::replace(&mut *slot, space)
        });
        drop(old);
    }

    /// Hangs the process layer's object on the thread.
    pub fn set_local(&self, local: Arc<dyn Any + Send + Sync>) {
        let old = self.local.lock().replace(local);
        drop(old);
    }

    /// The process layer's object.
    pub fn local(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.local.lock().clone()
    }
}

/// Starts a kernel thread. It ends when `f` returns.
pub fn try_spawn(name: &str, f: impl FnOnce() + Send + 'static) -> Result<Arc<Thread>, NoMemory> {
    let context = KernelContext::new(thread_main)?;
    let thread = Thread::new(name, context, Some(Box::new(f))).ok_or(NoMemory)?;
    thread.unpark();
    Ok(thread)
}

/// [`try_spawn`] for threads that the cell cannot do without.
pub fn spawn_kernel(name: &str, f: impl FnOnce() + Send + 'static) -> Arc<Thread> {
    match try_spawn(name, f) {
        Ok(thread) => thread,
        Err(NoMemory) => panic!("no memory for kernel thread {name}"),
    }
}

extern "C" fn thread_main() -> ! {
    irq::irq_pop(); // the depth that the switch came with
    let start = current().start.lock().take();
    if let Some(start) = start {
        start();
    }
    exit()
}

/// The running thread.
pub fn current() -> Arc<Thread> {
    HERE.with(|h| h.current.borrow().clone()).expect("a thread is running")
}

/// Index of the hart that runs the caller: already a memory when it arrives.
pub fn hart_index() -> usize {
    irq::without_irq(hart::index)
}

/// Harts of the cell.
pub fn hart_count() -> usize {
    hart::count()
}

/// Ends the running thread. What the frames above own is never dropped: return from the thread's
/// function where there is any.
pub fn exit() -> ! {
    {
        let me = current();
        me.set_space(None);
        let local = me.local.lock().take();
        drop(local);
        let slot = SLOTS.get(me.id.0).and_then(|s| s.lock().take());
        drop(slot);
        me.state.lock().run = Run::Dead;
    }
    irq::irq_push();
    switch_away();
    unreachable!("a dead thread ran")
}

/// Lets other threads of this hart run.
pub fn yield_now() {
    irq::irq_push();
    HERE.with(|h| h.should_yield.set(false));
    let me = current();
    let others = !QUEUES[hart::index()].lock().is_empty();
    if others {
        me.state.lock().run = Run::Ready;
        QUEUES[hart::index()].lock().push_back(me);
        switch_away();
    }
    irq::irq_pop();
}

/// Threads of the cell that run or could: what placement goes by.
pub fn load() -> u64 {
    let waiting: usize = QUEUES.iter().take(hart::count()).map(|q| q.lock().len()).sum();
    waiting as u64 + (hart::count() as u64).saturating_sub(IDLE.load().count_ones().into())
}

/// True if the running thread has had its turn; cleared by [`yield_now`].
pub fn should_yield() -> bool {
    HERE.with(|h| h.should_yield.get())
}

/// On each tick of the hart: ends the turn of the running thread if another waits.
pub fn tick() {
    if !QUEUES[hart::index()].lock().is_empty() {
        HERE.with(|h| h.should_yield.set(true));
    }
}

/// Puts a ready thread where it will run soon: on its last hart, unless that is busy and another
/// idle.
fn enqueue(thread: Arc<Thread>) {
    let idle = IDLE.load();
    let last = thread.hart.load();
    let to = if idle >> last & 1 != 0 || idle == 0 { last } else { idle.trailing_zeros() as usize };
    QUEUES[to].lock().push_back(thread);
    hive_sync::fence();
    let wake = irq::without_irq(|| to != hart::index()) && IDLE.load() >> to & 1 != 0;
    if wake {
        sbi::send_ipi(hart::HARTS[to].id());
    }
}

/// Takes the next thread to run, from this hart's queue or another's.
///
/// A thread that another hart is still leaving goes back: waiting for it here could wait for a
/// hart that waits for the thread that we are leaving. The idle thread, whose turn comes then, is
/// nobody else's.
fn pick() -> Option<Arc<Thread>> {
    let (me, harts) = (hart::index(), hart::count());
    let found = (0..harts).find_map(|i| QUEUES[(me + i) % harts].lock().pop_front())?;
    let current = HERE.with(|h| h.current.borrow().clone());
    let own = current.is_some_and(|c| Arc::ptr_eq(&c, &found));
    if !own && found.context.is_busy() {
        QUEUES[me].lock().push_back(found);
        return None;
    }
    Some(found)
}

/// Leaves the running thread, which is parked, dead or in a queue. Interrupts off at depth 1.
fn switch_away() {
    let next = pick().or_else(|| HERE.with(|h| h.idle.borrow().clone()));
    let next = next.expect("every hart has an idle thread");
    next.state.lock().run = Run::Running;
    next.hart.store(hart::index());
    let previous = HERE.with(|h| h.current.replace(Some(next.clone())));
    if let Some(previous) = previous
        && !Arc::ptr_eq(&previous, &next)
    {
        let now = hive_hal::time::now_ns();
        previous.ran_ns.fetch_add(now.saturating_sub(previous.since_ns.advisory()));
        next.since_ns.store(now);
        SWITCHES.fetch_add(1);
        let (old, new) = (previous.space.lock(), next.space.lock());
        if old.is_some() || new.is_some() {
            paging::switch_user(old.as_deref(), new.as_deref());
        }
    }
    context::switch_to(next);
}

/// Makes the code that calls this the idle thread of its hart.
pub fn adopt_idle() {
    let thread = Thread::new("idle", KernelContext::idle(), None).expect("a slot for idle");
    context::adopt(thread.clone());
    HERE.with(|h| {
        h.current.replace(Some(thread.clone()));
        h.idle.replace(Some(thread));
    });
}

/// Time that each hart of the cell has been idle, ns, by hart index.
pub fn idle_ns() -> Vec<u64> {
    let mut idle = alloc::vec![0; hart::count()];
    for slot in &SLOTS {
        let thread = slot.lock().clone();
        if let Some(thread) = thread.filter(|t| t.name() == "idle")
            && let Some(slot) = idle.get_mut(thread.hart())
        {
            *slot = thread.ran_ns();
        }
    }
    idle
}

/// What the idle thread does. Interrupts off at depth 1.
pub fn idle() -> ! {
    let bit = 1 << hart::index();
    loop {
        IDLE.fetch_or(bit);
        hive_sync::fence();
        let work = (0..hart::count()).any(|i| !QUEUES[i].lock().is_empty());
        if !work {
            hart::wait_for_interrupt();
        }
        IDLE.fetch_and(!bit);
        switch_away();
    }
}

/// The scheduler as `hive-sync` sees it.
struct Plug;

impl Scheduler for Plug {
    fn current(&self) -> ThreadId {
        current().id
    }

    fn park(&self, deadline_ns: Option<u64>) {
        let me = current();
        let timer = deadline_ns.map(|at| time::arm(at, me.id));
        irq::irq_push();
        let mut state = me.state.lock();
        if state.token {
            state.token = false;
            drop(state);
        } else {
            state.run = Run::Parked;
            drop(state);
            switch_away();
        }
        irq::irq_pop();
        if let Some(timer) = timer {
            time::disarm(timer);
        }
    }

    fn unpark(&self, thread: ThreadId) {
        unpark(thread);
    }

    fn interrupted(&self) -> bool {
        current().interrupted()
    }

    fn now_ns(&self) -> u64 {
        hive_hal::time::now_ns()
    }
}

/// Wakes the thread `id`, if it lives.
pub fn unpark(id: ThreadId) {
    let thread = SLOTS.get(id.0).and_then(|slot| slot.lock().clone());
    if let Some(thread) = thread {
        thread.unpark();
    }
}

/// Makes threads able to wait.
pub fn install() {
    hive_sync::sched::install(&Plug);
}
