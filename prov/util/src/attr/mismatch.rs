//! The reason why a provider does not match the hints.

use std::fmt;

/// One side of a comparison, and its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, or a size in bytes.
    Count(u64),
    /// Bits or an enumeration, and the `FI_TYPE_*` by which fi_tostr(3) names them.
    Named(u64, u32),
    /// A bit mask without names.
    Mask(u64),
    /// An interface, provider or protocol version, `major << 16 | minor`.
    Version(u32),
    /// A name; `None` for none.
    Text(Option<String>),
}

/// The attribute that does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its path in `fi_info`, such as `domain_attr->threading`.
    pub attribute: &'static str,
    /// What the caller asks for; for modes, what the caller is prepared for.
    pub asked: Value,
    /// What the provider supports; for modes, what it requires.
    pub supported: Value,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: asked for {}, supported is {}",
            self.attribute, self.asked, self.supported
        )
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Count(count) => write!(f, "{count}"),
            Value::Named(bits, kind) => match crate::services::name_of(bits, kind) {
                Some(names) => f.write_str(&names),
                None => write!(f, "{bits:#x}"),
            },
            Value::Mask(bits) => write!(f, "{bits:#x}"),
            Value::Version(version) => write!(f, "{}.{}", version >> 16, version & 0xffff),
            Value::Text(Some(ref text)) => write!(f, "\"{text}\""),
            Value::Text(None) => f.write_str("none"),
        }
    }
}
