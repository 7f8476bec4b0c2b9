//! User and group ids.

use super::{Answer, Call, Stop};
use crate::creds::{Credentials, GROUPS_MAX, Ids};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::errno::{Errno, Result};

fn change(call: &Call<'_>, f: impl FnOnce(&mut Credentials, bool) -> Result<()>) -> Answer {
    let mut new = (*call.process().creds()).clone();
    let root = new.is_root();
    f(&mut new, root)?;
    let old = core::mem::replace(&mut *call.process().credentials.lock(), Arc::new(new));
    drop(old);
    Ok(0)
}

/// getuid(2)
pub fn getuid(call: &mut Call<'_>) -> Answer {
    Ok(call.process().creds().uid.real as usize)
}
/// geteuid(2)
pub fn geteuid(call: &mut Call<'_>) -> Answer {
    Ok(call.process().creds().uid.effective as usize)
}
/// getgid(2)
pub fn getgid(call: &mut Call<'_>) -> Answer {
    Ok(call.process().creds().gid.real as usize)
}
/// getegid(2)
pub fn getegid(call: &mut Call<'_>) -> Answer {
    Ok(call.process().creds().gid.effective as usize)
}
/// setuid(2)
pub fn setuid(call: &mut Call<'_>) -> Answer {
    let id = call.uint(0);
    change(call, |c, root| c.uid.set(id, root))
}
/// setgid(2)
pub fn setgid(call: &mut Call<'_>) -> Answer {
    let id = call.uint(0);
    change(call, |c, root| c.gid.set(id, root))
}
/// setreuid(2)
pub fn setreuid(call: &mut Call<'_>) -> Answer {
    let (r, e) = (call.uint(0), call.uint(1));
    change(call, |c, root| c.uid.set_two(r, e, root))
}
/// setregid(2)
pub fn setregid(call: &mut Call<'_>) -> Answer {
    let (r, e) = (call.uint(0), call.uint(1));
    change(call, |c, root| c.gid.set_two(r, e, root))
}
/// setresuid(2)
pub fn setresuid(call: &mut Call<'_>) -> Answer {
    let (r, e, s) = (call.uint(0), call.uint(1), call.uint(2));
    change(call, |c, root| c.uid.set_all(r, e, s, root))
}
/// setresgid(2)
pub fn setresgid(call: &mut Call<'_>) -> Answer {
    let (r, e, s) = (call.uint(0), call.uint(1), call.uint(2));
    change(call, |c, root| c.gid.set_all(r, e, s, root))
}

fn get_all(call: &Call<'_>, ids: Ids) -> Answer {
    for (i, id) in [ids.real, ids.effective, ids.saved].into_iter().enumerate() {
        call.write(call.args[i], &id.to_le_bytes())?;
    }
    Ok(0)
}
/// getresuid(2)
pub fn getresuid(call: &mut Call<'_>) -> Answer {
    get_all(call, call.process().creds().uid)
}
/// getresgid(2)
pub fn getresgid(call: &mut Call<'_>) -> Answer {
    get_all(call, call.process().creds().gid)
}
/// setfsuid(2)
pub fn setfsuid(call: &mut Call<'_>) -> Answer {
    let (id, mut old) = (call.uint(0), 0);
    change(call, |c, root| {
        old = c.uid.set_fs(id, root);
        Ok(())
    })?;
    Ok(old as usize)
}
/// setfsgid(2)
pub fn setfsgid(call: &mut Call<'_>) -> Answer {
    let (id, mut old) = (call.uint(0), 0);
    change(call, |c, root| {
        old = c.gid.set_fs(id, root);
        Ok(())
    })?;
    Ok(old as usize)
}
/// getgroups(2)
pub fn getgroups(call: &mut Call<'_>) -> Answer {
    let groups = call.process().creds().groups.clone();
    match call.int(0) {
        0 => {}
        n if (n as usize) < groups.len() || n < 0 => return Err(Errno::EINVAL.into()),
        _ => {
            let bytes: Vec<u8> = groups.iter().flat_map(|g| g.to_le_bytes()).collect();
            call.write(call.args[1], &bytes)?;
        }
    }
    Ok(groups.len())
}
/// setgroups(2)
pub fn setgroups(call: &mut Call<'_>) -> Answer {
    let count = call.len(0);
    if count > GROUPS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let mut groups = Vec::new();
    for i in 0..count as u64 {
        let at = call.args[1].checked_add(4 * i).ok_or(Stop::Errno(Errno::EFAULT))?;
        groups.push(u32::from_le_bytes(call.read(at)?));
    }
    change(call, |c, root| {
        if !root {
            return Err(Errno::EPERM);
        }
        c.groups = groups.into();
        Ok(())
    })
}
