//! From kernel threads to the first process.

use crate::files::{self, NAMESPACE};
use crate::process::{FsContext, Process};
use crate::{cell, console, exec, frames, process, random, space, syscall, trap, user};
use alloc::sync::Arc;
use hive_fs::FdTable;
use hive_fs::errno::Result;
use hive_hal::Access;
use hive_hal::devicetree::Machine;
use hive_hal::user::UserContext;
use hive_protocol::Incarnation;

/// Where the first program is looked for, in this order.
const FIRST_PROGRAMS: [&[u8]; 2] = [b"/sbin/init", b"/bin/sh"];

/// Brings processes up. On a kernel thread of the boot hart.
pub fn main(machine: &'static Machine) {
    let cell = crate::cell::id();
    frames::take_over(cell.index());
    space::init();
    process::number_as(cell, Incarnation(0));
    random::seed(&machine.seed.to_le_bytes());
    let name = alloc::format!("hive{cell}");
    syscall::info::set_hostname(name.as_bytes()).expect("a short name");
    trap::on_user_fault(user_fault);
    if let Err(why) = files::mount_all(machine, cell) {
        log!("hive: no file systems: {why}");
        return;
    }
    cell::join();
    files::start_flusher();
    syscall::time::start_alarm_clerk();
    if let Err(why) = first_process() {
        log!("hive: no first process: {why}");
    }
}

/// A kernel access to user memory met a page that is not there.
fn user_fault(address: u64, access: Access) -> bool {
    process::current().is_some_and(|thread| crate::fault::page(&thread, address, access).is_ok())
}

fn first_process() -> Result<()> {
    let root = NAMESPACE.get().ok_or(hive_fs::Errno::ENOENT)?.root();
    let context = FsContext { root: root.clone(), cwd: root, umask: 0o022 };
    let thread = Process::first(Arc::new(FdTable::new()), context)?;
    console::open_standard(&thread.process)?;
    let mut last = Err(hive_fs::Errno::ENOENT);
    for path in FIRST_PROGRAMS {
        last = exec::load_first(&thread, path);
        if let Ok(entry) = &last {
            let context = UserContext::new(entry.pc, entry.sp);
            user::start(thread, context, None).map_err(|_| hive_fs::Errno::ENOMEM)?;
            return Ok(());
        }
    }
    last.map(drop)
}
