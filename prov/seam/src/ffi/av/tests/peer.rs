//! Vectors that providers share; each test plays one side.

use super::*;

fn peer_attr() -> fi_av_attr {
    fi_av_attr {
        flags: FI_PEER,
        ..attr()
    }
}

/// A vector that imports `owner`'s, and the shared object.
fn import(owner: &Opened) -> (Opened, Handle<SharedAv>) {
    let shared = SharedAv::of(&owner.handle());
    let mut context = fi_peer_av_context {
        size: size_of::<fi_peer_av_context>(),
        av: shared.as_c(),
    };
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let peer = open_on(domain, peer_attr(), (&raw mut context).cast()).unwrap();
    (peer, shared)
}

#[test]
fn a_peers_numbers_are_the_owners() {
    let owner = open(FI_SOCKADDR_IN);
    let addrs = bytes(&["10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3"]);
    assert_eq!(owner.insert(&addrs, 3, &mut [], 0), 3);
    let (peer, shared) = import(&owner);
    let mut numbers = [2];
    assert_eq!(peer.insert(&addrs[32..], 1, &mut numbers, FI_AV_USER_ID), 1);
    assert_eq!(numbers, [2]);
    assert_eq!(peer.lookup(2, 64), Ok((addrs[32..].to_vec(), 16)));
    assert_eq!(peer.lookup(0, 64), Err(Errno::EINVAL.to_c()));
    // An insertion without the owner's number is refused.
    assert_eq!(peer.insert(&addrs, 1, &mut numbers, 0), 0);
    assert_eq!(peer.handle().owner().unwrap().count(), Ok(3));

    drop(peer);
    assert_eq!(close(owner.av.cast()), Errno::EBUSY.to_c());
    drop(shared);
}

#[test]
fn an_owner_that_is_none_is_not_imported() {
    let refused = |context: &mut fi_peer_av_context, attr| {
        let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
        let opened = open_on(domain, attr, std::ptr::from_mut(context).cast());
        opened.err() == Some(Errno::EINVAL.to_c())
    };
    let owner = open(FI_SOCKADDR_IN);
    let shared = SharedAv::of(&owner.handle());
    let mut context = fi_peer_av_context {
        size: size_of::<fi_peer_av_context>(),
        av: shared.as_c(),
    };
    assert!(!refused(&mut context, peer_attr()));
    let named = fi_av_attr {
        name: c"peer".as_ptr(),
        ..peer_attr()
    };
    assert!(refused(&mut context, named));
    let with_ids = fi_av_attr {
        flags: FI_PEER | FI_AV_USER_ID,
        ..attr()
    };
    assert!(refused(&mut context, with_ids));
    context.size = 8;
    assert!(refused(&mut context, peer_attr()));
    context = fi_peer_av_context {
        size: size_of::<fi_peer_av_context>(),
        av: null_mut(),
    };
    assert!(refused(&mut context, peer_attr()));
    // SAFETY: zero is a valid value of the structure: a vector without an owner's functions.
    let mut without: fid_peer_av = unsafe { std::mem::zeroed() };
    context.av = &raw mut without;
    assert!(refused(&mut context, peer_attr()));
}

#[test]
fn an_owner_reports_its_vector_and_the_indexes_of_endpoints() {
    unsafe extern "C" fn getname(_: fid_t, name: *mut c_void, len: *mut usize) -> i32 {
        let addr = sockaddr::encode(&"10.0.0.2:2".parse().unwrap());
        // SAFETY: the caller passes a length and a buffer of as many bytes.
        status(unsafe { copy_out(addr.as_bytes(), name, len) })
    }
    let owner = open(FI_SOCKADDR_IN);
    let (peer, _shared) = import(&owner);
    let handle = peer.handle();
    // SAFETY: zero is a valid value of both structures: a table and an endpoint without functions.
    let (mut cm, mut ep): (fi_ops_cm, fid_ep) = unsafe { std::mem::zeroed() };
    let number = |ep: &mut fid_ep| {
        // SAFETY: the endpoint is valid, and is not moved during the call.
        let ep = unsafe { AnyFid::new(&raw mut ep.fid) }.unwrap();
        handle.owner().unwrap().endpoint_number(ep)
    };
    assert_eq!(number(&mut ep), NONE);
    cm.getname = Some(getname);
    ep.cm = &raw mut cm;
    assert_eq!(number(&mut ep), NONE);
    let addrs = bytes(&["10.0.0.1:1", "10.0.0.2:2"]);
    assert_eq!(owner.insert(&addrs, 2, &mut [], 0), 2);
    assert_eq!(number(&mut ep), 1);
}
