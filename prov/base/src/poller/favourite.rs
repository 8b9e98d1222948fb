//! The connection that is read without asking the poller first.
//!
//! Where one connection brings everything, reading it at once takes one call
//! into the system for a message, where asking takes two. Where several do, one
//! question tells which of them are worth a read, whatever their number. So
//! there is one favourite at most, and none as soon as another brings something.

/// Reads in a row that bring something and make a connection the favourite.
const ENOUGH: u32 = 8;
/// Reads in vain after which the favourite is left to the poller, until it
/// brings something again.
const TOO_MANY: u32 = 1000;

/// What the last reads say about where the next message comes.
#[derive(Default)]
pub struct Favourite<K> {
    /// What brought something last.
    conn: K,
    /// How often in a row that was it, counted up to [`ENOUGH`].
    streak: u32,
    /// Reads of it in vain since.
    misses: u32,
}

impl<K: Copy + PartialEq + Default> Favourite<K> {
    /// The favourite, if there is one.
    #[inline(always)]
    pub fn get(&self) -> Option<K> {
        (self.streak == ENOUGH).then_some(self.conn)
    }

    /// A read has brought something; whether another connection did the last
    /// time.
    #[inline]
    pub fn brought(&mut self, conn: K) -> bool {
        self.misses = 0;
        let is_other = conn != self.conn;
        if is_other {
            self.conn = conn;
            self.streak = 0;
        }
        self.streak = (self.streak + 1).min(ENOUGH);
        is_other
    }

    /// A read of the favourite has brought something.
    #[inline]
    pub fn brought_again(&mut self) {
        self.misses = 0;
    }

    /// A read of the favourite has brought nothing.
    #[inline]
    pub fn missed(&mut self) {
        self.misses += 1;
        if self.misses == TOO_MANY {
            // One read that brings something makes it the favourite again.
            self.streak = ENOUGH - 1;
        }
    }

    /// A connection has ended.
    pub fn forget(&mut self, conn: K) {
        if self.conn == conn {
            *self = Favourite::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> [u32; 2] {
        [1, 2]
    }

    #[test]
    fn the_only_connection_that_brings_something_is_the_favourite() {
        let [a, b] = two();
        let mut favourite = Favourite::default();
        favourite.brought(b);
        for _ in 0..ENOUGH {
            assert_eq!(favourite.get(), None);
            favourite.brought(a);
        }
        assert_eq!(favourite.get(), Some(a));
        assert!(!favourite.brought(a));
        assert!(favourite.brought(b));
        assert_eq!(favourite.get(), None);
    }

    #[test]
    fn a_favourite_that_falls_silent_comes_back_with_its_first_word() {
        let [a, _] = two();
        let mut favourite = Favourite::default();
        (0..ENOUGH).for_each(|_| _ = favourite.brought(a));
        (1..TOO_MANY).for_each(|_| favourite.missed());
        assert_eq!(favourite.get(), Some(a));
        favourite.missed();
        assert_eq!(favourite.get(), None);
        favourite.brought(a);
        assert_eq!(favourite.get(), Some(a));
    }

    #[test]
    fn a_connection_that_has_ended_is_no_favourite() {
        let [a, b] = two();
        let mut favourite = Favourite::default();
        (0..ENOUGH).for_each(|_| _ = favourite.brought(a));
        favourite.forget(b);
        assert_eq!(favourite.get(), Some(a));
        favourite.forget(a);
        assert_eq!(favourite.get(), None);
    }
}
