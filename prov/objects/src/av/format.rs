//! Address formats (fi_getinfo(3), "Addressing formats"), in the C interface and in a vector.

use std::fmt;
use std::net::SocketAddr;

use fabric_abi::*;

use prov_base::address_text;
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;

/// An address that is inserted into a vector or read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// In the internet address formats.
    Internet(SocketAddr),
    /// In every other format; text without the terminating zero.
    Bytes(&'a [u8]),
}

impl From<SocketAddr> for Address<'_> {
    fn from(addr: SocketAddr) -> Self {
        Address::Internet(addr)
    }
}

impl<'a> From<&'a [u8]> for Address<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Address::Bytes(bytes)
    }
}

/// The layout of addresses in the array that is passed to fi_av_insert(3).
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    /// Socket addresses, all of the family of the first one.
    Internet,
    /// Internet addresses as text: an array of pointers to C strings.
    InternetText,
    /// Addresses of this many bytes.
    Fixed(usize),
    /// C strings of at most `max` bytes, one after the other, as the shm provider takes them.
    Text {
        /// Length limit in bytes, without the terminating zero.
        max: usize,
    },
    /// Addresses of variable length, one after the other: composites of other providers' addresses.
    Composite {
        /// Length limit of an address in bytes.
        max: usize,
        /// Determines the length from the beginning of an address.
        extent: fn(&[u8]) -> Extent,
    },
}

/// What the beginning of a composite address tells about its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// This many bytes are needed to determine it.
    Unseen(usize),
    /// The address has this many bytes.
    Is(usize),
}

/// A format of addresses.
#[derive(Clone, Copy)]
pub struct Format {
    number: u32,
    layout: Layout,
    /// The address families that the format includes.
    takes_v4: bool,
    takes_v6: bool,
    /// Checks whether bytes of the right length are an address.
    check: fn(&[u8]) -> Result,
    /// Its addresses as text, if that is the provider's.
    text: Option<Printer>,
}

/// Returns an address as text; `None` if it is none.
pub type Printer = fn(&[u8]) -> Option<String>;

const AF_IB: u16 = 27;
/// Length limit of an address in a vector, in bytes. It must fit `u16`, the length field of a
/// record.
const MAX_SIZE: usize = 4096;

impl Format {
    /// IPv4 and IPv6 addresses (`FI_SOCKADDR_IP`).
    pub const IP: Format = Format::with(FI_SOCKADDR_IP, Layout::Internet);
    /// IPv4 addresses (`FI_SOCKADDR_IN`).
    pub const IN: Format = Format::with(FI_SOCKADDR_IN, Layout::Internet);
    /// IPv6 addresses (`FI_SOCKADDR_IN6`).
    pub const IN6: Format = Format::with(FI_SOCKADDR_IN6, Layout::Internet);

    /// Returns the format with this number (`fi_info::addr_format`), if the number determines it.
    /// `FI_ADDR_STR` is interpreted as internet addresses in text form.
    pub fn of(number: u32) -> Option<Self> {
        Some(match number {
            FI_SOCKADDR | FI_SOCKADDR_IP | FI_SOCKADDR_IN | FI_SOCKADDR_IN6 => {
                Format::with(number, Layout::Internet)
            }
            FI_ADDR_STR => Format::with(number, Layout::InternetText),
            FI_SOCKADDR_IB => Format::fixed(number, 48).checked_by(infiniband),
            FI_ADDR_IB_UD => Format::fixed(number, 32).checked_by(not_zero),
            FI_ADDR_PSMX => Format::fixed(number, 8),
            FI_ADDR_PSMX2 => Format::fixed(number, 16),
            FI_ADDR_PSMX3 => Format::fixed(number, 32),
            _ => return None,
        })
    }

    /// Opaque addresses of `size` bytes: GIDs and the formats of devices.
    pub const fn fixed(number: u32, size: usize) -> Self {
        Format::with(number, Layout::Fixed(size))
    }

    /// Text of at most `max` bytes (`FI_ADDR_STR`), such as `fi_shm://17:0`.
    pub const fn text(max: usize) -> Self {
        Format::with(FI_ADDR_STR, Layout::Text { max })
    }

    /// Addresses of at most `max` bytes, which contain their length.
    pub const fn composite(number: u32, max: usize, extent: fn(&[u8]) -> Extent) -> Self {
        Format::with(number, Layout::Composite { max, extent })
    }

    /// The same, restricted to addresses that `check` accepts. Internet addresses are not checked
    /// by it.
    pub const fn checked_by(self, check: fn(&[u8]) -> Result) -> Self {
        Format { check, ..self }
    }

    /// The same with a text for its addresses, of which the format has none.
    pub const fn printed_by(self, text: Printer) -> Self {
        Format {
            text: Some(text),
            ..self
        }
    }

    const fn with(number: u32, layout: Layout) -> Self {
        let internet = matches!(layout, Layout::Internet | Layout::InternetText);
        Format {
            number,
            layout,
            takes_v4: internet && number != FI_SOCKADDR_IN6,
            takes_v6: internet && number != FI_SOCKADDR_IN,
            check: |_| Ok(()),
            text: None,
        }
    }

    /// `FI_SOCKADDR_*`, `FI_ADDR_*`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the layout of the addresses in an array.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns whether the addresses are internet addresses.
    pub fn is_internet(&self) -> bool {
        matches!(self.layout, Layout::Internet | Layout::InternetText)
    }

    /// Returns the length limit of an address in bytes, without the zero after text; `None` for
    /// internet addresses.
    pub fn max_size(&self) -> Option<usize> {
        match self.layout {
            Layout::Internet | Layout::InternetText => None,
            Layout::Fixed(size) => Some(size),
            Layout::Text { max } | Layout::Composite { max, .. } => Some(max),
        }
    }

    /// Returns `-FI_EINVAL` for a format whose addresses cannot be stored.
    pub(super) fn validate(&self) -> Result {
        match self.max_size() {
            Some(max) if max == 0 || max > MAX_SIZE => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// Reads an address from its C representation, text without the zero.
    pub fn read<'a>(&self, bytes: &'a [u8]) -> Result<Address<'a>> {
        let internet = match self.layout {
            Layout::Internet => sockaddr::decode(bytes),
            Layout::InternetText => str::from_utf8(bytes).ok().and_then(sockaddr::parse),
            _ => return Ok(Address::Bytes(bytes)),
        };
        internet.map(Address::Internet).ok_or(Errno::EINVAL)
    }

    /// Calls `take` with an address's C representation.
    pub fn write<R>(&self, addr: Address<'_>, take: impl FnOnce(&[u8]) -> R) -> R {
        let terminated = |text: &[u8]| [text, b"\0"].concat();
        match (addr, self.layout) {
            (Address::Internet(addr), Layout::InternetText) => {
                take(&terminated(sockaddr::to_string(&addr).as_bytes()))
            }
            (Address::Internet(addr), _) => take(sockaddr::encode(&addr).as_bytes()),
            (Address::Bytes(text), Layout::Text { .. }) => take(&terminated(text)),
            (Address::Bytes(bytes), _) => take(bytes),
        }
    }

    /// Checks whether a vector of this format accepts an address: `-FI_EADDRNOTAVAIL` for an
    /// address that no peer can have, `-FI_EINVAL` for an address of another format.
    #[inline]
    pub(super) fn admit(&self, addr: &Address<'_>) -> Result {
        match addr {
            Address::Internet(internet) => match internet {
                SocketAddr::V4(_) if !self.takes_v4 => Err(Errno::EINVAL),
                SocketAddr::V6(_) if !self.takes_v6 => Err(Errno::EINVAL),
                _ if !sockaddr::is_destination(internet) => Err(Errno::EADDRNOTAVAIL),
                _ => Ok(()),
            },
            Address::Bytes(bytes) if !self.fits(bytes.len()) => Err(Errno::EINVAL),
            Address::Bytes(bytes) => (self.check)(bytes),
        }
    }

    fn fits(&self, size: usize) -> bool {
        match self.layout {
            Layout::Internet | Layout::InternetText => false,
            Layout::Fixed(fixed) => size == fixed,
            Layout::Text { max } | Layout::Composite { max, .. } => (1..=max).contains(&size),
        }
    }

    /// Returns an address as text (fi_av_straddr(3)); `None` if it is not of this format, or the
    /// format has no text. A socket address may have another family than the format's.
    pub fn to_text(&self, bytes: &[u8]) -> Option<String> {
        if let Some(text) = self.text {
            return text(bytes);
        }
        let number = match self.layout {
            Layout::Internet => FI_SOCKADDR,
            _ => self.number,
        };
        address_text::text(number, bytes)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.number, self.layout)
    }
}

/// `sockaddr_ib`: the family is first, the GID follows after eight bytes.
fn infiniband(bytes: &[u8]) -> Result {
    if bytes.first_chunk().copied().map(u16::from_ne_bytes) != Some(AF_IB) {
        return Err(Errno::EINVAL);
    }
    not_zero(bytes.get(8..24).ok_or(Errno::EINVAL)?)
}

/// All zeros mean no address.
fn not_zero(bytes: &[u8]) -> Result {
    if bytes.iter().all(|&byte| byte == 0) {
        return Err(Errno::EADDRNOTAVAIL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(format: Format, bytes: &[u8]) -> Result {
        format.admit(&Address::Bytes(bytes))
    }

    #[test]
    fn addresses_have_the_length_of_their_format() {
        let gid = Format::fixed(FI_FORMAT_UNSPEC, 16);
        assert_eq!(admitted(gid, &[0; 16]), Ok(()));
        assert_eq!(admitted(gid, &[1; 15]), Err(Errno::EINVAL));
        let text = Format::text(5);
        assert_eq!(admitted(text, b"a://b"), Ok(()));
        assert_eq!(admitted(text, b"a://bc"), Err(Errno::EINVAL));
        assert_eq!(admitted(text, b""), Err(Errno::EINVAL));
        assert_eq!(admitted(Format::IP, &[2; 16]), Err(Errno::EINVAL));
        let internet: SocketAddr = "10.0.0.1:1".parse().unwrap();
        assert_eq!(gid.admit(&internet.into()), Err(Errno::EINVAL));
    }

    #[test]
    fn infiniband_addresses_have_their_family_and_a_gid() {
        let format = Format::of(FI_SOCKADDR_IB).unwrap();
        let mut addr = [0; 48];
        assert_eq!(admitted(format, &addr), Err(Errno::EINVAL));
        addr[..2].copy_from_slice(&AF_IB.to_ne_bytes());
        assert_eq!(admitted(format, &addr), Err(Errno::EADDRNOTAVAIL));
        addr[23] = 1;
        assert_eq!(admitted(format, &addr), Ok(()));
        let datagrams = Format::of(FI_ADDR_IB_UD).unwrap();
        assert_eq!(admitted(datagrams, &[0; 32]), Err(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn a_provider_has_the_last_word_about_its_addresses() {
        let format = Format::text(64).checked_by(|text| match text {
            [b'f', b'i', ..] => Ok(()),
            _ => Err(Errno::EINVAL),
        });
        assert_eq!(admitted(format, b"fi_shm://1"), Ok(()));
        assert_eq!(admitted(format, b"shm"), Err(Errno::EINVAL));
    }

    #[test]
    fn c_gets_the_bytes_it_gave() {
        let internet = sockaddr::encode(&"[fd00::1]:7".parse().unwrap());
        for (format, bytes) in [
            (Format::IP, internet.as_bytes()),
            (
                Format::of(FI_ADDR_STR).unwrap(),
                b"fi_sockaddr_in://10.0.0.1:7\0",
            ),
            (Format::text(20), b"fi_shm://1\0"),
            (Format::fixed(FI_ADDR_CXI, 4), b"abcd"),
        ] {
            let inner = match format.number() {
                FI_ADDR_STR => bytes.strip_suffix(b"\0").unwrap(),
                _ => bytes,
            };
            let addr = format.read(inner).unwrap();
            assert_eq!(format.write(addr, <[u8]>::to_vec), bytes, "{format:?}");
        }
    }

    #[test]
    fn formats_that_no_vector_can_keep_are_refused() {
        for size in [0, MAX_SIZE + 1] {
            let format = Format::fixed(FI_FORMAT_UNSPEC, size);
            assert_eq!(format.validate(), Err(Errno::EINVAL));
        }
        assert!(Format::of(FI_ADDR_GNI).is_none());
    }
}
