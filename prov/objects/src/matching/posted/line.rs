//! Posted receives in a ring, in the order in which they were posted.

use super::{Index, Posted, Single, Space, single};

/// Number of receives for which a linear search is faster than hashing.
const FEW: u32 = 8;
/// Number of slots above which the memory of the closed ring is given back: 8 MB.
const KEPT: usize = if cfg!(test) { 32 } else { 1 << 16 };
/// Initial capacity; a power of two.
const FIRST_ROOM: usize = 16;

/// A posted receive in its slot.
#[derive(Debug)]
pub(super) struct PostedSlot<B> {
    pub posted: Posted,
    /// The buffer is moved directly from the caller to here, and back.
    pub space: Space<B>,
}

/// A ring of receives. Each has a position, which is its [`Index`].
#[derive(Debug)]
pub(super) struct Line<B> {
    /// Empty at first, then a power of two of slots. Unused slots are undefined.
    ring: Vec<PostedSlot<B>>,
    /// Usable slots: all of the ring, or none if the line is closed.
    room: u32,
    /// Position of the oldest receive.
    head: u32,
    /// Position of the next receive.
    tail: u32,
}

/// The result of a search among the first few receives.
pub(super) enum Search {
    Found(Index),
    /// There are no more receives.
    Nothing,
    /// There are more receives than a linear search examines.
    Long,
}

impl<B> Line<B> {
    pub fn new() -> Self {
        Line {
            ring: Vec::new(),
            room: 0,
            head: 0,
            tail: 0,
        }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> usize {
        position as usize & self.ring.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn waiting(&self, position: u32) -> Option<&PostedSlot<B>> {
        // For a position behind the tail, the distance exceeds the length.
        let is_in_line = (position.wrapping_sub(self.head) as usize) < self.len();
        is_in_line.then(|| self.ring.get(self.slot(position)))?
    }

    /// Appends a slot, which counts as used, and returns it; `None` if the ring is full or closed.
    #[inline(always)]
    pub fn extend(&mut self) -> Option<&mut PostedSlot<B>> {
        if self.len() >= self.room as usize {
            return None;
        }
        let slot = self.slot(self.tail);
        let place = self.ring.get_mut(slot)?;
        self.tail = self.tail.wrapping_add(1);
        Some(place)
    }

    /// Rejects receives until it is reopened. It is empty, and gives back the memory of many.
    pub fn close(&mut self) {
        self.room = 0;
        if self.ring.len() > KEPT {
            self.release();
        }
    }

    /// Gives back the memory of the empty ring.
    pub fn release(&mut self) {
        self.ring = Vec::new();
        self.room = 0;
    }

    /// Accepts receives again.
    pub fn reopen(&mut self) {
        self.room = self.ring.len() as u32;
    }

    /// Appends a receive.
    pub fn push(&mut self, posted: Posted, space: Space<B>) -> Index {
        if self.len() == self.ring.len() {
            self.grow();
        }
        let index = self.tail;
        if let Some(place) = self.extend() {
            *place = PostedSlot { posted, space };
        }
        index
    }

    fn grow(&mut self) {
        let room = (2 * self.ring.len()).max(FIRST_ROOM);
        assert!(room <= 1 << 31, "more than 2^31 receives");
        let mut ring = Vec::with_capacity(room);
        while let Some((posted, space)) = self.pop() {
            ring.push(PostedSlot { posted, space });
        }
        (self.head, self.tail) = (0, ring.len() as u32);
        ring.resize_with(room, || PostedSlot {
            posted: Posted {
                context: 0,
                flags: 0,
                src: 0,
                tag: 0,
                ignore: 0,
            },
            space: Space::Vacant,
        });
        self.ring = ring;
        self.reopen();
    }

    /// Removes the oldest receive, if it has a single-message buffer and accepts a message. The
    /// buffer stays in its slot until the next receive is posted.
    #[inline(always)]
    pub fn take_first_for(&mut self, src: u64, tag: u64) -> Option<Single<'_, B>> {
        self.take_first_if(
            src,
            tag,
            #[inline(always)]
            |_, _| true,
        )
    }

    /// [`Line::take_first_for`], if the receive is `wanted`.
    #[inline(always)]
    pub fn take_first_if(
        &mut self,
        src: u64,
        tag: u64,
        wanted: impl Fn(&Posted, &B) -> bool,
    ) -> Option<Single<'_, B>> {
        let position = self.head;
        if position == self.tail {
            return None;
        }
        let slot = self.slot(position);
        let PostedSlot { posted, space } = self.ring.get_mut(slot)?;
        if !posted.accepts(src, tag) {
            return None;
        }
        let single = single(posted, space)?;
        if !wanted(posted, single.buf) {
            return None;
        }
        self.head = position.wrapping_add(1);
        Some(single)
    }

    /// [`Line::take_first_for`], whatever it accepts.
    pub fn take_first(&mut self) -> Option<Single<'_, B>> {
        let position = self.head;
        self.waiting(position)?;
        self.head = position.wrapping_add(1);
        let slot = self.slot(position);
        let PostedSlot { posted, space } = self.ring.get_mut(slot)?;
        single(posted, space)
    }

    /// Removes the oldest receive from its slot.
    pub fn pop(&mut self) -> Option<(Posted, Space<B>)> {
        let posted = *self.get(self.head)?;
        Some((posted, self.remove(self.head)))
    }

    /// Searches the first few receives for one that accepts a message.
    #[inline(always)]
    pub fn search(&self, src: u64, tag: u64) -> Search {
        for ahead in 0..FEW {
            let position = self.head.wrapping_add(ahead);
            match self.waiting(position) {
                None => return Search::Nothing,
                Some(first) if first.posted.accepts(src, tag) => return Search::Found(position),
                Some(_) => {}
            }
        }
        match self.len() > FEW as usize {
            false => Search::Nothing,
            true => Search::Long,
        }
    }

    #[inline]
    pub fn get(&self, index: Index) -> Option<&Posted> {
        Some(&self.waiting(index)?.posted)
    }

    #[inline]
    pub fn space(&self, index: Index) -> Option<&Space<B>> {
        Some(&self.waiting(index)?.space)
    }

    /// Removes a receive at any position.
    pub fn remove(&mut self, index: Index) -> Space<B> {
        if self.waiting(index).is_none() {
            return Space::Vacant;
        }
        // The receives on the shorter side close the gap.
        let ahead = index.wrapping_sub(self.head);
        let behind = self.tail.wrapping_sub(index) - 1;
        let slot = if ahead <= behind {
            self.bring_forward(index);
            let first = self.head;
            self.head = first.wrapping_add(1);
            self.slot(first)
        } else {
            for step in 0..behind {
                self.swap_with_next(index.wrapping_add(step));
            }
            self.tail = self.tail.wrapping_sub(1);
            self.slot(self.tail)
        };
        match self.ring.get_mut(slot) {
            Some(place) => std::mem::replace(&mut place.space, Space::Vacant),
            None => Space::Vacant,
        }
    }

    /// Moves a receive to the front; the others stay in order.
    pub fn bring_forward(&mut self, index: Index) {
        for step in 1..=index.wrapping_sub(self.head) {
            self.swap_with_next(index.wrapping_sub(step));
        }
    }

    fn swap_with_next(&mut self, position: u32) {
        let (here, next) = (self.slot(position), self.slot(position.wrapping_add(1)));
        self.ring.swap(here, next);
    }

    fn positions(&self) -> impl DoubleEndedIterator<Item = u32> + use<B> {
        let head = self.head;
        (0..self.len() as u32).map(move |ahead| head.wrapping_add(ahead))
    }

    /// Returns the oldest receive for which `is_it` is true, among the `first` oldest.
    pub fn find_among(&self, first: usize, is_it: impl Fn(&Posted) -> bool) -> Option<Index> {
        self.positions()
            .take(first)
            .find(|&index| self.get(index).is_some_and(&is_it))
    }

    /// The receives, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Posted> {
        self.positions().filter_map(|index| self.get(index))
    }

    /// Returns the newest receive for whose buffer `is_it` is true.
    pub fn find_last(&self, is_it: impl Fn(&Space<B>) -> bool) -> Option<Index> {
        self.positions()
            .rev()
            .find(|&index| self.space(index).is_some_and(&is_it))
    }
}
