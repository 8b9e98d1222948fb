//! The answer of a peer that refuses access to memory.

use prov_base::errno::Errno;

use super::super::WireError;
use super::{Header, Op};

/// The refused operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The oldest read that has not been answered.
    Read,
    /// The write or the atomic operation with this name.
    Named(u64),
}

/// Code of [`Refused::Read`].
const READ: u8 = 0;
/// Code of [`Refused::Named`].
const NAMED: u8 = 1;

/// The possible reasons, as the numbers of errno(3) on Linux and of fi_errno(3). This side gives the
/// first of them.
const REASONS: [Errno; 2] = [Errno::EACCES, Errno::ENOKEY];

/// Returns the header of a refusal.
pub fn header(refused: Refused, reason: Errno) -> Header {
    let mut header = Header::new(Op::Refusal);
    (header.op_data, header.id) = match refused {
        Refused::Read => (READ, 0),
        Refused::Named(name) => (NAMED, name),
    };
    header.word = u64::from(reason.number().unsigned_abs());
    header
}

/// Whether a header refuses a read.
pub fn is_of_read(header: &Header) -> bool {
    header.op == Op::Refusal && header.op_data == READ
}

/// Decodes a header of [`Op::Refusal`].
///
/// # Errors
/// For an invalid code of the operation, and for other reasons.
pub fn read(header: &Header) -> Result<(Refused, Errno), WireError> {
    let refused = match header.op_data {
        READ => Refused::Read,
        NAMED => Refused::Named(header.id),
        _ => return Err(WireError::Field("refusal")),
    };
    let is_it = |reason: &Errno| u64::from(reason.number().unsigned_abs()) == header.word;
    let reason = REASONS.into_iter().find(is_it);
    Ok((refused, reason.ok_or(WireError::Field("reason"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_decoded_as_it_was_encoded() {
        for refused in [Refused::Read, Refused::Named(7)] {
            for reason in REASONS {
                let header = header(refused, reason);
                assert_eq!(read(&header), Ok((refused, reason)));
                assert_eq!(is_of_read(&header), refused == Refused::Read);
            }
        }
    }

    #[test]
    fn nothing_else_is_one() {
        let good = header(Refused::Named(7), Errno::EACCES);
        for (op_data, word) in [(2, good.word), (1, 0), (1, u64::MAX), (0, 1)] {
            let header = Header {
                op_data,
                word,
                ..good
            };
            assert!(read(&header).is_err());
        }
    }
}
