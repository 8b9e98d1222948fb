//! The properties of what receives on the subflows of a connection, for arbitrary data of a peer.
//! Shared by the fuzz target and the provider's tests.

use std::io::Write;
use std::os::unix::net::UnixStream;

use prov_base::errno::Errno;
use prov_tcp::multipath::Multipath;
use prov_tcp::multipath::plan::Plan;
use prov_tcp::wire::multipath::{Frame, Join, Offer, WINDOW};

/// More bytes than a socket holds are not looked at.
const MOST: usize = 64 << 10;

/// The bytes are an offer, a request for a subflow, and what a subflow brings.
pub fn check(bytes: &[u8]) {
    if let Ok(offer) = Offer::decode(bytes) {
        assert_eq!(Offer::decode(&offer.encode()), Ok(offer));
    }
    if let Ok(join) = Join::decode(bytes) {
        assert_eq!(join.encode()[..], bytes[..join.encode().len()]);
    }
    if let Some(header) = bytes.first_chunk()
        && let Ok(frame) = Frame::decode(header)
    {
        assert_eq!(&frame.encode(), header);
    }
    receive(&bytes[..bytes.len().min(MOST)]);
}

/// The first half of the bytes is read with what came before the frames, the rest from the socket.
fn receive(bytes: &[u8]) {
    let Ok((near, mut far)) = UnixStream::pair() else {
        return;
    };
    if near.set_nonblocking(true).is_err() || far.set_nonblocking(true).is_err() {
        return;
    }
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut here = Multipath::new([0; 16], near.into(), Plan::default());
    here.departs();
    assert!(here.comes_in(first).is_ok());
    let sent = far.write(rest).unwrap_or(0);
    drop(far);
    let (mut got, mut room) = (0, [0; 700]);
    for _ in 0..bytes.len() + 100 {
        here.has_event();
        match here.receive(&mut room) {
            Ok(0) | Err(Errno::EPROTO | Errno::ECONNRESET) => break,
            Ok(received) => got += received,
            Err(_) => {}
        }
    }
    assert!(got <= first.len() + sent, "more than has arrived");
    assert!(got as u64 <= WINDOW);
}
