//! The stack that a program starts with: arguments, environment and auxiliary vector (System V
//! ABI, process initialization; Linux `create_elf_tables`).

use crate::elf::{AT_PHENT_VALUE, Loaded};
use crate::map::{AddressSpace, Backing, MapRequest, Placement, Role, STACK_LIMIT, STACK_TOP};
use crate::types::{Error, PAGE_SIZE, Prot};
use alloc::vec::Vec;

/// Most bytes of arguments and environment with their pointers: a quarter of the stack, as on
/// Linux.
pub const ARGUMENTS_MAX: usize = STACK_LIMIT as usize / 4;
/// Most bytes of one of them (Linux: MAX_ARG_STRLEN).
pub const ARGUMENT_MAX: usize = 32 * PAGE_SIZE;
/// Bytes of stack mapped at first; the rest comes by faults.
const STACK_START: u64 = 32 * PAGE_SIZE as u64;

/// Keys of the auxiliary vector (`linux/auxvec.h`).
mod at {
    pub const NULL: u64 = 0;
    pub const PHDR: u64 = 3;
    pub const PHENT: u64 = 4;
    pub const PHNUM: u64 = 5;
    pub const PAGESZ: u64 = 6;
    pub const BASE: u64 = 7;
    pub const FLAGS: u64 = 8;
    pub const ENTRY: u64 = 9;
    pub const UID: u64 = 11;
    pub const EUID: u64 = 12;
    pub const GID: u64 = 13;
    pub const EGID: u64 = 14;
    pub const HWCAP: u64 = 16;
    pub const CLKTCK: u64 = 17;
    pub const SECURE: u64 = 23;
    pub const RANDOM: u64 = 25;
    pub const EXECFN: u64 = 31;
}

/// AT_HWCAP: one bit per letter of the base ISA string: I, M, A, F, D, C.
pub const HWCAP_RV64GC: u64 = 1 << (b'i' - b'a')
    | 1 << (b'm' - b'a')
    | 1
    | 1 << (b'f' - b'a')
    | 1 << (b'd' - b'a')
    | 1 << (b'c' - b'a');
/// AT_CLKTCK: the unit of `times`, in Hz.
pub const CLOCK_TICKS_HZ: u64 = 100;

/// What a program is told when it starts.
pub struct Start<'a> {
    /// Arguments, without NULs.
    pub args: &'a [Vec<u8>],
    /// Environment, without NULs.
    pub env: &'a [Vec<u8>],
    /// Path it was started by: AT_EXECFN.
    pub path: &'a [u8],
    /// The program.
    pub program: &'a Loaded,
    /// Its interpreter.
    pub interpreter: Option<&'a Loaded>,
    /// Real and effective user id, real and effective group id.
    pub ids: [u32; 4],
    /// Its privileges grew (set-user-id).
    pub secure: bool,
    /// AT_RANDOM: for stack canaries.
    pub random: [u8; 16],
}

/// Address space as exec leaves it to the program's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Program counter.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// First byte of the argument strings and byte after the last: /proc/PID/cmdline.
    pub args: (u64, u64),
    /// The same of the environment: /proc/PID/environ.
    pub env: (u64, u64),
}

impl Start<'_> {
    /// Lays the initial stack out below `top`, a multiple of 16: its bytes start at
    /// [`Entry::sp`].
    ///
    /// Error: [`Error::TooBig`].
    pub fn build(&self, top: u64) -> Result<(Entry, Vec<u8>), Error> {
        let pointers = (self.args.len() + self.env.len()) * size_of::<u64>();
        let all = self.args.iter().chain(self.env);
        let strings: usize = all.clone().map(|s| s.len() + 1).sum();
        let longest = all.map(Vec::len).max().unwrap_or(0).max(self.path.len());
        if strings + pointers > ARGUMENTS_MAX || longest >= ARGUMENT_MAX {
            return Err(Error::TooBig);
        }
        // From the top: a null word, the path, the environment, the arguments.
        let path = top - 8 - (self.path.len() as u64 + 1);
        let env_end = path;
        let args_start = env_end - strings as u64;
        let random = (args_start & !15) - 16;
        let auxv = self.auxv(random, path);
        let words = 1 + self.args.len() + 1 + self.env.len() + 1 + auxv.len();
        let sp = (random - 8 * words as u64) & !15;

        let mut bytes = Vec::with_capacity((top - sp) as usize);
        let mut at = args_start;
        push(&mut bytes, self.args.len() as u64);
        let mut env_start = at;
        for list in [self.args, self.env] {
            env_start = at;
            for string in list {
                push(&mut bytes, at);
                at += string.len() as u64 + 1;
            }
            push(&mut bytes, 0);
        }
        for word in auxv {
            push(&mut bytes, word);
        }
        bytes.resize((random - sp) as usize, 0);
        bytes.extend(self.random);
        bytes.resize((args_start - sp) as usize, 0);
        for string in self.args.iter().chain(self.env).map(Vec::as_slice).chain([self.path]) {
            bytes.extend(string);
            bytes.push(0);
        }
        bytes.resize((top - sp) as usize, 0);
        let pc = self.interpreter.unwrap_or(self.program).entry;
        Ok((Entry { pc, sp, args: (args_start, env_start), env: (env_start, env_end) }, bytes))
    }

    fn auxv(&self, random: u64, path: u64) -> Vec<u64> {
        let [uid, euid, gid, egid] = self.ids.map(u64::from);
        let pairs = [
            (at::HWCAP, HWCAP_RV64GC),
            (at::PAGESZ, PAGE_SIZE as u64),
            (at::CLKTCK, CLOCK_TICKS_HZ),
            (at::PHDR, self.program.headers),
            (at::PHENT, AT_PHENT_VALUE),
            (at::PHNUM, self.program.header_count as u64),
            (at::BASE, self.interpreter.map_or(0, |loaded| loaded.bias)),
            (at::FLAGS, 0),
            (at::ENTRY, self.program.entry),
            (at::UID, uid),
            (at::EUID, euid),
            (at::GID, gid),
            (at::EGID, egid),
            (at::SECURE, u64::from(self.secure)),
            (at::RANDOM, random),
            (at::EXECFN, path),
            (at::NULL, 0),
        ];
        pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()
    }

    /// Maps a stack in `space`, puts this on it and the heap behind the program. Sleeps.
    pub fn install(&self, space: &AddressSpace) -> Result<Entry, Error> {
        let (entry, bytes) = self.build(STACK_TOP)?;
        let used = STACK_TOP - (entry.sp & !(PAGE_SIZE as u64 - 1));
        let len = used + STACK_START;
        space.mmap(MapRequest {
            placement: Placement::FixedNoReplace(STACK_TOP - len),
            len,
            prot: Prot::READ | Prot::WRITE,
            backing: Backing::Anon,
            role: Role::Stack,
        })?;
        space.copy_out(entry.sp, &bytes).map_err(|_| Error::NoMemory)?;
        space.set_brk(self.program.end);
        Ok(entry)
    }
}

fn push(bytes: &mut Vec<u8>, word: u64) {
    bytes.extend(word.to_le_bytes());
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
