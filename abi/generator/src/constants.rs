//! Constants of the abi crate as C macros that keep their type.

/// One constant, with the comment in front of it.
pub struct Constant {
    /// A comment that stands above this constant, for it or for the group that it opens.
    pub comment: Vec<String>,
    /// Whether an empty line stands above.
    pub opens_group: bool,
    pub name: String,
    pub value: String,
}

/// The constants in a module's text. Each stands on a line of its own, as rustfmt leaves it.
pub fn read(text: &str) -> Vec<Constant> {
    let mut constants = Vec::new();
    let mut comment = Vec::new();
    let mut opens_group = true;
    for line in text.lines() {
        if line.is_empty() {
            opens_group = true;
        } else if let Some(words) = comment_text(line) {
            comment.push(words.to_owned());
        } else if let Some((name, kind, value)) = constant(line) {
            constants.push(Constant {
                comment: std::mem::take(&mut comment),
                opens_group,
                name: name.to_owned(),
                value: c_value(kind, value),
            });
            opens_group = false;
        } else {
            comment.clear();
            opens_group = true;
        }
    }
    constants
}

fn comment_text(line: &str) -> Option<&str> {
    line.strip_prefix("/// ")
        .or_else(|| line.strip_prefix("// "))
}

fn constant(line: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
    let (kind, value) = rest.strip_suffix(';')?.split_once(" = ")?;
    Some((name, kind, value))
}

fn c_value(kind: &str, value: &str) -> String {
    if let Some(system) = value.strip_prefix("libc::") {
        return system.to_owned();
    }
    match value {
        "u64::MAX" => return "UINT64_MAX".to_owned(),
        "usize::MAX" => return "SIZE_MAX".to_owned(),
        _ => {}
    }
    let suffix = if matches!(kind, "u64" | "fi_addr_t") {
        "ULL"
    } else {
        ""
    };
    match value.split_once(" << ") {
        Some((base, shift)) => format!("({base}{suffix} << {shift})"),
        None if value.starts_with(|c: char| c.is_ascii_digit()) => format!("{value}{suffix}"),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_64_bit_flag_stays_64_bits_wide() {
        assert_eq!(c_value("u64", "1 << 3"), "(1ULL << 3)");
        assert_eq!(c_value("c_int", "1 << 3"), "(1 << 3)");
        assert_eq!(c_value("u64", "0xff"), "0xffULL");
    }

    #[test]
    fn a_comment_belongs_to_the_constant_below_it() {
        let read = read("// Group.\n\npub const A: u64 = 0;\npub const B: c_int = libc::EIO;\n");
        assert_eq!(read[0].comment, ["Group."]);
        assert!(read[1].comment.is_empty());
        assert_eq!(read[1].value, "EIO");
    }
}
