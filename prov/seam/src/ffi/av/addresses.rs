//! Iterates over the addresses that C passes to fi_av_insert(3).

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

use crate::ffi::{bytes, string};
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;
use prov_objects::av::format::{Address, Extent, Format, Layout};

/// Addresses of one format in the application's memory.
pub struct Addresses<'a> {
    format: Format,
    /// The next address; `None` after an address whose end is unknown.
    next: Option<*const c_void>,
    /// Size of each address in bytes, if they have equal sizes.
    stride: usize,
    left: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Addresses<'a> {
    /// Creates an iterator over the array at `addr`; `-FI_EINVAL` if it contains no valid address.
    ///
    /// # Safety
    /// `addr` points to `count` addresses of the format, as fi_av(3) requires, which outlive `'a`.
    pub unsafe fn new(format: Format, addr: *const c_void, count: usize) -> Result<Self> {
        if addr.is_null() && count != 0 {
            return Err(Errno::EINVAL);
        }
        let stride = match format.layout() {
            _ if count == 0 => 0,
            // SAFETY: the caller guarantees that the first address is valid.
            Layout::Internet => unsafe { internet_size(format, addr) }?,
            Layout::InternetText => size_of::<*const c_char>(),
            Layout::Fixed(size) => size,
            Layout::Text { .. } | Layout::Composite { .. } => 0,
        };
        Ok(Addresses {
            format,
            next: Some(addr),
            stride,
            left: count,
            memory: PhantomData,
        })
    }

    fn read(&mut self) -> Result<Address<'a>> {
        let addr = self.next.take().ok_or(Errno::EINVAL)?;
        // SAFETY: the caller of `new` has guaranteed that the remaining addresses are valid.
        let found = unsafe {
            match self.format.layout() {
                Layout::Internet | Layout::Fixed(_) => bytes(addr, self.stride),
                Layout::InternetText => {
                    self.next = Some(addr.byte_add(self.stride));
                    let text = string(addr.cast::<*const c_char>().read_unaligned());
                    return self.format.read(text.ok_or(Errno::EINVAL)?.to_bytes());
                }
                Layout::Text { max } => {
                    let len = libc::strnlen(addr.cast(), max + 1);
                    if len > max {
                        return Err(Errno::EINVAL);
                    }
                    self.next = Some(addr.byte_add(len + 1));
                    return self.format.read(bytes(addr, len));
                }
                Layout::Composite { max, extent } => composite(addr, max, extent)?,
            }
        };
        // SAFETY: the next address begins after this one, and the caller of `new` has guaranteed
        // that there is one, or that this was the last.
        self.next = Some(unsafe { addr.byte_add(found.len()) });
        self.format.read(found)
    }
}

impl<'a> Iterator for Addresses<'a> {
    type Item = Result<Address<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.read())
    }
}

/// Returns the bytes of the address of a format at `addr`, text without its zero.
///
/// # Safety
/// `addr` points to an address of the format, which outlives `'a`; one of `FI_ADDR_STR` is the text
/// itself.
pub unsafe fn bytes_of<'a>(format: Format, addr: *const c_void) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees that the address has this format and lives as long as the
    // result.
    unsafe {
        match format.layout() {
            Layout::Internet => Ok(bytes(addr, internet_size(format, addr)?)),
            Layout::InternetText => Ok(string(addr.cast()).ok_or(Errno::EINVAL)?.to_bytes()),
            Layout::Text { max } => Ok(bytes(addr, libc::strnlen(addr.cast(), max))),
            Layout::Fixed(size) => Ok(bytes(addr, size)),
            Layout::Composite { max, extent } => composite(addr, max, extent),
        }
    }
}

/// Returns the bytes of an address for printing: a socket address may have any family that has a
/// text form, whatever the format.
///
/// # Safety
/// `addr` points to an address of the format, or to a socket address of another
/// family where the format is one of socket addresses, valid for the result's lifetime.
pub unsafe fn bytes_to_print<'a>(format: Format, addr: *const c_void) -> Result<&'a [u8]> {
    // SAFETY: the caller guarantees that the address is valid; a socket address begins with its
    // family, which determines its length.
    unsafe {
        match format.layout() {
            Layout::Internet => {
                let family = addr.cast::<u16>().read_unaligned();
                let size = sockaddr::size_of_family(family).ok_or(Errno::EINVAL)?;
                Ok(bytes(addr, size))
            }
            _ => bytes_of(format, addr),
        }
    }
}

/// Returns the size of a socket address in bytes.
///
/// # Safety
/// `addr` points to a socket address of the format.
unsafe fn internet_size(format: Format, addr: *const c_void) -> Result<usize> {
    match format.number() {
        fabric_abi::FI_SOCKADDR_IN => Ok(sockaddr::SIZE_IN),
        fabric_abi::FI_SOCKADDR_IN6 => Ok(sockaddr::SIZE_IN6),
        // SAFETY: the caller guarantees that the address is a socket address, which begins with its
        // family.
        _ => sockaddr::size_of_family(unsafe { addr.cast::<u16>().read_unaligned() })
            .ok_or(Errno::EINVAL),
    }
}

/// Returns an address that contains its length.
///
/// # Safety
/// `addr` points to as many bytes as `extent` requests, and to as many as it finally determines.
unsafe fn composite<'a>(
    addr: *const c_void,
    max: usize,
    extent: fn(&[u8]) -> Extent,
) -> Result<&'a [u8]> {
    let mut seen = 0;
    loop {
        // SAFETY: the caller guarantees that the address has as many bytes as `extent` has
        // requested.
        match extent(unsafe { bytes(addr, seen) }) {
            Extent::Unseen(more) if more > seen && more <= max => seen = more,
            // SAFETY: the caller guarantees that the address has as many bytes as `extent` has
            // determined.
            Extent::Is(len) if (1..=max).contains(&len) => return Ok(unsafe { bytes(addr, len) }),
            _ => return Err(Errno::EINVAL),
        }
    }
}
