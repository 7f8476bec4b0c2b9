use super::*;
use hive_platform::sips::Class;

fn four() -> (Config, Controllers) {
    let config = Config::preset("flash4").unwrap();
    let controllers = Controllers::new(&config);
    (config, controllers)
}

#[test]
fn a_line_arrives_with_an_interrupt() {
    let (_, mut c) = four();
    for i in 0..16 {
        c.write(0, 0, false, reg::SIPS_TX + i * 8, 8, 100 + i).unwrap();
    }
    let to = reg::sips_send(2, Class::Reply);
    c.write(0, 0, false, reg::SIPS_SEND, 8, to).unwrap();
    assert_eq!(c.read(0, 0, false, reg::SIPS_STATUS, 8), Some(SendStatus::Dead as u64));
    c.write(2, 0, true, reg::READY, 8, 1).unwrap();
    c.write(0, 0, false, reg::SIPS_SEND, 8, to).unwrap();
    assert_eq!(c.read(0, 0, false, reg::SIPS_STATUS, 8), Some(SendStatus::Sent as u64));
    assert_eq!(c.sips_pending(2, 0), 2);
    let rx = reg::SIPS_RX + 8 * Class::Reply as u64;
    let id = c.read(2, 0, false, rx, 8).unwrap() - 1;
    assert_eq!(id, reg::rx_id(Class::Reply, 0, 0));
    let slot = reg::SIPS_SLOTS + id * 128;
    assert_eq!(c.read(2, 0, false, slot + 8, 8), Some(101));
    assert_eq!(c.read(2, 0, false, slot + 9, 1), Some(0));
    assert_eq!(c.read(2, 0, false, slot + 8, 1), Some(101));
    let release = reg::SIPS_RX_RELEASE + 8 * Class::Reply as u64;
    c.write(2, 0, false, release, 8, id).unwrap();
    assert_eq!((c.sips_pending(2, 0), c.read(2, 0, false, rx, 8)), (0, Some(0)));
}

#[test]
fn dead_or_missing_receivers_answer_at_once() {
    let (_, mut c) = four();
    c.node_mut(1).state = NodeState::Failed;
    for to in [1, 4, 63, 0xffff_ffff, 7 << 32] {
        c.write(0, 0, false, reg::SIPS_SEND, 8, to).unwrap();
        assert_eq!(c.read(0, 0, false, reg::SIPS_STATUS, 8), Some(SendStatus::Dead as u64));
    }
    for to in [1, 4, u64::MAX] {
        // A letter needs no kernel on the other side, a line does.
        c.write(0, 0, true, reg::MAILBOX_SEND, 8, to).unwrap();
        assert_eq!(c.read(0, 0, true, reg::MAILBOX_STATUS, 8), Some(SendStatus::Dead as u64));
    }
}

#[test]
fn only_a_majority_of_the_live_and_ready_others_convicts() {
    let (config, mut c) = four();
    let vote = |c: &mut Controllers, n, v| c.write(n, 0, false, reg::VOTE, 8, v).unwrap();
    // Nobody is ready: no vote counts, a node's own never does.
    assert_eq!(vote(&mut c, 0, 1 << 3), Effect::None);
    for n in 0..4 {
        assert_eq!(c.write(n, 0, true, reg::READY, 8, 1), Some(Effect::None));
    }
    assert_eq!(vote(&mut c, 3, 1 << 3), Effect::None);
    assert_eq!(vote(&mut c, 2, 1 << 0), Effect::None);
    assert_eq!(vote(&mut c, 1, 1 << 3), Effect::Convicted(3));
    c.reset(&config, 3, reg::RESET_VOTED);
    assert_eq!(c.read(3, 0, false, reg::RESET_CAUSE, 8), Some(reg::RESET_VOTED));
    vote(&mut c, 0, 0);
    vote(&mut c, 1, 0);
    // Two ready others (0 and 1) judge 2: one vote is no majority.
    assert_eq!(vote(&mut c, 0, 1 << 2), Effect::None);
    assert_eq!(vote(&mut c, 1, 1 << 2), Effect::Convicted(2));
}

#[test]
fn firmware_registers_fault_from_below_and_unknown_ones_always() {
    let (_, mut c) = four();
    for offset in [reg::READY, reg::POWER, reg::FIREWALL_ON, reg::RESET, reg::MAILBOX_SEND] {
        assert_eq!(c.write(0, 0, false, offset, 8, 1), None);
        assert_eq!(c.read(0, 0, false, offset, 8), None);
    }
    for offset in [0x038, 0x200, 0x10b8, 0x10d8, 0x3000, 0x7f_fff8, 0xff_fff8] {
        assert_eq!(c.read(0, 0, true, offset, 8), None, "{offset:#x}");
        assert_eq!(c.write(0, 0, true, offset, 8, 1), None, "{offset:#x}");
    }
    assert_eq!(c.read(0, 0, true, reg::ID, 4), None);
    assert_eq!(c.write(0, 0, true, reg::ID, 8, 1), None);
}

#[test]
fn no_offset_panics() {
    let (_, mut c) = four();
    for offset in (0..0x4000).chain(reg::SIPS_SLOTS..reg::SIPS_SLOTS + 0x1000) {
        for size in [1, 2, 4, 8] {
            for value in [0, 1, u64::MAX] {
                for mode in [false, true] {
                    c.write(0, 0, mode, offset, size, value);
                    c.read(0, 0, mode, offset, size);
                }
            }
        }
    }
}

#[test]
fn vectors_start_as_the_nodes_own_harts() {
    let (_, mut c) = four();
    assert_eq!(c.read(2, 0, false, reg::FIREWALL + 8 * 5, 8), Some(1 << 2));
    let effect = c.write(2, 0, false, reg::FIREWALL + 8 * 5, 8, 5);
    assert_eq!(effect, Some(Effect::Vector { page: 5, old: 4, new: 5 }));
    assert_eq!(c.node(2).firewall.get(5), 5);
}
