//! Images in memory: ELF files and raw images, and where each goes.
//!
//! Files come from the user and may be broken: every offset is checked, every complaint is one
//! line.

use crate::error::Error;
use elf::ElfBytes;
use elf::abi;
use elf::endian::LittleEndian;
use hive_platform::map;

/// Bytes to be at a physical address at reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub address: u64,
    /// Contents.
    pub bytes: Vec<u8>,
    /// Bytes in memory, contents first, the rest zero.
    pub size: u64,
}

/// An image ready to be put into memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Its pieces.
    pub segments: Vec<Segment>,
    /// First instruction.
    pub entry: u64,
    /// `tohost` and `fromhost` of an ELF file that has them (HTIF).
    pub tohost: Option<u64>,
    /// See `tohost`.
    pub fromhost: Option<u64>,
}

impl Loaded {
    /// End of the highest segment.
    pub fn end(&self) -> u64 {
        self.segments.iter().map(|s| s.address.saturating_add(s.size)).max().unwrap_or(0)
    }
}

/// Loads `file` (called `what` in errors): an ELF file at its physical addresses, moved to `base`
/// if it is position-independent; anything else as it is at `base`.
///
/// # Errors
/// If it looks like ELF and is not a 64-bit little-endian RISC-V program.
pub fn load(what: &str, file: &[u8], base: u64) -> Result<Loaded, Error> {
    if file.is_empty() {
        return Err(Error::new(format!("{what} is empty")));
    }
    if !file.starts_with(b"\x7fELF") {
        let size = file.len() as u64;
        let segments = vec![Segment { address: base, bytes: file.to_vec(), size }];
        return Ok(Loaded { segments, entry: base, tohost: None, fromhost: None });
    }
    load_elf(file, base).map_err(|why| Error::new(format!("{what}: {why}")))
}

fn load_elf(file: &[u8], base: u64) -> Result<Loaded, String> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|e| e.to_string())?;
    if elf.ehdr.e_machine != abi::EM_RISCV || elf.ehdr.class != elf::file::Class::ELF64 {
        return Err("not a 64-bit RISC-V ELF file".into());
    }
    if elf.ehdr.e_type != abi::ET_EXEC && elf.ehdr.e_type != abi::ET_DYN {
        return Err("not a linked program".into());
    }
    let bias = if elf.ehdr.e_type == abi::ET_DYN { base } else { 0 };
    let headers = elf.segments().ok_or("no program headers")?;
    let mut loaded = Loaded { entry: elf.ehdr.e_entry.wrapping_add(bias), ..Loaded::default() };
    let mut entry = None;
    for header in headers.iter().filter(|h| h.p_type == abi::PT_LOAD && h.p_memsz != 0) {
        let bytes = elf.segment_data(&header).map_err(|e| e.to_string())?;
        if header.p_filesz > header.p_memsz {
            return Err("a segment is larger in the file than in memory".into());
        }
        let address = header.p_paddr.wrapping_add(bias);
        // The entry is a virtual address; kernels start before translation is on.
        let inside = elf.ehdr.e_entry.wrapping_sub(header.p_vaddr);
        if inside < header.p_memsz {
            entry = Some(address.wrapping_add(inside));
        }
        // A linker told where to put the text alone puts the file's own headers far below, into a
        // segment that nothing refers to; there is no memory there.
        if header.p_offset == 0 && address.saturating_add(header.p_memsz) <= map::DRAM && bias == 0
        {
            continue;
        }
        loaded.segments.push(Segment { address, bytes: bytes.to_vec(), size: header.p_memsz });
    }
    if loaded.segments.is_empty() {
        return Err("nothing to load".into());
    }
    loaded.entry = entry.unwrap_or(loaded.entry);
    loaded.tohost = symbol(&elf, "tohost").map(|a| a.wrapping_add(bias));
    loaded.fromhost = symbol(&elf, "fromhost").map(|a| a.wrapping_add(bias));
    Ok(loaded)
}

/// Value of the symbol `name` of the file being loaded.
fn symbol(elf: &ElfBytes<LittleEndian>, name: &str) -> Option<u64> {
    let (symbols, strings) = elf.symbol_table().ok()??;
    let named = |at: u32| strings.get(at as usize).is_ok_and(|s| s == name);
    let found = symbols.iter().find(|s| s.st_shndx != abi::SHN_UNDEF && named(s.st_name))?;
    Some(found.st_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal ELF64 RISC-V file with one segment at `paddr`.
    fn tiny(paddr: u64, kind: u16, machine: u16) -> Vec<u8> {
        let mut f = vec![0; 64 + 56];
        f[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        f[16..18].copy_from_slice(&kind.to_le_bytes());
        f[18..20].copy_from_slice(&machine.to_le_bytes());
        f[20] = 1;
        f[24..32].copy_from_slice(&(0xffff_0000u64 + 4).to_le_bytes());
        f[32..40].copy_from_slice(&64u64.to_le_bytes());
        f[52..54].copy_from_slice(&64u16.to_le_bytes());
        f[54..56].copy_from_slice(&56u16.to_le_bytes());
        f[56..58].copy_from_slice(&1u16.to_le_bytes());
        f[58..60].copy_from_slice(&64u16.to_le_bytes());
        f[64..68].copy_from_slice(&1u32.to_le_bytes());
        f[72..80].copy_from_slice(&120u64.to_le_bytes());
        f[80..88].copy_from_slice(&0xffff_0000u64.to_le_bytes());
        f[88..96].copy_from_slice(&paddr.to_le_bytes());
        f[96..104].copy_from_slice(&4u64.to_le_bytes());
        f[104..112].copy_from_slice(&100u64.to_le_bytes());
        f.extend_from_slice(&[1, 2, 3, 4]);
        f
    }

    #[test]
    fn elf_goes_to_physical_addresses() {
        let l = load("kernel", &tiny(0x8020_0000, 2, 243), 0x9000_0000).unwrap();
        assert_eq!((l.entry, l.end()), (0x8020_0004, 0x8020_0064));
        let l = load("kernel", &tiny(0, 3, 243), 0x9000_0000).unwrap();
        assert_eq!(l.entry, 0x9000_0004);
    }

    #[test]
    fn raw_goes_to_the_base() {
        let l = load("kernel", &[1, 2, 3], 0x9000_0000).unwrap();
        assert_eq!((l.entry, l.end()), (0x9000_0000, 0x9000_0003));
    }

    #[test]
    fn broken_files_are_one_line_each() {
        for bad in [vec![], b"\x7fELF".to_vec(), tiny(0, 2, 62), tiny(0, 1, 243)] {
            let e = load("kernel", &bad, 0).unwrap_err().to_string();
            assert!(e.starts_with("kernel") && !e.contains('\n'), "{e}");
        }
        let good = tiny(0x8000_0000, 2, 243);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            let _ = load("kernel", &bad, 0);
            let _ = load("kernel", &good[..at], 0);
        }
    }
}
