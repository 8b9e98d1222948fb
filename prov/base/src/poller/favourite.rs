//! The connection that is read without a call of epoll_wait(2).
//!
//! If all messages come from one connection, reading it directly takes one system call for a
//! message instead of two. If they come from several, one epoll_wait(2) tells which of them are
//! readable, whatever their number. So there is at most one favourite, and none as soon as another
//! connection has data.

/// Number of consecutive successful reads that make a connection the favourite.
const ENOUGH: u32 = 8;
/// Number of failed reads after which the favourite is left to the poller, until it has data again.
const TOO_MANY: u32 = 1000;

/// The history of reads, which predicts where the next message comes from.
#[derive(Default)]
pub struct Favourite<K> {
    /// The connection of the last successful read.
    conn: K,
    /// Number of consecutive successful reads of it, counted up to [`ENOUGH`].
    streak: u32,
    /// Number of failed reads of it since then.
    misses: u32,
}

impl<K: Copy + PartialEq + Default> Favourite<K> {
    /// Returns the favourite, if there is one.
    #[inline(always)]
    pub fn get(&self) -> Option<K> {
        (self.streak == ENOUGH).then_some(self.conn)
    }

    /// Notes a successful read; returns whether the last one was of another connection.
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

    /// Notes a successful read of the favourite.
    #[inline]
    pub fn brought_again(&mut self) {
        self.misses = 0;
    }

    /// Notes a failed read of the favourite.
    #[inline]
    pub fn missed(&mut self) {
        self.misses += 1;
        if self.misses == TOO_MANY {
            // One successful read makes it the favourite again.
            self.streak = ENOUGH - 1;
        }
    }

    /// Forgets a connection that has ended.
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
    fn a_favourite_without_data_is_the_favourite_again_after_one_read() {
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
