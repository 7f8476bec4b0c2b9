//! The coherence controllers of all nodes: register semantics of [`hive_platform::controller`].
//!
//! Controllers know each other (sends, votes) but neither memory nor harts: what a store means
//! for those is returned as an [`Effect`], for the bus to carry out at that very store.

pub mod firewall;
pub mod queues;

use crate::config::Config;
use firewall::Firewall;
use hive_platform::controller as reg;
use hive_platform::sips::{CLASSES, LINE, SendStatus};
use hive_platform::{MAX_NODES, PAGE_SIZE, firewall_bit};
use queues::{Letter, Line, Mailbox, Receive};

/// Whether a node works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It runs.
    Live,
    /// It switched itself off with this exit code.
    Off(u8),
    /// It failed: its memory faults, its harts stand still, for ever.
    Failed,
}

/// What a register store asks of the rest of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Firewall vector of a page of this node changed.
    Vector {
        /// Page number within the node.
        page: usize,
        /// Vector before.
        old: u64,
        /// Vector now.
        new: u64,
    },
    /// The firewall went on.
    FirewallOn,
    /// The cutoff went on.
    Cutoff,
    /// A majority wants this node reset.
    Convicted(usize),
    /// The node resets itself.
    Reset,
    /// The node switches itself off.
    Power(u8),
}

/// Registers that exist once per hart.
#[derive(Clone, Default)]
struct Bank {
    tx: Line,
    status: u64,
    mailbox_tx: [u64; 3],
    mailbox_status: u64,
    mailbox: Mailbox,
}

/// One controller.
#[derive(Clone)]
pub struct Controller {
    /// Whether the node works.
    pub state: NodeState,
    /// Whether the firewall is on.
    pub firewall_on: bool,
    /// Firewall vectors.
    pub firewall: Firewall,
    /// Whether remote access is barred.
    pub cutoff: bool,
    reset_cause: u64,
    vote: u64,
    ready: bool,
    route: usize,
    receive: Receive,
    banks: Vec<Bank>,
}

/// All controllers of a machine.
#[derive(Clone)]
pub struct Controllers {
    nodes: Vec<Controller>,
    harts_per_node: usize,
    dram: Vec<u64>,
    dram_size: u64,
    /// False: turning a firewall on has no effect.
    firewall_effective: bool,
}

/// The firewall bits of all harts of `node`.
pub fn node_vector(config: &Config, node: usize) -> u64 {
    let first = node * config.harts_per_node;
    (first..first + config.harts_per_node).fold(0, |v, h| v | firewall_bit(h, config.harts()))
}

impl Controllers {
    /// Controllers in the state of a cold reset.
    pub fn new(config: &Config) -> Controllers {
        let pages = (config.memory / PAGE_SIZE) as usize;
        let nodes = (0..config.nodes).map(|node| Controller {
            state: NodeState::Live,
            firewall_on: false,
            firewall: Firewall::new(pages, node_vector(config, node)),
            cutoff: false,
            reset_cause: reg::RESET_COLD,
            vote: 0,
            ready: false,
            route: 0,
            receive: Receive::default(),
            banks: vec![Bank::default(); config.harts_per_node],
        });
        Controllers {
            nodes: nodes.collect(),
            harts_per_node: config.harts_per_node,
            dram: (0..config.nodes).map(|n| config.dram_base(n)).collect(),
            dram_size: config.memory,
            firewall_effective: config.firewall,
        }
    }

    /// The controller of `node`, which must exist.
    pub fn node(&self, node: usize) -> &Controller {
        &self.nodes[node]
    }

    /// As [`Controllers::node`], to change it.
    pub fn node_mut(&mut self, node: usize) -> &mut Controller {
        &mut self.nodes[node]
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: a machine has nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Puts `node` into the state after a reset for `cause`.
    pub fn reset(&mut self, config: &Config, node: usize, cause: u64) {
        let pages = self.nodes[node].firewall.pages();
        self.nodes[node] = Controller {
            state: self.nodes[node].state,
            firewall_on: false,
            firewall: Firewall::new(pages, node_vector(config, node)),
            cutoff: false,
            reset_cause: cause,
            vote: 0,
            ready: false,
            route: 0,
            receive: Receive::default(),
            banks: vec![Bank::default(); self.harts_per_node],
        };
    }

    /// Whether any firewall is on.
    pub fn any_firewall(&self) -> bool {
        self.nodes.iter().any(|n| n.firewall_on)
    }

    /// Pending SIPS classes (bit per class) as local hart `local` of `node` sees them.
    pub fn sips_pending(&self, node: usize, local: usize) -> u64 {
        let n = &self.nodes[node];
        if n.route != local {
            return 0;
        }
        (0..CLASSES).fold(0, |v, c| v | u64::from(n.receive.first(c).is_some()) << c)
    }

    /// Whether a letter waits for local hart `local` of `node`.
    pub fn mail_pending(&self, node: usize, local: usize) -> bool {
        self.nodes[node].banks[local].mailbox.first().is_some()
    }

    /// Reads `size` bytes at `offset` as local hart `local` of `node`; `None` is an access fault.
    pub fn read(
        &self,
        node: usize,
        local: usize,
        machine_mode: bool,
        offset: u64,
        size: usize,
    ) -> Option<u64> {
        let n = &self.nodes[node];
        if (reg::SIPS_SLOTS..reg::FIREWALL).contains(&offset) {
            let at = offset - reg::SIPS_SLOTS;
            let slots = CLASSES * MAX_NODES * reg::SIPS_DEPTH * LINE;
            let word = n.receive.word((at / 8) as usize) >> (at % 8 * 8);
            let mask = if size == 8 { u64::MAX } else { (1 << (size * 8)) - 1 };
            return (at < slots as u64).then_some(word & mask);
        }
        if size != 8 || offset % 8 != 0 {
            return None;
        }
        if offset >= reg::FIREWALL {
            let page = ((offset - reg::FIREWALL) / 8) as usize;
            return (page < n.firewall.pages()).then(|| n.firewall.get(page));
        }
        let bank = n.banks.get(local)?;
        let word = |from: u64| ((offset - from) / 8) as usize;
        let value = match offset {
            reg::ID => reg::ID_VALUE,
            reg::NODE => node as u64,
            reg::NODES => self.nodes.len() as u64,
            reg::HARTS_PER_NODE => self.harts_per_node as u64,
            reg::DRAM_BASE => self.dram[node],
            reg::DRAM_SIZE => self.dram_size,
            reg::RESET_CAUSE => n.reset_cause,
            reg::CUTOFF => u64::from(n.cutoff),
            reg::VOTE => n.vote,
            reg::SIPS_TX..reg::SIPS_SEND => *bank.tx.get(word(reg::SIPS_TX))?,
            reg::SIPS_STATUS => bank.status,
            reg::SIPS_ROUTE => n.route as u64,
            reg::SIPS_RX..reg::SIPS_RX_RELEASE if word(reg::SIPS_RX) < CLASSES => {
                n.receive.first(word(reg::SIPS_RX)).map_or(0, |id| id + 1)
            }
            _ if !machine_mode => return None,
            reg::READY => u64::from(n.ready),
            reg::POWER | reg::RESET => 0,
            reg::FIREWALL_ON => u64::from(n.firewall_on),
            reg::MAILBOX_TX..reg::MAILBOX_SEND => *bank.mailbox_tx.get(word(reg::MAILBOX_TX))?,
            reg::MAILBOX_STATUS => bank.mailbox_status,
            reg::MAILBOX_RX => bank.mailbox.first().map_or(0, |l| l.from as u64 + 1),
            reg::MAILBOX_RX_DATA..reg::MAILBOX_RX_RELEASE => {
                let word = word(reg::MAILBOX_RX_DATA);
                bank.mailbox.first().map_or(Some(&0), |l| l.words.get(word)).copied()?
            }
            _ => return None,
        };
        Some(value)
    }

    /// Writes 64 bits at `offset` as local hart `local` of `node`; `None` is an access fault.
    pub fn write(
        &mut self,
        node: usize,
        local: usize,
        machine_mode: bool,
        offset: u64,
        size: usize,
        value: u64,
    ) -> Option<Effect> {
        if size != 8 || offset % 8 != 0 {
            return None;
        }
        let harts_per_node = self.harts_per_node;
        let n = &mut self.nodes[node];
        if offset >= reg::FIREWALL {
            let page = ((offset - reg::FIREWALL) / 8) as usize;
            let old = n.firewall.set(page, value)?;
            return Some(Effect::Vector { page, old, new: value });
        }
        let bank = n.banks.get_mut(local)?;
        let word = |from: u64| ((offset - from) / 8) as usize;
        match offset {
            reg::CUTOFF => {
                if value != 0 && !n.cutoff {
                    n.cutoff = true;
                    return Some(Effect::Cutoff);
                }
            }
            reg::VOTE => {
                n.vote = value;
                return Some(self.count_votes(value));
            }
            reg::SIPS_TX..reg::SIPS_SEND => *bank.tx.get_mut(word(reg::SIPS_TX))? = value,
            reg::SIPS_SEND => self.send(node, local, value),
            reg::SIPS_ROUTE => {
                if value < harts_per_node as u64 {
                    n.route = value as usize;
                }
            }
            reg::SIPS_RX_RELEASE.. if word(reg::SIPS_RX_RELEASE) < CLASSES => {
                n.receive.release(word(reg::SIPS_RX_RELEASE), value);
            }
            _ if !machine_mode => return None,
            reg::READY => {
                n.ready = value & 1 != 0;
            }
            reg::POWER => {
                n.state = NodeState::Off(value as u8);
                return Some(Effect::Power(value as u8));
            }
            reg::FIREWALL_ON => {
                if value & 1 != 0 && !n.firewall_on && self.firewall_effective {
                    n.firewall_on = true;
                    return Some(Effect::FirewallOn);
                }
            }
            reg::RESET => return Some(Effect::Reset),
            reg::MAILBOX_TX..reg::MAILBOX_SEND => {
                *bank.mailbox_tx.get_mut(word(reg::MAILBOX_TX))? = value;
            }
            reg::MAILBOX_SEND => self.post(node, local, value),
            reg::MAILBOX_RX_RELEASE => bank.mailbox.release(),
            _ => return None,
        }
        Some(Effect::None)
    }

    fn live(&self, node: u64) -> Option<usize> {
        let node = usize::try_from(node).ok()?;
        (self.nodes.get(node)?.state == NodeState::Live).then_some(node)
    }

    fn send(&mut self, from: usize, local: usize, value: u64) {
        let line = self.nodes[from].banks[local].tx;
        let class = value >> 32;
        let status = match self.live(value & 0xffff_ffff) {
            Some(to) if class < CLASSES as u64 && self.nodes[to].ready => {
                match self.nodes[to].receive.push(class as usize, from, &line) {
                    true => SendStatus::Sent,
                    false => SendStatus::Full,
                }
            }
            _ => SendStatus::Dead,
        };
        self.nodes[from].banks[local].status = status as u64;
    }

    fn post(&mut self, from: usize, local: usize, to: u64) {
        let letter = Letter {
            from: from * self.harts_per_node + local,
            words: self.nodes[from].banks[local].mailbox_tx,
        };
        let status = match self.live(to / self.harts_per_node as u64) {
            Some(node) => {
                let bank = &mut self.nodes[node].banks[to as usize % self.harts_per_node];
                if bank.mailbox.push(letter) { SendStatus::Sent } else { SendStatus::Full }
            }
            None => SendStatus::Dead,
        };
        self.nodes[from].banks[local].mailbox_status = status as u64;
    }

    /// The first live node among `named` (a vote word just stored) that more than half of the
    /// other nodes that are live and ready name.
    fn count_votes(&self, named: u64) -> Effect {
        for accused in 0..self.nodes.len() {
            if self.nodes[accused].state != NodeState::Live || named >> accused & 1 == 0 {
                continue;
            }
            let (mut voters, mut votes) = (0, 0);
            for (other, n) in self.nodes.iter().enumerate() {
                if other != accused && n.state == NodeState::Live && n.ready {
                    voters += 1;
                    votes += n.vote >> accused & 1;
                }
            }
            if votes * 2 > voters {
                return Effect::Convicted(accused);
            }
        }
        Effect::None
    }
}

#[cfg(test)]
mod tests;
