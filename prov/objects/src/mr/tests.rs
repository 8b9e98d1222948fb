//! The rules of fi_mr(3), and what hostile requests meet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

const BITS: i32 = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;

fn table(mr_mode: i32) -> MrTable {
    MrTable::new(&Config {
        mr_mode,
        ..Config::default()
    })
}

fn memory(pieces: &mut [&mut [u8]]) -> Memory {
    let iov: Vec<libc::iovec> = pieces
        .iter_mut()
        .map(|piece| libc::iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: piece.len(),
        })
        .collect();
    // SAFETY: the tests keep the memory while the region is open.
    unsafe { Memory::new(&iov) }.unwrap()
}

fn request(memory: Memory, key: u64) -> Request {
    Request::new(memory, REMOTE, key)
}

fn bytes(accessor: &mut Accessor, granted: &Grant) -> Option<Vec<u8>> {
    let held = accessor.hold(granted)?;
    let mut bytes = Vec::new();
    held.memory().append_to(&mut bytes);
    Some(bytes)
}

fn refused(outcome: Result<Grant>) -> Option<Errno> {
    outcome.err()
}

#[test]
fn a_region_with_an_authorization_key_is_for_peers_that_proved_it() {
    let table = MrTable::new(&Config {
        job: Some(b"domain".to_vec()),
        ..Config::default()
    });
    let mut a = [0; 8];
    let piece = memory(&mut [&mut a]);
    table.register(request(piece, 1)).unwrap();
    let own = Request {
        auth_key: Some(b"region".to_vec()),
        ..request(piece, 2)
    };
    table.register(own).unwrap();
    let resolve = |key, job| refused(table.accessor().resolve(key, 0, 8, FI_REMOTE_READ, job));
    let (domain, region) = (table.job(b"domain"), table.job(b"region"));
    assert_ne!(domain, region);
    assert_eq!(table.job(b"region"), region);
    assert_eq!(resolve(1, domain), None);
    assert_eq!(resolve(2, region), None);
    for (key, job) in [
        (1, region),
        (2, domain),
        (1, Job::NONE),
        (2, Job::NONE),
        (2, table.job(b"other")),
    ] {
        assert_eq!(resolve(key, job), Some(Errno::EACCES), "{key} {job:?}");
    }
}

#[test]
fn offsets_count_over_all_pieces() {
    let table = table(MR_SCALABLE);
    let (mut a, mut b) = (*b"abc", *b"defg");
    table
        .register(request(memory(&mut [&mut a, &mut b]), 9))
        .unwrap();
    let granted = table
        .accessor()
        .resolve(9, 2, 3, FI_REMOTE_READ, Job::NONE)
        .unwrap();
    assert_eq!(bytes(&mut table.accessor(), &granted).unwrap(), b"cde");
    table
        .accessor()
        .hold(&granted)
        .unwrap()
        .memory()
        .write_at(0, b"XYZ");
    assert_eq!((&a, &b), (b"abX", b"YZfg"));
    assert!(
        table
            .accessor()
            .resolve(9, 7, 0, FI_REMOTE_READ, Job::NONE)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn virtual_addresses_begin_at_the_memory() {
    let table = table(MR_BASIC);
    let mut a = *b"abcdef";
    let base = a.as_ptr() as u64;
    let region = table.register(request(memory(&mut [&mut a]), 9)).unwrap();
    let granted = table
        .accessor()
        .resolve(region.key(), base + 4, 2, FI_REMOTE_READ, Job::NONE)
        .unwrap();
    assert_eq!(bytes(&mut table.accessor(), &granted).unwrap(), b"ef");
    let outside = table
        .accessor()
        .resolve(region.key(), 0, 1, FI_REMOTE_READ, Job::NONE);
    assert_eq!(refused(outside), Some(Errno::EACCES));
    assert_eq!(region.base(), base);
}

#[test]
fn all_memory_can_be_registered_as_one_region() {
    let table = table(MR_SCALABLE);
    let everything = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: usize::MAX,
    }];
    // SAFETY: the test accesses only bytes of the buffer below.
    let everything = unsafe { Memory::new(&everything) }.unwrap();
    table.register(request(everything, 0)).unwrap();
    let a = *b"xyz";
    let granted = table
        .accessor()
        .resolve(0, a.as_ptr() as u64, 3, FI_REMOTE_READ, Job::NONE)
        .unwrap();
    assert_eq!(bytes(&mut table.accessor(), &granted).unwrap(), b"xyz");
    let too_much = table
        .accessor()
        .resolve(0, 0, u64::MAX, FI_REMOTE_READ, Job::NONE);
    assert_eq!(refused(too_much), Some(Errno::EACCES));
}

#[test]
fn keys_and_permissions_are_checked() {
    let table = table(0);
    let mut a = [0; 8];
    let read_only = Request {
        access: FI_REMOTE_READ | FI_SEND,
        ..request(memory(&mut [&mut a]), 5)
    };
    table.register(read_only).unwrap();
    let resolve = |key, addr, len, access| {
        refused(table.accessor().resolve(key, addr, len, access, Job::NONE))
    };
    assert_eq!(resolve(5, 0, 8, FI_REMOTE_READ), None);
    assert_eq!(resolve(6, 0, 8, FI_REMOTE_READ), Some(Errno::EACCES));
    assert_eq!(resolve(5, 0, 8, FI_REMOTE_WRITE), Some(Errno::EACCES));
    assert_eq!(resolve(5, 0, 8, REMOTE), Some(Errno::EACCES));
    assert_eq!(resolve(5, 0, 9, FI_REMOTE_READ), Some(Errno::EACCES));
    assert_eq!(resolve(5, 8, 1, FI_REMOTE_READ), Some(Errno::EACCES));
    assert_eq!(resolve(5, u64::MAX, 2, FI_REMOTE_READ), Some(Errno::EACCES));
    assert_eq!(resolve(5, 2, u64::MAX, FI_REMOTE_READ), Some(Errno::EACCES));
}

#[test]
fn chosen_keys_are_unique_and_within_their_size() {
    let narrow = MrTable::new(&Config {
        key_size: 2,
        ..Config::default()
    });
    let mut a = [0; 8];
    let piece = memory(&mut [&mut a]);
    let region = narrow.register(request(piece, 0xffff)).unwrap();
    assert_eq!(region.key(), 0xffff);
    let again = narrow.register(request(piece, 0xffff));
    assert_eq!(again.err(), Some(Errno::ENOKEY));
    let large = narrow.register(request(piece, 0x1_0000));
    assert_eq!(large.err(), Some(Errno::EKEYREJECTED));
    narrow.close(&region).unwrap();
    assert!(narrow.register(request(piece, 0xffff)).is_ok());
}

#[test]
fn fi_key_notavail_is_a_key_that_an_application_may_choose() {
    let table = MrTable::new(&Config::default());
    let (mut a, mut b) = ([1; 8], [2; 8]);
    let local = Request {
        access: FI_SEND,
        ..request(memory(&mut [&mut b]), 7)
    };
    let (local, region) = (
        table.register(local).unwrap(),
        table
            .register(request(memory(&mut [&mut a]), NO_KEY))
            .unwrap(),
    );
    // A region without a key does not take its place, and does not take it along.
    table.close(&local).unwrap();
    let mut accessor = table.accessor();
    assert!(
        accessor
            .resolve(NO_KEY, 0, 8, FI_REMOTE_READ, Job::NONE)
            .is_ok()
    );
    table.close(&region).unwrap();
}

#[test]
fn provider_keys_differ_and_ignore_the_requested_key() {
    let table = table(BITS);
    let mut a = [0; 8];
    let piece = memory(&mut [&mut a]);
    let keys: std::collections::HashSet<u64> = (0..1000)
        .map(|_| table.register(request(piece, 5)).unwrap().key())
        .collect();
    assert_eq!(keys.len(), 1000);
    // Not a counter: the bits that would stay the same do not.
    assert!(keys.iter().any(|key| key >> 56 != 0));
}

#[test]
fn local_regions_have_no_key() {
    let table = table(0);
    let mut a = [0; 8];
    let local = Request {
        access: FI_SEND | FI_RECV,
        ..request(memory(&mut [&mut a]), 5)
    };
    let region = table.register(local).unwrap();
    assert_eq!(region.key(), NO_KEY);
    let remote = table
        .accessor()
        .resolve(NO_KEY, 0, 1, FI_REMOTE_READ, Job::NONE);
    assert_eq!(refused(remote), Some(Errno::EACCES));
    table.close(&region).unwrap();
}

#[test]
fn a_closed_region_is_not_accessed() {
    let table = table(0);
    let mut a = [0; 8];
    let region = table.register(request(memory(&mut [&mut a]), 5)).unwrap();
    let granted = table
        .accessor()
        .resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)
        .unwrap();
    assert!(table.accessor().hold(&granted).is_some());
    table.close(&region).unwrap();
    assert!(table.accessor().hold(&granted).is_none());
    let later = table.accessor().resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE);
    assert_eq!(refused(later), Some(Errno::EACCES));
}

#[test]
fn closing_waits_for_an_access_in_progress() {
    let table = table(0);
    let mut a = [0; 8];
    let region = table.register(request(memory(&mut [&mut a]), 5)).unwrap();
    let granted = table
        .accessor()
        .resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)
        .unwrap();
    let closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut accessor = table.accessor();
        let held = accessor.hold(&granted).unwrap();
        let closer = scope.spawn(|| {
            table.close(&region).unwrap();
            closed.store(true, Ordering::SeqCst);
        });
        while table
            .accessor()
            .resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)
            .is_ok()
        {
            std::thread::yield_now();
        }
        assert!(!closed.load(Ordering::SeqCst));
        drop(held);
        closer.join().unwrap();
    });
    assert!(table.accessor().hold(&granted).is_none());
}

#[test]
fn a_region_for_one_use_is_used_once() {
    let table = table(0);
    let mut a = [0; 8];
    let once = Request {
        flags: FI_MR_SINGLE_USE,
        ..request(memory(&mut [&mut a]), 5)
    };
    let region = table.register(once).unwrap();
    assert_eq!(
        refused(table.accessor().resolve(5, 0, 9, FI_REMOTE_READ, Job::NONE)),
        Some(Errno::EACCES)
    );
    let granted = table
        .accessor()
        .resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)
        .unwrap();
    assert_eq!(
        refused(table.accessor().resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)),
        Some(Errno::EACCES)
    );
    // Another region may have the key now, and keeps it.
    table.register(request(memory(&mut [&mut a]), 5)).unwrap();
    table.close(&region).unwrap();
    assert!(table.accessor().hold(&granted).is_none());
    assert!(
        table
            .accessor()
            .resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)
            .is_ok()
    );
}

#[test]
fn a_region_for_events_waits_to_be_enabled() {
    let table = table(FI_MR_RMA_EVENT);
    let mut a = [0; 8];
    let piece = memory(&mut [&mut a]);
    let events = Request {
        flags: FI_RMA_EVENT,
        ..request(piece, 5)
    };
    let region = table.register(events).unwrap();
    assert_eq!(
        refused(table.accessor().resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)),
        Some(Errno::EACCES)
    );
    table.enable(&region).unwrap();
    assert!(
        table
            .accessor()
            .resolve(5, 0, 8, FI_REMOTE_READ, Job::NONE)
            .is_ok()
    );
    assert!(table.register(request(piece, 6)).unwrap().is_enabled());
}

#[test]
fn counters_count_the_accesses_they_are_bound_for() {
    #[derive(Default)]
    struct Counter(AtomicUsize);
    impl RemoteEvents for Counter {
        fn accessed(&self, bytes: usize) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }
    let table = table(0);
    let mut a = [0; 8];
    let region = table.register(request(memory(&mut [&mut a]), 5)).unwrap();
    let writes = Arc::new(Counter::default());
    table
        .count_in(&region, FI_REMOTE_WRITE, writes.clone())
        .unwrap();
    for access in [FI_REMOTE_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE] {
        let mut accessor = table.accessor();
        let granted = accessor.resolve(5, 0, 8, access, Job::NONE).unwrap();
        accessor.complete(&granted);
    }
    assert_eq!(writes.0.load(Ordering::Relaxed), 16);

    let late = table
        .accessor()
        .resolve(5, 0, 8, FI_REMOTE_WRITE, Job::NONE)
        .unwrap();
    table.close(&region).unwrap();
    assert_eq!(Arc::strong_count(&writes), 1);
    table.accessor().complete(&late);
}

#[test]
fn access_bits_without_a_meaning_are_ignored() {
    let mut a = [0; 8];
    let table = table(0);
    let wanted = Request {
        access: !FI_REMOTE_WRITE,
        ..request(memory(&mut [&mut a]), 5)
    };
    let _region = table.register(wanted).unwrap();
    let resolve = |access| refused(table.accessor().resolve(5, 0, 8, access, Job::NONE));
    assert_eq!(resolve(FI_REMOTE_READ), None);
    assert_eq!(resolve(FI_REMOTE_WRITE), Some(Errno::EACCES));
}

#[test]
fn flags_that_mean_nothing_are_ignored() {
    let table = table(0);
    let mut a = [0; 8];
    for flags in [FI_MORE, FI_RMA, FI_COMPLETION, !FI_RMA_EVENT, u64::MAX] {
        let wanted = Request {
            flags,
            ..request(memory(&mut [&mut a]), 5)
        };
        let region = table.register(wanted).unwrap();
        let resolve = table
            .accessor()
            .resolve(5, 0, 8, FI_REMOTE_WRITE, Job::NONE);
        assert!(resolve.is_ok(), "{flags:#x}");
        table.close(&region).unwrap();
    }
}

#[test]
fn raw_keys_map_back() {
    let table = table(0);
    let mut a = [0; 8];
    let region = table
        .register(request(memory(&mut [&mut a]), 0x1234))
        .unwrap();
    let (base, raw) = (region.base(), region.raw_key());
    assert_eq!((base, table.map_raw(base, &raw)), (0, Ok(0x1234)));
    assert_eq!(table.map_raw(base, &raw[..7]), Err(Errno::EINVAL));
    assert_eq!(table.unmap(0x1234), Ok(()));
}

#[test]
fn memory_contains_ranges_within_one_of_its_segments() {
    let mut a = [0; 8];
    let (left, right) = a.split_at_mut(4);
    let whole = memory(&mut [left, right]);
    assert!(whole.contains(&memory(&mut [&mut left[1..3]])));
    assert!(whole.contains(&memory(&mut [&mut right[..], &mut left[..0]])));
    assert!(!whole.contains(&memory(&mut [&mut a])));
}

#[test]
fn memory_ends_where_the_address_space_does() {
    let piece = |base: usize, len| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(base),
        iov_len: len,
    };
    // SAFETY: the tests access no byte of these regions.
    unsafe {
        assert_eq!(Memory::new(&[]).err(), Some(Errno::EINVAL));
        let rest = Memory::new(&[piece(0x1000, usize::MAX)]).unwrap();
        assert_eq!(rest.len(), usize::MAX - 0x1000);
        assert!(rest.contains(&Memory::new(&[piece(usize::MAX - 8, 8)]).unwrap()));
        assert!(!rest.contains(&Memory::new(&[piece(0xfff, 1)]).unwrap()));
        let twice = [piece(0, usize::MAX / 2 + 1); 2];
        assert_eq!(Memory::new(&twice).err(), Some(Errno::EINVAL));
        assert!(Memory::new(&[piece(1, 1); 5]).is_err());
    }
}

proptest! {
    /// Whatever a peer asks for: what is granted is exactly what the region
    /// holds there, and nothing else is granted.
    #[test]
    fn no_request_reaches_beyond_the_region(
        lens in prop::collection::vec(0usize..20, 1..=4),
        addr in prop_oneof![0u64..100, any::<u64>()],
        len in prop_oneof![0u64..100, any::<u64>()],
    ) {
        let mut next = 0u8;
        let mut pieces: Vec<Vec<u8>> = lens
            .iter()
            .map(|&len| (0..len).map(|_| { next += 1; next }).collect())
            .collect();
        let whole = pieces.concat();
        let mut slices: Vec<&mut [u8]> = pieces.iter_mut().map(Vec::as_mut_slice).collect();
        let table = table(0);
        table.register(request(memory(&mut slices), 1)).unwrap();
        let expected = usize::try_from(addr)
            .ok()
            .zip(usize::try_from(len).ok())
            .and_then(|(addr, len)| whole.get(addr..addr.checked_add(len)?));
        match table.accessor().resolve(1, addr, len, FI_REMOTE_READ, Job::NONE) {
            Ok(granted) => {
                let granted = bytes(&mut table.accessor(), &granted);
                prop_assert_eq!(granted.as_deref(), expected);
            }
            Err(error) => {
                prop_assert_eq!(error, Errno::EACCES);
                prop_assert_eq!(expected, None);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "miri has no process_vm_readv(2)")]
fn memory_that_others_can_certainly_copy_is_checked_once() {
    let (mut a, mut b) = ([1u8; 5], [2u8; 5]);
    let table = table(0);
    let nowhere = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(8),
        iov_len: 5,
    };
    // SAFETY: the test accesses no byte of the second region.
    let nowhere = unsafe { Memory::new(&[nowhere]) }.unwrap();
    for (key, memory, expected) in [
        (1, memory(&mut [&mut a, &mut b]), true),
        (2, nowhere, false),
    ] {
        let region = table.register(request(memory, key)).unwrap();
        for _ in 0..2 {
            let grant = table
                .accessor()
                .resolve(key, 1, 2, FI_REMOTE_READ, Job::NONE);
            let mut accessor = table.accessor();
            let held = accessor.hold(&grant.unwrap()).unwrap();
            assert_eq!(held.can_be_copied(), expected);
        }
        table.close(&region).unwrap();
    }
}

#[test]
fn layers_of_the_c_library_may_say_that_a_registration_is_not_to_be_kept() {
    let table = table(0);
    let mut buffer = [0u8; 8];
    let registered = table.register(Request {
        flags: NOT_KEPT,
        ..request(memory(&mut [&mut buffer]), 7)
    });
    assert!(registered.is_ok());
}
