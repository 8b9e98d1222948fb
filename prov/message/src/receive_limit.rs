//! The limit of posted receives of a context: a memory budget, whatever size the context announces
//! (`fi_rx_attr::size`). Programs post as many as they like, and some do not read their queues until
//! all are accepted.

use prov_base::buffer::AppIov;
use prov_base::memory_limit::half_of_memory;
use prov_util::matching::{MOST_POSTED, posted_cost};

/// The part of the memory which this process may use ([`half_of_memory`]) that the posted receives
/// of one queue may occupy: 1/8 of the half. With that, a queue whose storage is being doubled takes
/// less than a fifth of the whole.
const PART: usize = 8;

/// Returns the limit for a context that announces this size. It is never less than the size.
pub fn receive_limit(announced: usize) -> usize {
    within(half_of_memory() / PART)
        .max(announced)
        .min(MOST_POSTED)
}

/// Returns the number of receives that fit into a budget, in bytes.
fn within(budget: usize) -> usize {
    budget / posted_cost::<AppIov>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_budget_or_the_announced_size() {
        // 512 MiB of memory are enough for 100,000.
        assert!(within((256 << 20) / PART) > 100_000);
        assert!(receive_limit(1) > 1 << 16);
        assert_eq!(receive_limit(1), receive_limit(1 << 10));
        assert_eq!(receive_limit(MOST_POSTED), MOST_POSTED);
        assert_eq!(receive_limit(usize::MAX), MOST_POSTED);
    }
}
