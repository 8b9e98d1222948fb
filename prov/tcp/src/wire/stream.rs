//! The decoder of a stream of messages that is cut anywhere: bytes in, headers and payload out.

use super::handshake::Features;
use super::header::{Header, MAX_HEADER, RmaList};
use super::{ByteOrder, WireError};

/// The receiving side of one stream.
#[derive(Debug)]
pub struct Stream {
    order: ByteOrder,
    features: Features,
    /// Number of bytes of the current message that are still to arrive.
    payload_left: usize,
    /// The start of a header whose rest has not arrived.
    partial: [u8; MAX_HEADER],
    partial_len: u8,
    /// Remote buffers of the last header that had any.
    rma: RmaList,
}

/// The next event of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A message begins; [`Stream::rma`] has its remote buffers.
    Message(Header),
    /// Bytes of the message that began last, never empty.
    Payload(&'a [u8]),
    /// No event until more bytes arrive.
    Need,
}

impl Stream {
    /// Creates a stream after its handshake.
    pub fn new(order: ByteOrder, features: Features) -> Self {
        Stream {
            order,
            features,
            payload_left: 0,
            partial: [0; MAX_HEADER],
            partial_len: 0,
            rma: RmaList::default(),
        }
    }

    /// Removes the next event from the front of `bytes`.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "a header that was decoded is within the bytes, and one that was not has fewer than MAX_HEADER of them"
    )]
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Event<'a>, WireError> {
        if self.payload_left != 0 {
            let n = self.payload_left.min(bytes.len());
            if n == 0 {
                return Ok(Event::Need);
            }
            let (payload, rest) = bytes.split_at(n);
            *bytes = rest;
            self.payload_left = self.payload_left.saturating_sub(n);
            return Ok(Event::Payload(payload));
        }
        if bytes.is_empty() {
            return Ok(Event::Need);
        }
        if self.partial_len != 0 {
            return self.finish_header(bytes);
        }
        match Header::decode(bytes, self.order, self.features, &mut self.rma) {
            Ok((header, len)) => {
                *bytes = &bytes[len..];
                self.payload_left = header.payload;
                Ok(Event::Message(header))
            }
            Err(Some(error)) => Err(error),
            Err(None) => {
                self.partial[..bytes.len()].copy_from_slice(bytes);
                self.partial_len = bytes.len() as u8;
                *bytes = &[];
                Ok(Event::Need)
            }
        }
    }

    #[cold]
    #[allow(
        clippy::indexing_slicing,
        reason = "fewer than MAX_HEADER bytes are kept, and a header that was decoded ends within those and the new ones"
    )]
    fn finish_header<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Event<'a>, WireError> {
        let had = usize::from(self.partial_len);
        let room = &mut self.partial[had..];
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        let have = had.saturating_add(n);
        match Header::decode(
            &self.partial[..have],
            self.order,
            self.features,
            &mut self.rma,
        ) {
            Ok((header, len)) => {
                // The partial bytes alone were no header, so `len > had`.
                *bytes = &bytes[len.saturating_sub(had)..];
                self.partial_len = 0;
                self.payload_left = header.payload;
                Ok(Event::Message(header))
            }
            Err(Some(error)) => Err(error),
            Err(None) => {
                self.partial_len = have as u8;
                *bytes = &bytes[n..];
                Ok(Event::Need)
            }
        }
    }

    /// Whether the next bytes begin a message.
    #[inline]
    pub fn is_between_messages(&self) -> bool {
        self.payload_left == 0 && self.partial_len == 0
    }

    /// Returns the remote buffers of the message that began last.
    pub fn rma(&self) -> &RmaList {
        &self.rma
    }

    /// Returns the number of bytes of the current message that are still to arrive.
    #[inline]
    pub fn payload_left(&self) -> usize {
        self.payload_left
    }

    /// Notes that `n` of those bytes, at most all, were read directly to their destination.
    #[inline]
    pub fn payload_done(&mut self, n: usize) {
        self.payload_left = self.payload_left.saturating_sub(n);
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{Op, RmaIov};
    use super::*;
    use proptest::prelude::*;

    fn encode(messages: &[(u64, usize, bool)]) -> (Vec<u8>, Vec<(Header, Vec<u8>)>) {
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for &(tag, len, write) in messages {
            let mut header = Header::new(if write { Op::Write } else { Op::Tagged });
            header.payload = len;
            header.rma_count = u8::from(write);
            header.tag = if write { 0 } else { tag };
            let part = RmaIov {
                addr: 1,
                len: len as u64,
                key: tag,
            };
            let mut out = [0; MAX_HEADER];
            let n = header.encode(&[part], ByteOrder::Native, 0, &mut out);
            let payload: Vec<u8> = (0..len).map(|i| (i as u64 ^ tag) as u8).collect();
            stream.extend(&out[..n]);
            stream.extend(&payload);
            expected.push((header, payload));
        }
        (stream, expected)
    }

    proptest! {
        #[test]
        fn messages_survive_any_cutting(
            messages in prop::collection::vec((any::<u64>(), 0..300usize, any::<bool>()), 1..20),
            cuts in prop::collection::vec(1..100usize, 1..50),
        ) {
            let (bytes, expected) = encode(&messages);
            let mut stream = Stream::new(ByteOrder::Native, Features::OURS);
            let mut got: Vec<(Header, Vec<u8>)> = Vec::new();
            let mut rest = &bytes[..];
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let n = cuts.next().unwrap().min(rest.len());
                let mut piece = &rest[..n];
                rest = &rest[n..];
                loop {
                    match stream.next(&mut piece).unwrap() {
                        Event::Need => break,
                        Event::Message(header) => got.push((header, Vec::new())),
                        Event::Payload(part) => got.last_mut().unwrap().1.extend(part),
                    }
                }
                prop_assert!(piece.is_empty());
            }
            prop_assert_eq!(got, expected);
            prop_assert_eq!(stream.payload_left(), 0);
        }

        #[test]
        fn no_bytes_make_the_stream_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut stream = Stream::new(ByteOrder::Native, Features::OURS);
            for chunk in bytes.chunks(7) {
                let mut piece = chunk;
                while let Ok(event) = stream.next(&mut piece) {
                    if event == Event::Need {
                        break;
                    }
                }
            }
        }
    }
}
