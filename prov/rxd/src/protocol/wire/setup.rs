//! Packets that set up a connection, and what this library adds to them.

use super::{BASE_LEN, HEAD_ROOM, Head, Reader, kind};
use crate::protocol::host::{NAME_LEN, Name};

/// What one side of this library tells the other during set-up (extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Bytes of the longest datagram that the sender can send and receive.
    pub mtu: u32,
    /// Number of packets that the sender of this accepts without a gap.
    pub window: u32,
    /// Sequence number of the first packet that it will send.
    pub first_seq: u64,
    /// In an answer with the address 0: what the request is to be repeated with, since there is no room
    /// for one that anybody can send. In a request: what such an answer had, or 0. In any other answer:
    /// the address of an earlier request of the same endpoint, with which there is a connection, or 0.
    pub cookie: u64,
    /// A random number of the sender's endpoint; 0 if it does not say.
    pub instance: u32,
}

/// "rxd+crc" and the version of the extension.
const HELLO_MAGIC: u64 = 0x7278_642b_6372_6303;
/// What earlier versions of this library have sent: they are served like the C library.
const EARLIER_MAGICS: [u64; 2] = [0x7278_642d_7273_0001, 0x7278_642d_7273_0002];
const HELLO_LEN: usize = 40;

const _: () = assert!(BASE_LEN + 8 + NAME_LEN + HELLO_LEN <= HEAD_ROOM);

impl Reader<'_> {
    /// Reads what follows the last field of the C library in a packet that sets up a connection.
    /// Returns `None` if that is neither nothing nor in order.
    fn hello(&mut self, packet: &[u8]) -> Option<Option<Hello>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let checked = packet.len() - self.0.len() + HELLO_LEN - size_of::<u32>();
        let magic = self.u64()?;
        if EARLIER_MAGICS.contains(&magic) {
            return Some(None);
        }
        let hello = Hello {
            mtu: self.u32()?,
            window: self.u32()?,
            first_seq: self.u64()?,
            cookie: self.u64()?,
            instance: self.u32()?,
        };
        let sum = self.u32()?;
        let is_valid = magic == HELLO_MAGIC && sum == crc32c::crc32c(packet.get(..checked)?);
        is_valid.then_some(Some(hello))
    }
}

impl Head {
    /// What this library adds to a packet that sets up a connection, at its end.
    fn hello(&mut self, hello: &Hello) {
        self.u64(HELLO_MAGIC);
        self.u32(hello.mtu);
        self.u32(hello.window);
        self.u64(hello.first_seq);
        self.u64(hello.cookie);
        self.u32(hello.instance);
        self.u32(crc32c::crc32c(self.bytes()));
    }
}

/// A request to set up a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupRequest {
    /// What packets to the sender of this carry as its number; the upper half only proves who
    /// answers.
    pub address: u64,
    pub name: Name,
    pub hello: Option<Hello>,
}

impl SetupRequest {
    pub fn read(packet: &[u8]) -> Option<SetupRequest> {
        let mut reader = Reader(packet.get(BASE_LEN..)?);
        let address = reader.u64()?;
        let name = reader.take::<NAME_LEN>()?;
        let hello = reader.hello(packet)?;
        Some(SetupRequest {
            address,
            name,
            hello,
        })
    }

    pub fn write(&self) -> Head {
        let mut head: Head = Head::new(kind::REQUEST, 0, 0, 0);
        head.u64(self.address);
        head.put(&self.name);
        if let Some(hello) = &self.hello {
            head.hello(hello);
        }
        head
    }
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupAnswer {
    /// The address of the request.
    pub to: u64,
    /// The answering side's own; 0 if the request is to be repeated with a [cookie](Hello::cookie).
    pub address: u64,
    pub hello: Option<Hello>,
}

impl SetupAnswer {
    pub fn read(packet: &[u8]) -> Option<SetupAnswer> {
        let mut reader = Reader(packet.get(BASE_LEN..)?);
        Some(SetupAnswer {
            to: reader.u64()?,
            address: reader.u64()?,
            hello: reader.hello(packet)?,
        })
    }

    pub fn write(&self) -> Head {
        let mut head: Head = Head::new(kind::ANSWER, 0, self.to as u32, 0);
        head.u64(self.to);
        head.u64(self.address);
        if let Some(hello) = &self.hello {
            head.hello(hello);
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::damaged;
    use super::*;

    #[test]
    fn the_layout_is_that_of_the_c_library() {
        let request = SetupRequest {
            address: 1,
            name: [7; NAME_LEN],
            hello: None,
        };
        let packet = request.write();
        assert_eq!(packet.bytes().len(), 88);
        assert_eq!(packet.bytes()[..2], [2, 9]);
        assert_eq!(packet.bytes()[24..88], [7; 64]);
        let answer = SetupAnswer {
            to: 1,
            address: 2,
            hello: None,
        };
        assert_eq!(answer.write().bytes().len(), 32);
    }

    #[test]
    fn the_extension_follows_the_bytes_that_the_c_library_reads() {
        let hello = Hello {
            mtu: 1472,
            window: 1024,
            first_seq: 99,
            cookie: 7,
            instance: 8,
        };
        let request = SetupRequest {
            address: 1,
            name: [7; NAME_LEN],
            hello: Some(hello),
        };
        let packet = request.write();
        assert_eq!(SetupRequest::read(packet.bytes()), Some(request));
        let shorter = SetupRequest::read(&packet.bytes()[..88]).unwrap();
        assert_eq!(shorter.hello, None);
        for magic in EARLIER_MAGICS {
            let mut other = packet.bytes().to_vec();
            other[88..96].copy_from_slice(&magic.to_ne_bytes());
            assert_eq!(SetupRequest::read(&other).unwrap().hello, None);
        }
        let answer = SetupAnswer {
            to: 1,
            address: 2,
            hello: Some(hello),
        };
        assert_eq!(SetupAnswer::read(answer.write().bytes()), Some(answer));
    }

    #[test]
    fn a_request_or_an_answer_that_is_damaged_is_refused() {
        let hello = Some(Hello {
            mtu: 1472,
            window: 1024,
            first_seq: 99,
            cookie: 0,
            instance: 8,
        });
        let name = [7; NAME_LEN];
        let request = SetupRequest {
            address: 1,
            name,
            hello,
        };
        let answer = SetupAnswer {
            to: 1,
            address: 2,
            hello,
        };
        damaged(request.write().bytes(), |packet| {
            assert_eq!(SetupRequest::read(packet), None);
        });
        damaged(answer.write().bytes(), |packet| {
            assert_eq!(SetupAnswer::read(packet), None);
        });
    }
}
