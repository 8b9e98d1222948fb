//! Reads and writes that are refused, or have to wait.

use super::*;

/// Parts of a write in remote memory, by their keys and lengths.
fn pieces(parts: &[(u64, u64)]) -> RemoteIov {
    let mut remote = RemoteIov::default();
    for &(key, len) in parts {
        remote.push(RemotePiece { addr: 0, len, key });
    }
    remote
}

fn with_data(remote: RemoteIov, access: RemoteAccess) -> RemoteAccess {
    RemoteAccess {
        remote,
        data: 7,
        flags: access.flags | FI_REMOTE_CQ_DATA,
        ..access
    }
}

/// A write of which the first part is refused, and one behind it: only that is told.
fn refused_and_then_written(refused: &[(u64, u64)]) {
    let (mut a, mut b) = (Side::new(without_cma()), Side::new(without_cma()));
    let to = a.insert(&b.name);
    let mut region = vec![0; 64 << 10];
    b.register(3, &mut region);
    let len: u64 = refused.iter().map(|(_, len)| len).sum();
    let mut out = pattern(1, len as usize);
    let write = access(Access::Write, to, 0, &mut out, 1);
    let write = with_data(pieces(refused), write);
    a.core.access(a.ep, &write).unwrap();
    let mut told = Vec::new();
    let mut error = None;
    until(&mut [&mut a, &mut b], |sides| {
        error = error.or(sides[0].error());
        error.is_some()
    });
    let mut out = *b"whatever";
    let write = access(Access::Write, to, 3, &mut out, 2);
    let write = with_data(pieces(&[(3, 8)]), write);
    a.core.access(a.ep, &write).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [2]);
    until(&mut [&mut a, &mut b], |sides| {
        let note = |one: &Completion| told.push((one.len, one.data));
        let _ = sides[1].cq.read(1000, note);
        !told.is_empty()
    });
    assert_eq!(told, [(8, 7)]);
    assert_eq!(region[..8], out);
}

#[test]
fn a_write_of_which_a_part_is_refused_is_not_reported() {
    refused_and_then_written(&[(4, 8 << 10), (3, 16 << 10)]);
}

#[test]
fn a_write_that_ends_when_it_is_refused_adds_nothing_to_the_next() {
    refused_and_then_written(&[(4, 1 << 20)]);
}

/// More than a link has requests unanswered.
const MANY: usize = super::super::link::REQUESTS + 100;

#[test]
fn writes_do_not_wait_for_the_receives_of_messages() {
    let mut a = Side::new(Params::default());
    let late = fresh_name();
    let to = a.insert(&late);
    let (mut long, mut short) = (pattern(1, 8193), pattern(2, 8));
    for tag in 0..MANY {
        let (bytes, flags) = match tag % 2 {
            0 => (&mut long, 0),
            _ => (&mut short, FI_DELIVERY_COMPLETE),
        };
        let sent = message(to, tag as u64, bytes, flags);
        a.core.transmit(a.ep, &sent).unwrap();
    }
    let mut out = *b"deferred";
    let write = access(Access::Write, to, 3, &mut out, MANY);
    a.core.access(a.ep, &write).unwrap();
    let mut b = Side::named(late, Params::default());
    let mut region = [0; 8];
    b.register(3, &mut region);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [MANY]);
    assert_eq!(region, out);
    // And on a link that is open.
    let mut out = *b"at once!";
    let write = access(Access::Write, to, 3, &mut out, MANY + 1);
    a.core.access(a.ep, &write).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [MANY + 1]);
    assert_eq!(region, out);
}

#[test]
fn requests_beyond_those_that_a_peer_has_to_answer_wait() {
    let mut a = Side::new(Params::default());
    let late = fresh_name();
    let to = a.insert(&late);
    let mut out = pattern(1, 8);
    for context in 0..MANY {
        let write = access(Access::Write, to, 3, &mut out, context);
        a.core.access(a.ep, &write).unwrap();
    }
    let mut b = Side::named(late, Params::default());
    let mut region = [0; 8];
    b.register(3, &mut region);
    // It sends, and takes no answer.
    a.core.endpoints().owner_leaves();
    until(&mut [&mut a, &mut b], |sides| {
        let mut links = sides[0].core.links.values();
        links.any(|link| link.is_open() && !link.may_request())
    });
    (0..100).for_each(|_| [&mut a, &mut b].into_iter().for_each(Side::drive));
    assert_eq!(a.error(), None);
    a.core.endpoints().owner_enters();
    let all: Vec<usize> = (0..MANY).collect();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, MANY), all);
}
