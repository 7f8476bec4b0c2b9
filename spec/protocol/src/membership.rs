//! The one message of the agreement on which cells live: a cell's whole opinion. Sent again
//! it means the same, so a lost or repeated line does no harm (docs/internals/membership.md).

use crate::{CellSet, Invalid, Kind, Message, message::PAYLOAD_WORDS};

/// Why a cell is suspected (Hive §4.3). A reason alone never convicts: votes rest on probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A clock word of the cell did not advance.
    ClockStopped = 0,
    /// An access to its memory faulted.
    BusError = 1,
    /// An RPC to it got no reply in time.
    RpcTimeout = 2,
    /// Data read from its memory, or a message from it, failed a sanity check.
    FailedCheck = 3,
    /// It keeps silent in agreement, or contradicts what the accuser's own probe shows.
    Disagreement = 4,
    /// It repeated an alert that had been voted down.
    RepeatedAlert = 5,
}

/// Number of reasons.
pub const REASONS: usize = 6;

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Reason; REASONS] = [
        Reason::ClockStopped,
        Reason::BusError,
        Reason::RpcTimeout,
        Reason::FailedCheck,
        Reason::Disagreement,
        Reason::RepeatedAlert,
    ];

    /// The word used on consoles and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::ClockStopped => "clock-stopped",
            Reason::BusError => "bus-error",
            Reason::RpcTimeout => "rpc-timeout",
            Reason::FailedCheck => "failed-check",
            Reason::Disagreement => "disagreement",
            Reason::RepeatedAlert => "repeated-alert",
        }
    }

    /// The reason with this name.
    pub fn from_name(name: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// What a cell says about the others in one round of agreement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opinion {
    /// The round it speaks of; a higher one than the receiver's starts that round there.
    pub round: u64,
    /// Cells whose death the sender's own probe has shown by hardware. Only grows.
    pub dead: CellSet,
    /// Cells that stand accused in this round, by anyone.
    pub accused: CellSet,
    /// Accused that the sender's own probe found failed, or that it has other evidence of its own
    /// against.
    pub guilty: CellSet,
    /// Accused about whom the sender has made up its mind.
    pub voted: CellSet,
    /// What the sender itself raised, by [`Reason`].
    pub alerts: [CellSet; REASONS],
    /// Address whose access faulted, for `alerts[BusError]`: everybody's probe reads it too.
    /// 0 if there is none.
    pub address: u64,
    /// The sender misses something: the receiver is to repeat its own opinion.
    pub ask: bool,
}

const WORDS: usize = 7 + REASONS;
const _: () = assert!(WORDS <= PAYLOAD_WORDS);

impl Opinion {
    /// The message that carries it.
    pub fn message(&self) -> Message {
        let mut words = [0; WORDS];
        words[..7].copy_from_slice(&[
            self.round,
            self.dead.0,
            self.accused.0,
            self.guilty.0,
            self.voted.0,
            self.address,
            u64::from(self.ask),
        ]);
        for (word, alert) in words[7..].iter_mut().zip(self.alerts) {
            *word = alert.0;
        }
        Message::new(Kind::Membership, 0).with_words(&words)
    }

    /// Reads the payload of a [`Kind::Membership`] message on a machine of `cells` cells.
    ///
    /// # Errors
    /// [`Invalid::Length`]; [`Invalid::Payload`] if a set names a cell that the machine does not
    /// have or the sets contradict each other.
    pub fn from_message(message: &Message, cells: usize) -> Result<Opinion, Invalid> {
        let words: [u64; WORDS] = message.words().try_into().map_err(|_| Invalid::Length)?;
        let [round, dead, accused, guilty, voted, address, ask, alerts @ ..] = words;
        let opinion = Opinion {
            round,
            dead: CellSet(dead),
            accused: CellSet(accused),
            guilty: CellSet(guilty),
            voted: CellSet(voted),
            alerts: alerts.map(CellSet),
            address,
            ask: ask == 1,
        };
        if ask > 1 {
            return Err(Invalid::Payload);
        }
        if opinion.contradicts_itself(cells) { Err(Invalid::Payload) } else { Ok(opinion) }
    }

    fn contradicts_itself(&self, cells: usize) -> bool {
        let raised = self.raised();
        let named = self.dead.union(self.accused).union(self.voted).union(raised);
        !named.is_subset(CellSet::first(cells))
            || !self.guilty.is_subset(self.voted)
            || !self.voted.is_subset(self.accused)
            || !raised.is_subset(self.accused)
    }

    /// All that the sender itself accuses.
    pub fn raised(&self) -> CellSet {
        self.alerts.iter().fold(CellSet::EMPTY, |all, alert| all.union(*alert))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_payload_and_checks() {
        let mut opinion = Opinion {
            round: 7,
            dead: CellSet(1),
            accused: CellSet(0b1110),
            guilty: CellSet(0b10),
            voted: CellSet(0b110),
            alerts: [CellSet::EMPTY; REASONS],
            address: 0x8000_1000,
            ask: true,
        };
        opinion.alerts[Reason::BusError as usize] = CellSet(0b10);
        let m = opinion.message();
        assert_eq!(m.words(), [7, 1, 0b1110, 0b10, 0b110, 0x8000_1000, 1, 0, 0b10, 0, 0, 0, 0]);
        assert_eq!(Opinion::from_message(&m, 4), Ok(opinion));
        assert_eq!(Opinion::from_message(&m, 3), Err(Invalid::Payload));
        let short = m.with_words(&[7]);
        assert_eq!(Opinion::from_message(&short, 4), Err(Invalid::Length));
        for broken in [
            Opinion { guilty: CellSet(0b1000), ..opinion },
            Opinion { voted: CellSet(0b1_0000), ..opinion },
            Opinion {
                accused: CellSet(0b100),
                guilty: CellSet::EMPTY,
                voted: CellSet(4),
                ..opinion
            },
        ] {
            assert_eq!(Opinion::from_message(&broken.message(), 4), Err(Invalid::Payload));
        }
    }

    #[test]
    fn reasons_have_names() {
        for (i, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
        }
    }
}
