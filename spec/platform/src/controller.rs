//! Registers of a node's coherence controller (FLASH's MAGIC chip; Hive §2, §4.2, §6, table 8.1).
//!
//! A controller answers only harts of its own node: any other access is an access fault. All
//! registers are 64 bits wide and take aligned 64-bit accesses only; a register that does not
//! exist, or that is M-mode only and is touched from below, is an access fault too.
//! "Banked" registers exist once per hart: each hart of the node sees its own copy.

/// `ID` (read-only): tells a controller from anything else.
pub const ID: u64 = 0x000;
/// Value of [`ID`]: "MAGIC", version 1.
pub const ID_VALUE: u64 = u64::from_le_bytes(*b"MAGIC\0\0\x01");
/// This controller's node number (read-only).
pub const NODE: u64 = 0x008;
/// Nodes of the machine, dead or alive (read-only).
pub const NODES: u64 = 0x010;
/// Harts of each node (read-only).
pub const HARTS_PER_NODE: u64 = 0x018;
/// First byte of this node's DRAM (read-only).
pub const DRAM_BASE: u64 = 0x020;
/// Bytes of this node's DRAM (read-only).
pub const DRAM_SIZE: u64 = 0x028;
/// Why this node last started (read-only): [`RESET_COLD`], [`RESET_WARM`] or [`RESET_VOTED`].
pub const RESET_CAUSE: u64 = 0x030;
/// Power-on.
pub const RESET_COLD: u64 = 0;
/// Reset asked for by the node's own firmware; memory kept.
pub const RESET_WARM: u64 = 1;
/// A majority of the other live nodes named this node in their vote words.
pub const RESET_VOTED: u64 = 2;

/// Memory cutoff (table 8.1): while non-zero every access to this node's memory from another
/// node is an access fault. It stays on until node reset (writing 0 does nothing): were it to
/// come and go, two live cells could see different deaths.
pub const CUTOFF: u64 = 0x040;
/// Vote word: bit n names node n as failed. When more than half of the *other* nodes that are
/// live and [`READY`] name a live node, that node is reset at that very store. Cleared by reset.
pub const VOTE: u64 = 0x048;
/// M-mode only. 1 once this node's firmware has handed over to a kernel: from then on its vote
/// counts. Cleared by node reset.
pub const READY: u64 = 0x050;
/// M-mode only. A write switches the node off; the value's low 8 bits are its exit code. The
/// machine ends when no node runs any more, with the first non-zero code, or 0.
pub const POWER: u64 = 0x058;
/// M-mode only. 1 turns on this node's firewall, over its DRAM and over its devices; it stays on
/// until node reset (writing 0 does nothing).
pub const FIREWALL_ON: u64 = 0x060;
/// M-mode only. A write resets this node with cause [`RESET_WARM`].
pub const RESET: u64 = 0x068;

/// Banked: the 128-byte line to send next, 16 registers (Hive §6).
pub const SIPS_TX: u64 = 0x1000;
/// Banked, write-only: sends [`SIPS_TX`]; the value is [`sips_send`].
pub const SIPS_SEND: u64 = 0x1080;
/// Banked, read-only: what became of this hart's last send: a [`crate::sips::SendStatus`].
pub const SIPS_STATUS: u64 = 0x1088;
/// Local hart whose interrupt pending bits show this node's queues (default 0).
pub const SIPS_ROUTE: u64 = 0x1090;
/// Read-only, one per class: [`rx_id`]+1 of the message that arrived first, 0 if there is none.
pub const SIPS_RX: u64 = 0x10a0;
/// Write-only, one per class: an [`rx_id`] whose slot is free again. An id that is not the
/// oldest pending one of its sender is ignored.
pub const SIPS_RX_RELEASE: u64 = 0x10c0;

/// M-mode only, banked: three words of the mailbox message to send next.
pub const MAILBOX_TX: u64 = 0x2000;
/// M-mode only, write-only: sends [`MAILBOX_TX`] to the hart whose machine-wide id is written.
/// One message may be pending for each pair of sender and receiver.
pub const MAILBOX_SEND: u64 = 0x2018;
/// M-mode only, banked, read-only: a [`crate::sips::SendStatus`] for this hart's last mailbox
/// send.
pub const MAILBOX_STATUS: u64 = 0x2020;
/// M-mode only, banked, read-only: sender's hart id + 1 of the oldest message to this hart, or 0.
/// While it is non-zero the hart's machine software interrupt is pending.
pub const MAILBOX_RX: u64 = 0x2028;
/// M-mode only, banked, read-only: the three words of the oldest message to this hart.
pub const MAILBOX_RX_DATA: u64 = 0x2030;
/// M-mode only, banked, write-only: drops the oldest message to this hart.
pub const MAILBOX_RX_RELEASE: u64 = 0x2048;

/// Receive slots, read-only and cacheable: line [`rx_id`] at `SIPS_SLOTS + rx_id * 128`.
/// They take loads of any size.
pub const SIPS_SLOTS: u64 = 0x10_0000;
/// Messages a queue holds for each class and sender: a flooding sender fills only its own.
pub const SIPS_DEPTH: usize = 8;

/// Firewall vectors: eight bytes for each page of this node's DRAM. At reset: the node's own
/// harts. Takes effect at the store; revocation is complete when the store is.
pub const FIREWALL: u64 = 0x80_0000;

/// Value for [`SIPS_SEND`].
pub const fn sips_send(node: usize, class: crate::sips::Class) -> u64 {
    (class as u64) << 32 | node as u64
}

/// Number of the receive slot `slot` of `class` for sender node `sender`.
pub const fn rx_id(class: crate::sips::Class, sender: usize, slot: usize) -> u64 {
    ((class as usize * crate::MAX_NODES + sender) * SIPS_DEPTH + slot) as u64
}

const _: () = {
    let slots = crate::sips::CLASSES * crate::MAX_NODES * SIPS_DEPTH * crate::sips::LINE;
    assert!(SIPS_SLOTS + slots as u64 <= FIREWALL);
    assert!(FIREWALL < crate::map::CONTROLLER_SIZE);
};

/// Most pages of DRAM a node may have, bounded by the room for firewall vectors (4 GB).
pub const MAX_PAGES_PER_NODE: u64 = (crate::map::CONTROLLER_SIZE - FIREWALL) / 8;
