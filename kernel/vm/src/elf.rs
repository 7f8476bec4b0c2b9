//! ELF programs: from a file to regions of an address space (System V ABI gABI and riscv psABI).
//!
//! The file is a user's and may say anything: every field is checked before it is used, and sizes
//! are bounded. A file that is changed while it is mapped harms only the process that runs it.
//!
//! Absent: 32-bit and big-endian programs, executable stacks (PT_GNU_STACK is not obeyed),
//! overlapping segments.

use crate::cache::Cache;
use crate::map::{
    Access, AddressSpace, Backing, MapRequest, MappedFile, Placement, Role, USER_END, USER_START,
};
use crate::pager::Pager;
use crate::types::{Error, PAGE_SIZE, Prot};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use elf::abi;
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::segment::{ProgramHeader, SegmentTable};

/// Most program headers of a file: Debian's binaries have about ten.
pub const HEADERS_MAX: usize = 64;
/// Most bytes of an interpreter's path (Linux: PATH_MAX).
pub const INTERPRETER_MAX: u64 = 4096;
/// Where a position-independent program goes, unless it is an interpreter: two thirds up the user
/// half, as on Linux.
pub const PIE_BASE: u64 = (USER_END / 3 * 2) & !(PAGE_SIZE as u64 - 1);

const PAGE: u64 = PAGE_SIZE as u64;
const HEADER_BYTES: usize = abi::EI_NIDENT + elf::file::ELF64_EHDR_TAILSIZE;
const PROGRAM_HEADER_BYTES: usize = 56;

/// A loadable segment, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    va: u64,
    offset: u64,
    file_len: u64,
    len: u64,
    prot: Prot,
}

/// A checked program file.
#[derive(Clone, Debug)]
pub struct Program {
    /// In ascending order, disjoint by pages, at least one.
    segments: Vec<Segment>,
    movable: bool,
    align: u64,
    entry: u64,
    /// Address of the program headers, before relocation; 0 if no segment holds them.
    headers: u64,
    header_count: usize,
    /// Path of the dynamic linker, without its NUL.
    pub interpreter: Option<Vec<u8>>,
}

/// Where a program was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What was added to the file's addresses: AT_BASE, if it is the interpreter.
    pub bias: u64,
    /// Entry point: AT_ENTRY, if it is the program.
    pub entry: u64,
    /// AT_PHDR.
    pub headers: u64,
    /// AT_PHNUM.
    pub header_count: usize,
    /// Byte after its last segment: where the heap may start.
    pub end: u64,
}

/// AT_PHENT.
pub const AT_PHENT_VALUE: u64 = PROGRAM_HEADER_BYTES as u64;

impl Program {
    /// Reads and checks the headers of a file. Sleeps.
    ///
    /// Errors: [`Error::NoExec`] for what is no program of this machine, and those of the file.
    pub fn read(cache: &Cache, file: &Arc<dyn Pager>) -> Result<Program, Error> {
        let mut header = [0; HEADER_BYTES];
        read_exact(cache, file, 0, &mut header)?;
        let header = check_header(&header)?;
        let mut table = vec![0; usize::from(header.e_phnum) * PROGRAM_HEADER_BYTES];
        read_exact(cache, file, header.e_phoff, &mut table)?;
        let table = SegmentTable::new(LittleEndian, Class::ELF64, &table);
        let mut program = Program {
            segments: Vec::new(),
            movable: header.e_type == abi::ET_DYN,
            align: PAGE,
            entry: header.e_entry,
            headers: 0,
            header_count: usize::from(header.e_phnum),
            interpreter: None,
        };
        let mut phdr = None;
        for entry in table.iter() {
            match entry.p_type {
                abi::PT_LOAD => program.add(&entry)?,
                abi::PT_PHDR => phdr = Some(entry.p_vaddr),
                abi::PT_INTERP if program.interpreter.is_none() => {
                    program.interpreter = Some(read_interpreter(cache, file, &entry)?);
                }
                _ => {}
            }
        }
        if program.segments.is_empty() {
            return Err(Error::NoExec);
        }
        // Without PT_PHDR they are where the segment that holds them puts them.
        let holder = program
            .segments
            .iter()
            .find(|s| s.offset <= header.e_phoff && header.e_phoff - s.offset < s.file_len);
        let found = holder.map(|s| s.va + (header.e_phoff - s.offset));
        program.headers = phdr.or(found).unwrap_or(0);
        Ok(program)
    }

    /// Checks a PT_LOAD entry and adds it.
    fn add(&mut self, entry: &ProgramHeader) -> Result<(), Error> {
        if entry.p_memsz == 0 {
            return Ok(());
        }
        let end = entry.p_vaddr.checked_add(entry.p_memsz).ok_or(Error::NoExec)?;
        let file_end = entry.p_offset.checked_add(entry.p_filesz).ok_or(Error::NoExec)?;
        let after = self.segments.last().map_or(0, |s| (s.va + s.len).next_multiple_of(PAGE));
        let sound = end <= USER_END / 2
            && file_end <= i64::MAX as u64
            && entry.p_filesz <= entry.p_memsz
            && entry.p_vaddr % PAGE == entry.p_offset % PAGE
            && entry.p_vaddr & !(PAGE - 1) >= after
            && (self.movable || entry.p_vaddr >= USER_START)
            && (entry.p_align <= 1 || entry.p_align.is_power_of_two())
            && entry.p_align <= 1 << 30;
        if !sound {
            return Err(Error::NoExec);
        }
        self.align = self.align.max(entry.p_align);
        let bits = [(abi::PF_R, Prot::READ), (abi::PF_W, Prot::WRITE), (abi::PF_X, Prot::EXEC)];
        let prot = bits
            .into_iter()
            .filter(|(bit, _)| entry.p_flags & bit != 0)
            .fold(Prot::NONE, |prot, (_, right)| prot | right);
        let (va, offset) = (entry.p_vaddr, entry.p_offset);
        let (file_len, len) = (entry.p_filesz, entry.p_memsz);
        self.segments.push(Segment { va, offset, file_len, len, prot });
        Ok(())
    }

    /// First page and byte after the last page, before relocation.
    fn span(&self) -> (u64, u64) {
        let first = self.segments.first().map_or(0, |s| s.va & !(PAGE - 1));
        let last = self.segments.last().map_or(0, |s| (s.va + s.len).next_multiple_of(PAGE));
        (first, last)
    }

    /// Maps the program into `space`, which no process runs in yet. A position-independent one
    /// goes near `base`, or anywhere if that is 0. Sleeps. After an error the address space holds
    /// part of it and must be dropped.
    pub fn load(
        &self,
        space: &AddressSpace,
        file: &Arc<MappedFile>,
        base: u64,
    ) -> Result<Loaded, Error> {
        let (first, last) = self.span();
        let mut bias = 0;
        if self.movable {
            // Room to align it in.
            let first = first & !(self.align - 1);
            let room = space.free_range(base, last - first + self.align - PAGE);
            let at = room.ok_or(Error::NoMemory)?.next_multiple_of(self.align);
            bias = at.wrapping_sub(first);
        }
        for segment in &self.segments {
            segment.load(space, file, bias)?;
        }
        let headers = if self.headers == 0 { 0 } else { self.headers.wrapping_add(bias) };
        Ok(Loaded {
            bias,
            entry: self.entry.wrapping_add(bias),
            headers,
            header_count: self.header_count,
            end: last.wrapping_add(bias),
        })
    }
}

impl Segment {
    fn load(&self, space: &AddressSpace, file: &Arc<MappedFile>, bias: u64) -> Result<(), Error> {
        let va = self.va.wrapping_add(bias);
        let within = va % PAGE;
        let (start, file_end) = (va - within, va + self.file_len);
        let map = |at, end, backing| {
            let (placement, role) = (Placement::FixedNoReplace(at), Role::Plain);
            space.mmap(MapRequest { placement, len: end - at, prot: self.prot, backing, role })
        };
        let mut anon = start;
        if self.file_len > 0 {
            let page = (self.offset - within) / PAGE;
            anon = file_end.next_multiple_of(PAGE);
            map(start, anon, Backing::File { file: file.clone(), page, shared: false })?;
        }
        let end = (va + self.len).next_multiple_of(PAGE);
        if anon < end {
            map(anon, end, Backing::Anon)?;
        }
        // The rest of the last file page belongs to what starts as zero. If the segment cannot be
        // written nobody relies on it (Linux leaves it, too).
        let rest = anon.min(va + self.len).saturating_sub(file_end) as usize;
        if self.file_len > 0 && rest > 0 && self.prot.contains(Prot::WRITE) {
            let page = space.page_at(file_end, Access::Write).map_err(|_| Error::Io)?;
            let memory = space.cache().memory();
            memory.phys().zero(page.frame(), (file_end % PAGE) as usize, rest);
        }
        Ok(())
    }
}

fn check_header(bytes: &[u8; HEADER_BYTES]) -> Result<FileHeader<LittleEndian>, Error> {
    let (ident, tail) = bytes.split_at(abi::EI_NIDENT);
    let ident = parse_ident::<LittleEndian>(ident).map_err(|_| Error::NoExec)?;
    let header = FileHeader::parse_tail(ident, tail).map_err(|_| Error::NoExec)?;
    let sound = header.class == Class::ELF64
        && header.e_machine == abi::EM_RISCV
        && matches!(header.e_type, abi::ET_EXEC | abi::ET_DYN)
        && usize::from(header.e_phentsize) == PROGRAM_HEADER_BYTES
        && (1..=HEADERS_MAX).contains(&usize::from(header.e_phnum));
    if sound { Ok(header) } else { Err(Error::NoExec) }
}

fn read_interpreter(
    cache: &Cache,
    file: &Arc<dyn Pager>,
    entry: &ProgramHeader,
) -> Result<Vec<u8>, Error> {
    if !(2..=INTERPRETER_MAX).contains(&entry.p_filesz) {
        return Err(Error::NoExec);
    }
    let mut path = vec![0; entry.p_filesz as usize];
    read_exact(cache, file, entry.p_offset, &mut path)?;
    match path.iter().position(|byte| *byte == 0) {
        Some(len) if len > 0 && len + 1 == path.len() => {
            path.truncate(len);
            Ok(path)
        }
        _ => Err(Error::NoExec),
    }
}

fn read_exact(
    cache: &Cache,
    file: &Arc<dyn Pager>,
    offset: u64,
    mut bytes: &mut [u8],
) -> Result<(), Error> {
    let len = bytes.len();
    if offset.checked_add(len as u64).is_none() {
        return Err(Error::NoExec);
    }
    if cache.read(file, offset, &mut bytes)? == len { Ok(()) } else { Err(Error::NoExec) }
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
