//! Calls on the address space.
//!
//! Partial: `mremap` has no MREMAP_DONTUNMAP; `madvise` acts on MADV_DONTNEED and MADV_FREE only,
//! and checks the rest; `mincore` tells what the process has mapped, not what is cached;
//! `mlock` and its kin succeed because nothing mapped is ever paged out.

use super::{Answer, Call, Stop};
use crate::space::errno;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use hive_fs::OpenFile;
use hive_fs::abi::{FileType, dev_major, dev_minor};
use hive_fs::errno::Errno;
use hive_vm::cow::SharedAnon;
use hive_vm::map::{Backing, MapRequest, MappedFile, Placement, Role};
use hive_vm::{PAGE_SIZE, Prot};

const PAGE: u64 = PAGE_SIZE as u64;

/// brk(2): the end of the heap.
pub fn brk(call: &mut Call<'_>) -> Answer {
    Ok(call.process().space()?.brk(call.args[0]) as usize)
}

/// `file` as a mapping holds it.
pub fn mapped_file(file: &OpenFile) -> Result<Arc<MappedFile>, Errno> {
    let pager = file.vnode().clone().pager().ok_or(Errno::ENODEV)?;
    let attr = file.getattr()?;
    let path = crate::files::show_path(file.place());
    Ok(Arc::new(MappedFile {
        generation: file.data_generation(),
        pager,
        writable: file.writable(),
        path: String::from_utf8_lossy(&path).into_owned(),
        device: (dev_major(attr.dev), dev_minor(attr.dev)),
        inode: attr.ino,
    }))
}

/// mmap(2)
pub fn mmap(call: &mut Call<'_>) -> Answer {
    const SHARED: u64 = 1;
    const PRIVATE: u64 = 2;
    const SHARED_VALIDATE: u64 = 3;
    const TYPE: u64 = 0xf;
    const FIXED: u64 = 0x10;
    const ANONYMOUS: u64 = 0x20;
    const GROWSDOWN: u64 = 0x100;
    const FIXED_NOREPLACE: u64 = 0x10_0000;
    let [at, len, prot, flags, _, offset] = call.args;
    let prot = Prot::from_linux(prot).ok_or(Errno::EINVAL)?;
    let shared = match flags & TYPE {
        SHARED | SHARED_VALIDATE => true,
        PRIVATE => false,
        _ => return Err(Errno::EINVAL.into()),
    };
    if len == 0 || offset % PAGE != 0 || flags & GROWSDOWN != 0 {
        return Err(Errno::EINVAL.into());
    }
    let page = offset / PAGE;
    let space = call.process().space()?;
    let backing = match (flags & ANONYMOUS != 0, shared) {
        (true, false) => Backing::Anon,
        (true, true) => {
            let object = Arc::new(SharedAnon::new(crate::frames::memory().clone()));
            Backing::SharedAnon { object, page: 0 }
        }
        (false, shared) => {
            let file = super::file::open_file(call, 4)?;
            if !file.readable() {
                return Err(Errno::EACCES.into());
            }
            if file.vnode().kind() != FileType::Regular {
                return Err(Errno::ENODEV.into());
            }
            if offset.checked_add(len).is_none() {
                return Err(Errno::EOVERFLOW.into());
            }
            Backing::File { file: mapped_file(&file)?, page, shared }
        }
    };
    let placement = if flags & FIXED_NOREPLACE != 0 {
        Placement::FixedNoReplace(at)
    } else if flags & FIXED != 0 {
        Placement::Fixed(at)
    } else {
        Placement::Hint(at / PAGE * PAGE)
    };
    let request = MapRequest { placement, len, prot, backing, role: Role::Plain };
    Ok(space.mmap(request).map_err(errno)? as usize)
}

/// munmap(2)
pub fn munmap(call: &mut Call<'_>) -> Answer {
    call.process().space()?.munmap(call.args[0], call.args[1]).map_err(errno)?;
    Ok(0)
}

/// mprotect(2)
pub fn mprotect(call: &mut Call<'_>) -> Answer {
    const GROWSDOWN: u64 = 0x0100_0000;
    let prot = Prot::from_linux(call.args[2] & !GROWSDOWN).ok_or(Errno::EINVAL)?;
    call.process().space()?.mprotect(call.args[0], call.args[1], prot).map_err(errno)?;
    Ok(0)
}

/// mremap(2)
pub fn mremap(call: &mut Call<'_>) -> Answer {
    const MAYMOVE: u64 = 1;
    const FIXED: u64 = 2;
    let [at, old, new, flags, to, _] = call.args;
    if flags & !(MAYMOVE | FIXED) != 0 || flags & FIXED != 0 && flags & MAYMOVE == 0 {
        return Err(Errno::EINVAL.into());
    }
    let fixed = (flags & FIXED != 0).then_some(to);
    let space = call.process().space()?;
    Ok(space.mremap(at, old, new, flags & MAYMOVE != 0, fixed).map_err(errno)? as usize)
}

/// msync(2)
pub fn msync(call: &mut Call<'_>) -> Answer {
    const ASYNC: u32 = 1;
    const INVALIDATE: u32 = 2;
    const SYNC: u32 = 4;
    let flags = call.uint(2);
    if flags & !(ASYNC | INVALIDATE | SYNC) != 0 || flags & (ASYNC | SYNC) == ASYNC | SYNC {
        return Err(Errno::EINVAL.into());
    }
    let space = call.process().space()?;
    if flags & SYNC != 0 {
        space.msync(call.args[0], call.args[1]).map_err(errno)?;
    } else {
        check_mapped(call)?;
    }
    Ok(0)
}

/// `ENOMEM` unless the range of arguments 0 and 1 begins in a region.
fn check_mapped(call: &Call<'_>) -> Result<(), Stop> {
    if call.args[0] % PAGE != 0 {
        return Err(Errno::EINVAL.into());
    }
    match call.process().space()?.region(call.args[0]) {
        None if call.args[1] != 0 => Err(Errno::ENOMEM.into()),
        _ => Ok(()),
    }
}

/// madvise(2)
pub fn madvise(call: &mut Call<'_>) -> Answer {
    const DONTNEED: i32 = 4;
    const FREE: i32 = 8;
    match call.int(2) {
        DONTNEED | FREE => {
            let space = call.process().space()?;
            space.discard(call.args[0], call.args[1]).map_err(errno)?;
        }
        // Hints on access order, huge pages, dumps and forks.
        0..=3 | 12..=19 => check_mapped(call)?,
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// mincore(2)
pub fn mincore(call: &mut Call<'_>) -> Answer {
    let [at, len, out, ..] = call.args;
    check_mapped(call)?;
    let pages = len.div_ceil(PAGE);
    // A part at a time: the caller chooses the length.
    const PART: u64 = 4096;
    let space = call.process().space()?;
    let mut done = 0;
    while done < pages {
        let n = PART.min(pages - done);
        let mut bytes = vec![0u8; n as usize];
        for (i, byte) in bytes.iter_mut().enumerate() {
            let va = (done + i as u64).checked_mul(PAGE).and_then(|o| at.checked_add(o));
            let va = va.filter(|&va| space.region(va).is_some()).ok_or(Errno::ENOMEM)?;
            *byte = space.with_table(|table| table.get(va).is_some()) as u8;
        }
        call.write(out.checked_add(done).ok_or(Errno::EFAULT)?, &bytes)?;
        done += n;
    }
    Ok(0)
}

/// mlock(2)
pub fn mlock(call: &mut Call<'_>) -> Answer {
    let at = call.args[0] / PAGE * PAGE;
    match call.process().space()?.region(at) {
        None if call.args[1] != 0 => Err(Errno::ENOMEM.into()),
        _ => Ok(0),
    }
}

/// munlock(2)
pub fn munlock(call: &mut Call<'_>) -> Answer {
    mlock(call)
}

/// mlockall(2)
pub fn mlockall(_: &mut Call<'_>) -> Answer {
    Ok(0)
}

/// munlockall(2)
pub fn munlockall(_: &mut Call<'_>) -> Answer {
    Ok(0)
}

/// membarrier(2): no commands; callers then do without.
pub fn membarrier(call: &mut Call<'_>) -> Answer {
    if call.int(0) == 0 { Ok(0) } else { Err(Errno::EINVAL.into()) }
}

/// riscv_flush_icache(2)
pub fn riscv_flush_icache(call: &mut Call<'_>) -> Answer {
    call.process().space()?.flush_code();
    Ok(0)
}
