//! External providers: shared libraries with a function `fi_prov_ini` (fi_provider(3); fabric(7)
//! for their locations).

mod system_search;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fabric_abi::fi_provider;
use prov_base::uncancelled::Uncancelled;
use prov_util::ffi::provider::file_of;

use self::system_search::SystemSearch;
use crate::candidate::{Candidate, Library, Precedence, Useless};
use crate::level::CORE;
use crate::provider::Provider;

/// The suffix of the file names of external providers.
const SUFFIX: &str = "-fi.so";

/// The locations that `FI_PROVIDER_PATH` names.
#[derive(Debug, PartialEq, Eq)]
pub struct SearchPath {
    pub precedence: Precedence,
    /// Whether `lib<name>-fi.so` is also searched with the system's own search path.
    pub system: bool,
    pub places: Vec<SearchLocation>,
}

/// One location.
#[derive(Debug, PartialEq, Eq)]
pub enum SearchLocation {
    /// Every provider in a directory.
    Directory(PathBuf),
    /// One library, which is used whatever its version.
    Preferred(PathBuf),
}

impl SearchPath {
    /// Parses the value of `FI_PROVIDER_PATH`, which names directories, and libraries after a `+`,
    /// separated by colons, with `@` before all.
    pub fn parse(value: Option<&str>, default_directory: &Path) -> Self {
        let Some(value) = value else {
            return SearchPath {
                precedence: Precedence::Version,
                system: true,
                places: vec![SearchLocation::Directory(default_directory.to_owned())],
            };
        };
        let (precedence, list) = match value.strip_prefix('@') {
            Some(rest) => (Precedence::Discovery, rest),
            None => (Precedence::Version, value),
        };
        let mut places: Vec<SearchLocation> = list
            .split(':')
            .filter(|part| !part.is_empty())
            .map(|part| match part.strip_prefix('+') {
                Some(library) => SearchLocation::Preferred(library.into()),
                None => SearchLocation::Directory(part.into()),
            })
            .collect();
        if !places
            .iter()
            .any(|place| matches!(place, SearchLocation::Directory(_)))
        {
            places.push(SearchLocation::Directory(default_directory.to_owned()));
        }
        SearchPath {
            precedence,
            system: false,
            places,
        }
    }

    /// Loads the libraries, location by location, and passes them to `found`, as well as those that
    /// cannot be loaded. `names` are those of providers that the system's own search may find.
    pub fn load(&self, names: &[&str], mut found: impl FnMut(Result<Candidate, Useless>)) {
        if self.system {
            let search = SystemSearch::begin();
            for name in names {
                let short = name
                    .strip_prefix("ofi_")
                    .or_else(|| name.strip_prefix("off_"))
                    .unwrap_or(name);
                let file = format!("lib{short}{SUFFIX}");
                if search
                    .as_ref()
                    .is_some_and(|search| !search.may_find(&file))
                {
                    log::debug!(target: CORE, "{file}: not in the linker's search path");
                    continue;
                }
                match open(OsStr::new(&file)) {
                    Ok((provider, library)) => found(Ok(candidate(provider, library, false))),
                    // Usually there is none.
                    Err(reason) => log::debug!(target: CORE, "{file}: {reason}"),
                }
            }
        }
        for place in &self.places {
            match place {
                SearchLocation::Directory(directory) => {
                    for file in libraries_in(directory) {
                        found(load_one(&file, false));
                    }
                }
                SearchLocation::Preferred(file) if !file.is_absolute() => {
                    log::warn!(
                        target: CORE,
                        "FI_PROVIDER_PATH names the preferred provider {} without its full path",
                        file.display()
                    );
                }
                SearchLocation::Preferred(file) => found(load_one(file, true)),
            }
        }
    }
}

/// Loads one library that is installed as a provider.
fn load_one(file: &Path, preferred: bool) -> Result<Candidate, Useless> {
    match open(file.as_os_str()) {
        Ok((provider, library)) => Ok(candidate(provider, library, preferred)),
        Err(reason) => {
            log::warn!(target: CORE, "cannot load {}: {reason}", file.display());
            Err(Useless {
                name: file.display().to_string(),
                reason: format!("it cannot be loaded: {reason}"),
            })
        }
    }
}

/// Returns the default directory of external providers: the one that the package was built for, or
/// else `libfabric` beside the library itself.
pub fn default_directory() -> PathBuf {
    if let Some(directory) = option_env!("LIBFABRIC_PROVIDER_DIR") {
        return directory.into();
    }
    own_path()
        .and_then(|library| Some(library.parent()?.join("libfabric")))
        .unwrap_or_else(|| PathBuf::from("/usr/lib/libfabric"))
}

/// Returns the file that this library was loaded from.
pub fn own_path() -> Option<PathBuf> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    PATH.get_or_init(|| file_of(own_path as *const () as usize))
        .clone()
}

fn candidate(provider: Provider, library: Library, preferred: bool) -> Candidate {
    Candidate {
        provider,
        preferred,
        library: Some(library),
    }
}

/// Returns the providers in a directory, last in the alphabet first; none if it does not exist.
fn libraries_in(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name().is_some_and(|name| {
                name.len() > SUFFIX.len() && name.as_bytes().ends_with(SUFFIX.as_bytes())
            })
        })
        .collect();
    files.sort_by(|a, b| b.cmp(a));
    files
}

/// Loads one library and gets its provider.
fn open(file: &OsStr) -> Result<(Provider, Library), String> {
    type EntryPoint = unsafe extern "C" fn() -> *mut fi_provider;
    let _uncancelled = Uncancelled::begin();
    // SAFETY: a provider is code that the administrator or the user has chosen to run in this
    // process; its entry point has this type (fi_provider(3)), and returns a structure that is
    // valid as long as the library is loaded.
    unsafe {
        // RTLD_NOW: a provider whose symbols are missing must fail here and
        // not later, inside a transfer.
        use libloading::os::unix;
        let library = unix::Library::open(Some(file), unix::RTLD_NOW | unix::RTLD_LOCAL)
            .map_err(|error| error.to_string())?;
        let entry = library
            .get::<EntryPoint>(b"fi_prov_ini\0")
            .map_err(|error| error.to_string())?;
        let provider = Provider::from_raw(entry()).ok_or("its fi_prov_ini returned no provider")?;
        Ok((provider, library.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Option<&str>) -> SearchPath {
        SearchPath::parse(value, Path::new("/default"))
    }

    fn directory(path: &str) -> SearchLocation {
        SearchLocation::Directory(path.into())
    }

    #[test]
    fn an_unset_variable_searches_the_system_and_the_default_directory() {
        let path = parse(None);
        assert!(path.system);
        assert_eq!(path.places, [directory("/default")]);
    }

    #[test]
    fn an_empty_variable_searches_the_default_directory_alone() {
        for value in ["", "@", ":"] {
            let path = parse(Some(value));
            assert!(!path.system, "{value:?}");
            assert_eq!(path.places, [directory("/default")], "{value:?}");
        }
        assert_eq!(parse(Some("@")).precedence, Precedence::Discovery);
    }

    #[test]
    fn directories_and_preferred_libraries_keep_their_order() {
        let path = parse(Some("@+/a/libtcp-fi.so:/b:+/c/libudp-fi.so"));
        assert_eq!(path.precedence, Precedence::Discovery);
        assert_eq!(
            path.places,
            [
                SearchLocation::Preferred("/a/libtcp-fi.so".into()),
                directory("/b"),
                SearchLocation::Preferred("/c/libudp-fi.so".into()),
            ]
        );
    }

    #[test]
    fn preferred_libraries_alone_leave_the_default_directory_in_place() {
        let path = parse(Some("+/a/libtcp-fi.so"));
        assert_eq!(
            path.places,
            [
                SearchLocation::Preferred("/a/libtcp-fi.so".into()),
                directory("/default")
            ]
        );
    }

    #[test]
    fn a_library_knows_where_it_is() {
        assert!(own_path().is_some_and(|path| path.is_absolute()));
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_a_reason() {
        assert!(open(OsStr::new("/etc/passwd")).is_err());
        assert!(libraries_in(Path::new("/no/such/directory")).is_empty());
    }
}
