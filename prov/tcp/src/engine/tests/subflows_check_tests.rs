//! Runs the check of the fuzz target `subflows` on its seeds and on damaged copies of them.

#[path = "../../../../../fuzz/src/subflow_seeds.rs"]
mod subflow_seeds;
#[path = "../../../../../fuzz/src/subflows_check.rs"]
mod subflows_check;

use subflow_seeds::subflows;
use subflows_check::check;

#[test]
fn subflows_keep_the_properties_that_are_fuzzed() {
    let mut random = 11u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        (random >> 33) as usize % limit
    };
    for seed in subflows() {
        check(&seed);
        for _ in 0..200 {
            let mut damaged = seed.clone();
            for _ in 0..=below(4) {
                let at = below(damaged.len());
                damaged[at] = below(256) as u8;
            }
            damaged.truncate(below(damaged.len() + 1));
            check(&damaged);
        }
    }
}
