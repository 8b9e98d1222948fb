//! The posted receives, found by tag and source in a time that does not depend on their number.
//!
//! Most programs post receives in the order in which the messages arrive. Receives are therefore
//! kept in a [ring](Line) at first, where a message usually matches the first receive or one of the
//! next few. The first message that matches none of these moves all of them to a [hash
//! table](Hashed), where they stay until none is left.

mod hashed;
mod line;

use fabric_abi::FI_MULTI_RECV;

use self::hashed::Hashed;
use self::line::{Line, PostedSlot, Search};
use super::multi::MultiKey;
use super::{ANY_SOURCE, Filter, Receive, ReceiveBuffer, tags_match};

/// Largest number of receives in a queue: their positions have 32 bits.
pub const MOST_POSTED: usize = 1 << 30;

/// Returns the memory that a queued receive takes, in bytes. Hashed ones take up to half as much
/// again.
pub const fn posted_cost<B>() -> usize {
    size_of::<PostedSlot<B>>()
}

/// A posted receive, without its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub context: usize,
    pub flags: u64,
    pub src: u64,
    pub tag: u64,
    pub ignore: u64,
}

impl Posted {
    pub fn of<B>(receive: &Receive<B>) -> Self {
        Posted {
            context: receive.context,
            flags: receive.flags,
            src: receive.src,
            tag: receive.tag,
            ignore: receive.ignore,
        }
    }

    #[inline(always)]
    fn accepts(&self, src: u64, tag: u64) -> bool {
        tags_match(self.tag, tag, self.ignore) && (self.src == ANY_SOURCE || self.src == src)
    }

    /// Returns whether its buffer is a multi-receive buffer.
    #[inline(always)]
    fn is_multi(&self) -> bool {
        self.flags & FI_MULTI_RECV != 0
    }

    /// Returns the messages that it accepts.
    pub fn filter(&self) -> Filter {
        Filter {
            src: self.src,
            tag: self.tag,
            ignore: self.ignore,
        }
    }
}

/// The buffer of a posted receive.
#[derive(Debug)]
pub(super) enum Space<B> {
    Single(B),
    Multi(MultiKey),
    /// The slot is unused.
    Vacant,
}

/// A receive that has left the queue, with a single-message buffer.
pub struct Single<'a, B> {
    /// See [`Receive::context`](super::Receive::context).
    pub context: usize,
    /// See [`Receive::flags`](super::Receive::flags).
    pub flags: u64,
    /// See [`Receive::buf`](super::Receive::buf).
    pub buf: &'a mut B,
}

/// Number of receives in the ring up to which one is searched by its context from the oldest on.
const MANY: usize = if cfg!(test) { 16 } else { 1024 };
/// Number of receives that are searched so if there are more: programs that cancel all of their
/// receives mostly do it in the order of posting.
const FIRST: usize = if cfg!(test) { 4 } else { 64 };

/// Identifies a posted receive until the queue changes.
pub(super) type Index = u32;

#[derive(Debug)]
pub(super) struct PostedQueue<B> {
    line: Line<B>,
    hashed: Hashed<B>,
    /// Which of the two contains the receives; the other one is empty.
    hashing: bool,
}

impl<B> PostedQueue<B> {
    pub fn new() -> Self {
        PostedQueue {
            line: Line::new(),
            hashed: Hashed::new(),
            hashing: false,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self.hashing {
            false => self.line.len(),
            true => self.hashed.len(),
        }
    }

    /// Appends a receive.
    pub fn push(&mut self, posted: Posted, space: Space<B>) -> Index {
        if self.hashing {
            return self.hashed.push(posted, space);
        }
        if self.hashed.is_large() {
            self.hashed.release();
        }
        self.line.push(posted, space)
    }

    /// The fast path of `push`: appends a receive with a single-message buffer if the ring has room
    /// and contains fewer than `most` receives. Returns whether it did. `posted` constructs the
    /// receive in its slot, without a copy.
    #[inline(always)]
    pub fn push_in_line(&mut self, posted: impl Fn() -> Posted, buf: &mut B, most: usize) -> bool
    where
        B: ReceiveBuffer,
    {
        // While receives are hashed, the ring is empty and closed.
        if self.line.len() >= most {
            return false;
        }
        let Some(place) = self.line.extend() else {
            return false;
        };
        place.posted = posted();
        match &mut place.space {
            // The slot's old buffer is overwritten.
            Space::Single(place) => place.assign(buf),
            space => *space = Space::Single(buf.take()),
        }
        true
    }

    /// Returns the oldest receive that accepts a message with this source and tag.
    #[inline]
    pub fn find(&mut self, src: u64, tag: u64) -> Option<Index> {
        if !self.hashing {
            match self.line.search(src, tag) {
                Search::Found(index) => return Some(index),
                Search::Nothing => return None,
                Search::Long => self.start_hashing(),
            }
        }
        self.hashed.find(src, tag)
    }

    #[inline]
    pub fn get(&self, index: Index) -> Option<&Posted> {
        match self.hashing {
            false => self.line.get(index),
            true => self.hashed.get(index),
        }
    }

    /// Returns the multi-receive buffer of a receive, if it has one.
    #[inline]
    pub fn multi(&self, index: Index) -> Option<MultiKey> {
        let space = match self.hashing {
            false => self.line.space(index),
            true => self.hashed.space(index),
        };
        match space? {
            Space::Multi(key) => Some(*key),
            Space::Single(_) | Space::Vacant => None,
        }
    }

    /// Returns the receive with this multi-receive buffer. Fast for one that was just posted.
    pub fn find_multi(&self, key: MultiKey) -> Option<Index> {
        let is_it = |space: &Space<B>| matches!(space, Space::Multi(multi) if *multi == key);
        match self.hashing {
            false => self.line.find_last(is_it),
            true => self.hashed.find_space(is_it),
        }
    }

    /// The fast path of [`PostedQueue::take_single`], for a message that the oldest receive accepts.
    #[inline(always)]
    pub fn take_first(&mut self, src: u64, tag: u64) -> Option<Single<'_, B>> {
        self.line.take_first_for(src, tag)
    }

    /// Removes the oldest receive that accepts a message, if it has a single-message buffer. The
    /// buffer stays in its slot until the next receive is posted.
    pub fn take_single(&mut self, src: u64, tag: u64) -> Option<Single<'_, B>> {
        let index = self.find(src, tag)?;
        if self.get(index)?.is_multi() {
            return None;
        }
        self.take_single_at(index)
    }

    fn take_single_at(&mut self, index: Index) -> Option<Single<'_, B>> {
        if !self.hashing {
            self.line.bring_forward(index);
            return self.line.take_first();
        }
        let posted = self.hashed.unlist(index)?;
        self.stop_hashing_if_empty();
        single(&posted, self.hashed.space_mut(index)?)
    }

    /// The fast path of [`PostedQueue::take_single_if`], for a message that the oldest receive
    /// accepts.
    #[inline(always)]
    pub fn take_first_if(
        &mut self,
        src: u64,
        tag: u64,
        wanted: impl Fn(&Posted, &B) -> bool,
    ) -> Option<Single<'_, B>> {
        self.line.take_first_if(src, tag, wanted)
    }

    /// [`PostedQueue::take_single`], if the receive is `wanted`.
    pub fn take_single_if(
        &mut self,
        src: u64,
        tag: u64,
        wanted: impl Fn(&Posted, &B) -> bool,
    ) -> Option<Single<'_, B>> {
        let index = self.find(src, tag)?;
        let space = match self.hashing {
            false => self.line.space(index),
            true => self.hashed.space(index),
        };
        match space? {
            Space::Single(buf) if wanted(self.get(index)?, buf) => self.take_single_at(index),
            Space::Single(_) | Space::Multi(_) | Space::Vacant => None,
        }
    }

    /// Removes a receive, and returns its buffer. [`PostedQueue::get`] returns the rest of it
    /// before.
    #[inline]
    pub fn remove(&mut self, index: Index) -> Space<B> {
        if !self.hashing {
            return self.line.remove(index);
        }
        let space = self.hashed.remove(index);
        self.stop_hashing_if_empty();
        space
    }

    /// Returns the oldest receive posted with `context`. One that is not among the first few of
    /// many moves all of them to the hash table, which finds the next ones.
    pub fn find_context(&mut self, context: usize) -> Option<Index> {
        if !self.hashing {
            let searched = match self.line.len() > MANY {
                false => MANY,
                true => FIRST,
            };
            let found = self
                .line
                .find_among(searched, |posted| posted.context == context);
            if found.is_some() || self.line.len() <= MANY {
                return found;
            }
            self.start_hashing();
        }
        self.hashed.find_context(context)
    }

    /// Returns the receives for which `select` is true, oldest first. Removing some of them leaves
    /// the indices of the others valid.
    pub fn in_order(&mut self, select: impl Fn(&Posted) -> bool) -> Vec<Index> {
        if !self.hashing && self.line.find_among(MOST_POSTED, &select).is_none() {
            return Vec::new();
        }
        self.start_hashing();
        self.stop_hashing_if_empty();
        self.hashed.in_order(select)
    }

    /// Calls `visit` with each receive, in any order.
    pub fn for_each(&self, mut visit: impl FnMut(&Posted)) {
        for (_, posted) in self.hashed.iter() {
            visit(posted);
        }
        for posted in self.line.iter() {
            visit(posted);
        }
    }

    /// Moves the receives from the ring to the hash table.
    #[cold]
    #[inline(never)]
    fn start_hashing(&mut self) {
        self.hashing = true;
        while let Some((posted, space)) = self.line.pop() {
            self.hashed.push(posted, space);
        }
        self.line.close();
    }

    #[inline]
    fn stop_hashing_if_empty(&mut self) {
        if self.hashed.len() == 0 {
            self.hashing = false;
            self.hashed.reset();
            if self.hashed.is_large() {
                // The next receive is then posted by `push`, which gives back the memory: a buffer
                // may still be read there.
                self.line.release();
            }
            self.line.reopen();
        }
    }
}

/// Returns a receive, if it has a single-message buffer.
#[inline(always)]
fn single<'a, B>(posted: &Posted, space: &'a mut Space<B>) -> Option<Single<'a, B>> {
    match space {
        Space::Single(buf) => Some(Single {
            context: posted.context,
            flags: posted.flags,
            buf,
        }),
        Space::Multi(_) | Space::Vacant => None,
    }
}
