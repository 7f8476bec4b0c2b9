//! What is in memory at reset and where harts start.
//!
//! Three ways to start, by [`Firmware`]:
//! - none: every hart enters the kernel ELF file in M-mode with a0 = hart id, a1 = device tree;
//! - in DRAM, as on QEMU: the image at the bottom of DRAM, a2 = `fw_dynamic_info` naming the
//!   kernel (OpenSBI's `fw_dynamic` and `fw_jump` work);
//! - in the remap window: each node has its own copy, harts start at the window's first byte.
//!   What it boots is in the flash, or, without one, as in the second way.
//!
//! Without flash the device tree is also at the top of node 0's DRAM, and a1 names that copy:
//! Linux reads it through its map of DRAM.

use crate::config::Config;
use crate::dev::disk::Image;
use crate::devtree::{self, Chosen};
use crate::error::Error;
use crate::loader::{self, Loaded, Segment};
use hive_platform::map;

/// What harts execute first.
#[derive(Clone, Debug, Default)]
pub enum Firmware {
    /// Nothing: the kernel starts in M-mode.
    #[default]
    None,
    /// An image for the bottom of DRAM.
    Dram(Vec<u8>),
    /// An image for the remap window of every node.
    Window(Vec<u8>),
}

/// Images and options a machine starts with.
#[derive(Clone, Default)]
pub struct Boot {
    /// Firmware.
    pub firmware: Firmware,
    /// Kernel: ELF file or raw image.
    pub kernel: Option<Vec<u8>>,
    /// Initial RAM disk.
    pub initrd: Option<Vec<u8>>,
    /// Kernel command line.
    pub append: String,
    /// Contents of every node's boot flash.
    pub flash: Option<Vec<u8>>,
    /// Disks: one for each node; a single one is every node's base image.
    pub disks: Vec<Image>,
}

/// Start of everything, worked out once; a reset repeats it.
#[derive(Clone, Default)]
pub struct Plan {
    /// To be in DRAM at cold reset.
    pub dram: Vec<Segment>,
    /// To be in every remap window at each node reset.
    pub window: Vec<Segment>,
    /// Boot ROM contents.
    pub rom: Vec<u8>,
    /// Where harts start.
    pub entry: u64,
    /// a1 at reset.
    pub device_tree: u64,
    /// a2 at reset.
    pub hand_over: u64,
    /// HTIF words.
    pub tohost: Option<u64>,
    /// See `tohost`.
    pub fromhost: Option<u64>,
}

/// First bytes of a hand-over block: "OSBI".
const HAND_OVER_MAGIC: u64 = 0x4942_534f;
const HAND_OVER_VERSION: u64 = 2;
const NEXT_SUPERVISOR: u64 = 1;
/// The hand-over block takes the first page of the boot ROM, the device tree the rest.
const TREE_OFFSET: u64 = 0x1000;
const ALIGN: u64 = 2 << 20;

impl Plan {
    /// Works out where everything goes.
    ///
    /// # Errors
    /// One line if an image is broken or does not fit.
    pub fn new(config: &Config, boot: &Boot) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        let dram_end = map::DRAM + config.memory;
        let kernel_base = match boot.firmware {
            Firmware::None => map::DRAM,
            _ => map::DRAM + map::KERNEL_OFFSET,
        };
        let kernel = match &boot.kernel {
            Some(file) => Some(loader::load("kernel", file, kernel_base)?),
            None => None,
        };
        // From the top of node 0's DRAM downwards: device tree, initial RAM disk.
        let mut top = dram_end;
        let mut place = |what: &str, size: u64| {
            let at = top.checked_sub(size).map(|t| t & !(ALIGN - 1)).filter(|t| *t >= map::DRAM);
            top = at.ok_or_else(|| {
                Error::new(format!("{what} ({size} bytes) does not fit into the memory of node 0"))
            })?;
            Ok::<u64, Error>(top)
        };
        // The tree's size does not depend on the numbers in it.
        let chosen =
            Chosen { bootargs: boot.append.clone(), initrd: boot.initrd.as_ref().map(|_| (0, 0)) };
        let tree_size = devtree::build(config, &chosen).len() as u64;
        let tree_at = match boot.flash {
            Some(_) => map::BOOT_ROM + TREE_OFFSET,
            None => place("device tree", tree_size)?,
        };
        let mut chosen = chosen;
        if let Some(initrd) = &boot.initrd {
            let at = place("initrd", initrd.len() as u64)?;
            chosen.initrd = Some((at, at + initrd.len() as u64));
            plan.dram.push(segment(at, initrd.clone()));
        }
        let floor = top;
        let tree = devtree::build(config, &chosen);
        if tree.len() as u64 + TREE_OFFSET > map::BOOT_ROM_SIZE {
            return Err(Error::new("the device tree does not fit into the boot ROM"));
        }
        plan.device_tree = tree_at;
        if boot.flash.is_none() {
            plan.dram.push(segment(tree_at, tree.clone()));
        }
        match &boot.firmware {
            Firmware::None => {
                let Some(kernel) = &kernel else {
                    return Err(Error::new("nothing to run: give a kernel or a firmware image"));
                };
                plan.entry = kernel.entry;
            }
            Firmware::Dram(file) => {
                let bios = loader::load("bios", file, map::DRAM)?;
                plan.entry = bios.entry;
                fits(config, "bios", &bios, dram_end)?;
                plan.dram.extend(bios.segments);
            }
            Firmware::Window(file) => {
                let bios = loader::load("firmware", file, map::REMAP)?;
                let outside = |s: &Segment| {
                    s.address < map::REMAP
                        || s.address.saturating_add(s.size) > map::REMAP + map::REMAP_SIZE
                };
                if bios.segments.iter().any(outside) {
                    return Err(Error::new("firmware lies outside the remap window"));
                }
                plan.entry = bios.entry;
                plan.window = bios.segments;
            }
        }
        // Firmware in DRAM always gets a block; without a kernel it names where one would be.
        let mut next = match boot.firmware {
            Firmware::Dram(_) => kernel_base,
            _ => 0,
        };
        if let Some(kernel) = kernel {
            fits(config, "kernel", &kernel, map::DRAM + config.memory * config.nodes as u64)?;
            let clash = |s: &Segment| s.address < dram_end && s.address + s.size > floor;
            if kernel.segments.iter().any(clash) {
                return Err(Error::new("kernel, initrd and device tree overlap: use more memory"));
            }
            next = kernel.entry;
            (plan.tohost, plan.fromhost) = (kernel.tohost, kernel.fromhost);
            plan.dram.extend(kernel.segments);
        }
        plan.hand_over = map::BOOT_ROM;
        let block = [HAND_OVER_MAGIC, HAND_OVER_VERSION, next, NEXT_SUPERVISOR, 0, 0];
        // No kernel in DRAM, no hand-over: the firmware looks into its flash.
        if next != 0 {
            plan.rom.extend(block.iter().flat_map(|w| w.to_le_bytes()));
        }
        plan.rom.resize(TREE_OFFSET as usize, 0);
        plan.rom.extend(tree);
        Ok(plan)
    }
}

fn segment(address: u64, bytes: Vec<u8>) -> Segment {
    let size = bytes.len() as u64;
    Segment { address, bytes, size }
}

fn fits(config: &Config, what: &str, image: &Loaded, end: u64) -> Result<(), Error> {
    for s in &image.segments {
        if s.address < map::DRAM || s.address.checked_add(s.size).is_none_or(|e| e > end) {
            return Err(Error::new(format!(
                "{what}: segment at {:#x} of {} bytes is outside memory ({:#x} to {end:#x}, {} MB per node)",
                s.address,
                s.size,
                map::DRAM,
                config.memory >> 20,
            )));
        }
    }
    Ok(())
}
