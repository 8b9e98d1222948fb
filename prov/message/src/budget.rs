//! How much may be kept for peers whose messages nobody receives, per peer and
//! in all.
//!
//! A peer may have as much as is left for everybody: with a budget of 1, one
//! peer gets 1/2, each of two 1/3, each of ten 1/11, and there is always as much
//! room left as the greediest has taken. So a peer that floods never takes the
//! room of others, whoever comes first. What a peer has at least is never
//! refused to it, unless peers that are gone have left so much behind that
//! nothing is left: or else one that comes again and again could fill the memory.

/// See the [module](self) description.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    /// What every peer may have, even beyond `limit`.
    least: usize,
    /// What is kept of all peers.
    total: usize,
    /// How much of it peers have left behind that are gone.
    left_behind: usize,
}

/// What is kept of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account(usize);

impl Account {
    /// How much.
    pub fn kept(self) -> usize {
        self.0
    }
}

impl Budget {
    /// Nothing is kept yet; `limit` is for all peers, `least` for each.
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

    /// What may be kept of a peer, with `allowance` on top of the limit.
    fn share(&self, account: Account, allowance: usize) -> usize {
        let others = self.total - account.0;
        let limit = self.limit.saturating_add(allowance);
        let least = match self.left_behind < self.limit {
            true => self.least,
            false => 0,
        };
        least.max(limit.saturating_sub(others) / 2)
    }

    /// Whether `cost` more may be kept of a peer, with `allowance` on top of the
    /// limit.
    pub fn has_room(&self, account: Account, cost: usize, allowance: usize) -> bool {
        account.0.saturating_add(cost) <= self.share(account, allowance)
    }

    /// How high the [total](Self::total) may be for `cost` more to be kept of a
    /// peer, with `allowance` on top of the limit; `None` where even 0 is too high.
    pub fn ceiling(&self, account: Account, cost: usize, allowance: usize) -> Option<usize> {
        let taken = cost.checked_mul(2)?.checked_add(account.0)?;
        self.limit.saturating_add(allowance).checked_sub(taken)
    }

    /// How much peers may have [left behind](Self::left_behind) for `cost` more to be
    /// kept of a peer as part of what each may have at least; `None` where it is more
    /// than that.
    pub fn ceiling_of_least(&self, account: Account, cost: usize) -> Option<usize> {
        match account.0.saturating_add(cost) <= self.least {
            true => self.limit.checked_sub(1),
            false => None,
        }
    }

    /// What peers have left behind that are gone.
    pub fn left_behind(&self) -> usize {
        self.left_behind
    }

    /// How high the total, or what peers have left behind, may be for a peer to
    /// [have recovered](Self::has_recovered).
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

    /// Whether a peer has used up half of what it may have: it is time to slow
    /// it down.
    pub fn is_running_low(&self, account: Account) -> bool {
        account.0 > self.share(account, 0) / 2
    }

    /// Whether a peer that was slowed down may go on as before.
    #[cfg(test)]
    pub fn has_recovered(&self, account: Account) -> bool {
        account.0 <= self.share(account, 0) / 4
    }

    /// Keeps `cost` of a peer.
    pub fn charge(&mut self, account: &mut Account, cost: usize) {
        account.0 += cost;
        self.total += cost;
    }

    /// Keeps `cost` of a peer no longer; `None` for one that is gone.
    pub fn refund(&mut self, account: Option<&mut Account>, cost: usize) {
        self.total = self.total.saturating_sub(cost);
        let account = account.map_or(&mut self.left_behind, |account| &mut account.0);
        *account = account.saturating_sub(cost);
    }

    /// A peer is gone, and leaves behind what is kept of it.
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
        // The first one is over its share by now.
        assert!(!budget.has_room(accounts[0], 1, 0));
    }

    #[test]
    fn the_least_is_there_even_where_nothing_is_left() {
        let mut budget = Budget::new(100, 10);
        for _ in 0..50 {
            let mut account = Account::default();
            fill(&mut budget, &mut account);
            assert!(account.kept() >= 10);
        }
        assert!(budget.total() >= 500);
    }

    #[test]
    fn the_least_is_there_again_when_what_was_left_behind_is_taken() {
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
    fn who_is_slowed_down_recovers_when_most_is_taken() {
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
        fn a_peer_finds_room_and_recovers_where_a_total_is_below_its_ceiling(
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
