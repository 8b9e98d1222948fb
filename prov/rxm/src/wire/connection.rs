//! The connection data of fi_connect(3), fi_accept(3) and fi_reject(3).

use super::{Malformed, Reader, Result};

/// Version of the connection data.
const VERSION: u8 = 1;
/// *Extension*: version of the data of a request to a context of a scalable endpoint other than the
/// first. The C library refuses it.
const CONTEXT_VERSION: u8 = 0x81;
/// Version of the first half of packet headers.
pub const CONTROL_VERSION: u8 = 4;
/// Version of the second half of packet headers.
const OPERATION_VERSION: u8 = 3;
/// This host's byte order.
const BYTE_ORDER: u8 = if cfg!(target_endian = "little") { 2 } else { 1 };

/// Length in bytes of a request between endpoints that are no contexts of a scalable endpoint, or
/// the first ones.
pub const REQUEST: usize = 24;
/// Length of a request from or to another context.
pub const CONTEXT_REQUEST: usize = REQUEST + 4;
/// *Extension*: the bytes in front of the contexts, which follow a request. The provider below may
/// add others to it.
const CONTEXTS_FOLLOW: [u8; 2] = *b"rc";
/// *Extension*: the last bytes of the connection data of a side that sends, and understands,
/// [`Kind::Leave`](super::packet::Kind::Leave).
const TAKES_LEAVE: [u8; 2] = *b"rl";
/// Length of an acceptance in bytes.
pub const ACCEPTANCE: usize = 16;
/// Length of a refusal in bytes.
pub const REFUSAL: usize = 2;

/// A side's identifier of a connection, and its process. The other side puts the low half into
/// packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// The process.
    pub pid: u32,
    /// The connection.
    pub id: u32,
}

impl Name {
    fn word(self) -> u64 {
        u64::from(self.pid) << 32 | u64::from(self.id)
    }

    fn of_word(word: u64) -> Self {
        Name {
            pid: (word >> 32) as u32,
            id: word as u32,
        }
    }
}

/// Whether a side counts the posted receives of its peer (credits). This one never does, so that no
/// credit packets arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowControl {
    /// Not contained in the data of that version.
    Unsaid,
    On,
    Off,
}

impl FlowControl {
    fn byte(self) -> u8 {
        match self {
            FlowControl::Unsaid => 0,
            FlowControl::On => 1,
            FlowControl::Off => 2,
        }
    }

    fn of_byte(byte: u8) -> Self {
        match byte {
            1 => FlowControl::On,
            2 => FlowControl::Off,
            _ => FlowControl::Unsaid,
        }
    }
}

/// A request for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The port at which the requesting endpoint listens.
    pub port: u16,
    pub flow_control: FlowControl,
    /// The number of the connection, among several between the two endpoints.
    pub number: u8,
    /// Bytes of the longest message that is sent in one packet.
    pub eager_limit: u32,
    /// Number of posted packet buffers.
    pub receives: u32,
    pub name: Name,
    /// The contexts of scalable endpoints that it is for and that it comes from; 0 for the first
    /// ones, and for other endpoints.
    pub to: u8,
    pub from: u8,
    /// Whether the sender says when it is closed in good order.
    pub takes_leave: bool,
}

impl Request {
    /// Returns the encoded form: *extension*, the contexts follow what the C library sends and
    /// reads, unless both are 0.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [0; REQUEST];
        let version = match self.to {
            0 => VERSION,
            _ => CONTEXT_VERSION,
        };
        bytes[..4].copy_from_slice(&[version, BYTE_ORDER, CONTROL_VERSION, OPERATION_VERSION]);
        bytes[4..6].copy_from_slice(&self.port.to_ne_bytes());
        bytes[6] = self.flow_control.byte();
        bytes[7] = self.number;
        bytes[8..12].copy_from_slice(&self.eager_limit.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.receives.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.name.word().to_ne_bytes());
        let mut bytes = bytes.to_vec();
        if (self.to, self.from) != (0, 0) {
            bytes.extend(CONTEXTS_FOLLOW);
            bytes.extend([self.to, self.from]);
        }
        if self.takes_leave {
            bytes.extend(TAKES_LEAVE);
        }
        bytes
    }

    /// Decodes what a peer has sent.
    ///
    /// # Errors
    /// If it is not of this protocol, in these versions.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let versions: [u8; 4] = reader.take().ok_or(SHORT)?;
        let is_to_context = versions[0] == CONTEXT_VERSION;
        if versions[0] != VERSION && !is_to_context {
            return Err(Malformed("version of connection data"));
        }
        if versions[1] != BYTE_ORDER {
            return Err(Malformed("byte order"));
        }
        if versions[2] != CONTROL_VERSION || versions[3] != OPERATION_VERSION {
            return Err(Malformed("version of the protocol"));
        }
        let mut read = || {
            Some(Request {
                port: reader.u16()?,
                flow_control: FlowControl::of_byte(reader.u8()?),
                number: reader.u8()?,
                eager_limit: reader.u32()?,
                receives: reader.u32()?,
                name: Name::of_word(reader.u64()?),
                to: 0,
                from: 0,
                takes_leave: false,
            })
        };
        let mut request = read().ok_or(SHORT)?;
        let mut next = reader.take();
        if next == Some(CONTEXTS_FOLLOW)
            && let Some([to, from]) = reader.take()
        {
            (request.to, request.from) = (to, from);
            next = reader.take();
        }
        request.takes_leave = next == Some(TAKES_LEAVE);
        if is_to_context != (request.to != 0) {
            return Err(Malformed("context"));
        }
        Ok(request)
    }
}

const SHORT: Malformed = Malformed("length of connection data");

/// The answer that accepts a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acceptance {
    pub name: Name,
    /// Number of posted packet buffers.
    pub receives: u32,
    pub flow_control: FlowControl,
    /// As in [`Request::takes_leave`].
    pub takes_leave: bool,
}

impl Acceptance {
    /// Returns the encoded form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [0; ACCEPTANCE];
        bytes[..8].copy_from_slice(&self.name.word().to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.receives.to_ne_bytes());
        bytes[12] = self.flow_control.byte();
        let mut bytes = bytes.to_vec();
        if self.takes_leave {
            bytes.extend(TAKES_LEAVE);
        }
        bytes
    }

    /// Decodes what a peer has sent.
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let mut read = || {
            Some(Acceptance {
                name: Name::of_word(reader.u64()?),
                receives: reader.u32()?,
                flow_control: FlowControl::of_byte(reader.u8()?),
                takes_leave: false,
            })
        };
        let acceptance = read().ok_or(SHORT)?;
        Ok(Acceptance {
            takes_leave: bytes.get(ACCEPTANCE..ACCEPTANCE + 2) == Some(&TAKES_LEAVE),
            ..acceptance
        })
    }
}

/// The reason for refusing a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its parameters are incompatible.
    Refused,
    /// There is a connection, or the peer's own request has priority.
    Already,
    /// *Extension*: the endpoint is another context of a scalable endpoint, or none.
    NoContext,
}

impl Refusal {
    /// Returns the encoded form.
    pub fn encode(self) -> [u8; REFUSAL] {
        let reason = match self {
            Refusal::Refused => 1,
            Refusal::Already => 2,
            Refusal::NoContext => 3,
        };
        [VERSION, reason]
    }

    /// Decodes what a peer has sent; unknown data counts as a refusal, too.
    pub fn decode(bytes: &[u8]) -> Self {
        match bytes {
            [VERSION, 2, ..] => Refusal::Already,
            [VERSION, 3, ..] => Refusal::NoContext,
            _ => Refusal::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> Request {
        Request {
            port: 0x1234,
            flow_control: FlowControl::Off,
            number: 0,
            eager_limit: 16384,
            receives: 4096,
            name: Name { pid: 7, id: 9 },
            to: 0,
            from: 0,
            takes_leave: false,
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_request_is_laid_out_as_the_c_library_lays_it_out() {
        let expected = [
            1, 2, 4, 3, 0x34, 0x12, 2, 0, 0, 0x40, 0, 0, 0, 0x10, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0,
        ];
        assert_eq!(request().encode(), expected);
    }

    #[test]
    fn a_request_from_a_context_begins_as_any_and_one_to_a_context_does_not() {
        let plain = request().encode();
        let from = Request {
            from: 5,
            ..request()
        };
        assert_eq!(from.encode()[..REQUEST], plain);
        let to = Request { to: 1, ..request() };
        // Where the C library looks for version 1.
        assert_eq!(to.encode()[0], 0x81);
        assert_eq!(to.encode()[1..REQUEST], plain[1..]);
        for one in [from, to] {
            let mut bytes = one.encode();
            assert_eq!(
                (bytes.len(), Request::decode(&bytes)),
                (CONTEXT_REQUEST, Ok(one))
            );
            // The provider below fills up the space.
            bytes.extend([0; 30]);
            assert_eq!(Request::decode(&bytes), Ok(one));
        }
        let leaves = Request {
            takes_leave: true,
            from: 5,
            ..request()
        };
        let filled = [leaves.encode(), vec![0; 30]].concat();
        assert_eq!(Request::decode(&filled), Ok(leaves));
        let filled = [plain, vec![0; 32]].concat();
        assert_eq!(Request::decode(&filled), Ok(request()));
    }

    #[test]
    fn a_request_to_a_context_that_names_none_is_malformed() {
        let to = Request { to: 1, ..request() };
        let bytes = to.encode();
        assert!(Request::decode(&bytes[..REQUEST]).is_err());
        for at in REQUEST..CONTEXT_REQUEST {
            let mut bytes = bytes.clone();
            bytes[at] = 0;
            assert_eq!(Request::decode(&bytes).is_ok(), at == CONTEXT_REQUEST - 1);
        }
        // Nor can one of the first version be for a context.
        let mut bytes = bytes;
        bytes[0] = VERSION;
        assert!(Request::decode(&bytes).is_err());
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn an_answer_is_laid_out_as_the_c_library_lays_it_out() {
        let acceptance = Acceptance {
            name: Name { pid: 7, id: 9 },
            receives: 4096,
            flow_control: FlowControl::On,
            takes_leave: false,
        };
        let expected = [9, 0, 0, 0, 7, 0, 0, 0, 0, 0x10, 0, 0, 1, 0, 0, 0];
        assert_eq!(acceptance.encode(), expected);
    }

    #[test]
    fn other_versions_and_another_byte_order_are_refused() {
        for at in 0..4 {
            let mut bytes = request().encode();
            bytes[at] += 1;
            assert!(Request::decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_refusal_without_a_known_reason_is_decoded_as_refused() {
        assert_eq!(Refusal::decode(&[]), Refusal::Refused);
        assert_eq!(Refusal::decode(&[2, 2]), Refusal::Refused);
        for refusal in [Refusal::Refused, Refusal::Already, Refusal::NoContext] {
            assert_eq!(Refusal::decode(&refusal.encode()), refusal);
        }
    }

    proptest! {
        #[test]
        fn requests_and_answers_are_read_as_they_were_written(
            port: u16, number: u8, eager_limit: u32, receives: u32, pid: u32, id: u32, flow in 0_u8..3,
            to: u8, from: u8, takes_leave: bool,
        ) {
            let (name, flow_control) = (Name { pid, id }, FlowControl::of_byte(flow));
            let request =
                Request { port, flow_control, number, eager_limit, receives, name, to, from, takes_leave };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            let acceptance = Acceptance { name, receives, flow_control, takes_leave };
            prop_assert_eq!(Acceptance::decode(&acceptance.encode()), Ok(acceptance));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert_eq!(&request.encode()[..6], &bytes[..6]);
            }
            let acceptance = Acceptance::decode(&bytes);
            prop_assert_eq!(acceptance.is_ok(), bytes.len() >= 13);
            Refusal::decode(&bytes);
        }
    }
}
