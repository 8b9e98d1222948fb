//! The parameters of an atomic operation, packed into [`Header::word`].
//!
//! [`Header::word`]: super::header::Header::word

use super::WireError;

/// What an atomic request brings back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicKind {
    /// Nothing.
    Base,
    /// The old values.
    Fetch,
    /// The old values; the payload has the values to compare with behind the
    /// operands.
    Compare,
}

/// An atomic operation on one or more values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicWord {
    /// What comes back.
    pub kind: AtomicKind,
    /// `enum fi_op`.
    pub op: u8,
    /// `enum fi_datatype`.
    pub datatype: u8,
}

impl AtomicWord {
    /// The packed form.
    pub fn pack(self) -> u64 {
        let kind = match self.kind {
            AtomicKind::Base => 0u64,
            AtomicKind::Fetch => 1,
            AtomicKind::Compare => 2,
        };
        kind << 16 | u64::from(self.datatype) << 8 | u64::from(self.op)
    }

    /// Reads the packed form; whether the operation exists for the type is for
    /// the executor to say.
    pub fn unpack(word: u64) -> Result<AtomicWord, WireError> {
        let kind = match word >> 16 {
            0 => AtomicKind::Base,
            1 => AtomicKind::Fetch,
            2 => AtomicKind::Compare,
            _ => return Err(WireError::Field("atomic operation")),
        };
        Ok(AtomicWord {
            kind,
            op: word as u8,
            datatype: (word >> 8) as u8,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_unknown_kinds_do_not() {
        let word = AtomicWord {
            kind: AtomicKind::Compare,
            op: 14,
            datatype: 7,
        };
        assert_eq!(AtomicWord::unpack(word.pack()), Ok(word));
        assert!(AtomicWord::unpack(3 << 16).is_err());
    }
}
