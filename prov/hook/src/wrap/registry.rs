//! Which objects are wrapped, by their addresses: for objects that do not come through a table, in
//! events and in structures whose pointers may be stale.

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prov_base::process::Process;

#[derive(Default)]
struct Registry {
    /// The wrapped object over an object.
    over: HashMap<usize, usize>,
    /// The object below a wrapped object.
    below: HashMap<usize, usize>,
}

/// The registry of a process. A child of fork(2) begins with an empty one: its parent may have been
/// in its own when that was called, whose lock nobody releases in the child.
struct OfProcess {
    process: Process,
    registry: Mutex<Registry>,
}

static CURRENT: AtomicPtr<OfProcess> = AtomicPtr::new(null_mut());

fn registry() -> MutexGuard<'static, Registry> {
    loop {
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: what has been stored there is never freed.
        if let Some(of_process) = unsafe { current.as_ref() }
            && of_process.process.is_noted()
        {
            let registry = of_process.registry.lock();
            return registry.unwrap_or_else(PoisonError::into_inner);
        }
        let new = Box::into_raw(Box::new(OfProcess {
            process: Process::current(),
            registry: Mutex::default(),
        }));
        let stored = CURRENT.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: another thread was first, and nobody has this one.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// Enters a wrapped object.
pub(super) fn add(below: usize, wrapped: usize) {
    let mut registry = registry();
    registry.over.insert(below, wrapped);
    bounded!(registry.over, OBJECTS);
    registry.below.insert(wrapped, below);
    bounded!(registry.below, OBJECTS);
}

/// Removes a wrapped object. The object below is closed already, so that its address may belong to
/// another one, which stays.
pub(super) fn remove(below: usize, wrapped: usize) {
    let mut registry = registry();
    if registry.over.get(&below) == Some(&wrapped) {
        registry.over.remove(&below);
    }
    registry.below.remove(&wrapped);
}

/// Returns the wrapped object over an object.
pub(super) fn over(below: usize) -> Option<usize> {
    registry().over.get(&below).copied()
}

/// Returns the object below a wrapped object.
pub(super) fn below(wrapped: usize) -> Option<usize> {
    registry().below.get(&wrapped).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_closed_object_may_belong_to_another_one() {
        let (object, first, second) = (0x10, 0x20, 0x30);
        add(object, first);
        // The provider has closed the object, and opened another one there, before the first
        // wrapped object is removed.
        add(object, second);
        remove(object, first);
        assert_eq!(over(object), Some(second));
        assert_eq!(below(first), None);
        remove(object, second);
        assert_eq!(over(object), None);
    }
}
