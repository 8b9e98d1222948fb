//! The error numbers that calls return (fi_errno(3)).

use std::fmt;
use std::num::NonZeroI32;

/// A positive `FI_E*` number. The seam negates it on the way out to C.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroI32);

/// What every fallible call inside the library returns.
pub type Result<T = ()> = std::result::Result<T, Errno>;

impl Errno {
    /// Returns the error of a positive or a negated error number; zero, which is no error, becomes
    /// `FI_EOTHER`.
    pub const fn new(number: i32) -> Self {
        match NonZeroI32::new(if number == i32::MIN { 0 } else { number.abs() }) {
            Some(number) => Errno(number),
            None => Self::EOTHER,
        }
    }

    /// The positive number, as in `fi_cq_err_entry::err`.
    pub const fn number(self) -> i32 {
        self.0.get()
    }

    /// The negated number, as C calls return it.
    pub const fn to_c(self) -> i32 {
        -self.0.get()
    }

    /// Whether a system call that fails with this error for no reason of its own is denied to the
    /// process (seccomp(2)), or unknown to the kernel.
    pub fn is_denial(self) -> bool {
        matches!(self, Self::EPERM | Self::EACCES | Self::ENOSYS)
    }

    /// Returns the error of the last system call of this thread.
    pub fn last_os_error() -> Self {
        std::io::Error::last_os_error().into()
    }

    /// Returns `Ok(value)` for a C return value that is not negative.
    pub fn check(value: i32) -> Result<i32> {
        if value < 0 {
            Err(Self::new(value))
        } else {
            Ok(value)
        }
    }
}

macro_rules! errnos {
    ($($name:ident = $number:expr;)*) => {
        impl Errno {
            $(#[doc = concat!("`FI_", stringify!($name), "`")]
            pub const $name: Errno = Errno(NonZeroI32::new($number).unwrap());)*

            /// The constant's name, if this number has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0.get() {
                    $(n if n == $number => Some(concat!("FI_", stringify!($name))),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = libc::EPERM;
    ENOENT = libc::ENOENT;
    EINTR = libc::EINTR;
    EIO = libc::EIO;
    E2BIG = libc::E2BIG;
    EBADF = libc::EBADF;
    EAGAIN = libc::EAGAIN;
    ENOMEM = libc::ENOMEM;
    EACCES = libc::EACCES;
    EFAULT = libc::EFAULT;
    EBUSY = libc::EBUSY;
    EEXIST = libc::EEXIST;
    ENODEV = libc::ENODEV;
    EINVAL = libc::EINVAL;
    EMFILE = libc::EMFILE;
    ENOSPC = libc::ENOSPC;
    EPIPE = libc::EPIPE;
    ERANGE = libc::ERANGE;
    ENOSYS = libc::ENOSYS;
    ENOMSG = libc::ENOMSG;
    ENODATA = libc::ENODATA;
    EOVERFLOW = libc::EOVERFLOW;
    EPROTO = libc::EPROTO;
    EMSGSIZE = libc::EMSGSIZE;
    ENOPROTOOPT = libc::ENOPROTOOPT;
    EOPNOTSUPP = libc::EOPNOTSUPP;
    EAFNOSUPPORT = libc::EAFNOSUPPORT;
    EADDRINUSE = libc::EADDRINUSE;
    EADDRNOTAVAIL = libc::EADDRNOTAVAIL;
    ENETDOWN = libc::ENETDOWN;
    ENETUNREACH = libc::ENETUNREACH;
    ECONNABORTED = libc::ECONNABORTED;
    ECONNRESET = libc::ECONNRESET;
    ENOBUFS = libc::ENOBUFS;
    EISCONN = libc::EISCONN;
    ENOTCONN = libc::ENOTCONN;
    ESHUTDOWN = libc::ESHUTDOWN;
    ETIMEDOUT = libc::ETIMEDOUT;
    ECONNREFUSED = libc::ECONNREFUSED;
    EHOSTDOWN = libc::EHOSTDOWN;
    EHOSTUNREACH = libc::EHOSTUNREACH;
    EALREADY = libc::EALREADY;
    EINPROGRESS = libc::EINPROGRESS;
    EREMOTEIO = libc::EREMOTEIO;
    ECANCELED = libc::ECANCELED;
    EKEYREJECTED = libc::EKEYREJECTED;
    EOTHER = 256;
    ETOOSMALL = 257;
    EOPBADSTATE = 258;
    EAVAIL = 259;
    EBADFLAGS = 260;
    ENOEQ = 261;
    EDOMAIN = 262;
    ENOCQ = 263;
    ECRC = 264;
    ETRUNC = 265;
    ENOKEY = 266;
    ENOAV = 267;
    EOVERRUN = 268;
    ENORX = 269;
    ENOMR = 270;
    EFIREWALLADDR = 271;
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::new(number),
            None => match error.kind() {
                std::io::ErrorKind::WouldBlock => Self::EAGAIN,
                std::io::ErrorKind::TimedOut => Self::ETIMEDOUT,
                std::io::ErrorKind::OutOfMemory => Self::ENOMEM,
                std::io::ErrorKind::InvalidInput => Self::EINVAL,
                _ => Self::EIO,
            },
        }
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self::new(error.raw_os_error())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}"),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.get() < Self::EOTHER.number() {
            write!(f, "{}", std::io::Error::from_raw_os_error(self.0.get()))
        } else {
            fmt::Debug::fmt(self, f)
        }
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_sign_makes_the_same_error() {
        assert_eq!(Errno::new(-libc::EAGAIN), Errno::EAGAIN);
        assert_eq!(Errno::new(libc::EAGAIN), Errno::EAGAIN);
        assert_eq!(Errno::EAGAIN.to_c(), -libc::EAGAIN);
    }

    #[test]
    fn zero_and_the_unnegatable_number_are_still_errors() {
        assert_eq!(Errno::new(0), Errno::EOTHER);
        assert_eq!(Errno::new(i32::MIN), Errno::EOTHER);
    }
}
