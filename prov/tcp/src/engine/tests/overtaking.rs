//! Requests for reads, and the data that the peer has asked for.

use std::sync::Arc;

use fabric_abi::FI_REMOTE_READ;
use libc::iovec;
use prov_util::mr::{Memory, Region, Request};
use prov_util::request::{Access, RemoteAccess, RemotePiece};

use super::*;
use crate::params::Local;

const LONG: usize = 1 << 20;
const READS: usize = 32;
const KEY: u64 = 5;

fn region(side: &Side, bytes: &mut [u8]) -> Arc<Region> {
    let piece = iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the test keeps the bytes as long as the region that refers to them.
    let memory = unsafe { Memory::new(&[piece]) }.unwrap();
    let request = Request::new(memory, FI_REMOTE_READ, KEY);
    side.memory.register(request).unwrap()
}

fn read(side: &Side, addr: usize, bytes: &mut [u8]) {
    let mut access = RemoteAccess {
        access: Access::Read,
        remote: RemotePiece {
            addr: addr as u64,
            len: bytes.len() as u64,
            key: KEY,
        }
        .into(),
        local: memory(bytes),
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION,
        context: std::ptr::null_mut(),
    };
    side.engine.core().access(side.ep, &mut access).unwrap();
}

fn check(bytes: &[u8], from: usize) {
    for (at, byte) in (from..).zip(bytes).step_by(97) {
        assert_eq!(*byte, byte_at(at), "at {at}");
    }
}

fn byte_at(at: usize) -> u8 {
    (at / 3 + at / 70_000) as u8
}

/// Otherwise two processes that read from each other would take turns.
#[test]
fn reads_do_not_wait_for_the_data_of_the_peers_reads() {
    let params = || Params {
        local: Local::Off,
        ..Params::default()
    };
    let (a, b) = (side_with(params()), side_with(params()));
    a.knows(b.addr);
    b.knows(a.addr);
    for (tag, from, to) in [(0, &a, &b), (1, &b, &a)] {
        let (mut out, mut place) = ([7; 8], [0; 8]);
        receive(to, &mut place, tag);
        send(from, &mut out, tag);
        until([&a, &b], || {
            a.count() == 1 + tag as usize && b.count() == a.count()
        });
    }
    let mut bytes: Vec<u8> = (0..READS * LONG).map(byte_at).collect();
    let regions = [&a, &b].map(|side| region(side, &mut bytes));
    // The peer asks for more than the sockets hold, and reads nothing meanwhile.
    let mut theirs = vec![0; READS * LONG];
    for (number, part) in theirs.chunks_mut(LONG).enumerate() {
        read(&b, number * LONG, part);
    }
    until([&a, &a], || a.queued() > (READS / 2 * LONG) as u64);
    let mut sent = [9; 8];
    let mut arrived = [0; 8];
    let mut ours = [0; 4000];
    for (number, part) in ours.chunks_mut(1000).enumerate() {
        read(&a, number * 1000, part);
    }
    send(&a, &mut sent, 3);
    receive(&b, &mut arrived, 3);
    // A read behind the message stays there.
    let mut last = [0; 100];
    read(&a, 1000, &mut last);
    until([&a, &b], || a.count() >= 6);
    let left = b.outstanding();
    assert!(left > 0, "{left} reads of the peer are outstanding");
    until([&a, &b], || a.count() == 8 && b.count() == 3 + READS);
    assert_eq!(arrived, sent);
    check(&ours, 0);
    check(&theirs, 0);
    check(&last, 1000);
    for (side, region) in [&a, &b].into_iter().zip(&regions) {
        side.memory.close(region).unwrap();
    }
    assert_eq!((a.connections(), b.connections()), (1, 1));
}
