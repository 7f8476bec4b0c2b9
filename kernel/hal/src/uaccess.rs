//! Memory that may not answer: user memory, and that of other cells.
//!
//! Two copies of one loop of loads and stores, each access listed in the exception table
//! (STYLE 6). A fault in the *user* copy first asks [`crate::trap::Hooks::user_fault`]; a fault in
//! the *careful* copy (Hive §4.1), or one that the kernel cannot mend, ends the loop, which
//! returns the number of bytes it did not copy.

use crate::memory::{self, Pa};
use core::arch::global_asm;

/// End of user addresses (Sv39: the lower half).
pub const USER_END: u64 = 1 << 38;

/// User memory that is not there, or not so: EFAULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFault;

/// Memory that did not answer: its node is dead, has cut it off, or its firewall said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusError;

global_asm!(
    r#"
    .macro ACCESS user, fix, ins:vararg
991: \ins
    .pushsection .ex_table, "a"
    .dword 991b, \fix, \user
    .popsection
    .endm

    // a0 = to, a1 = from, a2 = bytes; returns bytes not copied.
    .macro COPY user
    beqz  a2, 9f
    xor   t0, a0, a1
    andi  t0, t0, 7
    bnez  t0, 3f
    // The same place in a word: bytes to the word, then words.
1:  andi  t0, a0, 7
    beqz  t0, 2f
    ACCESS \user, 9f, lb t1, 0(a1)
    ACCESS \user, 9f, sb t1, 0(a0)
    addi  a0, a0, 1
    addi  a1, a1, 1
    addi  a2, a2, -1
    bnez  a2, 1b
    j     9f
2:  li    t0, 8
    bltu  a2, t0, 3f
    ACCESS \user, 9f, ld t1, 0(a1)
    ACCESS \user, 9f, sd t1, 0(a0)
    addi  a0, a0, 8
    addi  a1, a1, 8
    addi  a2, a2, -8
    j     2b
3:  beqz  a2, 9f
    ACCESS \user, 9f, lb t1, 0(a1)
    ACCESS \user, 9f, sb t1, 0(a0)
    addi  a0, a0, 1
    addi  a1, a1, 1
    addi  a2, a2, -1
    j     3b
9:
    .endm

    .section .text
    .global hal_copy_user
hal_copy_user:
    li    t6, {sum}
    csrs  sstatus, t6
    COPY  1
    li    t6, {sum}
    csrc  sstatus, t6
    mv    a0, a2
    ret

    .global hal_copy_careful
hal_copy_careful:
    COPY  0
    mv    a0, a2
    ret

    // a0 = address; returns the word, or -1.
    .global hal_load32_careful
hal_load32_careful:
    mv    a1, a0
    li    a0, -1
    ACCESS 0, 9f, lwu a0, 0(a1)
9:  ret

    // a0 = address, a1 = bytes; returns bytes not cleared.
    .global hal_zero_user
hal_zero_user:
    li    t6, {sum}
    csrs  sstatus, t6
1:  beqz  a1, 9f
    andi  t0, a0, 7
    bnez  t0, 2f
    sltiu t0, a1, 8
    bnez  t0, 2f
    ACCESS 1, 9f, sd zero, 0(a0)
    addi  a0, a0, 8
    addi  a1, a1, -8
    j     1b
2:  ACCESS 1, 9f, sb zero, 0(a0)
    addi  a0, a0, 1
    addi  a1, a1, -1
    j     1b
9:  csrc  sstatus, t6
    mv    a0, a1
    ret
    "#,
    sum = const crate::csr::SSTATUS_SUM,
);

unsafe extern "C" {
    fn hal_copy_user(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn hal_copy_careful(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    fn hal_load32_careful(at: *const u8) -> i64;
    fn hal_zero_user(to: *mut u8, bytes: usize) -> usize;
    static __ex_table_start: u8;
    static __ex_table_end: u8;
}

#[repr(C)]
struct RawEntry {
    pc: u64,
    fixup: u64,
    user: u64,
}

pub(crate) struct Entry {
    pub fixup: u64,
    pub user: bool,
}

/// What to do about a fault at `pc`, if that may fault.
pub(crate) fn lookup(pc: u64) -> Option<Entry> {
    // SAFETY: the linker script gathers the entries between the two symbols, in rodata.
    let table = unsafe {
        let start: *const RawEntry = (&raw const __ex_table_start).cast();
        let end: *const RawEntry = (&raw const __ex_table_end).cast();
        core::slice::from_raw_parts(start, end.offset_from_unsigned(start))
    };
    let entry = table.iter().find(|e| e.pc == pc)?;
    Some(Entry { fixup: entry.fixup, user: entry.user != 0 })
}

fn user_range(start: u64, len: usize) -> Result<(), UserFault> {
    match start.checked_add(len as u64) {
        Some(end) if end <= USER_END => Ok(()),
        _ => Err(UserFault),
    }
}

fn all_or<E>(left: usize, error: E) -> Result<(), E> {
    if left == 0 { Ok(()) } else { Err(error) }
}

/// Copies from user memory.
pub fn copy_from_user(dst: &mut [u8], src: u64) -> Result<(), UserFault> {
    user_range(src, dst.len())?;
    hive_sync::hart::assert_may_sleep();
    let from = core::ptr::with_exposed_provenance(src as usize);
    // SAFETY: `dst` is ours; the source is below USER_END and may fault.
    all_or(unsafe { hal_copy_user(dst.as_mut_ptr(), from, dst.len()) }, UserFault)
}

/// Copies to user memory.
pub fn copy_to_user(dst: u64, src: &[u8]) -> Result<(), UserFault> {
    user_range(dst, src.len())?;
    hive_sync::hart::assert_may_sleep();
    let to = core::ptr::with_exposed_provenance_mut(dst as usize);
    // SAFETY: `src` is ours; the destination is below USER_END and may fault.
    all_or(unsafe { hal_copy_user(to, src.as_ptr(), src.len()) }, UserFault)
}

/// Copies to user memory from a frame, through the direct map.
///
/// # Safety
/// `src` and the `len` bytes behind it lie in one frame of DRAM that stays what it is during the
/// call. Its bytes may change meanwhile: a user program may have it mapped.
pub unsafe fn copy_frame_to_user(dst: u64, src: Pa, len: usize) -> Result<(), UserFault> {
    user_range(dst, len)?;
    hive_sync::hart::assert_may_sleep();
    let to = core::ptr::with_exposed_provenance_mut(dst as usize);
    // SAFETY: the caller vouches for `src`; the destination is below USER_END and may fault.
    all_or(unsafe { hal_copy_user(to, memory::direct(src), len) }, UserFault)
}

/// Copies from user memory to a frame, through the direct map.
///
/// # Safety
/// As [`copy_frame_to_user`], and the kernel holds no reference to those bytes.
pub unsafe fn copy_frame_from_user(dst: Pa, src: u64, len: usize) -> Result<(), UserFault> {
    user_range(src, len)?;
    hive_sync::hart::assert_may_sleep();
    let from = core::ptr::with_exposed_provenance(src as usize);
    // SAFETY: the caller vouches for `dst`; the source is below USER_END and may fault.
    all_or(unsafe { hal_copy_user(memory::direct(dst), from, len) }, UserFault)
}

/// Clears user memory.
pub fn zero_user(dst: u64, len: usize) -> Result<(), UserFault> {
    user_range(dst, len)?;
    hive_sync::hart::assert_may_sleep();
    let to = core::ptr::with_exposed_provenance_mut(dst as usize);
    // SAFETY: the destination is below USER_END and may fault.
    all_or(unsafe { hal_zero_user(to, len) }, UserFault)
}

/// Copies a string from user memory up to its NUL, which is not counted; `None` if there is none
/// in `dst.len()` bytes.
pub fn string_from_user(dst: &mut [u8], src: u64) -> Result<Option<usize>, UserFault> {
    let mut done = 0;
    while done < dst.len() {
        let at = src.checked_add(done as u64).ok_or(UserFault)?;
        // Not across a page: the string may end before a page that is not there.
        let chunk = (memory::PAGE - at % memory::PAGE).min(64) as usize;
        let end = dst.len().min(done + chunk);
        copy_from_user(&mut dst[done..end], at)?;
        if let Some(n) = dst[done..end].iter().position(|&b| b == 0) {
            return Ok(Some(done + n));
        }
        done = end;
    }
    Ok(None)
}

/// Copies `dst.len()` bytes at physical address `src`, which may belong to another cell: what
/// does not answer is an error, never the death of this cell (Hive §4.1). What arrives is an
/// allegation: check it.
pub fn careful_copy(dst: &mut [u8], src: Pa) -> Result<(), BusError> {
    match src.0.checked_add(dst.len() as u64) {
        Some(end) if end <= memory::DIRECT_SIZE => {}
        _ => return Err(BusError),
    }
    // SAFETY: `dst` is ours; the source is inside the direct map and may fault.
    let left = unsafe { hal_copy_careful(dst.as_mut_ptr(), memory::direct(src), dst.len()) };
    all_or(left, BusError)
}

/// Reads an aligned word of another cell in one load.
pub fn careful_load(src: Pa) -> Result<u64, BusError> {
    if !src.0.is_multiple_of(8) {
        return Err(BusError);
    }
    let mut word = [0u64];
    if src.0 > memory::DIRECT_SIZE - 8 {
        return Err(BusError);
    }
    // SAFETY: both ends are aligned, so the loop makes one 8-byte load, which may fault.
    let left = unsafe { hal_copy_careful(word.as_mut_ptr().cast(), memory::direct(src), 8) };
    all_or(left, BusError)?;
    Ok(word[0])
}

/// Reads a device register that may not answer this node.
pub fn careful_load32(src: Pa) -> Result<u32, BusError> {
    if !src.0.is_multiple_of(4) || src.0 > memory::DIRECT_SIZE - 4 {
        return Err(BusError);
    }
    // SAFETY: inside the direct map; may fault.
    u32::try_from(unsafe { hal_load32_careful(memory::direct(src)) }).map_err(|_| BusError)
}

/// Writes to physical memory that another cell lent us and may have taken back.
///
/// # Safety
/// The bytes at `dst` must be no memory that this cell's Rust code believes to own.
pub unsafe fn careful_write(dst: Pa, src: &[u8]) -> Result<(), BusError> {
    match dst.0.checked_add(src.len() as u64) {
        Some(end) if end <= memory::DIRECT_SIZE => {}
        _ => return Err(BusError),
    }
    // SAFETY: the caller's promise; the destination may fault.
    all_or(unsafe { hal_copy_careful(memory::direct(dst), src.as_ptr(), src.len()) }, BusError)
}
