//! An application that makes no calls after its last receive.

use prov_util::drive::Helper;

use super::*;

impl Side {
    /// Loses what has arrived; returns the number of datagrams.
    fn lose_arrivals(&self) -> usize {
        let mut core = self.lane.core();
        let mut arrivals = core.arrivals.take().unwrap();
        let mut count = 0;
        while arrivals.read() {
            while let Some(arrived) = arrivals.next() {
                arrivals.handled(arrived);
                count += 1;
            }
        }
        core.arrivals = Some(arrivals);
        count
    }
}

#[test]
fn the_helper_thread_repeats_an_acknowledgement_that_was_lost() {
    let [a, b] = pair(Params::default);
    let helper = Helper::new("tests");
    b.lane.help(&helper);
    let (mut sent, mut room) = ([1; 8], [0; 8]);
    b.receive(&mut room, 1, FI_ADDR_UNSPEC);
    a.send(&mut sent, 1, 0);
    completed(&[&b, &a], 1);
    completed(&[&a, &b], 1);
    b.receive(&mut room, 2, FI_ADDR_UNSPEC);
    a.send(&mut sent, 2, 0);
    completed(&[&b], 1);
    until(&[&b], || (a.lose_arrivals() != 0).then_some(()));
    assert!(a.completions().is_empty());
    completed(&[&a], 1);
}
