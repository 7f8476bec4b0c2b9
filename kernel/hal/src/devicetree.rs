//! The machine as its device tree describes it: the only source of hardware addresses, beside
//! `hive-platform` for what is inside a device.

use crate::hart;
use crate::memory::{self, Pa};
use crate::sbi;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};
use hive_sync::Once;

/// A hart of the machine.
#[derive(Clone, Copy, Debug)]
pub struct HartInfo {
    /// SBI id.
    pub id: usize,
    /// Node it belongs to.
    pub node: usize,
    /// Has the `stimecmp` CSR.
    pub sstc: bool,
    /// In this cell's partition, as the firmware sees it.
    pub ours: bool,
    intc: u32,
}

/// A device with one register window.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// First register.
    pub base: Pa,
    /// Bytes of registers.
    pub size: u64,
    /// Source number at the node's interrupt controller (0: none).
    pub irq: u32,
    /// Node it belongs to.
    pub node: usize,
}

/// An interrupt controller.
#[derive(Clone, Debug)]
pub struct PlicInfo {
    /// Its registers.
    pub device: Device,
    /// SBI id of the hart behind each supervisor context: (context, hart).
    pub contexts: Vec<(u32, usize)>,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    /// Every hart, dead or alive.
    pub harts: Vec<HartInfo>,
    /// Every node's memory.
    pub memory: Vec<memory::Range>,
    /// Memory that is somebody else's.
    pub reserved: Vec<(Pa, Pa)>,
    /// Nodes of this cell, ascending.
    pub cell_nodes: Vec<usize>,
    /// This cell's 16550s.
    pub uarts: Vec<Device>,
    /// This cell's virtio-mmio slots.
    pub virtio: Vec<Device>,
    /// This cell's interrupt controllers.
    pub plics: Vec<PlicInfo>,
    /// Coherence controllers (`stanford,magic`) of all nodes.
    pub controllers: Vec<Device>,
    /// Goldfish clock.
    pub rtc: Option<Device>,
    /// Ticks of the `time` CSR per second.
    pub timebase_hz: u64,
    /// `/chosen/bootargs`.
    pub bootargs: String,
    /// `/chosen/rng-seed`, for what needs no secrecy.
    pub seed: u64,
}

static MACHINE: Once<Machine> = Once::new();

/// The machine, once the boot hart has read the device tree.
pub(crate) fn machine_if_known() -> Option<&'static Machine> {
    MACHINE.get()
}

/// The machine. Panics before the boot hart has read the device tree.
pub fn machine() -> &'static Machine {
    MACHINE.get().expect("the device tree is read first")
}

impl Machine {
    /// Node of the hart with SBI id `id`.
    pub fn node_of_hart(&self, id: usize) -> Option<usize> {
        self.harts.iter().find(|h| h.id == id).map(|h| h.node)
    }

    /// Number of nodes of the machine.
    pub fn nodes(&self) -> usize {
        self.harts.iter().map(|h| h.node + 1).max().unwrap_or(1)
    }

    /// Bytes of memory of this cell.
    pub fn cell_memory(&self) -> u64 {
        let ours = self.memory.iter().filter(|m| self.cell_nodes.contains(&m.node));
        ours.map(|m| m.end.0 - m.start.0).sum()
    }

    /// The value of `name` in the boot arguments `name=value ..`.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let mut words = self.bootargs.split_ascii_whitespace();
        words.find_map(|w| w.strip_prefix(name)?.strip_prefix('='))
    }
}

fn number(node: &FdtNode, name: &str) -> Option<u64> {
    let property = node.property(name)?;
    let value = property.value();
    match value.len() {
        4 => Some(u32::from_be_bytes(value.try_into().ok()?).into()),
        8 => Some(u64::from_be_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

fn words(node: &FdtNode, name: &str) -> Vec<u32> {
    let Some(property) = node.property(name) else { return Vec::new() };
    let chunks = property.value().chunks_exact(4);
    chunks.map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]])).collect()
}

fn has_string(node: &FdtNode, name: &str, wanted: &str) -> bool {
    let Some(property) = node.property(name) else { return false };
    property.value().split(|&b| b == 0).any(|s| s == wanted.as_bytes())
}

fn string(node: &FdtNode, name: &str) -> String {
    let Some(property) = node.property(name) else { return String::new() };
    let value = property.value().split(|&b| b == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(value).into_owned()
}

fn regions(node: &FdtNode) -> Vec<(Pa, u64)> {
    let Ok(Some(regs)) = node.reg() else { return Vec::new() };
    regs.filter_map(|r| Some((Pa(r.address::<u64>().ok()?), r.size::<u64>().ok()?))).collect()
}

fn numa(node: &FdtNode) -> usize {
    number(node, "numa-node-id").unwrap_or(0) as usize
}

fn device(node: &FdtNode) -> Option<Device> {
    let (base, size) = regions(node).into_iter().next()?;
    let irq = words(node, "interrupts").first().copied().unwrap_or(0);
    Some(Device { base, size, irq, node: numa(node) })
}

/// Calls `f` on every node below `node`.
fn each<'a>(node: FdtNode<'a>, f: &mut dyn FnMut(&FdtNode<'a>)) {
    f(&node);
    for child in node.children() {
        each(child, f);
    }
}

/// Copies and reads the device tree at `at`. What it lacks is an empty list; what contradicts
/// itself is a panic, as there is nobody to complain to yet.
pub(crate) fn read(at: Pa) -> &'static Machine {
    const HEADER: usize = 8;
    // SAFETY: the firmware says that a device tree is there; nobody writes it.
    let blob: &[u8] = unsafe {
        let head = core::slice::from_raw_parts(memory::direct(at), HEADER);
        assert!(head[..4] == [0xd0, 0x0d, 0xfe, 0xed], "no device tree at {at:?}");
        let size = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        core::slice::from_raw_parts(memory::direct(at), size)
    };
    let blob: &'static [u8] = Box::leak(Box::<[u8]>::from(blob));
    let tree = Fdt::new(blob).expect("device tree is well formed");
    let mut m = Machine {
        harts: Vec::new(),
        memory: Vec::new(),
        reserved: Vec::new(),
        cell_nodes: Vec::new(),
        uarts: Vec::new(),
        virtio: Vec::new(),
        plics: Vec::new(),
        controllers: Vec::new(),
        rtc: None,
        timebase_hz: 0,
        bootargs: String::new(),
        seed: 0,
    };
    for r in tree.memory_reservations() {
        m.reserved.push((Pa(r.address()), Pa(r.address() + r.size())));
    }
    for node in tree.root().child("reserved-memory").iter().flat_map(|n| n.children()) {
        let found = regions(&node).into_iter().map(|(base, size)| (base, Pa(base.0 + size)));
        m.reserved.extend(found);
    }
    each(tree.root(), &mut |node| visit(&mut m, node));
    finish(&mut m, tree.root());
    MACHINE.get_or_init(|| m)
}

fn visit(m: &mut Machine, node: &FdtNode) {
    let compatible = |what| has_string(node, "compatible", what);
    if has_string(node, "device_type", "cpu") {
        let id = number(node, "reg").unwrap_or(0) as usize;
        let isa = string(node, "riscv,isa");
        let sstc =
            isa.split('_').any(|e| e == "sstc") || has_string(node, "riscv,isa-extensions", "sstc");
        let intc = node.children().find_map(|c| number(&c, "phandle")).unwrap_or(0) as u32;
        let ours = sbi::hart_exists(id);
        m.harts.push(HartInfo { id, node: numa(node), sstc, ours, intc });
    } else if has_string(node, "device_type", "memory") {
        for (start, size) in regions(node) {
            let end = Pa(start.0 + size);
            m.memory.push(memory::Range { start, end, node: numa(node) });
        }
    } else if compatible("ns16550a") {
        m.uarts.extend(device(node));
    } else if compatible("virtio,mmio") {
        m.virtio.extend(device(node));
    } else if compatible("riscv,plic0") || compatible("sifive,plic-1.0.0") {
        // Contexts hold parent handles for now: `finish` turns them into harts.
        let pairs = words(node, "interrupts-extended");
        let contexts = pairs.chunks_exact(2).enumerate();
        let supervisor = contexts.filter(|(_, p)| u64::from(p[1]) == crate::csr::IRQ_EXTERNAL);
        let contexts = supervisor.map(|(i, p)| (i as u32, p[0] as usize)).collect();
        m.plics.extend(device(node).map(|device| PlicInfo { device, contexts }));
    } else if compatible("stanford,magic") {
        m.controllers.extend(device(node));
    } else if compatible("google,goldfish-rtc") {
        m.rtc = device(node);
    }
}

fn finish(m: &mut Machine, root: FdtNode) {
    if let Some(cpus) = root.child("cpus") {
        m.timebase_hz = number(&cpus, "timebase-frequency").unwrap_or(0);
    }
    assert!(m.timebase_hz > 0, "the device tree has no timebase-frequency");
    if let Some(chosen) = root.child("chosen") {
        m.bootargs = string(&chosen, "bootargs");
        let seed = words(&chosen, "rng-seed");
        m.seed = seed.iter().fold(0, |s, &w| s.rotate_left(13) ^ u64::from(w));
    }
    let harts = &m.harts;
    for plic in &mut m.plics {
        let of = |intc: usize| harts.iter().find(|h| h.intc as usize == intc);
        plic.contexts.retain_mut(|(_, hart)| of(*hart).map(|h| *hart = h.id).is_some());
    }
    let mut nodes: Vec<usize> = m.harts.iter().filter(|h| h.ours).map(|h| h.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let me = hart::local().id();
    assert!(m.harts.iter().any(|h| h.id == me && h.ours), "hart {me} is not in the device tree");
    // The devices of other cells do not answer.
    let ours = |d: &Device| nodes.contains(&d.node);
    m.uarts.retain(ours);
    m.virtio.retain(ours);
    m.plics.retain(|p| ours(&p.device));
    m.cell_nodes = nodes;
    m.memory.sort_unstable_by_key(|r| r.start);
}
