//! System calls: dispatch, and how arguments are taken from user registers and memory.
//!
//! [`table`] has one line per call. A handler gets a [`Call`] and returns what `a0` shall be.
//! Every user address goes through [`Call`]'s readers and writers, which fail with `EFAULT`;
//! nothing here may be made to panic by a user.

pub mod file;
pub mod futex;
pub mod ids;
pub mod info;
pub mod memory;
pub mod path;
pub mod poll;
pub mod process;
pub mod signal;
pub mod table;
pub mod time;

use crate::frames;
use crate::process::{Process, Thread};
use crate::tree::Status;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use hive_fs::abi::PATH_MAX;
use hive_fs::errno::Errno;
use hive_fs::io::{ByteSink, ByteSource, UserArg};
use hive_hal::uaccess;
use hive_hal::user::UserContext;
use hive_sync::AtomicU64;
use hive_vm::{Frame, PhysMem};

/// Why a call does not put a value into `a0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It failed.
    Errno(Errno),
    /// It has set the registers itself.
    Registers,
    /// A signal interrupted it before it did anything: start again if the handler has
    /// `SA_RESTART` or there is no handler.
    Restart,
    /// As `Restart`, but any handler makes it `EINTR`.
    RestartWithoutHandler,
    /// A sleep until this time (ns since boot): as `RestartWithoutHandler`, with the same end.
    RestartUntil(u64),
    /// The process ends.
    Exit(Status),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        if errno == Errno::ERESTARTSYS { Stop::Restart } else { Stop::Errno(errno) }
    }
}

impl From<uaccess::UserFault> for Stop {
    fn from(_: uaccess::UserFault) -> Stop {
        Stop::Errno(Errno::EFAULT)
    }
}

/// What a handler returns.
pub type Answer = Result<usize, Stop>;
/// A handler.
pub type Handler = fn(&mut Call<'_>) -> Answer;

/// A system call being served.
pub struct Call<'a> {
    /// Its thread.
    pub thread: &'a Arc<Thread>,
    /// Its registers.
    pub user: &'a mut UserContext,
    /// `a0` to `a5`.
    pub args: [u64; 6],
}

/// Calls that were absent and have been logged, one bit per number.
static LOGGED: [AtomicU64; table::LIMIT / 64 + 1] =
    [const { AtomicU64::new(0) }; table::LIMIT / 64 + 1];

/// Serves the call in `user`'s registers.
pub fn dispatch(thread: &Arc<Thread>, user: &mut UserContext) -> Answer {
    let regs = user.regs();
    let number = regs.x[17] as usize;
    let args = core::array::from_fn(|i| regs.x[10 + i]);
    match table::get(number).map(|entry| entry.handler) {
        Some(Some(handler)) => handler(&mut Call { thread, user, args }),
        _ => {
            log_absent(thread, number);
            Err(Errno::ENOSYS.into())
        }
    }
}

fn log_absent(thread: &Thread, number: usize) {
    // Numbers beyond the table share one bit.
    let slot = number.min(table::LIMIT - 1);
    let Some(word) = LOGGED.get(slot / 64) else { return };
    let bit = 1 << (slot % 64);
    if word.fetch_or(bit) & bit == 0 {
        let name = table::get(number).map_or("unknown", |entry| entry.name);
        let pid = thread.process.pid;
        let comm = thread.process.comm();
        log!("process {pid} ({comm}): system call {number} ({name}) is absent: ENOSYS");
    }
}

impl Call<'_> {
    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.thread.process
    }

    /// Argument `i` as the kernel's `int`.
    pub fn int(&self, i: usize) -> i32 {
        self.args[i] as i32
    }

    /// Argument `i` as the kernel's `unsigned int`.
    pub fn uint(&self, i: usize) -> u32 {
        self.args[i] as u32
    }

    /// Argument `i` as a length.
    pub fn len(&self, i: usize) -> usize {
        self.args[i] as usize
    }

    /// `N` bytes at `address`.
    pub fn read<const N: usize>(&self, address: u64) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        uaccess::copy_from_user(&mut bytes, address)?;
        Ok(bytes)
    }

    /// The 64-bit words at `address`.
    pub fn words<const N: usize>(&self, address: u64) -> Result<[u64; N], Stop> {
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            let at = address.checked_add(8 * i as u64).ok_or(Errno::EFAULT)?;
            *word = u64::from_le_bytes(self.read(at)?);
        }
        Ok(words)
    }

    /// Stores `bytes` at `address`.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Stop> {
        Ok(uaccess::copy_to_user(address, bytes)?)
    }

    /// Stores `bytes` at `address` unless that is null.
    pub fn write_unless_null(&self, address: u64, bytes: &[u8]) -> Result<(), Stop> {
        if address == 0 { Ok(()) } else { self.write(address, bytes) }
    }

    /// The string at `address`, without its NUL; `ENAMETOOLONG` from [`PATH_MAX`] bytes on.
    pub fn path(&self, address: u64) -> Result<Vec<u8>, Stop> {
        self.string(address, PATH_MAX, Errno::ENAMETOOLONG)
    }

    /// The string at `address`, without its NUL; `too_long` if it has `limit` bytes or more.
    pub fn string(&self, address: u64, limit: usize, too_long: Errno) -> Result<Vec<u8>, Stop> {
        // Most strings are short; the first attempt should not clear a page.
        let mut size = limit.min(256);
        loop {
            let mut buffer = vec![0; size];
            match uaccess::string_from_user(&mut buffer, address)? {
                Some(length) => {
                    buffer.truncate(length);
                    return Ok(buffer);
                }
                None if size == limit => return Err(too_long.into()),
                None => size = limit,
            }
        }
    }
}

/// Most bytes of one transfer, as Linux: `INT_MAX` rounded down to a page.
pub const TRANSFER_MAX: usize = 0x7fff_f000;

/// User memory that takes the bytes of a read.
pub struct UserSink {
    at: u64,
    left: usize,
}

/// User memory that gives the bytes of a write.
pub struct UserSource {
    at: u64,
    left: usize,
}

impl UserSink {
    /// `len` bytes at `at`.
    pub fn new(at: u64, len: usize) -> UserSink {
        UserSink { at, left: len.min(TRANSFER_MAX) }
    }
}

impl UserSource {
    /// `len` bytes at `at`.
    pub fn new(at: u64, len: usize) -> UserSource {
        UserSource { at, left: len.min(TRANSFER_MAX) }
    }
}

/// Bytes from `address` to the end of its page: how far a copy goes without meeting a page whose
/// absence would undo it.
fn to_page_end(address: u64) -> usize {
    4096 - (address % 4096) as usize
}

/// Moves `len` bytes of a page by `copy(offset in the page, user address, bytes)`, user page by
/// user page; answers how many went. `at` and `left` follow.
fn by_user_page(
    at: &mut u64,
    left: &mut usize,
    offset: usize,
    len: usize,
    copy: impl Fn(usize, u64, usize) -> Result<(), Errno>,
) -> usize {
    let want = len.min(*left);
    let mut done = 0;
    while done < want {
        let n = (want - done).min(to_page_end(*at));
        if copy(offset + done, *at, n).is_err() {
            break;
        }
        *at += n as u64;
        *left -= n;
        done += n;
    }
    done
}

impl ByteSink for UserSink {
    fn left(&self) -> usize {
        self.left
    }
    fn put_frame(&mut self, _: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        by_user_page(&mut self.at, &mut self.left, offset, len, |offset, at, n| {
            frames::to_user(frame, offset, at, n)
        })
    }
    fn put(&mut self, data: &[u8]) -> Result<usize, Errno> {
        let want = data.len().min(self.left);
        let mut done = 0;
        while done < want {
            let n = (want - done).min(to_page_end(self.at));
            if uaccess::copy_to_user(self.at, &data[done..done + n]).is_err() {
                if done == 0 {
                    return Err(Errno::EFAULT);
                }
                break;
            }
            self.at += n as u64;
            self.left -= n;
            done += n;
        }
        Ok(done)
    }
}

impl ByteSource for UserSource {
    fn left(&self) -> usize {
        self.left
    }
    fn get_frame(&mut self, _: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        by_user_page(&mut self.at, &mut self.left, offset, len, |offset, at, n| {
            frames::from_user(frame, offset, at, n)
        })
    }
    fn get(&mut self, buf: &mut [u8]) -> Result<usize, Errno> {
        let want = buf.len().min(self.left);
        let mut done = 0;
        while done < want {
            let n = (want - done).min(to_page_end(self.at));
            if uaccess::copy_from_user(&mut buf[done..done + n], self.at).is_err() {
                if done == 0 {
                    return Err(Errno::EFAULT);
                }
                break;
            }
            self.at += n as u64;
            self.left -= n;
            done += n;
        }
        Ok(done)
    }
}

/// One buffer of readv and writev.
#[derive(Clone, Copy)]
pub struct IoVec {
    /// Address.
    pub base: u64,
    /// Bytes.
    pub len: usize,
}

/// Most buffers of one call (`UIO_MAXIOV`).
const IOV_MAX: usize = 1024;

impl Call<'_> {
    /// The `count` buffers that `struct iovec`s at `address` name.
    pub fn iovecs(&self, address: u64, count: u64) -> Result<Vec<IoVec>, Stop> {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        if count > IOV_MAX {
            return Err(Errno::EINVAL.into());
        }
        let mut total = 0usize;
        let mut vectors = Vec::with_capacity(count);
        for i in 0..count {
            let at = address.checked_add(16 * i as u64).ok_or(Errno::EFAULT)?;
            let [base, len] = self.words(at)?;
            if len > isize::MAX as u64 {
                return Err(Errno::EINVAL.into());
            }
            let len = (len as usize).min(TRANSFER_MAX - total);
            total += len;
            vectors.push(IoVec { base, len });
        }
        Ok(vectors)
    }
}

/// The buffers of readv as one sink.
pub struct VectorSink {
    vectors: Vec<IoVec>,
    next: usize,
    now: UserSink,
}

impl VectorSink {
    /// All of `vectors`, in order.
    pub fn new(vectors: Vec<IoVec>) -> VectorSink {
        VectorSink { vectors, next: 0, now: UserSink::new(0, 0) }
    }

    /// Goes on to the next buffer that is not full; false if there is none.
    fn advance(&mut self) -> bool {
        while self.now.left == 0 {
            let Some(v) = self.vectors.get(self.next) else { return false };
            self.now = UserSink::new(v.base, v.len);
            self.next += 1;
        }
        true
    }
}

impl ByteSink for VectorSink {
    fn left(&self) -> usize {
        let later = self.vectors.iter().skip(self.next).map(|v| v.len);
        self.now.left + later.sum::<usize>()
    }
    fn put_frame(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let mut done = 0;
        while done < len && self.advance() {
            match self.now.put_frame(mem, frame, offset + done, len - done) {
                0 => break,
                n => done += n,
            }
        }
        done
    }
    fn put(&mut self, data: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < data.len() && self.advance() {
            match self.now.put(&data[done..]) {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

/// The buffers of writev as one source.
pub struct VectorSource {
    vectors: Vec<IoVec>,
    next: usize,
    now: UserSource,
}

impl VectorSource {
    /// All of `vectors`, in order.
    pub fn new(vectors: Vec<IoVec>) -> VectorSource {
        VectorSource { vectors, next: 0, now: UserSource::new(0, 0) }
    }

    /// Goes on to the next buffer that is not full; false if there is none.
    fn advance(&mut self) -> bool {
        while self.now.left == 0 {
            let Some(v) = self.vectors.get(self.next) else { return false };
            self.now = UserSource::new(v.base, v.len);
            self.next += 1;
        }
        true
    }
}

impl ByteSource for VectorSource {
    fn left(&self) -> usize {
        let later = self.vectors.iter().skip(self.next).map(|v| v.len);
        self.now.left + later.sum::<usize>()
    }
    fn get_frame(&mut self, mem: &dyn PhysMem, frame: Frame, offset: usize, len: usize) -> usize {
        let mut done = 0;
        while done < len && self.advance() {
            match self.now.get_frame(mem, frame, offset + done, len - done) {
                0 => break,
                n => done += n,
            }
        }
        done
    }
    fn get(&mut self, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < buf.len() && self.advance() {
            match self.now.get(&mut buf[done..]) {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

/// The third argument of ioctl and fcntl.
pub struct RawArg(pub u64);

impl UserArg for RawArg {
    fn value(&self) -> usize {
        self.0 as usize
    }
    fn read(&self, buf: &mut [u8]) -> Result<(), Errno> {
        uaccess::copy_from_user(buf, self.0).map_err(|_| Errno::EFAULT)
    }
    fn write(&self, data: &[u8]) -> Result<(), Errno> {
        uaccess::copy_to_user(self.0, data).map_err(|_| Errno::EFAULT)
    }
}
