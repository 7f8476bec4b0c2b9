//! Who may touch which frame: firewall, cutoff, failed nodes, lost and poisoned lines.
//!
//! Invariant: whenever an answer of [`Protection::check`] turns from yes to no, the frame gets an
//! attribute it did not have or is evicted, so that no hart keeps an old yes
//! ([`crate::platform`]).

use crate::config::Config;
use crate::controller::{Controllers, NodeState, node_vector};
use crate::dev::{Dma, DmaError};
use crate::platform::{Access, AccessFault};
use crate::ram::{Frame, LINE, PAGE, Ram, attr};
use hive_platform::firewall_bit;
use std::collections::BTreeMap;

/// Remote pages that each node wrote last and might hold dirty lines of: as many as a 1 MB cache
/// of 128-byte lines could spread over, and no more than what is quick to search.
const RECENT: usize = 64;

/// Frames outside DRAM, by what they are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// First frame of node 0's remap window; the other nodes follow.
    pub window: Frame,
    /// Frames of one window.
    pub window_frames: u32,
    /// Frames of DRAM of one node.
    pub dram_frames: u32,
}

/// Permissions of the whole machine.
#[derive(Clone)]
pub struct Protection {
    /// The controllers, which hold vectors, cutoffs and node states.
    pub controllers: Controllers,
    layout: Layout,
    harts: usize,
    harts_per_node: usize,
    node_vectors: Vec<u64>,
    /// Lines (64 bytes) of a frame that were lost with a cache.
    lost: BTreeMap<Frame, u64>,
    /// Lines of a frame that raise a hardware error.
    poison: BTreeMap<Frame, u64>,
    /// Per node: remote frames it was let write, oldest first.
    recent: Vec<Vec<Frame>>,
    /// Stores and DMA writes that the firewall denied, by the node that tried.
    pub denied: Vec<u64>,
}

fn frames((first, count): (Frame, u32)) -> impl Iterator<Item = Frame> + use<> {
    (first.0..first.0 + count).map(Frame)
}

/// The 64-byte lines that `size` bytes at `offset` touch.
fn lines(offset: usize, size: usize) -> u64 {
    let first = offset as u64 / LINE;
    let last = (offset + size.max(1) - 1) as u64 / LINE;
    u64::MAX << (first & 63) & u64::MAX >> (63 - last.min(63))
}

impl Protection {
    /// Nothing is forbidden yet.
    pub fn new(config: &Config, layout: Layout) -> Protection {
        Protection {
            controllers: Controllers::new(config),
            layout,
            harts: config.harts(),
            harts_per_node: config.harts_per_node,
            node_vectors: (0..config.nodes).map(|n| node_vector(config, n)).collect(),
            lost: BTreeMap::new(),
            poison: BTreeMap::new(),
            recent: vec![Vec::new(); config.nodes],
            denied: vec![0; config.nodes],
        }
    }

    /// The node that owns `frame`; ROM and flash belong to nobody.
    pub fn home(&self, frame: Frame) -> Option<usize> {
        let nodes = self.node_vectors.len();
        let dram = (frame.0 / self.layout.dram_frames) as usize;
        if dram < nodes {
            return Some(dram);
        }
        let beyond = frame.0.checked_sub(self.layout.window.0)?;
        Some((beyond / self.layout.window_frames) as usize).filter(|n| *n < nodes)
    }

    /// First DRAM frame of `node`, and how many it has.
    pub fn dram_range(&self, node: usize) -> (Frame, u32) {
        (Frame(node as u32 * self.layout.dram_frames), self.layout.dram_frames)
    }

    /// First frame of `node`'s remap window, and how many it has.
    pub fn window_range(&self, node: usize) -> (Frame, u32) {
        let count = self.layout.window_frames;
        (Frame(self.layout.window.0 + node as u32 * count), count)
    }

    fn dram_of(&self, node: usize) -> impl Iterator<Item = Frame> + use<> {
        frames(self.dram_range(node))
    }

    /// The firewall vector of a DRAM frame.
    pub fn vector(&self, frame: Frame) -> u64 {
        let node = (frame.0 / self.layout.dram_frames) as usize;
        let page = (frame.0 % self.layout.dram_frames) as usize;
        if node < self.controllers.len() {
            self.controllers.node(node).firewall.get(page)
        } else {
            u64::MAX
        }
    }

    /// May `node`, with the firewall bits `who`, make this access?
    fn judge(
        &mut self,
        attributes: u32,
        node: usize,
        who: u64,
        frame: Frame,
        touched: u64,
        access: Access,
    ) -> Result<(), AccessFault> {
        const FAULT: Result<(), AccessFault> = Err(AccessFault::Access);
        let home = self.home(frame);
        let store = access == Access::Store;
        if attributes & attr::FAILED != 0 || store && attributes & attr::READ_ONLY != 0 {
            return FAULT;
        }
        if attributes & attr::CUTOFF != 0 && home != Some(node) {
            return FAULT;
        }
        if store && attributes & attr::FIREWALL != 0 {
            if self.vector(frame) & who == 0 {
                self.denied[node] += 1;
                return FAULT;
            }
            if home != Some(node) {
                self.remember(node, frame);
            }
        }
        if attributes & attr::LOST != 0 && self.lost.get(&frame).is_some_and(|l| l & touched != 0) {
            return FAULT;
        }
        let poisoned = |p: &u64| p & touched != 0;
        if attributes & attr::POISON != 0 && self.poison.get(&frame).is_some_and(poisoned) {
            return Err(AccessFault::Hardware);
        }
        Ok(())
    }

    fn remember(&mut self, node: usize, frame: Frame) {
        let recent = &mut self.recent[node];
        recent.retain(|f| *f != frame);
        if recent.len() == RECENT {
            recent.remove(0);
        }
        recent.push(frame);
    }

    /// [`crate::platform::Platform::check`].
    ///
    /// # Errors
    /// An access fault or hardware error as DESIGN §3 says.
    pub fn check(
        &mut self,
        ram: &Ram,
        hart: usize,
        frame: Frame,
        offset: usize,
        size: usize,
        access: Access,
    ) -> Result<(), AccessFault> {
        let node = hart / self.harts_per_node;
        let who = firewall_bit(hart, self.harts);
        let touched = lines(offset, size);
        let attributes = ram.attr(frame);
        // cbo.zero by the home makes a lost line whole again: nothing of it is read.
        if access == Access::Store
            && size as u64 == LINE
            && self.home(frame) == Some(node)
            && let Some(lost) = self.lost.get_mut(&frame)
        {
            *lost &= !touched;
        }
        self.judge(attributes, node, who, frame, touched, access)
    }

    /// Puts the firewall attribute of `node`'s pages in step with its vectors.
    pub fn firewall_on(&self, ram: &mut Ram, node: usize) {
        for frame in self.dram_of(node) {
            if self.vector(frame) != u64::MAX {
                ram.set_attr(frame, attr::FIREWALL, 0);
            }
        }
    }

    /// The vector of page `page` of `node` changed: takes effect at once.
    pub fn vector_changed(&self, ram: &mut Ram, node: usize, page: usize, old: u64, new: u64) {
        if !self.controllers.node(node).firewall_on || old == new {
            return;
        }
        let frame = Frame(node as u32 * self.layout.dram_frames + page as u32);
        if new == u64::MAX {
            ram.set_attr(frame, 0, attr::FIREWALL);
        } else {
            ram.set_attr(frame, attr::FIREWALL, 0);
            if old & !new != 0 {
                ram.evict(frame);
            }
        }
    }

    /// Bars remote access to `node`'s memory.
    pub fn cutoff_on(&self, ram: &mut Ram, node: usize) {
        for frame in self.dram_of(node) {
            ram.set_attr(frame, attr::CUTOFF, 0);
        }
    }

    /// `node` was reset: its firewall and cutoff are off and its lost lines whole.
    pub fn node_reset(&mut self, ram: &mut Ram, node: usize) {
        for frame in self.dram_of(node) {
            self.lost.remove(&frame);
            ram.set_attr(frame, 0, attr::FIREWALL | attr::CUTOFF | attr::LOST);
        }
        self.recent[node].clear();
    }

    /// `node` fails: its memory faults for everyone. `lose` chooses, for each line of memory
    /// elsewhere that its caches may have held dirty, whether it is lost.
    pub fn node_failed(&mut self, ram: &mut Ram, node: usize, mut lose: impl FnMut() -> u64) {
        self.controllers.node_mut(node).state = NodeState::Failed;
        for frame in self.dram_of(node).chain(frames(self.window_range(node))) {
            ram.set_attr(frame, attr::FAILED, 0);
        }
        for frame in std::mem::take(&mut self.recent[node]) {
            let who = self.node_vectors[node];
            // Written back by now if the right to write it is gone: revocation waits for that.
            if self.vector(frame) & who == 0 {
                continue;
            }
            let lines = lose();
            if lines != 0 {
                *self.lost.entry(frame).or_default() |= lines;
                ram.set_attr(frame, attr::LOST, 0);
            }
        }
    }

    /// Makes `lines` of `frame` raise hardware errors.
    pub fn poison(&mut self, ram: &mut Ram, frame: Frame, lines: u64) {
        *self.poison.entry(frame).or_default() |= lines;
        ram.set_attr(frame, attr::POISON, 0);
    }

    /// Lost lines by frame, for reports.
    pub fn lost(&self) -> &BTreeMap<Frame, u64> {
        &self.lost
    }
}

/// Memory as the devices of one node see it: DRAM and nothing else.
pub struct NodeDma<'a> {
    /// Memory.
    pub ram: &'a mut Ram,
    /// Permissions.
    pub protection: &'a mut Protection,
    /// Whose devices.
    pub node: usize,
}

impl NodeDma<'_> {
    fn allowed(&mut self, pa: u64, len: usize, access: Access) -> Result<Frame, DmaError> {
        let frame = self.ram.dram_frame(pa).ok_or(DmaError)?;
        let who = self.protection.node_vectors[self.node];
        let touched = lines(pa as usize % PAGE, len);
        let attributes = self.ram.attr(frame);
        self.protection
            .judge(attributes, self.node, who, frame, touched, access)
            .map(|()| frame)
            .map_err(|_| DmaError)
    }
}

impl Dma for NodeDma<'_> {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let mut pa = address;
        let mut rest = buf;
        while !rest.is_empty() {
            let offset = pa as usize % PAGE;
            let (now, later) = rest.split_at_mut(rest.len().min(PAGE - offset));
            let frame = self.allowed(pa, now.len(), Access::Load)?;
            self.ram.read(frame.base() + offset as u64, now).ok_or(DmaError)?;
            pa = pa.checked_add(now.len() as u64).ok_or(DmaError)?;
            rest = later;
        }
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DmaError> {
        let mut pa = address;
        let mut rest = data;
        while !rest.is_empty() {
            let offset = pa as usize % PAGE;
            let (now, later) = rest.split_at(rest.len().min(PAGE - offset));
            let frame = self.allowed(pa, now.len(), Access::Store)?;
            self.ram.write(frame.base() + offset as u64, now).ok_or(DmaError)?;
            pa = pa.checked_add(now.len() as u64).ok_or(DmaError)?;
            rest = later;
        }
        Ok(())
    }
}
