//! What two processes of one host tell each other so that one can read the
//! other's memory.

use prov_util::process_memory::{OtherIov, OtherPiece};

use super::WireError;

/// Bytes of one piece of memory: its address and its length.
const PIECE: usize = 16;
/// Most bytes of a list of such pieces.
pub const MAX_LIST: usize = PIECE * prov_util::buffer::IOV_LIMIT;

/// What [`Op::Acquaint`](super::header::Op::Acquaint) says, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquaintance {
    /// Who the sender is: `id` is its process, `word` the number that its end
    /// of the connection has there.
    Introduction,
    /// To a peer that is who it says it is: at the address `id` of the
    /// sender's memory stands `word`.
    Token,
    /// The sender has read that, and will read more.
    Ready,
}

impl Acquaintance {
    /// Its `op_data`.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What this `op_data` stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Acquaintance::Introduction),
            1 => Some(Acquaintance::Token),
            2 => Some(Acquaintance::Ready),
            _ => None,
        }
    }
}

/// The bytes of a list, in the order of the host that both processes have.
pub fn encode(list: &OtherIov) -> Vec<u8> {
    let fields = list
        .pieces()
        .iter()
        .flat_map(|piece| [piece.addr, piece.len]);
    fields.flat_map(u64::to_ne_bytes).collect()
}

/// Reads a list, of pieces that are not empty and have `len` bytes together.
pub fn decode(bytes: &[u8], len: u64) -> Result<OtherIov, WireError> {
    let wrong = || WireError::Field("list of memory");
    let mut list = OtherIov::default();
    let (pieces, rest) = bytes.as_chunks::<PIECE>();
    for piece in pieces {
        let (fields, _) = piece.as_chunks::<{ PIECE / 2 }>();
        let &[addr, len] = fields else {
            return Err(wrong());
        };
        let (addr, len) = (u64::from_ne_bytes(addr), u64::from_ne_bytes(len));
        if len == 0 || addr.checked_add(len).is_none() || !list.push(OtherPiece { addr, len }) {
            return Err(wrong());
        }
    }
    if rest.is_empty() && list.len() == len {
        Ok(list)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pieces: &[(u64, u64)]) -> OtherIov {
        let mut list = OtherIov::default();
        for &(addr, len) in pieces {
            assert!(list.push(OtherPiece { addr, len }));
        }
        list
    }

    #[test]
    fn a_list_comes_back_from_its_bytes() {
        let sent = list(&[(0x1000, 5), (7, 1 << 40), (0x3000, 1), (0x4000, 2)]);
        let bytes = encode(&sent);
        assert_eq!(bytes.len(), MAX_LIST);
        assert_eq!(decode(&bytes, sent.len()), Ok(sent));
        assert!(decode(&bytes, sent.len() + 1).is_err());
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], sent.len()).is_err());
        }
    }

    #[test]
    fn lying_lists_are_refused() {
        let refused = |pieces: &[(u64, u64)]| {
            let sent = list(pieces);
            decode(&encode(&sent), sent.len()).is_err()
        };
        assert!(!refused(&[(1, 1)]));
        assert!(refused(&[(1, 1), (2, 0)]));
        assert!(refused(&[(u64::MAX, 2)]));
        let mut five = encode(&list(&[(1, 1); 4]));
        five.extend_from_within(..PIECE);
        assert!(decode(&five, 5).is_err());
    }

    #[test]
    fn every_code_stands_for_what_has_it() {
        for code in 0..=u8::MAX {
            let known = Acquaintance::from_code(code);
            assert_eq!(known.is_some(), code < 3);
            assert!(known.is_none_or(|known| known.code() == code));
        }
    }
}
