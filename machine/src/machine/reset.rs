//! Making a machine, and its resets: cold (memory cleared), warm and by vote (memory kept).

use super::boot::{Boot, Plan};
use super::htif::Htif;
use super::trace::Trace;
use super::{Activity, Machine};
use crate::bus::node::NodeDevices;
use crate::bus::protection::Layout;
use crate::bus::{Bus, RomFrames};
use crate::config::Config;
use crate::controller::NodeState;
use crate::dev::disk::Disk;
use crate::engine::Engine;
use crate::env::Log;
use crate::error::Error;
use crate::fault::Counts;
use crate::hart::Hart;
use crate::loader::Segment;
use crate::ram::{Frame, PAGE, Ram, attr};
use hive_platform::{controller as reg, map};

/// a0, a1 and a2.
const ARGUMENTS: [usize; 3] = [10, 11, 12];

impl Machine {
    /// A machine at power-on.
    ///
    /// # Errors
    /// One line if the description or an image is no good.
    pub fn new(config: &Config, boot: &Boot) -> Result<Machine, Error> {
        config.check()?;
        let plan = Plan::new(config, boot)?;
        let disks = disks(config, boot)?;
        let harts = config.harts();
        let mut ram = Ram::new(harts, config.memory * config.nodes as u64);
        let page = PAGE as u64;
        let window_frames = map::REMAP_SIZE / page;
        let layout = Layout {
            window: ram.add_frames(window_frames * config.nodes as u64),
            window_frames: window_frames as u32,
            dram_frames: (config.memory / page) as u32,
        };
        let flash = boot.flash.as_deref().unwrap_or(&[]);
        if flash.len() as u64 > map::FLASH_SIZE {
            return Err(Error::new(format!("boot flash of {} bytes is over 256 MB", flash.len())));
        }
        let flash_frames = (flash.len() as u64).div_ceil(page);
        let frames = RomFrames {
            rom: ram.add_frames(map::BOOT_ROM_SIZE / page),
            flash: ram.add_frames(flash_frames),
            flash_frames: flash_frames as u32,
        };
        fill(&mut ram, frames.rom, &plan.rom);
        fill(&mut ram, frames.flash, flash);
        let rom_end = frames.flash.0 + frames.flash_frames;
        for frame in frames.rom.0..rom_end {
            ram.set_attr(Frame(frame), attr::READ_ONLY, 0);
        }
        let log = Log {
            seed: config.seed,
            disks: disks.iter().flatten().map(|d| d.base_hash()).collect(),
            entries: Vec::new(),
        };
        let nodes = disks.into_iter().enumerate();
        let nodes = nodes.map(|(n, disk)| NodeDevices::new(config, n, disk)).collect();
        let tohost = plan.tohost;
        let fromhost = plan.fromhost;
        let mut machine = Machine {
            plan,
            ram,
            engine: Engine::new(),
            harts: (0..harts).map(Hart::new).collect(),
            bus: Bus::new(config, layout, frames, nodes),
            activity: vec![Activity::Run; harts],
            deadline: vec![u64::MAX; harts],
            slice: None,
            now: 0,
            horizon: 0,
            instructions: 0,
            log,
            armed: Vec::new(),
            injections: Vec::new(),
            storms: Vec::new(),
            counts: Counts::default(),
            htif: tohost.map(|tohost| Htif { tohost, fromhost }),
            htif_output: Vec::new(),
            trace: Trace::new(),
            exit: None,
        };
        machine.cold_reset(0);
        Ok(machine)
    }

    /// Power-on of every node that has not failed: memory cleared and loaded.
    pub(super) fn cold_reset(&mut self, cycle: u64) {
        self.bus.events.reset();
        self.bus.actions.clear();
        let live: Vec<usize> = (0..self.bus.nodes.len())
            .filter(|n| self.bus.protection.controllers.node(*n).state != NodeState::Failed)
            .collect();
        for &node in &live {
            self.bus.protection.controllers.node_mut(node).state = NodeState::Live;
            for frames in
                [self.bus.protection.dram_range(node), self.bus.protection.window_range(node)]
            {
                self.ram.clear(frames.0, frames.1);
            }
        }
        for segment in &self.plan.dram {
            load(&mut self.ram, map::DRAM, Frame(0), segment);
        }
        for node in live {
            self.reset_node(node, reg::RESET_COLD, cycle);
        }
    }

    /// `node` starts again at `cycle`: devices and controller reset, firewall off, firmware as
    /// it was at power-on, harts at the reset vector. Memory that the firmware image does not
    /// cover is kept.
    pub(super) fn reset_node(&mut self, node: usize, cause: u64, cycle: u64) {
        let config = self.bus.config.clone();
        if self.bus.protection.controllers.node(node).state != NodeState::Live {
            return;
        }
        self.storms.retain(|storm| storm.node != node);
        self.bus.nodes[node].reset();
        self.bus.protection.controllers.reset(&config, node, cause);
        self.bus.protection.node_reset(&mut self.ram, node);
        let (window, _) = self.bus.protection.window_range(node);
        for segment in &self.plan.window {
            load(&mut self.ram, map::REMAP, window, segment);
        }
        for hart in node * config.harts_per_node..(node + 1) * config.harts_per_node {
            self.harts[hart].reset(self.plan.entry);
            let values = [hart as u64, self.plan.device_tree, self.plan.hand_over];
            for (register, value) in ARGUMENTS.into_iter().zip(values) {
                self.harts[hart].set_x(register, value);
            }
            self.stand(hart, Activity::Run);
            self.bus.clock[hart] = self.bus.clock[hart].max(cycle);
        }
    }

    /// `node` switched itself off.
    pub(super) fn node_off(&mut self, node: usize) {
        self.bus.nodes[node].cancel();
        self.stand_node(node, Activity::Stand);
        self.end_with_last_node();
    }

    /// The machine ends when no node runs any more, if one of them gave an exit code.
    pub(super) fn end_with_last_node(&mut self) {
        let controllers = &self.bus.protection.controllers;
        let states = || (0..controllers.len()).map(|n| controllers.node(n).state);
        let off = states().any(|s| matches!(s, NodeState::Off(_)));
        if off && states().all(|s| s != NodeState::Live) {
            let codes = states().filter_map(|s| match s {
                NodeState::Off(code) => Some(code),
                _ => None,
            });
            self.exit = Some(codes.fold(0, |first, code| if first != 0 { first } else { code }));
        }
    }

    /// Gives every hart of `node` another activity.
    pub(super) fn stand_node(&mut self, node: usize, activity: Activity) {
        let per_node = self.bus.config.harts_per_node;
        for hart in node * per_node..(node + 1) * per_node {
            self.stand(hart, activity);
        }
    }

    /// Gives `hart` another activity; its wait and its slice end.
    pub(super) fn stand(&mut self, hart: usize, activity: Activity) {
        self.activity[hart] = activity;
        self.bus.waiting[hart] = None;
        self.bus.woken[hart] = None;
        self.deadline[hart] = u64::MAX;
        if self.slice.is_some_and(|s| s.hart == hart) {
            self.slice = None;
        }
    }
}

/// One disk for each node, from one image for all or one for each.
fn disks(config: &Config, boot: &Boot) -> Result<Vec<Option<Disk>>, Error> {
    match boot.disks.as_slice() {
        [] => Ok(vec![None; config.nodes]),
        [one] => Ok(vec![Some(Disk::new(one.clone())); config.nodes]),
        all if all.len() == config.nodes => {
            Ok(all.iter().map(|image| Some(Disk::new(image.clone()))).collect())
        }
        all => Err(Error::new(format!(
            "{} disk images for {} nodes: give one, or one for each node",
            all.len(),
            config.nodes
        ))),
    }
}

fn fill(ram: &mut Ram, first: Frame, bytes: &[u8]) {
    // Cannot fail: the frames were made for these bytes.
    let _ = ram.write(first.base(), bytes);
}

/// Puts `segment` into the frames from `first`, which stand at `base`.
fn load(ram: &mut Ram, base: u64, first: Frame, segment: &Segment) {
    let at = first.base() + (segment.address - base);
    // Cannot fail: `Plan::new` checked the range. The part without contents is zero at cold
    // reset, and the program's own affair later.
    let _ = ram.write(at, &segment.bytes);
}
