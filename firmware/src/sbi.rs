//! The supervisor binary interface, version 2.0: what each call does.
//!
//! Calls act inside the caller's partition: a hart of another partition is an invalid parameter,
//! as if it did not exist.

use crate::hart::{Hart, State};
use crate::mailbox::{self, Request};
use crate::{boot, console, hw};
use hive_platform::{controller, map};
use sbi_spec::binary::SbiRet;
use sbi_spec::{base, dbcn, hsm, legacy, rfnc, spi, srst, time};

/// Our implementation id: unregistered, "HIVE".
const IMPLEMENTATION: usize = 0x4849_5645;

/// First of the reset reasons that carry an exit code in their low byte: the range that the SBI
/// specification leaves to implementations.
const REASON_EXIT_CODE: u32 = 0xe000_0000;

/// What goes back to S-mode.
pub enum Answer {
    /// `a0` and `a1`.
    Pair(usize, usize),
    /// `a0` only (legacy calls).
    Legacy(usize),
}

/// Carries out one call.
pub fn call(hart: &mut Hart, extension: usize, function: usize, a: [usize; 6]) -> Answer {
    if extension <= legacy::LEGACY_SHUTDOWN {
        return Answer::Legacy(legacy_call(hart, extension, a));
    }
    let answer = match extension {
        base::EID_BASE => base_call(function, a[0]),
        time::EID_TIME if function == time::SET_TIMER => {
            hw::set_timer(a[0] as u64);
            SbiRet::success(0)
        }
        spi::EID_SPI if function == spi::SEND_IPI => remote(hart, a[0], a[1], Request::Interrupt),
        rfnc::EID_RFNC => fence_call(hart, function, a),
        hsm::EID_HSM => hsm_call(hart, function, a),
        srst::EID_SRST if function == srst::SYSTEM_RESET => reset(hart, a[0] as u32, a[1] as u32),
        dbcn::EID_DBCN => console_call(hart, function, a),
        _ => SbiRet::not_supported(),
    };
    Answer::Pair(answer.error, answer.value)
}

fn base_call(function: usize, argument: usize) -> SbiRet {
    let extensions = [
        base::EID_BASE,
        time::EID_TIME,
        spi::EID_SPI,
        rfnc::EID_RFNC,
        hsm::EID_HSM,
        srst::EID_SRST,
        dbcn::EID_DBCN,
    ];
    let [vendor, architecture, implementation] = hw::machine_ids();
    SbiRet::success(match function {
        base::GET_SBI_SPEC_VERSION => 2 << 24,
        base::GET_SBI_IMPL_ID => IMPLEMENTATION,
        base::GET_SBI_IMPL_VERSION => 1,
        base::PROBE_EXTENSION => {
            (extensions.contains(&argument) || argument <= legacy::LEGACY_SHUTDOWN) as usize
        }
        base::GET_MVENDORID => vendor,
        base::GET_MARCHID => architecture,
        base::GET_MIMPID => implementation,
        _ => return SbiRet::not_supported(),
    })
}

/// Sends `request` to the harts that a mask names, and waits for those that reply.
fn remote(hart: &mut Hart, mask: usize, base: usize, request: Request) -> SbiRet {
    let everyone = base == usize::MAX;
    let selected = |target: usize| {
        everyone || (target >= base && target - base < 64 && mask >> (target - base) & 1 != 0)
    };
    let outside = (0..64).any(|bit| {
        let target = base.checked_add(bit);
        mask >> bit & 1 != 0 && !target.is_some_and(|t| hart.partition.contains(t))
    });
    if !everyone && outside {
        return SbiRet::invalid_param();
    }
    let replies = !matches!(request, Request::Interrupt);
    for target in hart.partition.harts().filter(|&t| selected(t)) {
        if target == hart.boot.hart_id {
            match request {
                Request::Interrupt => hw::raise_software_interrupt(),
                Request::FenceI => hw::fence_i(),
                Request::SfenceVma { start, size } => hw::sfence_vma(start, size),
                _ => {}
            }
        } else if replies {
            mailbox::call(hart, target, request);
        } else {
            mailbox::post(hart, target, request);
        }
    }
    SbiRet::success(0)
}

fn fence_call(hart: &mut Hart, function: usize, a: [usize; 6]) -> SbiRet {
    let request = match function {
        rfnc::REMOTE_FENCE_I => Request::FenceI,
        rfnc::REMOTE_SFENCE_VMA | rfnc::REMOTE_SFENCE_VMA_ASID => {
            Request::SfenceVma { start: a[2] as u64, size: a[3] as u64 }
        }
        _ => return SbiRet::not_supported(),
    };
    remote(hart, a[0], a[1], request)
}

fn hsm_call(hart: &mut Hart, function: usize, a: [usize; 6]) -> SbiRet {
    match function {
        hsm::HART_START => {
            let (target, entry, argument) = (a[0], a[1] as u64, a[2] as u64);
            if !hart.partition.contains(target) {
                return SbiRet::invalid_param();
            }
            if hw::probe_load(entry).is_none() {
                return SbiRet::invalid_address();
            }
            if target == hart.boot.hart_id {
                return SbiRet::already_available();
            }
            match mailbox::call(hart, target, Request::Start { entry, argument }) {
                Some(state) if state == State::Stopped.number() => SbiRet::success(0),
                Some(_) => SbiRet::already_available(),
                None => SbiRet::failed(),
            }
        }
        hsm::HART_STOP => {
            hart.state = State::Stopped;
            boot::stopped(hart)
        }
        hsm::HART_GET_STATUS if !hart.partition.contains(a[0]) => SbiRet::invalid_param(),
        hsm::HART_GET_STATUS if a[0] == hart.boot.hart_id => {
            SbiRet::success(hart.state.number() as usize)
        }
        hsm::HART_GET_STATUS => match mailbox::call(hart, a[0], Request::Status) {
            Some(state) => SbiRet::success(state as usize),
            None => SbiRet::failed(),
        },
        hsm::HART_SUSPEND if a[0] as u32 == hsm::suspend_type::RETENTIVE => {
            hw::suspend(true);
            SbiRet::success(0)
        }
        _ => SbiRet::not_supported(),
    }
}

/// Ends or restarts the caller's partition; without a flash the partition is the machine.
fn reset(hart: &mut Hart, kind: u32, reason: u32) -> SbiRet {
    let code = match reason {
        srst::RESET_REASON_NO_REASON => 0,
        reason if reason & 0xf000_0000 == REASON_EXIT_CODE => reason & 0xff,
        _ => 1,
    };
    if hart.partition.flash.is_none() {
        match (kind, code) {
            (srst::RESET_TYPE_SHUTDOWN, 0) => hw::finisher(map::FINISHER_PASS),
            (srst::RESET_TYPE_SHUTDOWN, _) => hw::finisher(code << 16 | map::FINISHER_FAIL),
            (srst::RESET_TYPE_COLD_REBOOT | srst::RESET_TYPE_WARM_REBOOT, _) => {
                hw::finisher(map::FINISHER_RESET)
            }
            _ => return SbiRet::invalid_param(),
        }
    } else {
        let (request, register, value) = match kind {
            srst::RESET_TYPE_SHUTDOWN => {
                (Request::PowerOff { code: code.into() }, controller::POWER, code.into())
            }
            srst::RESET_TYPE_COLD_REBOOT | srst::RESET_TYPE_WARM_REBOOT => {
                (Request::Reset, controller::RESET, 1)
            }
            _ => return SbiRet::invalid_param(),
        };
        let per_node = hart.partition.harts_per_node;
        for node in hart.partition.first..hart.partition.end {
            if node != hart.partition.node {
                mailbox::post(hart, node * per_node, request);
            }
        }
        hart.controller.write(register, value);
    }
    loop {
        hw::wait_for_interrupt();
    }
}

fn console_call(hart: &mut Hart, function: usize, a: [usize; 6]) -> SbiRet {
    let (length, address) = (a[0] as u64, a[1] as u64);
    match function {
        dbcn::CONSOLE_WRITE_BYTE => console::put(hart, a[0] as u8),
        dbcn::CONSOLE_WRITE => {
            for offset in 0..length {
                let Some(byte) = address.checked_add(offset).and_then(hw::probe_load) else {
                    return SbiRet::invalid_param();
                };
                console::put(hart, byte);
            }
            return SbiRet::success(a[0]);
        }
        dbcn::CONSOLE_READ => {
            let mut read = 0;
            while read < length
                && let Some(byte) = console::get(hart)
            {
                let at = address.checked_add(read);
                if at.and_then(|at| hw::probe_store(at, byte)).is_none() {
                    return SbiRet::invalid_param();
                }
                read += 1;
            }
            return SbiRet::success(read as usize);
        }
        _ => return SbiRet::not_supported(),
    }
    SbiRet::success(0)
}

fn legacy_call(hart: &mut Hart, extension: usize, a: [usize; 6]) -> usize {
    match extension {
        legacy::LEGACY_SET_TIMER => hw::set_timer(a[0] as u64),
        legacy::LEGACY_CONSOLE_PUTCHAR => console::put(hart, a[0] as u8),
        legacy::LEGACY_CONSOLE_GETCHAR => {
            return console::get(hart).map_or(usize::MAX, usize::from);
        }
        legacy::LEGACY_CLEAR_IPI => hw::clear_software_interrupt(),
        legacy::LEGACY_SHUTDOWN => {
            reset(hart, srst::RESET_TYPE_SHUTDOWN, srst::RESET_REASON_NO_REASON);
        }
        // Their masks are virtual addresses: the kernels that need them have the sPI and RFNC
        // extensions.
        _ => return SbiRet::not_supported().error,
    }
    0
}
