//! A memory budget for unexpected messages, shared fairly between peers.
//!
//! A peer may use as much as is left for all others: with a budget of 1, a single peer gets 1/2,
//! each of two 1/3, each of ten 1/11, and there is always as much room left as the greediest peer
//! has taken. A peer that floods therefore never takes the room of others, in whatever order they
//! arrive. Each peer is guaranteed a minimum, which is granted even beyond the limit. The
//! exception: when peers that are gone have left so much data behind that the budget is used up,
//! the minimum is not granted, because a peer that reconnects again and again could otherwise fill
//! the memory.

/// See the [module](self) description.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    /// The minimum guaranteed to every peer, even beyond `limit`.
    least: usize,
    /// What is kept of all peers together.
    total: usize,
    /// The part of `total` that was left behind by peers that are gone.
    left_behind: usize,
}

/// The account of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account(usize);

impl Account {
    /// Returns the amount kept.
    pub fn kept(self) -> usize {
        self.0
    }
}

impl Budget {
    /// Creates an empty budget; `limit` applies to all peers together, `least` is each peer's
    /// minimum.
    pub fn new(limit: usize, least: usize) -> Self {
        Budget {
            limit,
            least,
            total: 0,
            left_behind: 0,
        }
    }

    /// What is kept in all.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The most that may be kept of a peer, with `allowance` added to the limit.
    fn share(&self, account: Account, allowance: usize) -> usize {
        let others = self.total - account.0;
        let limit = self.limit.saturating_add(allowance);
        let least = match self.left_behind < self.limit {
            true => self.least,
            false => 0,
        };
        least.max(limit.saturating_sub(others) / 2)
    }

    /// Returns whether `cost` more may be kept of a peer, with `allowance` added to the limit.
    pub fn has_room(&self, account: Account, cost: usize, allowance: usize) -> bool {
        account.0.saturating_add(cost) <= self.share(account, allowance)
    }

    /// The highest [total](Self::total) at which `cost` more may be kept of a peer, with
    /// `allowance` added to the limit; `None` if even a total of 0 is too high.
    pub fn ceiling(&self, account: Account, cost: usize, allowance: usize) -> Option<usize> {
        let taken = cost.checked_mul(2)?.checked_add(account.0)?;
        self.limit.saturating_add(allowance).checked_sub(taken)
    }

    /// The highest amount [left behind](Self::left_behind) at which `cost` more may be kept of a
    /// peer within its guaranteed minimum; `None` if that exceeds the minimum.
    pub fn ceiling_of_least(&self, account: Account, cost: usize) -> Option<usize> {
        match account.0.saturating_add(cost) <= self.least {
            true => self.limit.checked_sub(1),
            false => None,
        }
    }

    /// Returns the amount that peers which are gone have left behind.
    pub fn left_behind(&self) -> usize {
        self.left_behind
    }

    /// Returns the highest total, and the highest amount left behind, at which a throttled peer may
    /// send without restriction again: it uses at most a quarter of its share.
    pub fn ceilings_of_recovery(&self, account: Account) -> [Option<usize>; 2] {
        if account.0 == 0 {
            return [Some(usize::MAX), None];
        }
        let of_total = account.0.checked_mul(7);
        let of_least = account.0 <= self.least / 4;
        [
            of_total.and_then(|taken| self.limit.checked_sub(taken)),
            of_least.then(|| self.limit.saturating_sub(1)),
        ]
    }

    /// Returns whether a peer has used more than half of its share, so that it should be throttled.
    pub fn is_running_low(&self, account: Account) -> bool {
        account.0 > self.share(account, 0) / 2
    }

    /// Returns whether a throttled peer may send without restriction again.
    #[cfg(test)]
    pub fn has_recovered(&self, account: Account) -> bool {
        account.0 <= self.share(account, 0) / 4
    }

    /// Adds `cost` to a peer's account.
    pub fn charge(&mut self, account: &mut Account, cost: usize) {
        account.0 += cost;
        self.total += cost;
    }

    /// Subtracts `cost` from a peer's account; pass `None` for a peer that is gone.
    pub fn refund(&mut self, account: Option<&mut Account>, cost: usize) {
        self.total = self.total.saturating_sub(cost);
        let account = account.map_or(&mut self.left_behind, |account| &mut account.0);
        *account = account.saturating_sub(cost);
    }

    /// Records that a peer is gone and that its account becomes data left behind.
    pub fn leave_behind(&mut self, account: Account) {
        self.left_behind += account.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(budget: &mut Budget, account: &mut Account) {
        while budget.has_room(*account, 1, 0) {
            budget.charge(account, 1);
        }
    }

    #[test]
    fn a_peer_that_floods_leaves_as_much_as_it_takes() {
        let mut budget = Budget::new(1200, 10);
        let mut accounts = [Account::default(); 3];
        fill(&mut budget, &mut accounts[0]);
        assert_eq!(accounts[0].kept(), 600);
        fill(&mut budget, &mut accounts[1]);
        assert_eq!(accounts[1].kept(), 300);
        fill(&mut budget, &mut accounts[2]);
        assert_eq!(accounts[2].kept(), 150);
        // The first one exceeds its share, which the others have reduced.
        assert!(!budget.has_room(accounts[0], 1, 0));
    }

    #[test]
    fn the_minimum_is_granted_beyond_the_limit() {
        let mut budget = Budget::new(100, 10);
        for _ in 0..50 {
            let mut account = Account::default();
            fill(&mut budget, &mut account);
            assert!(account.kept() >= 10);
        }
        assert!(budget.total() >= 500);
    }

    #[test]
    fn the_minimum_is_granted_again_when_data_of_ended_links_is_released() {
        let mut budget = Budget::new(100, 10);
        while budget.has_room(Account::default(), 10, 0) {
            let mut account = Account::default();
            budget.charge(&mut account, 10);
            budget.leave_behind(account);
        }
        assert_eq!(budget.total(), 100);
        budget.refund(None, 10);
        assert!(budget.has_room(Account::default(), 10, 0));
    }

    #[test]
    fn a_throttled_peer_recovers_when_most_is_received() {
        let mut budget = Budget::new(1000, 0);
        let mut account = Account::default();
        budget.charge(&mut account, 125);
        assert!(!budget.is_running_low(account) && budget.has_recovered(account));
        budget.charge(&mut account, 150);
        assert!(budget.is_running_low(account));
        budget.refund(Some(&mut account), 100);
        assert!(!budget.has_recovered(account));
        budget.refund(Some(&mut account), 50);
        assert!(budget.has_recovered(account));
    }

    fn is_at_most(total: usize, ceiling: Option<usize>) -> bool {
        ceiling.is_some_and(|ceiling| total <= ceiling)
    }

    proptest! {
        #[test]
        fn a_peer_has_room_and_recovers_when_a_total_is_below_its_ceiling(
            kept in prop::collection::vec(0usize..2000, 1..8),
            left in 0usize..3000,
            cost in prop::num::usize::ANY.prop_map(|n| if n % 8 == 0 { n } else { 1 + n % 2000 }),
            allowance in 0usize..500,
        ) {
            let mut budget = Budget::new(2000, 16);
            let mut accounts = vec![Account::default(); kept.len()];
            for (account, kept) in accounts.iter_mut().zip(kept) {
                budget.charge(account, kept);
            }
            let mut gone = Account::default();
            budget.charge(&mut gone, left);
            budget.leave_behind(gone);
            let cost = cost.max(1);
            for account in accounts {
                let finds_room =
                    is_at_most(budget.total(), budget.ceiling(account, cost, allowance))
                    || is_at_most(budget.left_behind(), budget.ceiling_of_least(account, cost));
                prop_assert_eq!(finds_room, budget.has_room(account, cost, allowance));
                let [of_total, of_least] = budget.ceilings_of_recovery(account);
                let recovers = is_at_most(budget.total(), of_total)
                    || is_at_most(budget.left_behind(), of_least);
                prop_assert_eq!(recovers, budget.has_recovered(account));
            }
        }

        #[test]
        fn what_is_kept_adds_up_and_newcomers_find_room(
            steps in prop::collection::vec((0usize..8, 1usize..200, any::<bool>()), 0..300)
        ) {
            let mut budget = Budget::new(1 << 12, 16);
            let mut accounts = [Account::default(); 8];
            for (peer, cost, keep) in steps {
                let account = &mut accounts[peer];
                if !keep {
                    let cost = cost.min(account.kept());
                    budget.refund(Some(account), cost);
                } else if budget.has_room(*account, cost, 0) {
                    budget.charge(account, cost);
                }
                prop_assert_eq!(budget.total(), accounts.iter().map(|a| a.kept()).sum::<usize>());
                prop_assert!(budget.has_room(Account::default(), 16, 0));
            }
        }
    }
}
