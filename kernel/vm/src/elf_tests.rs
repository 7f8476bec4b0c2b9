//! Programs built byte by byte: sound ones load, hostile ones are refused.

use super::*;
use crate::map::tests::{mapped_file, space};
use crate::memory::Memory;
use crate::testing::{Rng, TestFile, memory};
use alloc::string::ToString;
use std::format;

struct Entry {
    kind: u32,
    flags: u32,
    offset: u64,
    va: u64,
    file_len: u64,
    len: u64,
}

const LOAD: u32 = abi::PT_LOAD;

fn load(flags: u32, offset: u64, va: u64, file_len: u64, len: u64) -> Entry {
    Entry { kind: LOAD, flags, offset, va, file_len, len }
}

/// An ELF file of `len` bytes whose byte at offset `n` is `n % 251` where no header is.
fn image(kind: u16, entry: u64, entries: &[Entry], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
    let mut header = Vec::new();
    header.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    header.extend(kind.to_le_bytes());
    header.extend(abi::EM_RISCV.to_le_bytes());
    header.extend(1u32.to_le_bytes());
    [entry, 64, 0].iter().for_each(|word| header.extend(word.to_le_bytes()));
    header.extend(5u32.to_le_bytes());
    let halves = [64u16, 56, entries.len() as u16, 64, 0, 0];
    halves.iter().for_each(|half| header.extend(half.to_le_bytes()));
    for e in entries {
        header.extend(e.kind.to_le_bytes());
        header.extend(e.flags.to_le_bytes());
        let words = [e.offset, e.va, e.va, e.file_len, e.len, 4096];
        words.iter().for_each(|word| header.extend(word.to_le_bytes()));
    }
    bytes[..header.len()].copy_from_slice(&header);
    bytes
}

fn world(bytes: &[u8]) -> (Arc<Memory>, Arc<Cache>, Arc<TestFile>) {
    let memory = memory(32);
    let file = TestFile::new(&memory, 1, bytes);
    (memory.clone(), Arc::new(Cache::new(memory)), file)
}

fn run(bytes: &[u8], base: u64) -> Result<(AddressSpace, Loaded, Program), Error> {
    let (_, cache, file) = world(bytes);
    let pager: Arc<dyn Pager> = file.clone();
    let program = Program::read(&cache, &pager)?;
    let space = space(&cache);
    let loaded = program.load(&space, &mapped_file(&file, false), base)?;
    Ok((space, loaded, program))
}

/// Text, data with bss that ends two pages later, as a linker lays them out.
fn plain(kind: u16, base: u64) -> Vec<u8> {
    let entries = [
        Entry { kind: abi::PT_PHDR, ..load(4, 64, base + 64, 0, 0) },
        load(abi::PF_R | abi::PF_X, 0, base, 0x1234, 0x1234),
        load(abi::PF_R | abi::PF_W, 0x1e00, base + 0x2e00, 0x500, 0x2500),
    ];
    image(kind, base + 0x400, &entries, 0x2400)
}

fn check_plain(bytes: &[u8], space: &AddressSpace, base: u64) {
    let mut text = vec![0; 0x1234];
    space.copy_in(base, &mut text).unwrap();
    assert_eq!(text, bytes[..0x1234]);
    let mut data = vec![1; 0x2500];
    space.copy_in(base + 0x2e00, &mut data).unwrap();
    assert_eq!(data[..0x500], bytes[0x1e00..0x2300]);
    assert!(data[0x500..].iter().all(|byte| *byte == 0), "bss is zero");
    assert_eq!(space.copy_out(base, b"x"), Err(crate::map::Fault::Protection));
    let rights: Vec<_> = space.regions().iter().map(|r| r.prot.to_string()).collect();
    assert_eq!(rights, ["r-x", "rw-", "rw-"]);
}

#[test]
fn static_programs_load_where_they_say() {
    let bytes = plain(abi::ET_EXEC, 0x10_0000);
    let (space, loaded, program) = run(&bytes, 0).unwrap();
    check_plain(&bytes, &space, 0x10_0000);
    assert_eq!(program.interpreter, None);
    let want =
        Loaded { bias: 0, entry: 0x10_0400, headers: 0x10_0040, header_count: 3, end: 0x10_6000 };
    assert_eq!(loaded, want);
}

#[test]
fn position_independent_programs_load_where_there_is_room() {
    let bytes = plain(abi::ET_DYN, 0);
    let (space, loaded, program) = run(&bytes, PIE_BASE).unwrap();
    assert_eq!((loaded.bias, loaded.headers), (PIE_BASE, PIE_BASE + 64));
    check_plain(&bytes, &space, PIE_BASE);
    // A second, as the interpreter, goes elsewhere.
    let (_, _, file) = world(&bytes);
    let again = program.load(&space, &mapped_file(&file, false), PIE_BASE);
    assert_ne!(again.unwrap().bias, PIE_BASE);
}

#[test]
fn the_interpreter_is_named() {
    let mut bytes = image(
        abi::ET_DYN,
        0x400,
        &[
            Entry { kind: abi::PT_INTERP, ..load(4, 0x800, 0x800, 7, 7) },
            load(abi::PF_R | abi::PF_X, 0, 0, 0x1000, 0x1000),
        ],
        0x1000,
    );
    bytes[0x800..0x807].copy_from_slice(b"/lib/x\0");
    let (_, loaded, program) = run(&bytes, PIE_BASE).unwrap();
    assert_eq!(program.interpreter.as_deref(), Some(&b"/lib/x"[..]));
    assert_eq!(loaded.headers, PIE_BASE + 64, "found without PT_PHDR");
    bytes[0x806] = b'y';
    assert_eq!(run(&bytes, 0).err(), Some(Error::NoExec), "no NUL at its end");
    bytes[0x800..0x807].copy_from_slice(b"/li\0/x\0");
    assert_eq!(run(&bytes, 0).err(), Some(Error::NoExec), "a NUL in the middle");
}

#[test]
fn hostile_headers_are_refused() {
    let refused = |name: &str, entries: &[Entry]| {
        let bytes = image(abi::ET_EXEC, 0, entries, 0x4000);
        assert_eq!(run(&bytes, 0).err(), Some(Error::NoExec), "{name}");
    };
    let at = 0x10_0000;
    refused("nothing to load", &[]);
    refused("at null", &[load(5, 0, 0, 0x1000, 0x1000)]);
    refused("more in the file than in memory", &[load(5, 0, at, 0x2000, 0x1000)]);
    refused("wraps round", &[load(5, 0, u64::MAX - 0xfff, 0x10, 0x2000)]);
    refused("offset wraps round", &[load(5, !0xfff, at, 0x1000, 0x1000)]);
    refused("in the kernel half", &[load(5, 0, 0xffff_ffff_8000_0000, 0x1000, 0x1000)]);
    refused("beyond the user half", &[load(5, 0, 1 << 38, 0x1000, 0x1000)]);
    refused("bigger than any address space", &[load(5, 0, at, 0, 1 << 60)]);
    refused("not congruent", &[load(5, 0x10, at, 0x1000, 0x1000)]);
    refused("overlap", &[load(5, 0, at, 0x1001, 0x1001), load(6, 0x1000, at + 0x1000, 1, 1)]);
    refused("descending", &[load(5, 0, at + 0x8000, 1, 1), load(6, 0, at, 1, 1)]);
    let sound = plain(abi::ET_EXEC, at);
    for (name, offset, byte) in
        [("magic", 0, 1), ("class", 4, 1), ("endian", 5, 2), ("machine", 18, 62), ("type", 16, 1)]
    {
        let mut bytes = sound.clone();
        bytes[offset] = byte;
        assert_eq!(run(&bytes, 0).err(), Some(Error::NoExec), "{name}");
    }
    for len in [0, 1, 63, 64, 100] {
        assert_eq!(run(&sound[..len], 0).err(), Some(Error::NoExec), "cut after {len} bytes");
    }
}

/// Whatever a file says, loading it ends with an answer, and nothing leaks.
#[test]
fn random_damage_never_panics() {
    let mut rng = Rng(1);
    let sound = [plain(abi::ET_EXEC, 0x10_0000), plain(abi::ET_DYN, 0)];
    let mut loaded = 0;
    for round in 0..4000 {
        let mut bytes = sound[round % 2].clone();
        let headers = 64 + 3 * 56;
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(headers) as usize;
            bytes[at] = match rng.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ 1 << rng.below(8),
                _ => rng.next() as u8,
            };
        }
        if rng.chance(10) {
            bytes.truncate(rng.below(bytes.len() as u64) as usize);
        }
        let (memory, cache, file) = world(&bytes);
        let pager: Arc<dyn Pager> = file.clone();
        if let Ok(program) = Program::read(&cache, &pager) {
            let space = space(&cache);
            loaded += program.load(&space, &mapped_file(&file, false), PIE_BASE).is_ok() as usize;
            let _ = format!("{program:?}");
        }
        let counts = memory.counts();
        assert_eq!(counts.free + counts.cached, counts.total);
    }
    assert!(loaded > 500, "only {loaded} survived their damage");
}
