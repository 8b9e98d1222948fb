//! Parameters that users set through the environment or `libfabric.conf`:
//! `fi_param_define`, `fi_param_get` (fi_provider(3)) and `fi_getparams`.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use prov_base::errno::{Errno, Result};

use crate::config_file::ConfigFile;
use crate::intern::intern;
use crate::level::CORE;
use crate::rights::has_raised_rights;

/// The module path in this module's records.
pub const MODULE: &str = module_path!();

/// The definer of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Identifies the owner; two providers may have the same name.
    pub id: usize,
    /// The provider's name, or `None` for the library's own parameters.
    pub provider: Option<&'a str>,
}

impl Owner<'static> {
    /// The library itself, whose variables are `FI_<NAME>`.
    pub const CORE: Owner<'static> = Owner {
        id: 0,
        provider: None,
    };
}

/// The types a parameter can have (`enum fi_param_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Int,
    Bool,
    Size,
}

/// The value that the user set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Text(&'static CStr),
    Int(i32),
    Bool(bool),
    Size(usize),
}

/// One row of a table of parameters.
pub struct Definition {
    pub name: &'static str,
    pub kind: Kind,
    /// The effect and the default of the parameter.
    pub help: &'static str,
}

/// One parameter as `fi_getparams` reports it.
pub struct Listed {
    pub variable: CString,
    pub kind: Kind,
    pub help: CString,
    pub value: Option<CString>,
}

/// Defines `name`, as `FI_<PROVIDER>_<NAME>` in the environment. Defining it again replaces its
/// type and help text.
#[allow(clippy::indexing_slicing, reason = "the position is in the table")]
pub fn define(owner: Owner, name: &str, kind: Kind, help: &str) -> Result {
    if help.is_empty() {
        return Err(Errno::EINVAL);
    }
    let (variable, help) = match owner.provider {
        Some(provider) => (
            format!("FI_{provider}_{name}").to_ascii_uppercase(),
            format!("{provider}: {help}"),
        ),
        None => (format!("FI_{name}").to_ascii_uppercase(), help.to_owned()),
    };
    let entry = Parameter {
        owner: owner.id,
        name: name.to_owned(),
        kind,
        variable,
        help,
    };
    let mut table = table();
    match table.position(owner, name) {
        Some(known) => table.entries[known] = entry,
        None => table.entries.push(entry),
    }
    Ok(())
}

/// Returns the value that the user set for `name`: `ENOENT` if it was never defined, `ENODATA` if
/// it is not set, `EINVAL` if the text is invalid for the type, which is also reported to the user,
/// once for each variable.
#[allow(clippy::indexing_slicing, reason = "the position is in the table")]
pub fn get(owner: Owner, name: &str) -> Result<Value> {
    let mut table = table();
    let entry = table.position(owner, name).ok_or(Errno::ENOENT)?;
    let Parameter { kind, variable, .. } = &table.entries[entry];
    let (kind, variable) = (*kind, variable.clone());
    let text = table.lookup(&variable);
    let target = format!("{}::core", owner.provider.unwrap_or("core"));
    let Some(text) = text else {
        drop(table);
        log::debug!(target: &target, "{variable} is not set");
        return Err(Errno::ENODATA);
    };
    let value = parse(kind, &text);
    let first_report = value.is_none() && table.reported.insert(variable.clone());
    drop(table);
    let shown = text.to_string_lossy();
    match value {
        Some(value) => {
            log::info!(target: &target, "{variable} is set to {shown}");
            Ok(value)
        }
        None => {
            if first_report {
                log::error!(
                    target: &target,
                    "{variable}={shown} is not {}; using the default",
                    kind.description()
                );
            }
            Err(Errno::EINVAL)
        }
    }
}

/// Removes all definitions of `owner`.
pub fn undefine(owner: Owner) {
    table().entries.retain(|entry| entry.owner != owner.id);
}

/// Returns all parameters, in the order in which they were defined.
pub fn list() -> Vec<Listed> {
    let table = table();
    table
        .entries
        .iter()
        .map(|entry| Listed {
            variable: CString::new(entry.variable.as_str()).unwrap_or_default(),
            kind: entry.kind,
            help: CString::new(entry.help.as_str()).unwrap_or_default(),
            value: table.lookup(&entry.variable),
        })
        .collect()
}

/// Logs the contents of `libfabric.conf`.
pub fn log_config_file() {
    let settings: Vec<String> = table()
        .file
        .iter()
        .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
        .collect();
    for setting in settings {
        log::info!(target: CORE, "{} sets {setting}", ConfigFile::path().display());
    }
}

/// Returns the names of the variables that `libfabric.conf` sets.
pub fn names_in_config_file() -> Vec<String> {
    let table = table();
    table.file.iter().map(|(name, _)| name.to_owned()).collect()
}

/// Defines a table of the library's own parameters.
pub fn define_core(definitions: &[Definition]) {
    for Definition { name, kind, help } in definitions {
        // A row of a table has a name and a help text, so this cannot fail.
        let _ = define(Owner::CORE, name, *kind, help);
    }
}

/// Returns a text parameter of the library itself, if the user set it.
pub fn core_text(name: &str) -> Option<String> {
    match get(Owner::CORE, name) {
        Ok(Value::Text(text)) => Some(text.to_string_lossy().into_owned()),
        _ => None,
    }
}

/// Returns an integer parameter of the library itself, if the user set it.
pub fn core_int(name: &str) -> Option<i32> {
    match get(Owner::CORE, name) {
        Ok(Value::Int(number)) => Some(number),
        _ => None,
    }
}

/// Variables that name files to load, to write, or to read a secret from.
const FILES: [&str; 9] = [
    "FI_PROVIDER_PATH",
    "FI_LOG_LOCATION",
    "FI_TCP_AUTH_KEY_FILE",
    "FI_SOCKETS_AUTH_KEY_FILE",
    "FI_OFI_MRAIL_AUTH_KEY_FILE",
    "FI_OFI_HOOK_MONITOR_BASEPATH",
    "FI_UCX_CONFIG",
    "FI_VERBS_XRCD_FILENAME",
    "FI_VERBS_NIC_AFFINITY_CONFIG",
];

struct Parameter {
    owner: usize,
    name: String,
    kind: Kind,
    variable: String,
    help: String,
}

struct Table {
    entries: Vec<Parameter>,
    file: ConfigFile,
    /// Variables whose invalid value was reported to the user.
    reported: BTreeSet<String>,
    /// Whether the file's settings override the environment's.
    prefer_file: bool,
}

impl Table {
    /// Creates the initial table of a process. `FI_PREFER_SYSCONFIG` decides how every other
    /// variable is looked up and is therefore read first.
    fn new() -> Self {
        let mut table = Table {
            entries: Vec::new(),
            file: ConfigFile::load(),
            reported: BTreeSet::new(),
            prefer_file: false,
        };
        table.prefer_file = table
            .lookup("FI_PREFER_SYSCONFIG")
            .and_then(|text| parse_bool(text.to_str().ok()?))
            .unwrap_or(false);
        table
    }

    fn position(&self, owner: Owner, name: &str) -> Option<usize> {
        self.entries
            .iter()
            .position(|entry| entry.owner == owner.id && entry.name == name)
    }

    fn lookup(&self, variable: &str) -> Option<CString> {
        let trusted = !FILES.contains(&variable) || !has_raised_rights();
        let environment = || {
            let value = trusted.then(|| std::env::var_os(variable))?;
            value.map(OsStringExt::into_vec)
        };
        let file = || self.file.get(variable).map(<[u8]>::to_vec);
        let value = if self.prefer_file {
            file().or_else(environment)
        } else {
            environment().or_else(file)
        };
        // Neither the environment nor a line of text contains a NUL byte.
        value.map(|bytes| CString::new(bytes).unwrap_or_default())
    }
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(|| Mutex::new(Table::new()));
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kind {
    fn description(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Int => "an integer",
            Kind::Bool => "a boolean (0/1, on/off, true/false, yes/no)",
            Kind::Size => "a size",
        }
    }
}

fn parse(kind: Kind, text: &CStr) -> Option<Value> {
    match kind {
        Kind::Text => Some(Value::Text(intern(text))),
        Kind::Int => Some(Value::Int(
            i32::try_from(parse_integer(text.to_str().ok()?)?).ok()?,
        )),
        Kind::Bool => Some(Value::Bool(parse_bool(text.to_str().ok()?)?)),
        Kind::Size => {
            let number = parse_integer(text.to_str().ok()?)?;
            // A negative size counts down from the largest one: -1 is the usual way to write "no
            // limit".
            let size = if number < 0 {
                i64::try_from(number).ok()? as usize
            } else {
                usize::try_from(number).ok()?
            };
            Some(Value::Size(size))
        }
    }
}

/// Parses a C integer: decimal, `0x` hexadecimal or `0` octal, with a sign.
fn parse_integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = if let Some(hex) = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        (16, hex)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    if digits.starts_with('+') {
        return None;
    }
    let number = i128::from(u64::from_str_radix(digits, radix).ok()?);
    Some(if negative { -number } else { number })
}

fn parse_bool(text: &str) -> Option<bool> {
    let is = |word: &&str| text.trim().eq_ignore_ascii_case(word);
    if ["1", "true", "yes", "on"].iter().any(is) {
        Some(true)
    } else if ["0", "false", "no", "off"].iter().any(is) {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: usize) -> Owner<'static> {
        Owner {
            id,
            provider: Some("fake"),
        }
    }

    #[test]
    fn integers_are_written_as_in_c() {
        for (text, number) in [
            ("17", 17),
            ("-3", -3),
            ("0x10", 16),
            ("010", 8),
            ("0", 0),
            (" 5 ", 5),
            ("+7", 7),
        ] {
            assert_eq!(parse_integer(text), Some(number), "{text:?}");
        }
        for text in [
            "",
            "-",
            "0x",
            "ten",
            "5k",
            "1.5",
            "--1",
            "-+1",
            "99999999999999999999",
        ] {
            assert_eq!(parse_integer(text), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_not_cut() {
        assert_eq!(parse(Kind::Int, c"2147483648"), None);
        assert_eq!(parse(Kind::Int, c"-2147483648"), Some(Value::Int(i32::MIN)));
        assert_eq!(
            parse(Kind::Size, c"18446744073709551615"),
            Some(Value::Size(usize::MAX))
        );
        assert_eq!(parse(Kind::Size, c"-1"), Some(Value::Size(usize::MAX)));
    }

    #[test]
    fn booleans_have_eight_spellings() {
        for text in ["1", "TRUE", "yes", "On"] {
            assert_eq!(parse_bool(text), Some(true));
        }
        for text in ["0", "False", "no", "off"] {
            assert_eq!(parse_bool(text), Some(false));
        }
        for text in ["", "2", "maybe"] {
            assert_eq!(parse_bool(text), None);
        }
    }

    #[test]
    fn an_undefined_parameter_is_told_from_an_unset_one() {
        let owner = owner(0x1001);
        assert_eq!(get(owner, "surely_unset"), Err(Errno::ENOENT));
        define(owner, "surely_unset", Kind::Int, "help").unwrap();
        assert_eq!(get(owner, "surely_unset"), Err(Errno::ENODATA));
        undefine(owner);
        assert_eq!(get(owner, "surely_unset"), Err(Errno::ENOENT));
    }

    #[test]
    fn a_listed_parameter_has_its_variable_and_its_provider_in_the_help() {
        let owner = owner(0x1002);
        define(owner, "listed_one", Kind::Size, "how much").unwrap();
        define(owner, "listed_one", Kind::Size, "how much of it").unwrap();
        let matching: Vec<_> = list()
            .into_iter()
            .filter(|param| param.variable.as_c_str() == c"FI_FAKE_LISTED_ONE")
            .collect();
        assert_eq!(matching.len(), 1);
        assert_eq!(matching[0].help.as_c_str(), c"fake: how much of it");
        assert_eq!(matching[0].kind, Kind::Size);
        undefine(owner);
    }

    #[test]
    fn a_variable_that_names_a_file_is_not_trusted_in_a_program_with_raised_rights() {
        crate::framework::get();
        let words = ["file", "files", "folder", "directory", "directories"];
        let names_file = |param: &Listed| {
            let help = param.help.to_string_lossy().to_lowercase();
            let mut parts = help.split(|letter: char| !letter.is_alphabetic());
            param.kind == Kind::Text && parts.any(|word| words.contains(&word))
        };
        let listed = list();
        let names = listed.iter().filter(|param| names_file(param));
        let names: Vec<&str> = names
            .filter_map(|param| param.variable.to_str().ok())
            .collect();
        assert!(names.contains(&"FI_LOG_LOCATION"), "{names:?}");
        for name in names {
            assert!(FILES.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_parameter_needs_a_help_text_and_its_name_may_be_empty() {
        assert_eq!(define(owner(0x1003), "", Kind::Int, "x"), Ok(()));
        undefine(owner(0x1003));
        assert_eq!(
            define(owner(0x1003), "x", Kind::Int, ""),
            Err(Errno::EINVAL)
        );
    }
}
