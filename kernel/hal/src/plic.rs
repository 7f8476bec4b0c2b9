//! Platform-level interrupt controllers, one per node, and work that must run on a certain node.
//!
//! Every hart of a node takes its node's external interrupts (the first to claim serves). A
//! controller answers its own node only once the firewall is on, so a source is enabled by a hart
//! of its node; [`run_on_node`] gets there from anywhere.

use crate::devicetree::{Device, machine};
use crate::mmio::Mmio;
use crate::{hart, sbi};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_platform::map::PLIC_SOURCES;
use hive_sync::{SpinLock, WaitQueue, rank};

const PRIORITY: u64 = 0;
const ENABLE: u64 = 0x2000;
const ENABLE_STRIDE: u64 = 0x80;
const CONTEXT: u64 = 0x20_0000;
const CONTEXT_STRIDE: u64 = 0x1000;
const CLAIM: u64 = 4;

struct Handler {
    node: usize,
    irq: u32,
    serve: fn(),
    device: Option<&'static (dyn Interrupt + Sync)>,
}

/// A device that interrupts.
pub trait Interrupt {
    /// Serves the device, at interrupt level.
    fn interrupt(&self);
}

static HANDLERS: SpinLock<Vec<Handler>> = SpinLock::ranked(rank::DEVICE, Vec::new());

fn regs(node: usize) -> Option<Mmio> {
    let plic = machine().plics.iter().find(|p| p.device.node == node)?;
    // SAFETY: the device tree says that a PLIC is there.
    Some(unsafe { Mmio::new(plic.device.base, plic.device.size) })
}

fn context_of(hart_id: usize) -> Option<(Mmio, u64)> {
    let plic = machine().plics.iter().find(|p| p.contexts.iter().any(|c| c.1 == hart_id))?;
    let context = plic.contexts.iter().find(|c| c.1 == hart_id)?.0;
    Some((regs(plic.device.node)?, context.into()))
}

/// Lets this hart take the external interrupts of its node. On every hart, once.
pub fn init_hart() {
    if let Some((regs, context)) = context_of(hart::local().id()) {
        regs.write32(CONTEXT + context * CONTEXT_STRIDE, 0); // threshold
    }
}

/// Calls `serve`, at interrupt level, when `device` interrupts. On a hart of the device's node.
pub fn register(device: Device, serve: fn()) {
    add(Handler { node: device.node, irq: device.irq, serve, device: None });
    enable(device);
}

/// As [`register`], for a driver with state.
pub fn register_device(device: Device, driver: &'static (dyn Interrupt + Sync)) {
    fn nothing() {}
    add(Handler { node: device.node, irq: device.irq, serve: nothing, device: Some(driver) });
    enable(device);
}

fn add(handler: Handler) {
    HANDLERS.lock().push(handler);
}

fn enable(device: Device) {
    let Some(regs) = regs(device.node) else { return };
    if device.irq == 0 || device.irq >= PLIC_SOURCES {
        return;
    }
    let irq = u64::from(device.irq);
    regs.write32(PRIORITY + irq * 4, 1);
    // One hart takes a source: the first of the node. All of them would wake for each interrupt.
    let first = hart::all().iter().find(|h| h.node() == device.node);
    let Some((_, context)) = first.and_then(|h| context_of(h.id())) else { return };
    let at = ENABLE + context * ENABLE_STRIDE + irq / 32 * 4;
    regs.write32(at, regs.read32(at) | 1 << (irq % 32));
}

/// Serves pending external interrupts of this hart.
pub(crate) fn serve() {
    let Some((regs, context)) = context_of(hart::local().id()) else { return };
    let claim = CONTEXT + context * CONTEXT_STRIDE + CLAIM;
    loop {
        let irq = regs.read32(claim);
        if irq == 0 {
            return;
        }
        let node = hart::local().node();
        let found = {
            let handlers = HANDLERS.lock();
            let found = handlers.iter().find(|h| h.irq == irq && h.node == node);
            found.map(|h| (h.serve, h.device))
        };
        match found {
            Some((_, Some(device))) => device.interrupt(),
            Some((serve, None)) => serve(),
            None => crate::println!("plic: interrupt {irq} of node {node} has no handler"),
        }
        regs.write32(claim, irq);
    }
}

type Work = Box<dyn FnOnce() + Send>;
static WORK: SpinLock<VecDeque<(usize, Work)>> = SpinLock::ranked(rank::DEVICE, VecDeque::new());

/// Runs `work` soon at interrupt level on a hart of `node`: here and now if this is one, or if
/// the machine has no firewall.
pub fn run_on_node(node: usize, work: impl FnOnce() + Send + 'static) {
    let here = hive_sync::hart::without_irq(|| hart::local().node() == node);
    if here || crate::platform::get().is_none() {
        return hive_sync::hart::without_irq(work);
    }
    WORK.lock().push_back((node, Box::new(work)));
    if let Some(hart) = hart::all().iter().find(|h| h.node() == node) {
        sbi::send_ipi(hart.id());
    }
}

/// Runs `work` at interrupt level on a hart of `node` and sleeps until it is done.
pub fn call_on_node<R: Send + 'static>(
    node: usize,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let call = Arc::new((SpinLock::new(None), WaitQueue::new()));
    let theirs = call.clone();
    run_on_node(node, move || {
        let result = work();
        *theirs.0.lock() = Some(result);
        theirs.1.wake_all();
    });
    call.1.wait_until(|| call.0.lock().take())
}

/// Runs the work left for this hart's node: part of serving an IPI.
pub fn run_work() {
    let node = hart::local().node();
    loop {
        let work = {
            let mut queue = WORK.lock();
            let at = queue.iter().position(|w| w.0 == node);
            at.and_then(|i| queue.remove(i))
        };
        match work {
            Some((_, work)) => work(),
            None => return,
        }
    }
}
