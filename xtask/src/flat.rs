//! ELF to flat image: the bytes of the loadable segments, from the lowest physical address up.

use crate::Failure;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

/// Most a flat image may span; a larger one means a stray segment in a linker script.
const LIMIT: u64 = 64 << 20;

/// Lays out the file-backed part of every loadable segment; gaps are zero. Zero-initialised
/// memory at the end is not part of the image: start-up code clears it.
pub fn flatten(file: &[u8]) -> Result<Vec<u8>, Failure> {
    let bad = |e: object::Error| format!("not a usable ELF file: {e}");
    let header = FileHeader64::<object::LittleEndian>::parse(file).map_err(bad)?;
    let endian = header.endian().map_err(bad)?;
    let mut parts = Vec::new();
    for segment in header.program_headers(endian, file).map_err(bad)? {
        let size = segment.p_filesz(endian);
        if segment.p_type(endian) == PT_LOAD && size > 0 {
            let data = segment.data(endian, file).map_err(|()| "truncated ELF file")?;
            parts.push((segment.p_paddr(endian), data));
        }
    }
    parts.sort_by_key(|&(address, _)| address);
    let Some(&(base, _)) = parts.first() else { return Err("no loadable segment".into()) };
    let mut image = Vec::new();
    for (address, data) in parts {
        let offset = address - base;
        if offset + data.len() as u64 > LIMIT {
            return Err(format!("segment at {address:#x} lies over 64 MB from {base:#x}"));
        }
        let offset = offset as usize;
        if offset < image.len() {
            return Err(format!("segment at {address:#x} overlaps the one before it"));
        }
        image.resize(offset, 0);
        image.extend_from_slice(data);
    }
    Ok(image)
}

/// The same program without what only debuggers read: everything after its last segment goes.
pub fn strip(file: &[u8]) -> Result<Vec<u8>, Failure> {
    let bad = |e: object::Error| format!("not a usable ELF file: {e}");
    let header = FileHeader64::<object::LittleEndian>::parse(file).map_err(bad)?;
    let endian = header.endian().map_err(bad)?;
    let table = header.e_phoff(endian) as usize;
    let entry = usize::from(header.e_phentsize(endian));
    let mut end = table;
    let mut dropped = Vec::new();
    for (i, segment) in header.program_headers(endian, file).map_err(bad)?.iter().enumerate() {
        end = end.max(table + (i + 1) * entry);
        if segment.p_type(endian) == PT_LOAD {
            end = end.max((segment.p_offset(endian) + segment.p_filesz(endian)) as usize);
        } else if segment.p_type(endian) == object::elf::PT_RISCV_ATTRIBUTES {
            dropped.push(table + i * entry);
        }
    }
    let mut out = file.get(..end).ok_or("truncated ELF file")?.to_vec();
    for at in dropped {
        out[at..at + 4].copy_from_slice(&object::elf::PT_NULL.0.to_le_bytes());
    }
    // No section table: e_shoff, then e_shnum and e_shstrndx.
    out[0x28..0x30].fill(0);
    out[0x3c..0x40].fill(0);
    Ok(out)
}
