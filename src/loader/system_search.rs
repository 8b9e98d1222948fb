//! The dynamic linker's search for a library without a path (ld.so(8)), as far as needed to tell
//! that there is no such library. An unsuccessful search costs the linker as many system calls as
//! loading a library, and most of the known providers are not installed.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::Library;

use super::{SUFFIX, own_path};

/// Where the linker searches.
pub struct SystemSearch {
    directories: Vec<PathBuf>,
    /// The names of the external providers in the linker's cache.
    cached: Vec<Vec<u8>>,
}

/// Directories within those that are searched, where the linker prefers libraries for this
/// processor.
const FOR_PROCESSORS: [&str; 3] = ["glibc-hwcaps", "tls", "x86_64"];

impl SystemSearch {
    /// Looks up where the linker searches for libraries that this one loads. `None` if that is
    /// unknown, or if more may be found than this search would find.
    pub fn begin() -> Option<Self> {
        if is_provider_loaded() {
            return None;
        }
        let mut directories: Vec<PathBuf> = Vec::new();
        let mut known = Vec::new();
        for directory in search_path(&own_path()?)? {
            let Ok(found) = directory.metadata() else {
                continue;
            };
            let identity = (found.dev(), found.ino());
            if known.contains(&identity) {
                continue;
            }
            if FOR_PROCESSORS
                .iter()
                .any(|name| directory.join(name).exists())
            {
                return None;
            }
            known.push(identity);
            directories.push(directory);
        }
        Some(SystemSearch {
            directories,
            cached: providers_in(&std::fs::read("/etc/ld.so.cache").unwrap_or_default()),
        })
    }

    /// Whether the linker may find a library of this name, which ends with [`SUFFIX`].
    pub fn may_find(&self, file: &str) -> bool {
        let directories = &self.directories;
        directories.iter().any(|place| place.join(file).exists())
            || self.cached.iter().any(|name| name == file.as_bytes())
    }
}

/// Returns the names of the external providers in the contents of the linker's cache, which has the
/// paths of libraries between null bytes.
fn providers_in(cache: &[u8]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut rest = cache;
    while let Some((before, behind)) = split_at_suffix(rest) {
        rest = behind;
        if rest.first().is_none_or(|&byte| byte == 0) {
            let stem = before.rsplit(|&byte| byte == b'/' || byte == 0).next();
            names.push([stem.unwrap_or_default(), SUFFIX.as_bytes()].concat());
        }
    }
    names
}

/// Returns what is before and what is behind the first occurrence of [`SUFFIX`]. memmem(3) is
/// several times as fast as a look at each of the cache's entries.
fn split_at_suffix(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // SAFETY: both pointers refer to as many bytes as the lengths say.
    let found = unsafe {
        libc::memmem(
            text.as_ptr().cast(),
            text.len(),
            SUFFIX.as_ptr().cast(),
            SUFFIX.len(),
        )
    };
    let offset = (!found.is_null()).then(|| found.addr() - text.as_ptr().addr())?;
    Some((text.get(..offset)?, text.get(offset + SUFFIX.len()..)?))
}

/// Whether the process has loaded an external provider already. The linker finds it by its name,
/// wherever it is.
fn is_provider_loaded() -> bool {
    unsafe extern "C" fn look(
        object: *mut libc::dl_phdr_info,
        _size: usize,
        _data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes a valid structure, whose name is null or a terminated text.
        unsafe {
            let name = (*object).dlpi_name;
            (!name.is_null() && CStr::from_ptr(name).to_bytes().ends_with(SUFFIX.as_bytes())).into()
        }
    }
    // SAFETY: the function has the type that dl_iterate_phdr(3) requires, and needs no data.
    unsafe { libc::dl_iterate_phdr(Some(look), std::ptr::null_mut()) != 0 }
}

/// `Dl_serinfo` of dlinfo(3), up to its first directory.
#[repr(C)]
struct SearchInfo {
    size: usize,
    count: c_uint,
    first: SearchDirectory,
}

/// `Dl_serpath`
#[repr(C)]
struct SearchDirectory {
    name: *const c_char,
    flags: c_uint,
}

/// Returns the directories in which the linker searches on behalf of the loaded library `owner`.
fn search_path(owner: &Path) -> Option<Vec<PathBuf>> {
    // SAFETY: no code of a library runs, since it is loaded already (RTLD_NOLOAD).
    let library = unsafe { Library::open(Some(owner), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    let handle = library.ok()?.into_raw();
    let mut places = Vec::new();
    // SAFETY: the handle is open. dlinfo(3) fills in the size of the information; the buffer has
    // that size, and the alignment of the structure; the names are in it or belong to the linker,
    // and are copied before either ends.
    unsafe {
        let mut needed = SearchInfo {
            size: 0,
            count: 0,
            first: SearchDirectory {
                name: std::ptr::null(),
                flags: 0,
            },
        };
        let sized = (&raw mut needed).cast();
        if libc::dlinfo(handle, libc::RTLD_DI_SERINFOSIZE, sized) != 0 {
            libc::dlclose(handle);
            return None;
        }
        let words = needed
            .size
            .max(size_of::<SearchInfo>())
            .div_ceil(size_of::<u64>());
        let mut buffer = vec![0u64; words];
        let info: *mut SearchInfo = buffer.as_mut_ptr().cast();
        (*info).size = needed.size;
        (*info).count = needed.count;
        if libc::dlinfo(handle, libc::RTLD_DI_SERINFO, info.cast()) != 0 {
            libc::dlclose(handle);
            return None;
        }
        let first = &raw const (*info).first;
        for index in 0..(*info).count as usize {
            let name = (*first.add(index)).name;
            if !name.is_null() {
                let name = OsStr::from_bytes(CStr::from_ptr(name).to_bytes());
                places.push(name.into());
            }
        }
        libc::dlclose(handle);
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_names_the_directories_of_the_system() {
        let places = search_path(Path::new("libc.so.6")).unwrap();
        assert!(
            places.iter().any(|place| place.ends_with("lib")),
            "{places:?}"
        );
    }

    #[test]
    fn the_cache_has_names_and_paths() {
        let cache = b"\x01glibc\0libefa-fi.so\0libc.so.6\0/opt/lib/libverbs-fi.so\0/x-fi.so.1\0\
            /lib/libm.so.6\0";
        let expected: [&[u8]; 2] = [b"libefa-fi.so", b"libverbs-fi.so"];
        assert_eq!(providers_in(cache), expected);
        assert!(providers_in(b"").is_empty());
    }

    #[test]
    fn a_library_in_a_directory_may_be_found() {
        let directory = std::env::temp_dir().join(format!("system-search-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("libone-fi.so"), b"").unwrap();
        let search = SystemSearch {
            directories: vec!["/no/such/directory".into(), directory.clone()],
            cached: vec![b"libtwo-fi.so".to_vec()],
        };
        assert!(search.may_find("libone-fi.so") && search.may_find("libtwo-fi.so"));
        assert!(!search.may_find("libother-fi.so"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
