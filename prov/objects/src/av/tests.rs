//! The rules of fi_av(3).

use std::sync::Arc;

use super::*;

fn v4(n: u32) -> SocketAddr {
    SocketAddr::new(std::net::Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 7)
}

fn v6(n: u16) -> SocketAddr {
    format!("[fd00::{n:x}]:7").parse().unwrap()
}

fn open() -> Av {
    Av::open(&Config::default()).unwrap()
}

fn insert(av: &Av, addrs: &[SocketAddr]) -> Vec<Result<fi_addr_t>> {
    insert_all(av, addrs.iter().copied().map(Insertion::from))
}

fn insert_all<'a>(
    av: &Av,
    insertions: impl IntoIterator<Item = Insertion<'a>>,
) -> Vec<Result<fi_addr_t>> {
    let mut outcomes = Vec::new();
    let count = av
        .insert(insertions, |at, outcome| {
            assert_eq!(at, outcomes.len());
            outcomes.push(outcome);
        })
        .unwrap();
    assert_eq!(count, outcomes.iter().filter(|o| o.is_ok()).count());
    outcomes
}

#[test]
fn numbers_count_up_across_calls() {
    let av = open();
    assert_eq!(insert(&av, &[v4(0), v4(1)]), [Ok(0), Ok(1)]);
    assert_eq!(insert(&av, &[v4(2)]), [Ok(2)]);
    assert_eq!(av.lookup(1), Some(v4(1)));
    assert_eq!(av.find(&v4(2)), Some(2));
    assert_eq!(av.find(&v4(3)), None);
    assert_eq!(av.lookup(3), None);
    assert_eq!(av.lookup(u64::MAX), None);
    assert_eq!(av.lookup(1 << 32), None);
    assert_eq!(av.len(), 3);
}

#[test]
fn a_bad_address_among_good_ones_fails_alone() {
    let av = open();
    let bad = ["0.0.0.0:7".parse().unwrap(), "10.0.0.1:0".parse().unwrap()];
    assert_eq!(
        insert(&av, &[v4(0), bad[0], bad[1], v4(1)]),
        [
            Ok(0),
            Err(Errno::EADDRNOTAVAIL),
            Err(Errno::EADDRNOTAVAIL),
            Ok(1)
        ]
    );
    let unresolved = Insertion {
        addr: Err(Errno::ENODATA),
        ..Insertion::from(v4(9))
    };
    assert_eq!(insert_all(&av, [unresolved]), [Err(Errno::ENODATA)]);
}

#[test]
fn a_vector_of_one_family_takes_no_other() {
    let av = Av::open(&Config {
        format: Format::IN,
        ..Config::default()
    })
    .unwrap();
    assert_eq!(insert(&av, &[v6(1)]), [Err(Errno::EINVAL)]);
    let av = Av::open(&Config {
        format: Format::IN6,
        ..Config::default()
    })
    .unwrap();
    assert_eq!(insert(&av, &[v4(1), v6(1)]), [Err(Errno::EINVAL), Ok(0)]);
}

#[test]
fn families_mix_where_the_format_is_general() {
    let av = open();
    assert_eq!(
        insert(&av, &[v4(0), v4(1), v6(1), v4(2)]),
        [Ok(0), Ok(1), Ok(2), Ok(3)]
    );
    assert_eq!(av.lookup(1), Some(v4(1)));
    assert_eq!(av.lookup(2), Some(v6(1)));
    assert_eq!(av.source(&v4(2)), 3);
    assert_eq!(av.source(&v6(1)), 2);
}

#[test]
fn a_duplicate_keeps_its_number_until_removed_as_often() {
    let av = open();
    assert_eq!(insert(&av, &[v4(0), v4(1), v4(0)]), [Ok(0), Ok(1), Ok(0)]);
    assert_eq!(av.len(), 2);
    av.remove(&[0]).unwrap();
    assert_eq!(av.lookup(0), Some(v4(0)));
    av.remove(&[0]).unwrap();
    assert_eq!(av.lookup(0), None);
    assert_eq!(av.remove(&[0]), Err(Errno::EINVAL));
}

#[test]
fn removed_addresses_leave_room_and_can_return() {
    let av = open();
    insert(&av, &[v4(0), v4(1), v4(2)]);
    av.remove(&[0, 1]).unwrap();
    assert_eq!(insert(&av, &[v4(1), v4(5), v4(6)]), [Ok(0), Ok(1), Ok(3)]);
    assert_eq!(av.remove(&[77, 3]), Err(Errno::EINVAL));
    assert_eq!(av.lookup(3), None);
}

#[test]
fn observers_are_notified_of_removed_addresses() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<fi_addr_t>>);
    impl Observer for Heard {
        fn removed(&self, fi_addr: fi_addr_t) {
            self.0.lock().push(fi_addr);
        }
    }
    let av = open();
    let heard = Arc::new(Heard::default());
    let weak: Weak<Heard> = Arc::downgrade(&heard);
    av.observe(weak);
    insert(&av, &[v4(0), v4(1), v4(1)]);
    av.remove(&[1]).unwrap();
    av.remove(&[0, 1]).unwrap();
    assert_eq!(*heard.0.lock(), [0, 1]);
    drop(heard);
    insert(&av, &[v4(0)]);
    av.remove(&[0]).unwrap();
}

#[test]
fn changes_of_another_process_in_a_shared_vector_are_found_by_the_next_lookup() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<fi_addr_t>>);
    impl Observer for Heard {
        fn removed(&self, fi_addr: fi_addr_t) {
            self.0.lock().push(fi_addr);
        }
    }
    let called = format!("others/{}", std::process::id());
    let name = |read_only| Name {
        name: &called,
        domain: "lo",
        read_only,
        count: 0,
    };
    let vector = |read_only| {
        let config = Config {
            shared: Some(name(read_only)),
            format: Format::IN,
            ..Config::default()
        };
        Av::open(&config).unwrap()
    };
    use entry::AddressSlot as _;
    // Another opener's file, as that of another process, of whose changes this one hears
    // nothing.
    let (_keeps, reader) = (vector(false), vector(true));
    let records = shared::Records {
        size: entry::V4Entry::SIZE,
        format: FI_SOCKADDR_IN,
        ignored: 0..0,
    };
    let other = Shared::open(&name(false), records).unwrap();
    let heard = Arc::new(Heard::default());
    let weak: Weak<Heard> = Arc::downgrade(&heard);
    reader.observe(weak);
    let noted = Changes::asked();
    assert_ne!(noted, Changes::now(), "it has to be asked");
    let mut record = vec![0; entry::V4Entry::SIZE];
    entry::V4Entry::pack(&v4(0)).unwrap().encode(&mut record);
    other
        .insert([Ok(record)].into_iter(), |outcome| {
            assert_eq!(outcome, Ok(0));
        })
        .unwrap();
    assert_ne!(Changes::asked(), noted);
    assert!(heard.0.lock().is_empty());
    other.remove(0).unwrap();
    let noted = Changes::asked();
    assert_eq!(heard.0.lock().len(), 1);
    assert!(noted.is_before_a_removal(), "it has to be asked");
}

#[test]
fn a_receive_context_is_no_part_of_the_address() {
    let av = Av::open(&Config {
        rx_ctx_bits: 4,
        ..Config::default()
    })
    .unwrap();
    insert(&av, &[v4(0), v4(1)]);
    assert_eq!(av.lookup(0xa << 60 | 1), Some(v4(1)));
    let too_many = Config {
        rx_ctx_bits: 65,
        ..Config::default()
    };
    assert_eq!(Av::open(&too_many).err(), Some(Errno::EINVAL));
}

#[test]
fn addresses_inserted_with_an_identifier_are_reported_by_it() {
    let av = open();
    let with_id = Insertion {
        user_id: Some(4711),
        ..Insertion::from(v4(1))
    };
    insert_all(&av, [v4(0).into(), with_id]);
    assert_eq!(av.source(&v4(0)), 0);
    assert_eq!(av.source(&v4(1)), 4711);
    assert_eq!(av.find(&v4(1)), Some(1));
    assert_eq!(av.reported(1), 4711);
    assert_eq!(av.source(&v4(2)), FI_ADDR_NOTAVAIL);
    assert_eq!(av.set_user_id(1, 5), Err(Errno::EINVAL));
}

#[test]
fn a_vector_of_identifiers_reports_nothing_else() {
    let av = Av::open(&Config {
        user_ids: true,
        ..Config::default()
    })
    .unwrap();
    insert(&av, &[v4(0), v4(1)]);
    assert_eq!(av.reported(0), FI_ADDR_NOTAVAIL);
    av.set_user_id(0, 99).unwrap();
    assert_eq!(av.reported(0), 99);
    assert_eq!(av.set_user_id(7, 99), Err(Errno::EINVAL));
    av.remove(&[0]).unwrap();
    insert(&av, &[v4(0)]);
    assert_eq!(av.reported(0), FI_ADDR_NOTAVAIL);
    let with_id = Insertion {
        user_id: Some(1),
        ..Insertion::from(v4(5))
    };
    assert_eq!(insert_all(&av, [with_id]), [Err(Errno::EINVAL)]);
}

#[test]
fn an_address_is_another_peer_under_another_key() {
    let av = Av::open(&Config {
        auth_key_size: Some(0),
        ..Config::default()
    })
    .unwrap();
    let one = av.insert_auth_key(b"one").unwrap();
    let two = av.insert_auth_key(b"two").unwrap();
    let under = |key| Insertion {
        auth_key: Some(key),
        only_calls: false,
        ..Insertion::from(v4(0))
    };
    assert_eq!(
        insert_all(&av, [under(one), under(two), under(one), under(9)]),
        [Ok(0), Ok(1), Ok(0), Err(Errno::EINVAL)]
    );
    assert_eq!(av.lookup_auth_key(1, <[u8]>::to_vec), Ok(b"two".to_vec()));
    assert_eq!(av.remove_auth_keys(&[two]), Err(Errno::EBUSY));
    av.remove(&[1]).unwrap();
    assert_eq!(av.remove_auth_keys(&[two]), Ok(()));
    assert_eq!(av.remove_auth_keys(&[two]), Err(Errno::EINVAL));
    assert_eq!(open().insert_auth_key(b"x"), Err(Errno::ENOSYS));
}

#[test]
fn authorization_keys_have_the_domains_size() {
    let av = Av::open(&Config {
        auth_key_size: Some(4),
        ..Config::default()
    })
    .unwrap();
    assert_eq!(av.insert_auth_key(b"longer"), Err(Errno::EINVAL));
    assert_eq!(av.insert_auth_key(b"four"), Ok(0));
}

#[test]
fn a_named_vector_is_shared() {
    let name = format!("av-test-{}", std::process::id());
    let config = |read_only| Config {
        shared: Some(Name {
            name: &name,
            domain: "lo",
            read_only,
            count: 10,
        }),
        ..Config::default()
    };
    let writer = Av::open(&config(false)).unwrap();
    assert_eq!(
        insert(&writer, &[v4(0), v6(1), v4(0)]),
        [Ok(0), Ok(1), Ok(0)]
    );
    let reader = Av::open(&config(true)).unwrap();
    assert_eq!(reader.lookup(1), Some(v6(1)));
    assert_eq!(reader.source(&v4(0)), 0);
    assert_eq!(reader.insert([v4(5).into()], |_, _| ()), Err(Errno::EACCES));
    assert_ne!(reader.map_addr(), 0);
    assert_eq!(open().map_addr(), 0);
}

struct Owner(usize);

impl AvOwner for Owner {
    fn count(&self) -> Result<usize> {
        match self.0 {
            0 => Err(Errno::EIO),
            count => Ok(count),
        }
    }

    fn endpoint_number(&self, _: AnyFid<'_>) -> fi_addr_t {
        FI_ADDR_NOTAVAIL as fi_addr_t
    }
}

#[test]
fn an_imported_vector_has_the_owners_numbers() {
    let av = Av::import(&Config::default(), Box::new(Owner(9))).unwrap();
    let at = |number, n| Insertion {
        user_id: Some(number),
        ..Insertion::from(v4(n))
    };
    assert_eq!(
        insert_all(&av, [at(5, 1), at(2, 0), at(5, 1), at(5, 9), v4(3).into()]),
        [Ok(5), Ok(2), Ok(5), Err(Errno::EINVAL), Err(Errno::EINVAL)]
    );
    assert_eq!((av.lookup(5), av.lookup(0)), (Some(v4(1)), None));
    assert_eq!((av.find(&v4(0)), av.reported(2)), (Some(2), 2));
    av.remove(&[5]).unwrap();
    assert_eq!(av.lookup(5), Some(v4(1)));
    av.remove(&[5]).unwrap();
    assert_eq!(av.lookup(5), None);
    assert_eq!(av.remove(&[5]), Err(Errno::EINVAL));
    assert_eq!(insert_all(&av, [at(5, 7)]), [Ok(5)]);
    assert_eq!(av.find(&v4(7)), Some(5));
    assert_eq!(insert_all(&av, [at(1 << 24, 8)]), [Err(Errno::EINVAL)]);
}

#[test]
fn an_imported_vector_keeps_an_address_under_each_of_its_numbers() {
    let av = Av::import(&Config::default(), Box::new(Owner(9))).unwrap();
    for number in [3, 1] {
        let insertion = Insertion {
            user_id: Some(number),
            ..Insertion::from(v4(0))
        };
        assert_eq!(insert_all(&av, [insertion]), [Ok(number)]);
    }
    av.remove(&[3]).unwrap();
    assert_eq!((av.lookup(1), av.find(&v4(0))), (Some(v4(0)), Some(1)));
}

#[test]
fn an_owner_without_answer_is_not_imported() {
    let imported = Av::import(&Config::default(), Box::new(Owner(0)));
    assert_eq!(imported.err(), Some(Errno::EIO));
}

#[test]
fn named_vectors_hold_any_format() {
    let name = format!("av-text-{}", std::process::id());
    let config = Config {
        format: Format::text(20),
        shared: Some(Name {
            name: &name,
            domain: "shm",
            read_only: false,
            count: 0,
        }),
        ..Config::default()
    };
    let (one, other) = (Av::open(&config).unwrap(), Av::open(&config).unwrap());
    let (short, long): (&[u8], &[u8]) = (b"fi_shm://1", b"fi_shm://1234567:0");
    assert_eq!(
        insert_all(&one, [short, long, b""].map(Insertion::from)),
        [Ok(0), Ok(1), Err(Errno::EINVAL)]
    );
    let found = other.with_address(1, |addr| addr == Address::Bytes(long));
    assert_eq!(found, Some(true));
    assert_eq!(other.find_address(short.into()), Some(0));
    assert_eq!(other.find(&v4(0)), None);
    let of_another = Config {
        format: Format::fixed(FI_ADDR_OPX, 20),
        ..config
    };
    assert_eq!(Av::open(&of_another).err(), Some(Errno::EINVAL));
}

#[test]
fn an_asynchronous_vector_reports_errors_and_then_the_call() {
    #[derive(Default)]
    struct Events(Mutex<Vec<(usize, usize, Option<Errno>)>>);
    impl InsertEvents for Events {
        fn failed(&self, context: *mut c_void, index: usize, error: Errno) {
            self.0.lock().push((context as usize, index, Some(error)));
        }
        fn complete(&self, context: *mut c_void, count: usize) {
            self.0.lock().push((context as usize, count, None));
        }
    }
    let av = Av::open(&Config {
        asynchronous: true,
        ..Config::default()
    })
    .unwrap();
    let context = std::ptr::without_provenance_mut(7);
    let insert = || {
        let bad = Insertion {
            addr: Err(Errno::EINVAL),
            ..v4(0).into()
        };
        av.insert_with_events([v4(0).into(), bad, v4(1).into()], context, |_, _| ())
    };
    // There is no event queue yet, so the call itself returns the number.
    assert_eq!(insert(), Ok(2));
    let events = Arc::new(Events::default());
    av.report_to(events.clone()).unwrap();
    assert_eq!(insert(), Ok(0));
    assert_eq!(
        *events.0.lock(),
        [(7, 1, Some(Errno::EINVAL)), (7, 2, None)]
    );
    assert_eq!(av.find(&v4(1)), Some(1));
    assert_eq!(open().report_to(events), Err(Errno::EINVAL));
}
