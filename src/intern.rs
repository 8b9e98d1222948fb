//! Strings that C callers may keep for as long as the process lives.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Returns the only copy of `text`, which is never freed. Equal texts share it, so that repeated
/// requests of the same value take no more memory.
pub fn intern(text: &CStr) -> &'static CStr {
    // Not a hash table: memory checkers do not find the texts in one, and report them as lost.
    static TEXTS: LazyLock<Mutex<BTreeSet<&'static CStr>>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let kept: &'static CStr = Box::leak(CString::from(text).into_boxed_c_str());
    texts.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_one_copy() {
        let first = intern(c"a value");
        let second = intern(&CString::new("a value").unwrap());
        assert_eq!(first.as_ptr(), second.as_ptr());
        assert_ne!(first.as_ptr(), intern(c"another value").as_ptr());
    }
}
