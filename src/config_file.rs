//! `libfabric.conf`: the administrator's settings, one `NAME=value` a line,
//! with the names of the environment variables (fabric(7)).

use std::path::PathBuf;

/// Settings in file order; if a name occurs twice, the first one counts.
#[derive(Debug, Default)]
pub struct ConfigFile {
    settings: Vec<(String, Vec<u8>)>,
}

impl ConfigFile {
    /// Reads the installed file; empty if there is none.
    pub fn load() -> Self {
        std::fs::read(Self::path()).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Returns the path of the file. Packagers choose the directory with `LIBFABRIC_SYSCONFDIR`
    /// when they build.
    pub fn path() -> PathBuf {
        PathBuf::from(option_env!("LIBFABRIC_SYSCONFDIR").unwrap_or("/etc")).join("libfabric.conf")
    }

    /// Parses the text of a file. Lines without `=` and comments are skipped.
    #[allow(clippy::indexing_slicing, reason = "the position is in the line")]
    pub fn parse(text: &[u8]) -> Self {
        let settings = text
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::trim_ascii)
            .filter(|line| !line.starts_with(b"#"))
            .filter_map(|line| {
                let equals = line.iter().position(|&byte| byte == b'=')?;
                let name = std::str::from_utf8(line[..equals].trim_ascii_end()).ok()?;
                Some((name.to_owned(), line[equals + 1..].trim_ascii().to_owned()))
            })
            .collect();
        ConfigFile { settings }
    }

    /// Returns the value of `name`.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Returns all settings, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_name_equals_value_lines() {
        let file = ConfigFile::parse(
            b"# provider\nFI_PROVIDER=tcp\n\nnonsense\nFI_LOG_LEVEL = info \r\nFI_PROVIDER=udp",
        );
        assert_eq!(file.get("FI_PROVIDER"), Some(&b"tcp"[..]));
        assert_eq!(file.get("FI_LOG_LEVEL"), Some(&b"info"[..]));
        assert_eq!(file.get("nonsense"), None);
        assert_eq!(file.iter().count(), 3);
    }

    #[test]
    fn a_value_may_contain_an_equals_sign() {
        let file = ConfigFile::parse(b"FI_X=a=b");
        assert_eq!(file.get("FI_X"), Some(&b"a=b"[..]));
    }
}
