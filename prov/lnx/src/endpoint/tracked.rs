//! Operations whose completion needs more than the application's context: those that are counted,
//! and those of a peer provider or of deferred work (`FI_PEER_TRANSFER`). They are posted below with
//! a name of their own in place of the context.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_message::Op;

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub struct PostedReceive {
    /// The application's context.
    pub context: usize,
    /// Its flags.
    pub flags: u64,
    /// Whether it takes several messages: it goes on until its buffer is released.
    pub is_multi: bool,
}

/// A tracked operation.
#[derive(Clone, Copy, Debug)]
pub enum Tracked {
    /// Of the sending side.
    Sent(Op),
    /// A receive.
    Posted(PostedReceive),
}

/// The tracked operations of an endpoint, by name.
#[derive(Default)]
pub struct Operations {
    all: Mutex<Names>,
    count: AtomicUsize,
}

#[derive(Default)]
struct Names {
    last: usize,
    known: HashMap<usize, Tracked>,
}

/// The bit of names that no pointer of an application has.
const NAME: usize = 1 << (usize::BITS - 1);

impl Operations {
    /// Adds an operation. Returns its name, in the form of a context.
    pub fn add(&self, operation: Tracked) -> *mut c_void {
        let mut all = self.all.lock();
        all.last = all.last.wrapping_add(1) & !NAME;
        let name = all.last | NAME;
        all.known.insert(name, operation);
        bounded!(all.known, OPERATIONS);
        self.count.store(all.known.len(), Ordering::Relaxed);
        std::ptr::without_provenance_mut(name)
    }

    /// Whether a context is a name.
    #[inline]
    pub fn is_name(context: *mut c_void) -> bool {
        context.addr() & NAME != 0
    }

    /// Takes out the operation with this name; one that goes on stays unless it `ends`.
    pub fn end(&self, context: *mut c_void, ends: bool) -> Option<Tracked> {
        if !Self::is_name(context) || self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut all = self.all.lock();
        let found = *all.known.get(&context.addr())?;
        let goes_on = matches!(found, Tracked::Posted(PostedReceive { is_multi: true, .. }));
        if ends || !goes_on {
            all.known.remove(&context.addr());
            self.count.store(all.known.len(), Ordering::Relaxed);
        }
        Some(found)
    }

    /// Returns the name of the oldest receive that was posted with this context.
    pub fn oldest_receive(&self, context: *mut c_void) -> Option<*mut c_void> {
        self.oldest(|operation| match operation {
            Tracked::Posted(receive) => receive.context == context.addr(),
            Tracked::Sent(_) => false,
        })
    }

    /// Returns the name of the oldest operation of the sending side with this context.
    pub fn oldest_sent(&self, context: *mut c_void) -> Option<*mut c_void> {
        self.oldest(|operation| match operation {
            Tracked::Posted(_) => false,
            Tracked::Sent(op) => op.context.pointer() == context,
        })
    }

    fn oldest(&self, is_it: impl Fn(&Tracked) -> bool) -> Option<*mut c_void> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let all = self.all.lock();
        let named = all.known.iter().filter(|(_, operation)| is_it(operation));
        let age = |name: &usize| all.last.wrapping_sub(*name) & !NAME;
        let oldest = named.map(|(name, _)| *name).max_by_key(age)?;
        Some(std::ptr::without_provenance_mut(oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(context: usize, is_multi: bool) -> Tracked {
        Tracked::Posted(PostedReceive {
            context,
            flags: 0,
            is_multi,
        })
    }

    #[test]
    fn a_name_is_for_one_operation() {
        let operations = Operations::default();
        let (one, other) = (
            operations.add(receive(7, false)),
            operations.add(receive(7, false)),
        );
        assert_ne!(one, other);
        assert_eq!(operations.oldest_receive(7 as *mut c_void), Some(one));
        assert!(operations.end(one, false).is_some());
        assert!(operations.end(one, false).is_none());
        assert_eq!(operations.oldest_receive(7 as *mut c_void), Some(other));
        assert!(operations.end(7 as *mut c_void, true).is_none());
    }

    #[test]
    fn a_buffer_for_several_messages_ends_when_it_is_released() {
        let operations = Operations::default();
        let name = operations.add(receive(7, true));
        assert!(operations.end(name, false).is_some());
        assert!(operations.end(name, true).is_some());
        assert!(operations.end(name, false).is_none());
    }
}
