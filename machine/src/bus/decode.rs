//! Which device a physical address belongs to: the inverse of [`hive_platform::map`].

use hive_platform::map;

/// A place on the bus that is not DRAM; the number is the offset within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Boot ROM.
    Rom(u64),
    /// Remap window.
    Window(u64),
    /// Boot flash of a node.
    Flash(usize, u64),
    /// Test finisher.
    Finisher(u64),
    /// Real-time clock.
    Rtc(u64),
    /// ACLINT of a node.
    Aclint(usize, u64),
    /// PLIC of a node.
    Plic(usize, u64),
    /// Console of a node.
    Uart(usize, u64),
    /// virtio slot of a node.
    Virtio(usize, usize, u64),
    /// Coherence controller of a node.
    Controller(usize, u64),
}

/// Registers of the 16550 take up this much.
const UART_SIZE: u64 = 0x100;
const PAGE_DEVICE_SIZE: u64 = 0x1000;

/// Index and offset of `pa` among `count` ranges of `size` bytes at `base`.
fn among(pa: u64, base: u64, size: u64, count: usize) -> Option<(usize, u64)> {
    let offset = pa.checked_sub(base)?;
    (offset / size < count as u64).then_some(((offset / size) as usize, offset % size))
}

/// The place of `pa` on a machine of `nodes` nodes.
pub fn decode(pa: u64, nodes: usize) -> Option<Place> {
    if let Some((_, offset)) = among(pa, map::BOOT_ROM, map::BOOT_ROM_SIZE, 1) {
        return Some(Place::Rom(offset));
    }
    if let Some((_, offset)) = among(pa, map::FINISHER, PAGE_DEVICE_SIZE, 1) {
        return Some(Place::Finisher(offset));
    }
    if let Some((_, offset)) = among(pa, map::RTC, PAGE_DEVICE_SIZE, 1) {
        return Some(Place::Rtc(offset));
    }
    if let Some((node, offset)) = among(pa, map::aclint(0), map::ACLINT_SIZE, nodes) {
        return Some(Place::Aclint(node, offset));
    }
    // The first ten PLICs stand apart from the others.
    if let Some((node, offset)) = among(pa, map::plic(0), map::PLIC_SIZE, nodes.min(10)) {
        return Some(Place::Plic(node, offset));
    }
    let above = nodes.saturating_sub(10);
    if let Some((node, offset)) = among(pa, map::plic(10), map::PLIC_SIZE, above) {
        return Some(Place::Plic(node + 10, offset));
    }
    if let Some((node, offset)) = among(pa, map::uart(0), map::IO_STRIDE, nodes) {
        if offset < UART_SIZE {
            return Some(Place::Uart(node, offset));
        }
        let slots = map::virtio(0, 0) - map::uart(0);
        let (slot, offset) = among(offset, slots, map::VIRTIO_SIZE, map::VIRTIO_SLOTS)?;
        return Some(Place::Virtio(node, slot, offset));
    }
    if let Some((node, offset)) = among(pa, map::controller(0), map::CONTROLLER_SIZE, nodes) {
        return Some(Place::Controller(node, offset));
    }
    if let Some((_, offset)) = among(pa, map::REMAP, map::REMAP_SIZE, 1) {
        return Some(Place::Window(offset));
    }
    let (node, offset) = among(pa, map::flash(0), map::FLASH_SIZE, nodes)?;
    Some(Place::Flash(node, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_inverts_the_map() {
        for nodes in [1, 4, 64] {
            for n in 0..nodes {
                assert_eq!(decode(map::aclint(n) + 8, nodes), Some(Place::Aclint(n, 8)));
                assert_eq!(decode(map::plic(n) + 4, nodes), Some(Place::Plic(n, 4)));
                assert_eq!(decode(map::uart(n) + 5, nodes), Some(Place::Uart(n, 5)));
                for s in 0..map::VIRTIO_SLOTS {
                    assert_eq!(
                        decode(map::virtio(n, s) + 0x70, nodes),
                        Some(Place::Virtio(n, s, 0x70))
                    );
                }
                assert_eq!(decode(map::controller(n) + 8, nodes), Some(Place::Controller(n, 8)));
                assert_eq!(decode(map::flash(n) + 40, nodes), Some(Place::Flash(n, 40)));
            }
            for nothing in [0, 0x800, map::RTC + 0x1000, map::uart(0) + 0x200, u64::MAX] {
                assert_eq!(decode(nothing, nodes), None, "{nothing:#x}");
            }
            if nodes < 64 {
                assert_eq!(decode(map::uart(nodes), nodes), None);
                assert_eq!(decode(map::controller(nodes), nodes), None);
            }
        }
        assert_eq!(decode(map::REMAP + 5, 1), Some(Place::Window(5)));
        assert_eq!(decode(map::BOOT_ROM, 1), Some(Place::Rom(0)));
    }
}
