//! Poll sets: report which of several queues and counters have something to read (fi_poll(3)).

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::ffi::c_void;

use parking_lot::Mutex;

use crate::wait::Waitable;

/// A queue or counter in a poll set. It must not keep the object open.
pub trait Polled: Send + Sync {
    /// The object.
    fn waitable(&self) -> &dyn Waitable;

    /// Returns the current value of the application's context in the object.
    fn context(&self) -> *mut c_void;

    /// Returns whether the application has closed the object.
    fn is_closed(&self) -> bool;
}

/// A poll set.
#[derive(Default)]
pub struct PollSet {
    members: Mutex<Vec<Box<dyn Polled>>>,
}

impl PollSet {
    /// Adds a member; has no effect if it is one already.
    pub fn add(&self, member: Box<dyn Polled>) {
        let mut members = self.members.lock();
        if !members.iter().any(|known| is_same(&**known, &*member)) {
            members.push(member);
            bounded!(members, OBJECTS);
        }
    }

    /// Removes a member; has no effect if it is none.
    pub fn remove(&self, member: &dyn Polled) {
        let mut members = self.members.lock();
        members.retain(|known| !is_same(&**known, member));
    }

    /// Makes progress for all members, and passes the contexts of up to `limit` members with
    /// something to read to `found`. Returns how many these were.
    pub fn poll(&self, limit: usize, mut found: impl FnMut(*mut c_void)) -> usize {
        let mut members = self.members.lock();
        members.retain(|member| !member.is_closed());
        let mut count = 0;
        for member in members.iter() {
            member.waitable().sources().drive();
            // A member beyond the limit is reported by the next call.
            if count < limit && member.waitable().take_news() {
                found(member.context());
                count += 1;
            }
        }
        count
    }
}

fn is_same(a: &dyn Polled, b: &dyn Polled) -> bool {
    std::ptr::addr_eq::<dyn Waitable, dyn Waitable>(a.waitable(), b.waitable())
}
