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
    /// A constant of the interface that fi_tostr(3) does not name.
    Constant(&'static str),
    /// A name; `None` for none.
    Text(Option<String>),
    /// Each of several names.
    Names(Vec<String>),
}

/// What the caller can change so that the attribute fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Ask for what is supported, or for nothing in particular.
    Choose,
    /// Ask for no more than what is supported.
    AtMost,
    /// Do without these bits.
    Drop(Value),
    /// Be prepared for these bits as well, and say so in the hints.
    Accept(Value),
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
    pub change: Change,
}

/// Path of the type of endpoints.
pub(super) const ENDPOINT_TYPE: &str = "ep_attr->type";
/// Path of the fabric's name.
pub(super) const FABRIC_NAME: &str = "fabric_attr->name";
/// Path of the domain's name.
pub(super) const DOMAIN_NAME: &str = "domain_attr->name";

/// What fi_tostr(3) says of a value that an enumeration does not have.
const UNKNOWN: &str = "Unknown";

impl Mismatch {
    /// The names that there are do not include the one that is asked for.
    pub(super) fn of_name<'a>(
        attribute: &'static str,
        asked: &str,
        names: impl IntoIterator<Item = &'a String>,
    ) -> Option<Mismatch> {
        let mut all: Vec<String> = names.into_iter().cloned().collect();
        if all.iter().any(|name| name.eq_ignore_ascii_case(asked)) {
            return None;
        }
        all.sort();
        all.dedup();
        Some(Mismatch {
            attribute,
            asked: Value::Text(Some(asked.to_owned())),
            supported: Value::Names(all),
            change: Change::Choose,
        })
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: asked for {}, supported is {}",
            self.attribute, self.asked, self.supported
        )?;
        match &self.change {
            Change::Choose if self.supported.is_none() => f.write_str("; leave it unset"),
            Change::Choose => write!(f, "; ask for {} or leave it unset", self.supported),
            Change::AtMost if self.supported.is_none() => f.write_str("; leave it at 0"),
            Change::AtMost => write!(f, "; ask for {} or less", self.supported),
            Change::Drop(bits) => write!(f, "; drop {bits}"),
            Change::Accept(bits) => write!(f, "; accept {bits}"),
        }
    }
}

impl Value {
    /// Whether it stands for nothing at all.
    fn is_none(&self) -> bool {
        match self {
            Value::Count(0) | Value::Text(None) => true,
            Value::Names(names) => names.is_empty(),
            _ => false,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Count(count) => write!(f, "{count}"),
            // Enumerations begin with a name for "unspecified", flags with none. Bits that mean
            // nothing have no name either, and values of enumerations all have the same.
            Value::Named(bits, kind) => match prov_base::services::name_of(bits, kind) {
                Some(names) if names.is_empty() && bits == 0 => f.write_str("none"),
                Some(names) if names == UNKNOWN => write!(f, "{bits}"),
                Some(names) if !names.is_empty() => f.write_str(&names),
                _ => write!(f, "{bits:#x}"),
            },
            Value::Constant(name) => f.write_str(name),
            Value::Mask(bits) => write!(f, "{bits:#x}"),
            Value::Version(version) => write!(f, "{}.{}", version >> 16, version & 0xffff),
            Value::Text(Some(ref text)) => write!(f, "\"{text}\""),
            Value::Text(None) => f.write_str("none"),
            Value::Names(ref names) if names.is_empty() => f.write_str("none"),
            Value::Names(ref names) => {
                for (index, name) in names.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}\"{name}\"")?;
                }
                Ok(())
            }
        }
    }
}
