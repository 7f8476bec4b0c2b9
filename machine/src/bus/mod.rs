//! Everything around the harts that is not plain memory: devices, controllers, protection and
//! the events that devices wait for. It is the [`Platform`] of every hart.
//!
//! Invariants:
//! - Device state changes only in [`Bus::load`], [`Bus::store`], [`Bus::happen`] and resets, and
//!   after each the interrupt wires of the nodes concerned are carried to their PLICs.
//! - What an access means for harts (reset, power, end of the machine) is left in `actions`, and
//!   the run that made the access stops before its next instruction.

pub mod decode;
pub mod events;
pub mod node;
pub mod protection;

use crate::config::Config;
use crate::controller::{Effect, NodeState};
use crate::dev::rtc::Rtc;
use crate::devtree::RTC_IRQ;
use crate::platform::{Access, AccessFault, Origin, Platform, Privilege, Target};
use crate::ram::{Frame, PAGE, Ram};
use decode::{Place, decode};
use events::{Event, Events};
use hive_platform::sips::CLASSES;
use hive_platform::{TIMEBASE_HZ, controller as reg, map};
use node::{ENTROPY_SLOT, NodeDevices};
use protection::{NodeDma, Protection};

const MSIP: u32 = 3;
const MTIP: u32 = 7;
const SEIP: u32 = 9;
const MEIP: u32 = 11;

/// A mark that a guest executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub cycle: u64,
    /// Hart that executed it.
    pub hart: usize,
    /// Its code.
    pub code: u16,
    /// Value of `a0`.
    pub arg: u64,
}

/// What an access asks of the machine, before the next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reset a node with this cause.
    ResetNode(usize, u64),
    /// A node switched itself off.
    NodeOff(usize),
    /// The machine ends with this code.
    Exit(u8),
    /// Cold reset of the machine.
    ColdReset,
}

/// Where memory that is not DRAM is in [`Ram`].
#[derive(Clone, Copy, Debug)]
pub struct RomFrames {
    /// First frame of the boot ROM.
    pub rom: Frame,
    /// First frame of the boot flash, which all nodes share.
    pub flash: Frame,
    /// Frames of the flash.
    pub flash_frames: u32,
}

/// See the module head.
#[derive(Clone)]
pub struct Bus {
    /// The machine's description.
    pub config: Config,
    /// Who may touch what.
    pub protection: Protection,
    /// Devices by node.
    pub nodes: Vec<NodeDevices>,
    /// The clock of the machine.
    pub rtc: Rtc,
    /// What is due.
    pub events: Events,
    /// Cycle of each hart.
    pub clock: Vec<u64>,
    /// Marks since they were last taken.
    pub marks: Vec<Mark>,
    /// Actions asked for.
    pub actions: Vec<Action>,
    /// End of the running slice: an event before it stops the run.
    pub slice_end: u64,
    /// A mark with this code stops the run (`None`: none does).
    pub stop_at_mark: Option<u16>,
    /// A run was stopped by a mark.
    pub stopped_at_mark: bool,
    /// Per hart: it waits and its lines changed first at this cycle.
    pub woken: Vec<Option<u64>>,
    /// Per hart: it waits, with these lines.
    pub waiting: Vec<Option<u64>>,
    /// Machine timer deadlines changed.
    pub retimed: bool,
    frames: RomFrames,
    layout: protection::Layout,
}

/// Ticks of the `time` CSR at `cycle`.
pub fn ticks_at(config: &Config, cycle: u64) -> u64 {
    (cycle as u128 * TIMEBASE_HZ as u128 / config.clock_hz as u128) as u64
}

/// First cycle at which the `time` CSR reads at least `ticks`.
pub fn cycle_of_tick(config: &Config, ticks: u64) -> u64 {
    let cycle = (ticks as u128 * config.clock_hz as u128).div_ceil(TIMEBASE_HZ as u128);
    u64::try_from(cycle).unwrap_or(u64::MAX)
}

impl Bus {
    /// Devices at power-on.
    pub fn new(
        config: &Config,
        layout: protection::Layout,
        frames: RomFrames,
        nodes: Vec<NodeDevices>,
    ) -> Bus {
        let harts = config.harts();
        Bus {
            config: config.clone(),
            protection: Protection::new(config, layout),
            nodes,
            rtc: Rtc::new(config.time_of_day_s, harts),
            events: Events::default(),
            clock: vec![0; harts],
            marks: Vec::new(),
            actions: Vec::new(),
            slice_end: 0,
            stop_at_mark: None,
            stopped_at_mark: false,
            woken: vec![None; harts],
            waiting: vec![None; harts],
            retimed: false,
            frames,
            layout,
        }
    }

    fn now_ns(&self, cycle: u64) -> u64 {
        (cycle as u128 * 1_000_000_000 / self.config.clock_hz as u128) as u64
    }

    fn local(&self, hart: usize) -> (usize, usize) {
        (hart / self.config.harts_per_node, hart % self.config.harts_per_node)
    }

    /// Whether devices of `node` answer this hart.
    fn answers(&self, origin: &Origin, node: usize) -> bool {
        let controller = self.protection.controllers.node(node);
        let own = self.config.node_of_hart(origin.hart) == node;
        own || controller.state != NodeState::Failed && !controller.firewall_on
    }

    /// Whether the machine-wide devices obey this access: once a firewall is on, M-mode only.
    fn trusted(&self, origin: &Origin) -> bool {
        origin.privilege == Privilege::Machine || !self.protection.controllers.any_firewall()
    }

    /// Carries interrupt lines to the PLIC of `node` and notes which waiting harts see a change
    /// at `cycle`.
    pub fn wire(&mut self, node: usize, cycle: u64) {
        if node == 0 {
            let line = self.rtc.interrupt();
            self.nodes[0].plic.set_level(RTC_IRQ, line);
        }
        self.nodes[node].wire();
        self.note_woken(cycle);
    }

    /// Notes each waiting hart whose lines are no longer what they were when it went to sleep.
    pub fn note_woken(&mut self, cycle: u64) {
        for hart in 0..self.waiting.len() {
            if let Some(lines) = self.waiting[hart]
                && self.woken[hart].is_none()
                && self.lines_at(hart, cycle) != lines
            {
                self.woken[hart] = Some(cycle);
            }
        }
    }

    /// Interrupt lines of `hart` at `cycle`.
    pub fn lines_at(&self, hart: usize, cycle: u64) -> u64 {
        let (node, local) = self.local(hart);
        let devices = &self.nodes[node];
        let controllers = &self.protection.controllers;
        let software = devices.aclint.msip(local) || controllers.mail_pending(node, local);
        let timer = ticks_at(&self.config, cycle) >= devices.aclint.mtimecmp(local);
        let mut lines = u64::from(software) << MSIP
            | u64::from(timer) << MTIP
            | u64::from(devices.plic.pending(2 * local)) << MEIP
            | u64::from(devices.plic.pending(2 * local + 1)) << SEIP;
        let sips = controllers.sips_pending(node, local);
        for class in 0..CLASSES {
            lines |= (sips >> class & 1) << map::SIPS_INTERRUPT[class];
        }
        lines
    }

    /// Makes `event` happen at `cycle`. Inputs are the machine's affair.
    pub fn happen(&mut self, ram: &mut Ram, cycle: u64, event: &Event) {
        match *event {
            Event::Virtio { node, slot, life } => {
                if self.nodes[node].life == life {
                    self.serve(ram, cycle, node, slot);
                }
                self.wire(node, cycle);
            }
            Event::Alarm => {
                let now = self.now_ns(cycle);
                self.rtc.advance(now);
                self.wire(0, cycle);
            }
            Event::Input(_) => {}
        }
    }

    fn serve(&mut self, ram: &mut Ram, cycle: u64, node: usize, slot: usize) {
        let devices = &mut self.nodes[node];
        let mut dma = NodeDma { ram, protection: &mut self.protection, node };
        devices.busy[slot] = devices.virtio[slot].serve(&mut dma);
        if devices.busy[slot] {
            self.schedule(cycle, node, slot);
        }
    }

    fn schedule(&mut self, cycle: u64, node: usize, slot: usize) {
        let us = if slot == ENTROPY_SLOT { 1 } else { self.config.disk_latency_us };
        let life = self.nodes[node].life;
        let due = cycle.saturating_add(self.config.cycles(us));
        self.events.add(due, Event::Virtio { node, slot, life });
    }

    /// The outside sets the real-time clock.
    pub fn set_time_of_day(&mut self, ns: u64, cycle: u64) {
        self.rtc.set(ns, self.now_ns(cycle));
        self.schedule_alarm(cycle);
        self.wire(0, cycle);
    }

    /// The clock moved or its alarm was set.
    fn schedule_alarm(&mut self, cycle: u64) {
        if let Some(at_ns) = self.rtc.alarm() {
            let at = (at_ns as u128 * self.config.clock_hz as u128).div_ceil(1_000_000_000);
            let at = u64::try_from(at).unwrap_or(u64::MAX).max(cycle + 1);
            self.events.add(at, Event::Alarm);
        }
    }

    fn load_place(&mut self, origin: &Origin, place: Place, size: usize) -> Option<u64> {
        let (own, local) = self.local(origin.hart);
        let cycle = self.clock[origin.hart] + origin.executed;
        match place {
            Place::Finisher(_) => self.trusted(origin).then_some(0),
            Place::Rtc(offset) => {
                let now = self.now_ns(cycle);
                self.rtc.read(offset, size, now, origin.hart)
            }
            Place::Controller(node, offset) if node == own => {
                let machine = origin.privilege == Privilege::Machine;
                self.protection.controllers.read(node, local, machine, offset, size)
            }
            Place::Aclint(node, offset) if self.answers(origin, node) => {
                self.nodes[node].aclint.read(offset, size, ticks_at(&self.config, cycle))
            }
            Place::Plic(node, offset) if self.answers(origin, node) => {
                self.nodes[node].plic.read(offset, size)
            }
            Place::Uart(node, offset) if self.answers(origin, node) => {
                let value = self.nodes[node].uart.read(offset);
                self.wire(node, cycle);
                Some(u64::from(value))
            }
            Place::Virtio(node, slot, offset) if self.answers(origin, node) => {
                self.nodes[node].virtio[slot].read(offset, size)
            }
            _ => None,
        }
    }

    fn store_place(
        &mut self,
        ram: &mut Ram,
        origin: &Origin,
        place: Place,
        size: usize,
        value: u64,
    ) -> Option<()> {
        let (own, local) = self.local(origin.hart);
        let cycle = self.clock[origin.hart] + origin.executed;
        match place {
            Place::Finisher(0) if self.trusted(origin) => self.finish(value as u32),
            Place::Finisher(_) if self.trusted(origin) => {}
            Place::Rtc(offset) if self.trusted(origin) => {
                let now = self.now_ns(cycle);
                self.rtc.write(offset, size, value, now)?;
                self.schedule_alarm(cycle);
                self.wire(0, cycle);
            }
            Place::Controller(node, offset) if node == own => {
                let machine = origin.privilege == Privilege::Machine;
                let controllers = &mut self.protection.controllers;
                let effect = controllers.write(node, local, machine, offset, size, value)?;
                self.take_effect(ram, node, effect);
                self.note_woken(cycle);
            }
            Place::Aclint(node, offset) if self.answers(origin, node) => {
                self.nodes[node].aclint.write(offset, size, value)?;
                self.retimed = true;
                self.note_woken(cycle);
            }
            Place::Plic(node, offset) if self.answers(origin, node) => {
                self.nodes[node].plic.write(offset, size, value)?;
                self.note_woken(cycle);
            }
            Place::Uart(node, offset) if self.answers(origin, node) => {
                self.nodes[node].uart.write(offset, value as u8);
                self.wire(node, cycle);
            }
            Place::Virtio(node, slot, offset) if self.answers(origin, node) => {
                let devices = &mut self.nodes[node];
                let work = devices.virtio[slot].write(offset, size, value)?;
                if work && !devices.busy[slot] {
                    devices.busy[slot] = true;
                    self.schedule(cycle, node, slot);
                }
                self.wire(node, cycle);
            }
            _ => return None,
        }
        Some(())
    }

    fn take_effect(&mut self, ram: &mut Ram, node: usize, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Vector { page, old, new } => {
                self.protection.vector_changed(ram, node, page, old, new);
            }
            Effect::FirewallOn => {
                self.protection.firewall_on(ram, node);
                // What devices answer changed too: harts ask the bus at each device access.
            }
            Effect::Cutoff => self.protection.cutoff_on(ram, node),
            Effect::Convicted(accused) => {
                self.actions.push(Action::ResetNode(accused, reg::RESET_VOTED));
            }
            Effect::Reset => self.actions.push(Action::ResetNode(node, reg::RESET_WARM)),
            Effect::Power(_) => self.actions.push(Action::NodeOff(node)),
        }
    }

    fn finish(&mut self, value: u32) {
        match value & 0xffff {
            map::FINISHER_PASS => self.actions.push(Action::Exit(0)),
            map::FINISHER_FAIL => {
                // A failure is never reported as success.
                let code = (value >> 16) as u8;
                self.actions.push(Action::Exit(if code == 0 { 1 } else { code }));
            }
            map::FINISHER_RESET => self.actions.push(Action::ColdReset),
            _ => {}
        }
    }
}

impl Platform for Bus {
    fn target(&mut self, hart: usize, pa: u64) -> Target {
        let own = self.config.node_of_hart(hart);
        let frame = |first: Frame, offset: u64| {
            Target::Frame(Frame(first.0 + (offset / PAGE as u64) as u32))
        };
        match decode(pa, self.config.nodes) {
            Some(Place::Rom(offset)) => frame(self.frames.rom, offset),
            Some(Place::Window(offset)) => {
                let first = self.layout.window.0 + own as u32 * self.layout.window_frames;
                frame(Frame(first), offset)
            }
            Some(Place::Flash(node, offset)) => {
                let inside = offset / (PAGE as u64) < u64::from(self.frames.flash_frames);
                if node == own && inside {
                    frame(self.frames.flash, offset)
                } else {
                    Target::Nothing
                }
            }
            Some(_) => Target::Device,
            None => {
                // The console page's registers end before its page does.
                let page = pa & !(PAGE as u64 - 1);
                match decode(page, self.config.nodes) {
                    Some(_) => Target::Device,
                    None => Target::Nothing,
                }
            }
        }
    }

    fn check(
        &mut self,
        ram: &Ram,
        origin: Origin,
        frame: Frame,
        offset: usize,
        size: usize,
        access: Access,
    ) -> Result<(), AccessFault> {
        self.protection.check(ram, origin.hart, frame, offset, size, access)
    }

    fn load(
        &mut self,
        _ram: &mut Ram,
        origin: Origin,
        pa: u64,
        size: usize,
    ) -> Result<u64, AccessFault> {
        decode(pa, self.config.nodes)
            .and_then(|place| self.load_place(&origin, place, size))
            .ok_or(AccessFault::Access)
    }

    fn store(
        &mut self,
        ram: &mut Ram,
        origin: Origin,
        pa: u64,
        size: usize,
        value: u64,
    ) -> Result<(), AccessFault> {
        decode(pa, self.config.nodes)
            .and_then(|place| self.store_place(ram, &origin, place, size, value))
            .ok_or(AccessFault::Access)
    }

    fn lines(&mut self, hart: usize) -> u64 {
        self.lines_at(hart, self.clock[hart])
    }

    fn time(&mut self, hart: usize, executed: u64) -> u64 {
        ticks_at(&self.config, self.clock[hart] + executed)
    }

    fn cycle(&mut self, hart: usize, executed: u64) -> u64 {
        self.clock[hart] + executed
    }

    fn mark(&mut self, origin: Origin, code: u16, value: u64) {
        let cycle = self.clock[origin.hart] + origin.executed;
        self.marks.push(Mark { cycle, hart: origin.hart, code, arg: value });
        self.stopped_at_mark |= self.stop_at_mark == Some(code);
    }

    fn stop(&mut self, _hart: usize) -> bool {
        !self.actions.is_empty()
            || self.stopped_at_mark
            || self.retimed
            || self.events.next() < self.slice_end
    }
}
