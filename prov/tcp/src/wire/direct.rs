//! Where something is in the memory of a process, for another one of its host.

use prov_util::process_memory::{OtherIov, OtherPiece, Token};

use super::WireError;

/// Bytes of one piece of memory: its address, its length, and the address and
/// the number of its seal, which has none at 0.
const PIECE: usize = 4 * FIELD;
const FIELD: usize = 8;
/// Most bytes of a list of such pieces.
pub const MAX_LIST: usize = PIECE * prov_util::buffer::IOV_LIMIT;

/// The bytes of a list, in the order of the host that both processes have.
pub fn encode(list: &OtherIov) -> Vec<u8> {
    let fields = list.pieces().iter().flat_map(|piece| {
        let seal = piece.seal.unwrap_or(Token { addr: 0, value: 0 });
        [piece.addr, piece.len, seal.addr, seal.value]
    });
    fields.flat_map(u64::to_ne_bytes).collect()
}

/// Reads a list, of pieces that are not empty and have `len` bytes together.
pub fn decode(bytes: &[u8], len: u64) -> Result<OtherIov, WireError> {
    let wrong = || WireError::Field("list of memory");
    let mut list = OtherIov::default();
    let (pieces, rest) = bytes.as_chunks::<PIECE>();
    for piece in pieces {
        let (fields, _) = piece.as_chunks::<FIELD>();
        let &[addr, len, seal_addr, value] = fields else {
            return Err(wrong());
        };
        let (addr, len) = (u64::from_ne_bytes(addr), u64::from_ne_bytes(len));
        let seal = Token {
            addr: u64::from_ne_bytes(seal_addr),
            value: u64::from_ne_bytes(value),
        };
        let seal = (seal.addr != 0).then_some(seal);
        if len == 0 || addr.checked_add(len).is_none() || !list.push(OtherPiece { addr, len, seal })
        {
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
            let seal = (len % 2 == 0).then_some(Token { addr: 9, value: 7 });
            assert!(list.push(OtherPiece { addr, len, seal }));
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
}
