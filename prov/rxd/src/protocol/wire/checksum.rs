//! The checksum over the headers of packets between peers of this library (extension), which finds
//! what UDP's does not: docs/rxd-wire.md. On the wire it takes the place of the upper half of the sequence
//! number, which the receiver knows.

use prov_base::checksum;

use super::{
    ACK_FIELD_LEN, ATOMIC_LEN, BASE_LEN, Base, EXTENDED_LEN, EXTENT_LEN, Head, PIECE_LEN, flag,
    is_atomic, is_remote, kind,
};

/// Bytes of [`Extended`](super::Extended), and of a [`RefusalPacket`](super::RefusalPacket).
const NUMBERS_LEN: usize = EXTENDED_LEN - BASE_LEN;
/// Where the number of pieces is in an [`Extent`](super::Extent).
const PIECES_AT: usize = 20;

impl Base {
    /// Checks the header of a packet from a peer of this library, and completes the sequence number,
    /// which is near `expected`. Returns `false` if the checksum is wrong: then nothing is known of the
    /// packet.
    #[inline(always)]
    pub fn unseal(&mut self, expected: u64, packet: &[u8]) -> bool {
        let ahead = (self.seq as u32).wrapping_sub(expected as u32) as i32;
        let seq = expected.wrapping_add_signed(ahead.into());
        let sum = (self.seq >> 32) as u32;
        self.seq = seq;
        let header = self.header_len(packet).and_then(|len| packet.get(..len));
        header.is_some_and(|header| sum == sum_of(packet.len(), header, seq))
    }

    /// Bytes of the headers of a packet of this type with these flags; `None` if it is too short to
    /// tell.
    #[inline(always)]
    fn header_len(&self, packet: &[u8]) -> Option<usize> {
        let mut len = BASE_LEN;
        let mut add = |flag, bytes| len += if self.flags & flag != 0 { bytes } else { 0 };
        add(flag::ACK, ACK_FIELD_LEN);
        match self.kind {
            kind::ACK => return Some(packet.len()),
            kind::DATA | kind::RESULT | kind::REFUSAL => return Some(len + NUMBERS_LEN),
            _ => {}
        }
        add(flag::TAG, 8);
        add(flag::DATA, 8);
        let mut pieces = 1;
        if self.flags & flag::INLINE == 0 {
            pieces = usize::from(*packet.get(len + PIECES_AT)?);
            len += EXTENT_LEN;
        }
        if is_remote(self.kind) {
            len += pieces * PIECE_LEN;
        }
        if is_atomic(self.kind) {
            len += ATOMIC_LEN;
        }
        Some(len)
    }
}

impl<const ROOM: usize> Head<ROOM> {
    /// Puts the checksum of all headers in place of the upper half of the sequence number, before the
    /// packet leaves with so many bytes of payload.
    #[inline(always)]
    pub fn seal(&mut self, payload: usize) {
        let Some(&[_, seq]) = self.bytes.as_chunks::<8>().0.first_chunk() else {
            return;
        };
        let seq = u64::from_ne_bytes(seq);
        let sum = sum_of(self.len + payload, self.bytes(), seq);
        if let Some(front) = self.bytes.first_chunk_mut::<BASE_LEN>()
            && let Some(place) = front.last_chunk_mut()
        {
            *place = (u64::from(sum) << 32 | seq & 0xffff_ffff).to_ne_bytes();
        }
    }
}

/// The checksum of a packet of so many bytes with this header, in which the sequence number is `seq`.
#[inline(always)]
fn sum_of(len: usize, header: &[u8], seq: u64) -> u32 {
    let Some((front, rest)) = header.split_first_chunk::<BASE_LEN>() else {
        return 0;
    };
    let front = front
        .first_chunk()
        .map_or(0, |front| u64::from_ne_bytes(*front));
    checksum::crc32c(len as u32, [front, seq], rest)
}

/// Puts the checksum into a packet that has this sequence number and any other bytes, for tests and
/// fuzz targets.
#[doc(hidden)]
pub fn seal(packet: &mut [u8], seq: u64) {
    if let Some(place) = packet.get_mut(8..BASE_LEN) {
        place.copy_from_slice(&seq.to_ne_bytes());
    }
    let len = Base::read(packet).and_then(|(base, _)| base.header_len(packet));
    let sealed = len.and_then(|len| packet.get(..len)).map(|header| {
        let sum = sum_of(packet.len(), header, seq);
        u64::from(sum) << 32 | seq & 0xffff_ffff
    });
    if let (Some(sealed), Some(place)) = (sealed, packet.get_mut(8..BASE_LEN)) {
        place.copy_from_slice(&sealed.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use prov_util::request::{RemoteIov, RemotePiece};

    use super::super::tests::damaged;
    use super::super::{AckField, Extended, Extent, Operation};
    use super::*;

    /// A packet of each form, sealed, with its number of bytes of payload.
    fn sealed(seq: u64) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut add = |mut head: Head, payload: usize| {
            head.seal(payload);
            let mut packet = head.bytes().to_vec();
            packet.resize(packet.len() + payload, 3);
            packets.push(packet);
        };
        let ack = AckField {
            next: 1,
            window: 2,
            refusals: 3,
            delay: 4,
            echo: 5,
        };
        for (kind, flags, pieces) in [
            (kind::MESSAGE, flag::INLINE, 0),
            (kind::TAGGED, flag::INLINE | flag::TAG | flag::ACK, 0),
            (kind::TAGGED, flag::TAG | flag::DATA, 0),
            (kind::WRITE, flag::INLINE | flag::DATA, 1),
            (kind::READ, flag::ACK, 4),
            (kind::ATOMIC, flag::INLINE, 1),
            (kind::COMPARE, 0, 3),
        ] {
            let mut remote = RemoteIov::default();
            for _ in 0..pieces {
                let (addr, len, key) = (1000, 10, 1);
                remote.push(RemotePiece { addr, len, key });
            }
            let operation = Operation {
                tag: (flags & flag::TAG != 0).then_some(5),
                data: (flags & flag::DATA != 0).then_some(6),
                extent: (flags & flag::INLINE == 0).then_some(Extent {
                    size: 100,
                    parts: 1,
                    id: 9,
                    pieces,
                }),
                remote,
                atomic: is_atomic(kind).then_some((3, 2)),
            };
            let mut head = Head::new(kind, flags, 5, seq);
            if flags & flag::ACK != 0 {
                head.ack(&ack);
            }
            head.operation(&operation);
            add(head, 8);
        }
        for (kind, flags) in [
            (kind::DATA, flag::ACK),
            (kind::RESULT, 0),
            (kind::REFUSAL, flag::ACK),
            (kind::ACK, 0),
        ] {
            let mut head = Head::new(kind, flags, 5, seq);
            if flags & flag::ACK != 0 {
                head.ack(&ack);
            }
            head.extended(&Extended {
                tx_id: 1,
                rx_id: 2,
                part: 3,
            });
            let payload = match kind {
                kind::DATA | kind::RESULT => 8,
                kind::ACK => {
                    head.u64(1);
                    0
                }
                _ => 0,
            };
            add(head, payload);
        }
        packets
    }

    #[test]
    fn a_sealed_packet_is_recognised_and_its_sequence_number_completed() {
        for seq in [7, 0xffff_fff0, 0x1_0000_0003, u64::MAX] {
            for packet in sealed(seq) {
                for near in [seq.wrapping_sub(1 << 20), seq, seq.wrapping_add(4096)] {
                    let (mut base, _) = Base::read(&packet).unwrap();
                    assert!(base.unseal(near, &packet));
                    assert_eq!(base.seq, seq);
                }
                let (mut base, _) = Base::read(&packet).unwrap();
                assert!(
                    !base.unseal(seq ^ 1 << 40, &packet),
                    "of another connection"
                );
                let mut again = packet.clone();
                seal(&mut again, seq);
                assert_eq!(again, packet);
            }
        }
    }

    #[test]
    fn a_header_that_is_damaged_or_a_packet_that_is_cut_is_refused() {
        for packet in sealed(7) {
            let header = Base::read(&packet).unwrap().0.header_len(&packet).unwrap();
            let unseals = |packet: &[u8]| {
                let base = Base::read(packet);
                base.is_some_and(|(mut base, _)| base.unseal(7, packet))
            };
            damaged(&packet[..header], |header| {
                let mut damaged = packet.clone();
                damaged[..header.len()].copy_from_slice(header);
                assert!(!unseals(&damaged));
            });
            for len in 0..packet.len() {
                assert!(!unseals(&packet[..len]));
            }
        }
    }
}
