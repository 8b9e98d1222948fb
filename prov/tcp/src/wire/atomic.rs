//! The parameters of an atomic operation, packed into [`Header::word`].
//!
//! [`Header::word`]: super::header::Header::word

use prov_base::atomic_ops::Form;

use super::WireError;

/// An atomic operation on one or more values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicWord {
    /// What is returned.
    pub form: Form,
    /// `enum fi_op`.
    pub op: u8,
    /// `enum fi_datatype`.
    pub datatype: u8,
}

impl AtomicWord {
    /// The packed form.
    pub fn pack(self) -> u64 {
        u64::from(self.form.code()) << 16 | u64::from(self.datatype) << 8 | u64::from(self.op)
    }

    /// Unpacks the parameters; whether the operation is defined for the type is checked by the
    /// executor.
    pub fn unpack(word: u64) -> Result<AtomicWord, WireError> {
        let form = u8::try_from(word >> 16).ok().and_then(Form::of_code);
        Ok(AtomicWord {
            form: form.ok_or(WireError::Field("atomic operation"))?,
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
            form: Form::Compare,
            op: 14,
            datatype: 7,
        };
        assert_eq!(AtomicWord::unpack(word.pack()), Ok(word));
        assert!(AtomicWord::unpack(3 << 16).is_err());
    }
}
