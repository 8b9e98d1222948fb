//! The lock for atomic updates that take more than one instruction.
//!
//! A process may contain several copies of this code: one in libfabric.so.1, and one in each
//! provider that is a library of its own. They may be given updates of the same memory, so they
//! must share one lock. Each copy exports its own lock under the same name, and all use that of the
//! copy that was loaded first, which cannot be unloaded before the others.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

/// A mutex of the C library, which is the same code for all copies.
#[repr(transparent)]
struct Shared(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the mutex is used only through pthread_mutex_lock(3) and pthread_mutex_unlock(3), which
// any thread may call.
unsafe impl Sync for Shared {}

// SAFETY: no other library exports this name. The type of the symbol must never change, since
// copies of different releases share it.
#[unsafe(export_name = "fabric_split_updates")]
static OWN: Shared = Shared(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

const NAME: &CStr = c"fabric_split_updates";

/// The lock of the copy that was loaded first.
static FIRST: OnceLock<&'static Shared> = OnceLock::new();

/// The lock is held while this lives.
pub(super) struct Guard(&'static Shared);

/// Takes the lock.
pub(super) fn lock() -> Guard {
    let shared = *FIRST.get().unwrap_or(&&OWN);
    // SAFETY: the mutex is static and initialized, and this thread does not hold it, since updates
    // do not nest.
    unsafe { libc::pthread_mutex_lock(shared.0.get()) };
    Guard(shared)
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: this thread has locked the mutex, in `lock`.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}

/// Finds the lock to use. Every copy calls this before its first update: libraries are loaded one
/// after the other, so all find the same lock.
pub fn share() {
    FIRST.get_or_init(|| {
        libraries()
            .iter()
            .find_map(|library| exported_by(library))
            .unwrap_or(&OWN)
    });
}

/// Returns the files of the process's libraries, in the order in which they were loaded.
fn libraries() -> Vec<CString> {
    unsafe extern "C" fn add(
        object: *mut libc::dl_phdr_info,
        _size: usize,
        list: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr(3) passes a valid object, whose name is NULL or terminated, and
        // the caller's pointer to a list.
        unsafe {
            let name = (*object).dlpi_name;
            if !name.is_null() && *name != 0 {
                (*list.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    let mut list = Vec::new();
    // SAFETY: `add` is called with a pointer to `list`, as it expects, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut list).cast()) };
    list
}

/// Returns the lock that a library itself exports; dlsym(3) also searches the libraries that it
/// depends on, whose locks are ignored.
fn exported_by(library: &CStr) -> Option<&'static Shared> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: both names are terminated. With RTLD_NOLOAD dlopen(3) loads no library and runs no
    // code, and the handle is closed again. dladdr(3) accepts any address, and fills in the
    // structure unless it returns zero. The symbol of this name is the lock of another copy of this
    // library, which is never unloaded (`-z nodelete`).
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let symbol = libc::dlsym(handle, NAME.as_ptr());
        let is_its_own = !symbol.is_null()
            && libc::dladdr(symbol, found.as_mut_ptr()) != 0
            && CStr::from_ptr(found.assume_init().dli_fname) == library;
        libc::dlclose(handle);
        is_its_own.then(|| &*symbol.cast::<Shared>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no dl_iterate_phdr(3)")]
    fn the_lock_excludes_other_threads() {
        share();
        let guard = lock();
        let other = std::thread::spawn(|| {
            // SAFETY: the mutex is static and initialized, and is unlocked only if this thread has
            // locked it.
            unsafe {
                let shared = FIRST.get().unwrap().0.get();
                let taken = libc::pthread_mutex_trylock(shared) == 0;
                if taken {
                    libc::pthread_mutex_unlock(shared);
                }
                taken
            }
        });
        assert!(!other.join().unwrap());
        drop(guard);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no dl_iterate_phdr(3)")]
    fn the_c_library_is_among_the_libraries_and_exports_no_lock() {
        let libraries = libraries();
        let libc = libraries
            .iter()
            .find(|name| name.to_string_lossy().contains("libc.so"));
        assert!(libc.is_some_and(|libc| exported_by(libc).is_none()));
    }
}
