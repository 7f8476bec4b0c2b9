//! What a hart knows: itself, its partition, and what it is waiting for. Nobody else reads it.

use crate::hw::Controller;
use crate::partition::Partition;
use hive_platform::MAX_HARTS;

/// How the machine started this hart.
#[derive(Clone, Copy)]
pub struct Boot {
    /// Machine-wide hart id.
    pub hart_id: usize,
    /// Device tree in the boot ROM.
    pub device_tree: usize,
    /// `fw_dynamic` hand-over block in the boot ROM, used where there is no flash.
    pub hand_over: usize,
}

/// HSM state (SBI chapter "Hart State Management").
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In the firmware, waiting for `hart_start`.
    Stopped,
    /// Told to start at an address with an argument; on its way.
    Starting { entry: u64, argument: u64 },
    /// In S-mode.
    Started,
}

impl State {
    /// The number that `hart_get_status` answers.
    pub fn number(self) -> u64 {
        use sbi_spec::hsm::hart_state::{START_PENDING, STARTED, STOPPED};
        let number = match self {
            State::Stopped => STOPPED,
            State::Starting { .. } => START_PENDING,
            State::Started => STARTED,
        };
        number as u64
    }
}

/// One hart's own record.
pub struct Hart {
    /// How it was started.
    pub boot: Boot,
    /// Its node's controller.
    pub controller: Controller,
    /// Number within its node.
    pub local: usize,
    /// The nodes it works with.
    pub partition: Partition,
    /// HSM state.
    pub state: State,
    /// Sequence number of the last request sent to another hart.
    pub sequence: u64,
    /// Harts that let a request time out: not waited for again until they speak.
    pub mute: [u64; MAX_HARTS / 64],
}

impl Hart {
    /// Whether `hart` let a request time out and has been silent since.
    pub fn is_mute(&self, hart: usize) -> bool {
        self.mute[hart / 64] >> (hart % 64) & 1 != 0
    }

    /// Records whether `hart` answers.
    pub fn set_mute(&mut self, hart: usize, mute: bool) {
        let bit = 1 << (hart % 64);
        if mute {
            self.mute[hart / 64] |= bit;
        } else {
            self.mute[hart / 64] &= !bit;
        }
    }
}
