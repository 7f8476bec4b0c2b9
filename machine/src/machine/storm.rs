//! Wild-write storms: what a hart does instead of instructions after [`Fault::WildWrites`], and
//! the independent check of what it did.
//!
//! The check does not ask the firewall: before each batch of stores the pages of other nodes that
//! it aims at are copied, and compared after it. A batch runs alone, so whatever changed in
//! between was changed by the storm.
//!
//! [`Fault::WildWrites`]: crate::fault::Fault::WildWrites

use super::{Activity, Machine};
use crate::bus::decode::{Place, decode};
use crate::fault::{Aim, ChangedPage};
use crate::platform::{Origin, Platform, Privilege};
use crate::ram::{Frame, PAGE};
use crate::seed::Random;
use hive_platform::{controller as reg, firewall_bit, map};

/// A storm under way.
#[derive(Clone)]
pub(super) struct Storm {
    injection: usize,
    pub(super) node: usize,
    random: Random,
}

impl Storm {
    /// A storm of `node`; its report goes to injection number `injection`.
    pub(super) fn new(injection: usize, node: usize, random: Random) -> Storm {
        Storm { injection, node, random }
    }
}

/// A store to come.
#[derive(Clone, Copy)]
struct Shot {
    pa: u64,
    size: usize,
    value: u64,
}

/// One shot in this many is aimed at devices, the others at memory: devices take up a vanishing
/// part of the address space, and are where a wild store hurts most.
const DEVICE_ONE_IN: u64 = 4;
/// Most stores between two checks: what a store to a device cuts short is checked anew.
const BATCH: u64 = 64;
/// Bytes of controller registers below the receive slots, where stores have effects.
const CONTROLLER_REGISTERS: u64 = 0x3000;

impl Machine {
    /// `hart` stores wildly for at most `budget` cycles; returns how many it took, one at least.
    pub(super) fn run_storm(&mut self, hart: usize, budget: u64) -> u64 {
        let node = self.bus.config.node_of_hart(hart);
        let Some(number) = self.storms.iter().position(|s| s.node == node) else {
            self.stand(hart, Activity::Stand);
            return budget;
        };
        let budget = budget.min(BATCH);
        let mut random = self.storms[number].random.clone();
        let shots: Vec<Shot> = (0..budget).map(|_| self.aim(&mut random)).collect();
        let before = self.other_pages(node, &shots);
        let mut done = 0;
        for shot in &shots {
            self.shoot(hart, self.storms[number].injection, *shot, done);
            done += 1;
            if self.bus.stop(hart) {
                break;
            }
        }
        // As many numbers as shots were fired: an early stop repeats none and skips none.
        if done == budget {
            self.storms[number].random = random;
        } else {
            let mut random = self.storms[number].random.clone();
            for _ in 0..done {
                self.aim(&mut random);
            }
            self.storms[number].random = random;
        }
        self.compare(hart, self.storms[number].injection, &before, done);
        done
    }

    /// Chooses a store.
    fn aim(&self, random: &mut Random) -> Shot {
        let size = 1 << random.below(4);
        let config = &self.bus.config;
        let pa = if random.below(DEVICE_ONE_IN) != 0 {
            map::DRAM + random.below(config.memory * config.nodes as u64)
        } else {
            let node = random.below(config.nodes as u64) as usize;
            match random.below(9) {
                0 => map::aclint(node) + random.below(map::ACLINT_SIZE),
                1 => map::plic(node) + random.below(map::PLIC_SIZE),
                2 => map::uart(node) + random.below(8),
                3 => {
                    let slot = random.below(map::VIRTIO_SLOTS as u64) as usize;
                    map::virtio(node, slot) + random.below(0x100)
                }
                4 => map::controller(node) + random.below(CONTROLLER_REGISTERS),
                5 => map::controller(node) + reg::FIREWALL + random.below(config.memory / 512),
                6 => map::REMAP + random.below(map::REMAP_SIZE),
                7 => map::flash(node) + random.below(1 << 20),
                _ => map::FINISHER + random.below(0x2000),
            }
        };
        Shot { pa: pa & !(size - 1), size: size as usize, value: random.next() }
    }

    /// What a shot is aimed at.
    fn aim_of(&self, node: usize, pa: u64) -> Aim {
        if let Some(frame) = self.ram.dram_frame(pa) {
            return match self.bus.protection.home(frame) == Some(node) {
                true => Aim::OwnMemory,
                false => Aim::OtherMemory,
            };
        }
        let device = |n| if n == node { Aim::OwnDevice } else { Aim::OtherDevice };
        match decode(pa, self.bus.config.nodes) {
            Some(Place::Window(_)) => Aim::Firmware,
            Some(Place::Aclint(n, _) | Place::Plic(n, _) | Place::Uart(n, _)) => device(n),
            Some(Place::Virtio(n, ..)) => device(n),
            Some(Place::Controller(n, _)) if n == node => Aim::OwnController,
            Some(Place::Controller(..)) => Aim::OtherController,
            _ => Aim::Board,
        }
    }

    fn shoot(&mut self, hart: usize, injection: usize, shot: Shot, executed: u64) {
        let origin = Origin { hart, privilege: Privilege::Supervisor, executed };
        let bytes = shot.value.to_le_bytes();
        let node = self.bus.config.node_of_hart(hart);
        let aim = self.aim_of(node, shot.pa);
        let result = self.harts[hart].store_physical(
            &mut self.ram,
            &mut self.bus,
            origin,
            shot.pa,
            &bytes[..shot.size],
        );
        let report = self.injections[injection].storm.get_or_insert_default();
        let shots = report.shots.entry(aim).or_default();
        shots.tried += 1;
        match result {
            Ok(()) => shots.landed += 1,
            Err(_) => shots.denied += 1,
        }
    }

    /// Copies of the pages of other nodes that `shots` are aimed at.
    fn other_pages(&self, node: usize, shots: &[Shot]) -> Vec<(Frame, [u8; PAGE])> {
        let aimed = shots.iter().filter_map(|s| self.ram.dram_frame(s.pa));
        let mut frames: Vec<Frame> =
            aimed.filter(|f| self.bus.protection.home(*f) != Some(node)).collect();
        frames.sort_unstable();
        frames.dedup();
        frames.into_iter().map(|f| (f, self.page(f))).collect()
    }

    /// Notes which of these pages are not what they were.
    fn compare(
        &mut self,
        hart: usize,
        injection: usize,
        before: &[(Frame, [u8; PAGE])],
        done: u64,
    ) {
        let cycle = self.bus.clock[hart];
        let bit = firewall_bit(hart, self.harts.len());
        let changed: Vec<Frame> =
            before.iter().filter(|(f, was)| self.page(*f) != *was).map(|(f, _)| *f).collect();
        let config = &self.bus.config;
        let report = self.injections[injection].storm.get_or_insert_default();
        report.last_cycle = cycle + done;
        for frame in changed {
            let page = map::DRAM + frame.base();
            let home = (frame.base() / config.memory) as usize;
            let controllers = &self.bus.protection.controllers;
            let granted =
                controllers.node(home).firewall_on && self.bus.protection.vector(frame) & bit != 0;
            let fresh = ChangedPage { first_cycle: cycle, slices: 0, granted };
            report.changed.entry(page).or_insert(fresh).slices += 1;
        }
    }

    fn page(&self, frame: Frame) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        // Cannot fail: the frame is DRAM.
        let _ = self.ram.read(frame.base(), &mut page);
        page
    }
}
