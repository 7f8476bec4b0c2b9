//! Error numbers of Linux (asm-generic, what riscv64 uses), as one enum.
//!
//! Own table rather than `linux-raw-sys`: that crate shows only the host's architecture in host
//! tests, and an enum makes a forgotten case visible to the compiler.

macro_rules! errno {
    ($($name:ident = $n:literal, $text:literal;)*) => {
        /// Why a call was refused, by its Linux name. All of these blame the caller except `EIO`
        /// and `EUCLEAN` (the disk or a damaged page) and `ENOSYS` (us).
        #[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
        #[repr(u16)]
        #[allow(clippy::upper_case_acronyms)]
        pub enum Errno { $(#[doc = $text] $name = $n,)* }

        impl Errno {
            /// The errno of a Linux number, if it is one of ours.
            pub const fn from_code(code: u16) -> Option<Errno> {
                match code { $($n => Some(Errno::$name),)* _ => None }
            }

            /// The message of strerror(3).
            pub const fn text(self) -> &'static str {
                match self { $(Errno::$name => $text,)* }
            }
        }
    };
}

errno! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    ENOEXEC = 8, "Exec format error";
    EBADF = 9, "Bad file descriptor";
    ECHILD = 10, "No child processes";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    ENOTBLK = 15, "Block device required";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    EPIPE = 32, "Broken pipe";
    EDOM = 33, "Numerical argument out of domain";
    ERANGE = 34, "Numerical result out of range";
    EDEADLK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOLCK = 37, "No locks available";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENOMSG = 42, "No message of desired type";
    EIDRM = 43, "Identifier removed";
    ENODATA = 61, "No data available";
    ETIME = 62, "Timer expired";
    EPROTO = 71, "Protocol error";
    EBADMSG = 74, "Bad message";
    EOVERFLOW = 75, "Value too large for defined data type";
    EILSEQ = 84, "Invalid or incomplete multibyte or wide character";
    EUSERS = 87, "Too many users";
    ENOTSOCK = 88, "Socket operation on non-socket";
    EDESTADDRREQ = 89, "Destination address required";
    EMSGSIZE = 90, "Message too long";
    EPROTOTYPE = 91, "Protocol wrong type for socket";
    ENOPROTOOPT = 92, "Protocol not available";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    ESOCKTNOSUPPORT = 94, "Socket type not supported";
    EOPNOTSUPP = 95, "Operation not supported";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETDOWN = 100, "Network is down";
    ENETUNREACH = 101, "Network is unreachable";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTDOWN = 112, "Host is down";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ESTALE = 116, "Stale file handle";
    EUCLEAN = 117, "Structure needs cleaning";
    EDQUOT = 122, "Disk quota exceeded";
    ECANCELED = 125, "Operation canceled";
    EOWNERDEAD = 130, "Owner died";
    ERESTARTSYS = 512, "Interrupted by a signal (kernel internal: restart or EINTR)";
}

/// What every operation of this crate returns.
pub type Result<T> = core::result::Result<T, Errno>;

impl Errno {
    /// The positive Linux number.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The value a system call leaves in `a0`.
    pub const fn as_ret(self) -> isize {
        -(self as u16 as isize)
    }
}

impl From<hive_vm::Error> for Errno {
    fn from(e: hive_vm::Error) -> Errno {
        Errno::from_code(e.errno() as u16).unwrap_or(Errno::EIO)
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::ToString};

    #[test]
    fn numbers_and_texts_are_those_of_the_host() {
        // The host is Linux too, and errno texts are asm-generic on it as well.
        for code in 1..=133u16 {
            if let Some(e) = Errno::from_code(code) {
                assert_eq!(e.code(), code);
                let host = std::io::Error::from_raw_os_error(code as i32).to_string();
                assert_eq!(host, format!("{} (os error {code})", e.text()));
            }
        }
        assert_eq!(Errno::ENOSYS.as_ret(), -38);
    }
}
