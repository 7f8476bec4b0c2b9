//! The machine's device tree. A machine of one node looks like QEMU's `virt` board, so that
//! kernels for that board boot; more nodes add `numa-node-id`, and every node's coherence
//! controller is a `stanford,magic`.

use crate::config::Config;
use crate::fdt::Writer;
use crate::seed::{Random, Stream};
use hive_platform::{TIMEBASE_HZ, map};

/// What the boot loader adds to the tree.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Kernel command line.
    pub bootargs: String,
    /// First byte and end of the initial RAM disk.
    pub initrd: Option<(u64, u64)>,
}

/// Multi-letter extensions, in the order of the ISA naming convention.
const EXTENSIONS: &[&str] =
    &["zicbom", "zicboz", "zicntr", "zicsr", "zifencei", "zihintpause", "sstc", "svade"];
const SINGLE_LETTERS: &[&str] = &["i", "m", "a", "f", "d", "c"];
/// Bytes of a cache block.
const BLOCK: u32 = 64;
/// Interrupt source of the real-time clock, on node 0's PLIC.
pub const RTC_IRQ: u32 = 11;

const SOFTWARE: u32 = 3;
const TIMER: u32 = 7;
const SUPERVISOR_EXTERNAL: u32 = 9;
const MACHINE_EXTERNAL: u32 = 11;

/// Handles of nodes that others refer to.
struct Handles<'a>(&'a Config);

impl Handles<'_> {
    fn cpu(&self, hart: usize) -> u32 {
        1 + 2 * hart as u32
    }
    fn interrupts(&self, hart: usize) -> u32 {
        2 + 2 * hart as u32
    }
    fn plic(&self, node: usize) -> u32 {
        1 + 2 * self.0.harts() as u32 + node as u32
    }
    fn test(&self) -> u32 {
        1 + 2 * self.0.harts() as u32 + self.0.nodes as u32
    }
}

/// Writes the tree of `config`.
pub fn build(config: &Config, chosen: &Chosen) -> Vec<u8> {
    let mut w = Writer::new();
    let handles = Handles(config);
    w.node("", |w| {
        w.cells("#address-cells", &[2]);
        w.cells("#size-cells", &[2]);
        w.string("compatible", "riscv-virtio");
        w.string("model", "riscv-virtio,hive");
        write_chosen(w, config, chosen);
        for node in 0..config.nodes {
            let base = config.dram_base(node);
            w.node(&format!("memory@{base:x}"), |w| {
                w.string("device_type", "memory");
                w.reg(base, config.memory);
                numa(w, config, node);
            });
        }
        cpus(w, config, &handles);
        w.node("soc", |w| {
            w.cells("#address-cells", &[2]);
            w.cells("#size-cells", &[2]);
            w.string("compatible", "simple-bus");
            w.flag("ranges");
            machine_devices(w, &handles);
            for node in 0..config.nodes {
                node_devices(w, config, &handles, node);
            }
        });
        for (name, value) in [("poweroff", map::FINISHER_PASS), ("reboot", map::FINISHER_RESET)] {
            w.node(name, |w| {
                w.cells("value", &[value]);
                w.cells("offset", &[0]);
                w.cells("regmap", &[handles.test()]);
                w.string("compatible", &format!("syscon-{name}"));
            });
        }
    });
    w.finish(0)
}

fn numa(w: &mut Writer, config: &Config, node: usize) {
    if config.nodes > 1 {
        w.cells("numa-node-id", &[node as u32]);
    }
}

fn write_chosen(w: &mut Writer, config: &Config, chosen: &Chosen) {
    w.node("chosen", |w| {
        if !chosen.bootargs.is_empty() {
            w.string("bootargs", &chosen.bootargs);
        }
        w.string("stdout-path", &format!("/soc/serial@{:x}", map::uart(0)));
        let mut seed = [0; 32];
        Random::new(config.seed, Stream::DeviceTree, 0).fill(&mut seed);
        w.bytes("rng-seed", &seed);
        if let Some((start, end)) = chosen.initrd {
            w.cells("linux,initrd-start", &[(start >> 32) as u32, start as u32]);
            w.cells("linux,initrd-end", &[(end >> 32) as u32, end as u32]);
        }
    });
}

fn cpus(w: &mut Writer, config: &Config, handles: &Handles) {
    let isa = format!("rv64{}_{}", SINGLE_LETTERS.concat(), EXTENSIONS.join("_"));
    w.node("cpus", |w| {
        w.cells("#address-cells", &[1]);
        w.cells("#size-cells", &[0]);
        w.cells("timebase-frequency", &[TIMEBASE_HZ as u32]);
        for hart in 0..config.harts() {
            w.node(&format!("cpu@{hart:x}"), |w| {
                w.cells("phandle", &[handles.cpu(hart)]);
                w.string("device_type", "cpu");
                w.cells("reg", &[hart as u32]);
                w.string("status", "okay");
                w.string("compatible", "riscv");
                w.string("riscv,isa", &isa);
                w.string("riscv,isa-base", "rv64i");
                w.strings("riscv,isa-extensions", &[SINGLE_LETTERS, EXTENSIONS].concat());
                w.cells("riscv,cbom-block-size", &[BLOCK]);
                w.cells("riscv,cboz-block-size", &[BLOCK]);
                w.string("mmu-type", "riscv,sv39");
                numa(w, config, config.node_of_hart(hart));
                w.node("interrupt-controller", |w| {
                    w.cells("#interrupt-cells", &[1]);
                    w.flag("interrupt-controller");
                    w.string("compatible", "riscv,cpu-intc");
                    w.cells("phandle", &[handles.interrupts(hart)]);
                });
            });
        }
        w.node("cpu-map", |w| {
            for node in 0..config.nodes {
                w.node(&format!("cluster{node}"), |w| {
                    for local in 0..config.harts_per_node {
                        let hart = node * config.harts_per_node + local;
                        w.node(&format!("core{local}"), |w| {
                            w.cells("cpu", &[handles.cpu(hart)]);
                        });
                    }
                });
            }
        });
    });
}

/// Devices that a machine has once.
fn machine_devices(w: &mut Writer, handles: &Handles) {
    w.node(&format!("test@{:x}", map::FINISHER), |w| {
        w.cells("phandle", &[handles.test()]);
        w.reg(map::FINISHER, 0x1000);
        w.strings("compatible", &["sifive,test1", "sifive,test0", "syscon"]);
    });
    w.node(&format!("rtc@{:x}", map::RTC), |w| {
        w.cells("interrupts", &[RTC_IRQ]);
        w.cells("interrupt-parent", &[handles.plic(0)]);
        w.reg(map::RTC, 0x1000);
        w.string("compatible", "google,goldfish-rtc");
    });
}

fn node_devices(w: &mut Writer, config: &Config, handles: &Handles, node: usize) {
    let extended = |first: u32, second: u32| -> Vec<u32> {
        let harts = node * config.harts_per_node..(node + 1) * config.harts_per_node;
        harts.flat_map(|h| [handles.interrupts(h), first, handles.interrupts(h), second]).collect()
    };
    w.node(&format!("clint@{:x}", map::aclint(node)), |w| {
        w.cells("interrupts-extended", &extended(SOFTWARE, TIMER));
        w.reg(map::aclint(node), map::ACLINT_SIZE);
        w.strings("compatible", &["sifive,clint0", "riscv,clint0"]);
        numa(w, config, node);
    });
    w.node(&format!("plic@{:x}", map::plic(node)), |w| {
        w.cells("phandle", &[handles.plic(node)]);
        w.cells("riscv,ndev", &[map::PLIC_SOURCES]);
        w.reg(map::plic(node), map::PLIC_SIZE);
        w.cells("interrupts-extended", &extended(MACHINE_EXTERNAL, SUPERVISOR_EXTERNAL));
        w.flag("interrupt-controller");
        w.strings("compatible", &["sifive,plic-1.0.0", "riscv,plic0"]);
        w.cells("#address-cells", &[0]);
        w.cells("#interrupt-cells", &[1]);
        numa(w, config, node);
    });
    w.node(&format!("serial@{:x}", map::uart(node)), |w| {
        w.cells("interrupts", &[map::UART_IRQ]);
        w.cells("interrupt-parent", &[handles.plic(node)]);
        w.cells("clock-frequency", &[map::UART_CLOCK_HZ]);
        w.reg(map::uart(node), 0x100);
        w.string("compatible", "ns16550a");
        numa(w, config, node);
    });
    for slot in 0..map::VIRTIO_SLOTS {
        let base = map::virtio(node, slot);
        w.node(&format!("virtio_mmio@{base:x}"), |w| {
            w.cells("interrupts", &[map::virtio_irq(slot)]);
            w.cells("interrupt-parent", &[handles.plic(node)]);
            w.reg(base, map::VIRTIO_SIZE);
            w.string("compatible", "virtio,mmio");
            numa(w, config, node);
        });
    }
    w.node(&format!("magic@{:x}", map::controller(node)), |w| {
        w.reg(map::controller(node), map::CONTROLLER_SIZE);
        w.string("compatible", "stanford,magic");
        numa(w, config, node);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Presets fit the ROM, and `dtc`, where installed, reads them back without a warning that
    /// QEMU's own tree does not earn.
    #[test]
    fn dtc_reads_every_preset() {
        for (name, _) in crate::config::PRESETS {
            let config = Config::preset(name).unwrap();
            let chosen =
                Chosen { bootargs: "console=ttyS0".into(), initrd: Some((1 << 32, 2 << 32)) };
            let tree = build(&config, &chosen);
            assert!((tree.len() as u64) < map::BOOT_ROM_SIZE - 0x1000, "{name}: {}", tree.len());
            let path = std::env::temp_dir().join(format!("hive-dtc-{}-{name}", std::process::id()));
            std::fs::write(&path, &tree).unwrap();
            let dtc = std::process::Command::new("dtc")
                .args(["-I", "dtb", "-O", "dts"])
                .arg(&path)
                .output();
            std::fs::remove_file(&path).unwrap();
            let Ok(output) = dtc else { return };
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(text.matches("stanford,magic").count(), config.nodes);
            assert_eq!(text.matches("device_type = \"cpu\"").count(), config.harts());
            assert!(text.contains("linux,initrd-start = <0x01 0x00>"));
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!errors.contains("ERROR"), "{errors}");
            assert!(!errors.contains("unit_address_vs_reg"), "{errors}");
        }
    }
}
