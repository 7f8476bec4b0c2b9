//! The initial stack, read back as a C library reads it.

use super::*;
use alloc::vec;

const TOP: u64 = STACK_TOP;

fn loaded(entry: u64) -> Loaded {
    Loaded { bias: entry & !0xfff, entry, headers: 0x40, header_count: 9, end: 0x9000 }
}

struct Reader<'a> {
    sp: u64,
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn word(&self, va: u64) -> u64 {
        u64::from_le_bytes(self.bytes[(va - self.sp) as usize..][..8].try_into().unwrap())
    }
    fn string(&self, va: u64) -> &[u8] {
        self.bytes[(va - self.sp) as usize..].split(|byte| *byte == 0).next().unwrap()
    }
    /// Strings of a null-terminated array of pointers, and the address after it.
    fn strings(&self, mut va: u64) -> (Vec<Vec<u8>>, u64) {
        let mut all = Vec::new();
        while self.word(va) != 0 {
            all.push(self.string(self.word(va)).to_vec());
            va += 8;
        }
        (all, va + 8)
    }
}

#[test]
fn a_c_library_finds_everything() {
    let (program, interpreter) = (loaded(0x1_0123), loaded(0x5000_0456));
    for args in 0..5 {
        let args: Vec<_> = (0..args).map(|n| vec![b'a'; n]).collect();
        let env = [b"PATH=/bin".to_vec(), b"X=".to_vec(), b"".to_vec()];
        let start = Start {
            args: &args,
            env: &env,
            path: b"/bin/prog",
            program: &program,
            interpreter: Some(&interpreter),
            ids: [1, 2, 3, 4],
            secure: true,
            random: *b"0123456789abcdef",
        };
        let (entry, bytes) = start.build(TOP).unwrap();
        assert_eq!(entry.pc, interpreter.entry);
        assert_eq!(entry.sp % 16, 0);
        assert_eq!(entry.sp + bytes.len() as u64, TOP);
        let stack = Reader { sp: entry.sp, bytes: &bytes };
        assert_eq!(stack.word(entry.sp), args.len() as u64);
        let (got, at) = stack.strings(entry.sp + 8);
        assert_eq!(got, args);
        let (got, mut at) = stack.strings(at);
        assert_eq!(got, env);
        let mut auxv = alloc::collections::BTreeMap::new();
        while stack.word(at) != at::NULL {
            auxv.insert(stack.word(at), stack.word(at + 8));
            at += 16;
        }
        assert_eq!(stack.string(auxv[&at::EXECFN]), b"/bin/prog");
        let random = (auxv[&at::RANDOM] - entry.sp) as usize;
        assert_eq!(bytes[random..][..16], start.random);
        let want = [
            (at::PHDR, 0x40),
            (at::PHENT, 56),
            (at::PHNUM, 9),
            (at::PAGESZ, 4096),
            (at::BASE, interpreter.bias),
            (at::ENTRY, program.entry),
            (at::UID, 1),
            (at::EUID, 2),
            (at::GID, 3),
            (at::EGID, 4),
            (at::SECURE, 1),
            (at::HWCAP, 0x112d),
        ];
        for (key, value) in want {
            assert_eq!(auxv[&key], value, "auxv {key}");
        }
        assert!(!auxv.contains_key(&33), "no vDSO");
        let cut = |(from, to): (u64, u64)| {
            bytes[(from - entry.sp) as usize..(to - entry.sp) as usize].to_vec()
        };
        let joined =
            |list: &[Vec<u8>]| list.iter().flat_map(|s| [s, &b"\0"[..]].concat()).collect();
        let (args_bytes, env_bytes): (Vec<u8>, Vec<u8>) = (joined(&args), joined(&env));
        assert_eq!((cut(entry.args), cut(entry.env)), (args_bytes, env_bytes));
    }
}

#[test]
fn arguments_have_limits() {
    let program = loaded(0x1_0000);
    let build = |args: &[Vec<u8>]| {
        let start = Start {
            args,
            env: &[],
            path: b"x",
            program: &program,
            interpreter: None,
            ids: [0; 4],
            secure: false,
            random: [0; 16],
        };
        start.build(TOP).map(|(entry, bytes)| (entry.pc, bytes.len()))
    };
    assert_eq!(build(&[vec![1; ARGUMENT_MAX]]), Err(Error::TooBig));
    let long = vec![1; ARGUMENT_MAX - 1];
    let fit = ARGUMENTS_MAX / (ARGUMENT_MAX + 8);
    let (pc, len) = build(&vec![long.clone(); fit]).unwrap();
    assert_eq!(pc, 0x1_0000);
    assert!(len as u64 <= STACK_LIMIT);
    assert_eq!(build(&vec![long; fit + 1]), Err(Error::TooBig));
    assert_eq!(build(&vec![Vec::new(); ARGUMENTS_MAX / 8]), Err(Error::TooBig));
}
