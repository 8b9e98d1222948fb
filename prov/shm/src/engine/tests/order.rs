//! The order of operations at the target (`fi_tx_attr::msg_order`): what follows a read
//! does not change what that reads.

use super::*;

/// Reads a whole region, and then writes to its end, or sends a message on which its
/// owner writes there. The read has what was there before.
fn read_and_change(params: fn() -> Params, len: usize, by_message: bool) {
    let (mut a, mut b) = (Side::new(params()), Side::new(params()));
    let to = a.insert(&b.name);
    let before = pattern(1, len);
    let mut region = before.clone();
    b.register(3, &mut region);
    let (mut word, mut received) = (*b"changed!", [0; 8]);
    b.core.receive(b.ep, &buffer(2, &mut received, 9)).unwrap();
    // The link is open.
    let mut first = [0; 8];
    let read = access(Access::Read, to, 3, &mut first, 1);
    a.core.access(a.ep, &read).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);

    let mut found = vec![0; len];
    let read = access(Access::Read, to, 3, &mut found, 1);
    a.core.access(a.ep, &read).unwrap();
    let end = len - word.len();
    let mut write = access(Access::Write, to, 3, &mut word, 2);
    write.remote = RemoteIov::default();
    write.remote.push(RemotePiece {
        addr: end as u64,
        len: 8,
        key: 3,
    });
    let mut is_posted = false;
    let mut done = Vec::new();
    until(&mut [&mut a, &mut b], |sides| {
        if !is_posted {
            let side = &mut *sides[0];
            let posted = match by_message {
                true => side.core.transmit(side.ep, &message(to, 2, &mut word, 0)),
                false => side.core.access(side.ep, &write),
            };
            is_posted = posted != Err(Errno::EAGAIN);
            assert!(!is_posted || posted == Ok(()));
        }
        done.extend(sides[0].completions());
        if by_message && sides[1].completions() == [9] {
            b"changed!"
                .iter()
                .zip(&mut region[end..])
                .for_each(|(from, to)| *to = *from);
        }
        done.len() == 2 && region.ends_with(b"changed!")
    });
    assert!(found == before, "{len} bytes, by a message: {by_message}");
}

#[test]
fn what_follows_a_read_does_not_change_what_it_reads() {
    for params in [Params::default, without_cma] {
        for len in [64, 8 << 10, 1 << 20] {
            read_and_change(params, len, false);
            read_and_change(params, len, true);
        }
    }
}
