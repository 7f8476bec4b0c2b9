//! What will happen at a known cycle, in order of (cycle, order of scheduling).

use std::collections::BTreeMap;

/// Something due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A virtio device of a node has had time for one request. Void if the node was reset or
    /// failed since (another `life`).
    Virtio {
        /// Node.
        node: usize,
        /// Slot.
        slot: usize,
        /// [`crate::bus::node::NodeDevices::life`] when it was scheduled.
        life: u64,
    },
    /// The real-time clock's alarm may be due.
    Alarm,
    /// Number of an entry of the environment's log.
    Input(usize),
}

/// The queue.
#[derive(Clone, Default)]
pub struct Events {
    queue: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
}

impl Events {
    /// Adds `event` at `cycle`.
    pub fn add(&mut self, cycle: u64, event: Event) {
        self.queue.insert((cycle, self.scheduled), event);
        self.scheduled += 1;
    }

    /// Cycle of the first event; `u64::MAX` if there is none.
    pub fn next(&self) -> u64 {
        self.queue.first_key_value().map_or(u64::MAX, |(k, _)| k.0)
    }

    /// Takes the first event if it is due at `cycle`.
    pub fn take(&mut self, cycle: u64) -> Option<Event> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= cycle).then(|| first.remove())
    }

    /// Forgets everything but inputs: cold reset.
    pub fn reset(&mut self) {
        self.queue.retain(|_, event| matches!(event, Event::Input(_)));
    }
}
