//! The receives of a shared context, as an inbox in another lane takes them: what is done with them
//! is in [`endpoints::cross_lane_srx`](crate::endpoints::cross_lane_srx).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prov_base::buffer::AppIov;
use prov_util::matching::{Matched, MultiId};

/// The receives of a shared context, for endpoints in other lanes.
pub trait Receives: Send + Sync {
    /// Asks for a receive for a message. `before` is the number of receives that had been posted
    /// when older messages of the same endpoint that still wait have asked.
    fn arrive(&self, message: &Sought, waits: &AtomicBool, before: Option<u64>) -> Answer;

    /// Returns whether receives are posted that no message has taken.
    fn any_posted(&self) -> bool;

    /// Handles that a message in a multi-receive buffer has ended. Returns whether the buffer is
    /// released to the application.
    fn finish_multi(&self, tagged: bool, multi: MultiId) -> bool;
}

/// A message for which a receive is sought.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// Whether it has a tag.
    pub tagged: bool,
    /// The sender, or [`ANY_SOURCE`](prov_util::matching::ANY_SOURCE).
    pub src: u64,
    /// The tag; 0 for untagged messages.
    pub tag: u64,
    /// Length in bytes.
    pub len: usize,
}

/// The answer to a message.
pub enum Answer {
    /// This receive accepts it.
    Receive(Matched<AppIov>),
    /// No receive accepts it. The message waits, which the context was told by `waits` before
    /// another receive can be posted.
    None,
    /// Receives were posted that older messages have not asked for: so many have been by now.
    Later(u64),
}

/// See the [module](self) description.
pub(crate) struct CrossLaneReceives {
    receives: Arc<dyn Receives>,
    /// Whether a message may wait for a receive.
    waits: Arc<AtomicBool>,
    /// The number of receives that had been posted when all messages that wait have asked.
    asked: u64,
}

impl CrossLaneReceives {
    /// Creates it for an inbox without messages.
    pub fn new(receives: Arc<dyn Receives>, waits: Arc<AtomicBool>) -> Self {
        CrossLaneReceives {
            receives,
            waits,
            asked: 0,
        }
    }

    /// Handles that all messages that wait are going to ask: each that finds no receive sets the mark
    /// again.
    pub fn all_ask(&self) {
        self.waits.store(false, Ordering::SeqCst);
    }

    /// Handles that all messages that wait have asked, when so many receives had been posted.
    pub fn all_have_asked(&mut self, posted: u64) {
        self.asked = posted;
    }

    /// Returns a function that asks for a receive for a message that waits.
    pub fn asker(&self) -> impl Fn(&Sought) -> Option<Matched<AppIov>> + use<> {
        let (receives, waits) = (self.receives.clone(), self.waits.clone());
        move |message| match receives.arrive(message, &waits, None) {
            Answer::Receive(matched) => Some(matched),
            Answer::None | Answer::Later(_) => None,
        }
    }

    /// Asks for a receive. `any_older`: whether older messages wait.
    pub fn arrive(&self, message: &Sought, any_older: bool) -> Answer {
        let before = any_older.then_some(self.asked);
        self.receives.arrive(message, &self.waits, before)
    }

    pub fn any_posted(&self) -> bool {
        self.receives.any_posted()
    }

    pub fn finish_multi(&self, tagged: bool, multi: MultiId) -> bool {
        self.receives.finish_multi(tagged, multi)
    }

    pub fn is_of(&self, receives: &Arc<dyn Receives>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.receives), Arc::as_ptr(receives))
    }
}
