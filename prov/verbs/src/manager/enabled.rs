//! Queue pairs of enabled endpoints, connected or not, in case their device goes away.

use std::collections::HashMap;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};

use crate::device::{Context, QueuePair};
use crate::lane::Seats;

/// All queue pairs of a fabric.
#[derive(Default)]
pub struct Enabled {
    /// By [`key`].
    pairs: HashMap<usize, Pair>,
    /// Devices that have failed.
    failed: Vec<Context>,
}

struct Pair {
    context: Context,
    pair: Arc<QueuePair>,
    seats: Seats,
}

/// Returns a key that is unique among existing pairs.
fn key(pair: &Arc<QueuePair>) -> usize {
    Arc::as_ptr(pair).addr()
}

impl Enabled {
    /// Adds the queue pair of an endpoint, with its lane members.
    pub fn add(&mut self, context: Context, pair: Arc<QueuePair>, seats: Seats) {
        let added = Pair {
            context,
            pair,
            seats,
        };
        self.pairs.insert(key(&added.pair), added);
        // It may have been created just before the device failed.
        if self.failed.contains(&context) {
            self.device_failed(context);
        }
    }

    /// Removes a queue pair.
    pub fn remove(&mut self, pair: &Arc<QueuePair>) {
        self.pairs.remove(&key(pair));
    }

    /// Ends all outstanding requests on a device, including those that were to be flushed.
    pub fn device_failed(&mut self, context: Context) {
        if !self.failed.contains(&context) {
            self.failed.push(context);
        }
        let pairs = || self.pairs.values().filter(|pair| pair.context == context);
        let mut are_over = true;
        for pair in pairs() {
            are_over &= is_over(pair.pair.end_for_all(), &pair.seats);
        }
        // Shared receives would wait for ever once the last pair has ended: the device flushes only
        // a pair's own.
        if are_over {
            pairs().for_each(|pair| pair.seats.abandon_shared());
        }
    }
}

/// Ends the requests of a queue pair: its device flushes them, or it is gone and they are reported
/// as flushed here. Returns whether they have ended.
pub fn end(pair: &QueuePair, seats: &Seats) -> bool {
    is_over(pair.end(), seats)
}

fn is_over(ended: Result, seats: &Seats) -> bool {
    let Err(error) = ended else {
        return true;
    };
    log::warn!(target: crate::LOG.ep_ctrl, "a queue pair does not end: {error}");
    // Otherwise messages may still arrive in its receives.
    let is_gone = matches!(error, Errno::ENODEV | Errno::EIO);
    if is_gone {
        seats.abandon();
    }
    is_gone
}

#[cfg(test)]
mod tests {
    use prov_base::sync::LockKind;

    use super::*;
    use crate::device::fake;
    use crate::lane;
    use crate::lane::tests::{Sharing, receive, waiting};

    /// Creates an endpoint with three receives.
    fn endpoint(context: Context) -> (Arc<QueuePair>, Seats) {
        let (pair, seats) = lane::tests::endpoint(context, LockKind::Real);
        for _ in 0..3 {
            receive(&seats).unwrap();
        }
        (pair, seats)
    }

    #[test]
    fn receives_that_a_device_may_still_write_to_are_not_over() {
        let context = fake::context("fake");
        let outcomes = [Errno::EINVAL, Errno::ENOMEM, Errno::EINTR].map(Err);
        for outcome in outcomes.into_iter().chain([Ok(())]) {
            let (pair, seats) = endpoint(context);
            fake::answer(outcome);
            end(&pair, &seats);
            assert_eq!(waiting(&seats), 3, "{outcome:?}");
            assert_eq!(receive(&seats), Ok(()));
        }
    }

    #[test]
    fn receives_on_a_removed_device_end_and_no_more_are_accepted() {
        let context = fake::context("fake");
        for error in [Errno::ENODEV, Errno::EIO] {
            let (pair, seats) = endpoint(context);
            fake::answer(Err(error));
            end(&pair, &seats);
            assert_eq!(waiting(&seats), 0);
            assert_eq!(receive(&seats), Err(Errno::ENODEV));
            assert_eq!(waiting(&seats), 0);
        }
    }

    #[test]
    fn a_device_takes_all_its_endpoints_along() {
        let (one, two) = (fake::context("one"), fake::context("two"));
        let mut enabled = Enabled::default();
        let [ended, idle, closed, other, late] = [one, one, one, two, one].map(endpoint);
        for (pair, seats) in [&ended, &idle, &closed] {
            enabled.add(one, pair.clone(), seats.clone());
        }
        enabled.add(two, other.0.clone(), other.1.clone());
        enabled.remove(&closed.0);
        // The device fails before it has flushed them.
        end(&ended.0, &ended.1);
        assert_eq!(waiting(&ended.1), 3);
        fake::answer(Err(Errno::EIO));
        enabled.device_failed(one);
        enabled.add(one, late.0.clone(), late.1.clone());
        for (_, seats) in [&ended, &idle, &late] {
            assert_eq!(waiting(seats), 0);
            assert_eq!(receive(seats), Err(Errno::ENODEV));
        }
        for (_, seats) in [&closed, &other] {
            assert_eq!(waiting(seats), 3);
        }
    }

    #[test]
    fn shared_receives_end_when_no_endpoint_is_left_that_could_receive() {
        for stays in [false, true] {
            let sharing = Sharing::new();
            sharing.post(1).unwrap();
            let mut enabled = Enabled::default();
            for (pair, seats) in &sharing.ends {
                enabled.add(sharing.context, pair.clone(), seats.clone());
            }
            fake::answer(match stays {
                true => Err(Errno::ENOMEM),
                false => Ok(()),
            });
            enabled.device_failed(sharing.context);
            let expected: &[usize] = if stays { &[] } else { &[1] };
            assert_eq!(sharing.ended(), expected, "stays: {stays}");
        }
    }
}
