//! Poll sets: which of several queues and counters have something to read
//! (fi_poll(3)).

use std::ffi::c_void;

use parking_lot::Mutex;

use crate::wait::Waitable;

/// A queue or counter in a poll set. It must not keep the object open.
pub trait Polled: Send + Sync {
    /// The object.
    fn waitable(&self) -> &dyn Waitable;

    /// The application's context of it, as it is now.
    fn context(&self) -> *mut c_void;

    /// Whether the application has closed it.
    fn is_closed(&self) -> bool;
}

/// A poll set.
#[derive(Default)]
pub struct PollSet {
    members: Mutex<Vec<Box<dyn Polled>>>,
}

impl PollSet {
    /// Adds a member; adding it again changes nothing.
    pub fn add(&self, member: Box<dyn Polled>) {
        let mut members = self.members.lock();
        if !members.iter().any(|known| is_same(&**known, &*member)) {
            members.push(member);
        }
    }

    /// Removes a member; nothing changes where it is none.
    pub fn remove(&self, member: &dyn Polled) {
        let mut members = self.members.lock();
        members.retain(|known| !is_same(&**known, member));
    }

    /// Drives all members and gives the contexts of those with something to
    /// read to `found`, up to `limit`; how many that were.
    pub fn poll(&self, limit: usize, mut found: impl FnMut(*mut c_void)) -> usize {
        let mut members = self.members.lock();
        members.retain(|member| !member.is_closed());
        let mut count = 0;
        for member in members.iter() {
            member.waitable().sources().drive();
            // What does not fit keeps its news for the next call.
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
