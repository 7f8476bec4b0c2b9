//! execve(2): from a path to a program about to run.
//!
//! Everything that can fail happens before the old program is given up: the new address space is
//! built beside the old one. `#!` scripts are unwound here, at most [`SCRIPTS_MAX`] deep.
//!
//! Absent: set-user-id programs (the bits are not obeyed), binfmt_misc.

use crate::process::{COMM_MAX, Process, TREE, Thread};
use crate::space::{Space, cache, errno};
use crate::syscall::memory::mapped_file;
use crate::syscall::path::from_cwd;
use crate::syscall::{Call, Stop};
use crate::{sched, signal};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hive_fs::abi::oflag::O_RDONLY;
use hive_fs::errno::{Errno, Result};
use hive_fs::io::SliceSink;
use hive_fs::{OpenFile, Place};
use hive_hal::user::UserContext;
use hive_vm::elf::{PIE_BASE, Program};
use hive_vm::stack::{ARGUMENT_MAX, ARGUMENTS_MAX, Entry, Start};

/// Most interpreters of interpreters.
const SCRIPTS_MAX: usize = 4;
/// Bytes of a script that are looked at for its first line (Linux: BINPRM_BUF_SIZE).
const SCRIPT_LINE: usize = 256;

/// The strings that the null-terminated array at `address` points to; none if that is null.
pub fn read_strings(call: &Call<'_>, address: u64) -> core::result::Result<Vec<Vec<u8>>, Stop> {
    let mut strings = Vec::new();
    let mut total = 0;
    if address == 0 {
        return Ok(strings);
    }
    for i in 0.. {
        let at = address.checked_add(8 * i).ok_or(Errno::EFAULT)?;
        let pointer = u64::from_le_bytes(call.read(at)?);
        if pointer == 0 {
            break;
        }
        let string = call.string(pointer, ARGUMENT_MAX, Errno::E2BIG)?;
        total += string.len() + 1 + size_of::<u64>();
        if total > ARGUMENTS_MAX {
            return Err(Errno::E2BIG.into());
        }
        strings.push(string);
    }
    Ok(strings)
}

/// What a program is started with.
struct Request {
    path: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
}

/// The file `path` leads `process` to, executable and open.
fn open(process: &Process, path: &[u8]) -> Result<(Place, Arc<OpenFile>)> {
    let place = from_cwd(process, |at| at.executable(path, 0))?;
    let file = OpenFile::open(place.clone(), O_RDONLY)?;
    Ok((place, file))
}

/// The interpreter and its argument in the first line of a script, if `head` begins one.
fn script_line(head: &[u8]) -> Result<Option<(&[u8], Option<&[u8]>)>> {
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = match line.iter().position(|&b| b == b'\n') {
        Some(end) => &line[..end],
        None if head.len() < SCRIPT_LINE => line,
        None => return Err(Errno::ENOEXEC),
    };
    let blank = |b: u8| b == b' ' || b == b'\t' || b == b'\r';
    let line = line.trim_ascii();
    let end = line.iter().position(|&b| blank(b)).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    if interpreter.is_empty() {
        return Err(Errno::ENOEXEC);
    }
    let argument = rest.trim_ascii();
    Ok(Some((interpreter, (!argument.is_empty()).then_some(argument))))
}

/// A program in an address space of its own, not yet running.
struct Loaded {
    space: Arc<Space>,
    entry: Entry,
    exe: Place,
    name: Vec<u8>,
}

fn load(process: &Process, mut request: Request) -> Result<Loaded> {
    let name = request.path.rsplit(|&b| b == b'/').next().unwrap_or(b"").to_vec();
    if request.arguments.is_empty() {
        // As Linux since 5.18: a program has at least a name.
        request.arguments.push(Vec::new());
    }
    for _ in 0..=SCRIPTS_MAX {
        let (exe, file) = open(process, &request.path)?;
        let mut head = [0; SCRIPT_LINE];
        let n = file.pread(0, &mut SliceSink::new(&mut head))?;
        match script_line(&head[..n])? {
            None => {
                let (space, entry) = load_elf(process, &file, &request)?;
                return Ok(Loaded { space, entry, exe, name });
            }
            Some((interpreter, argument)) => {
                let mut arguments = Vec::with_capacity(request.arguments.len() + 2);
                arguments.push(interpreter.to_vec());
                arguments.extend(argument.map(<[u8]>::to_vec));
                arguments.push(request.path);
                arguments.extend(request.arguments.into_iter().skip(1));
                request.arguments = arguments;
                request.path = interpreter.to_vec();
            }
        }
    }
    Err(Errno::ELOOP)
}

fn load_elf(process: &Process, file: &OpenFile, request: &Request) -> Result<(Arc<Space>, Entry)> {
    let space = Space::new()?;
    let mapped = mapped_file(file)?;
    let program = Program::read(cache(), &mapped.pager).map_err(errno)?;
    let loaded = program.load(&space, &mapped, PIE_BASE).map_err(errno)?;
    let interpreter = match &program.interpreter {
        None => None,
        Some(path) => {
            let (_, file) = open(process, path)?;
            let mapped = mapped_file(&file)?;
            let program = Program::read(cache(), &mapped.pager).map_err(errno)?;
            Some(program.load(&space, &mapped, 0).map_err(errno)?)
        }
    };
    let creds = process.creds();
    let mut random = [0; 16];
    crate::random::fill(&mut random);
    let start = Start {
        args: &request.arguments,
        env: &request.environment,
        path: &request.path,
        program: &loaded,
        interpreter: interpreter.as_ref(),
        ids: [creds.uid.real, creds.uid.effective, creds.gid.real, creds.gid.effective],
        secure: false,
        random,
    };
    let entry = start.install(&space).map_err(errno)?;
    Ok((Arc::new(space), entry))
}

/// Gives the first process of the cell, which does not run yet, its program.
pub fn load_first(thread: &Thread, path: &[u8]) -> Result<Entry> {
    let process = &thread.process;
    let request = Request {
        path: path.to_vec(),
        arguments: alloc::vec![path.to_vec()],
        environment: Vec::new(),
    };
    let loaded = load(process, request)?;
    let entry = loaded.entry;
    *process.space.lock() = Some(loaded.space.clone());
    rename(process, loaded);
    Ok(entry)
}

/// Gives a guest process, which does not run yet, its program.
pub fn load_guest(
    thread: &Thread,
    path: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
) -> Result<Entry> {
    let process = &thread.process;
    let loaded = load(process, Request { path, arguments, environment })?;
    let entry = loaded.entry;
    *process.space.lock() = Some(loaded.space.clone());
    rename(process, loaded);
    Ok(entry)
}

/// Whether `path` leads `process` to something executable.
pub fn find(process: &Process, path: &[u8]) -> Result<()> {
    open(process, path).map(drop)
}

/// Notes what `process` runs from now on.
fn rename(process: &Process, loaded: Loaded) {
    let mut name = loaded.name;
    name.truncate(COMM_MAX);
    let mut identity = process.identity.lock();
    identity.comm = name;
    identity.arguments = loaded.entry.args;
    identity.environment = loaded.entry.env;
    let old = identity.exe.replace(loaded.exe);
    drop(identity);
    drop(old);
}

/// Replaces the program of `thread`'s process; `user` enters the new one. After an error the old
/// program is as it was.
pub fn execve(
    thread: &Thread,
    user: &mut UserContext,
    path: &[u8],
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
) -> Result<()> {
    let process = &thread.process;
    let loaded = load(process, Request { path: path.to_vec(), arguments, environment })?;
    // From here on nothing fails.
    let old_files = {
        // A vfork child with CLONE_FILES must not close its parent's descriptors.
        let files = process.files()?;
        let own = Arc::new(files.fork());
        own.close_on_exec();
        process.files.lock().replace(own)
    };
    drop(old_files);
    let old = process.space.lock().replace(loaded.space.clone());
    sched::current().set_space(Some(loaded.space.page_table()));
    process.end_loan();
    drop(old);
    let entry = loaded.entry;
    rename(process, loaded);
    thread.with_signals(|shared, own| {
        shared.actions.reset_handlers();
        own.alt = signal::AltStack::default();
    });
    thread.clear_tid.store(0);
    TREE.lock().execed(process.pid);
    *user = UserContext::new(entry.pc, entry.sp);
    Ok(())
}
