//! What each kind of trap leads to.

use crate::{cell, time};
use hive_hal::panic::Death;
use hive_hal::trap::Hooks;
use hive_hal::{Access, console, panic, plic};
use hive_platform::sips::{CLASSES, Class};
use hive_sync::{Once, SpinLock};

/// What to do about a fault of the kernel on user memory: true if it is worth trying again.
pub type UserFaultHandler = fn(address: u64, access: Access) -> bool;

static USER_FAULT: Once<UserFaultHandler> = Once::new();
static SIPS: SpinLock<[Option<fn()>; CLASSES]> = SpinLock::new([None; CLASSES]);

/// Names the handler of kernel faults on user memory.
pub fn on_user_fault(handler: UserFaultHandler) {
    assert!(USER_FAULT.set(handler).is_ok(), "user faults have a handler already");
}

/// Calls `handler` at interrupt level when messages of `class` have arrived; it takes them all.
pub fn on_sips(class: Class, handler: fn()) {
    SIPS.lock()[class as usize] = Some(handler);
    hive_hal::trap::mask_sips(class, false);
}

struct Kernel;

impl Hooks for Kernel {
    fn timer(&self) {
        time::interrupt();
        console::service();
    }

    fn ipi(&self) {
        if panic::panicked() {
            panic::stop();
        }
        plic::run_work();
    }

    fn sips(&self, class: Class) {
        let handler = SIPS.lock()[class as usize];
        match handler {
            Some(handler) => handler(),
            None => hive_hal::trap::mask_sips(class, true), // until someone listens
        }
    }

    fn user_fault(&self, address: u64, access: Access) -> bool {
        USER_FAULT.get().is_some_and(|handler| handler(address, access))
    }

    fn die(&self, death: &Death) {
        cell::leave_record(death);
    }
}

/// Plugs the handlers in.
pub fn install() {
    hive_hal::trap::install(&Kernel);
}
