//! Address vectors through the tables that C uses.

mod peer;

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use super::super::test_domain::{TestDomain, close};
use super::*;
use prov_base::sockaddr;
use prov_objects::av::format::Extent;
use prov_objects::wait::Attachment;

const NONE: fi_addr_t = FI_ADDR_NOTAVAIL as fi_addr_t;

/// An open vector, closed at the end of its scope.
struct Opened {
    av: *mut fid_av,
    /// What the call left in the attributes.
    attr: fi_av_attr,
    domain: Handle<TestDomain>,
}

fn attr() -> fi_av_attr {
    fi_av_attr {
        type_: FI_AV_UNSPEC,
        rx_ctx_bits: 0,
        count: 0,
        ep_per_node: 0,
        name: null(),
        map_addr: null_mut(),
        flags: 0,
    }
}

fn try_open(format: u32, attr: fi_av_attr) -> std::result::Result<Opened, i32> {
    open_on(TestDomain::open(format, 0), attr, null_mut())
}

fn open_on(
    domain: Handle<TestDomain>,
    mut attr: fi_av_attr,
    context: *mut c_void,
) -> std::result::Result<Opened, i32> {
    let mut av = null_mut();
    // SAFETY: the domain or fabric is open, and all pointers refer to variables of the test.
    let status = unsafe { av_open::<TestDomain>(domain.as_c(), &mut attr, &mut av, context) };
    match status {
        0 => Ok(Opened { av, attr, domain }),
        status => Err(status),
    }
}

fn open(format: u32) -> Opened {
    try_open(format, attr()).unwrap()
}

/// A vector with a format that is not identified by its number.
fn open_format(format: Format) -> Opened {
    open_on(TestDomain::of_format(format, 0), attr(), null_mut()).unwrap()
}

impl Drop for Opened {
    fn drop(&mut self) {
        assert_eq!(close(self.av.cast()), 0);
    }
}

impl Opened {
    fn handle(&self) -> Handle<Av> {
        // SAFETY: the vector is open as long as the test uses it.
        unsafe { Handle::from_c(self.av) }
    }

    fn ops(&self) -> &fi_ops_av {
        // SAFETY: the vector is open as long as the test uses it.
        unsafe { &*(*self.av).ops }
    }

    fn insert(&self, bytes: &[u8], count: usize, fi_addr: &mut [fi_addr_t], flags: u64) -> i32 {
        let fi_addr = if fi_addr.is_empty() {
            null_mut()
        } else {
            fi_addr.as_mut_ptr()
        };
        // SAFETY: the vector is open, and the tests pass arrays of `count` elements.
        unsafe {
            self.ops().insert.unwrap()(
                self.av,
                bytes.as_ptr().cast(),
                count,
                fi_addr,
                flags,
                null_mut(),
            )
        }
    }

    fn insertsym(&self, node: &CStr, nodes: usize, service: Option<&CStr>, services: usize) -> i32 {
        let service = service.map_or(null(), CStr::as_ptr);
        // SAFETY: the vector is open, the texts are terminated, and the results are not requested.
        unsafe {
            self.ops().insertsym.unwrap()(
                self.av,
                node.as_ptr(),
                nodes,
                service,
                services,
                null_mut(),
                0,
                null_mut(),
            )
        }
    }

    /// The looked-up bytes, at most `room`, and the length said to be needed.
    fn lookup(
        &self,
        fi_addr: fi_addr_t,
        room: usize,
    ) -> std::result::Result<(Vec<u8>, usize), i32> {
        let mut bytes = vec![0xee; 64];
        let mut len = room;
        // SAFETY: the vector is open, and the buffer has `room` bytes, which `len` says.
        let status = unsafe {
            self.ops().lookup.unwrap()(self.av, fi_addr, bytes.as_mut_ptr().cast(), &mut len)
        };
        assert!(bytes[room..].iter().all(|&byte| byte == 0xee));
        bytes.truncate(room.min(len));
        if status == 0 {
            Ok((bytes, len))
        } else {
            Err(status)
        }
    }

    fn straddr(&self, bytes: &[u8], room: usize) -> Option<(String, usize)> {
        let mut text = vec![0xee_u8; 80];
        let mut len = room;
        // SAFETY: the vector is open, the address is complete, and the buffer has `len` bytes.
        let answer = unsafe {
            self.ops().straddr.unwrap()(
                self.av,
                bytes.as_ptr().cast(),
                text.as_mut_ptr().cast(),
                &mut len,
            )
        };
        assert!(text[room..].iter().all(|&byte| byte == 0xee));
        if answer.is_null() {
            return None;
        }
        let text = match room {
            0 => "",
            _ => CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap(),
        };
        Some((text.to_owned(), len))
    }
}

fn bytes(addrs: &[&str]) -> Vec<u8> {
    addrs
        .iter()
        .flat_map(|addr| sockaddr::encode(&addr.parse().unwrap()).as_bytes().to_vec())
        .collect()
}

#[test]
fn inserted_addresses_are_looked_up_and_removed() {
    let opened = open(FI_SOCKADDR_IN);
    let addrs = bytes(&["10.0.0.1:1", "10.0.0.2:2"]);
    let mut numbers = [NONE; 2];
    assert_eq!(opened.insert(&addrs, 2, &mut numbers, 0), 2);
    assert_eq!(numbers, [0, 1]);
    assert_eq!(opened.lookup(1, 64), Ok((addrs[16..].to_vec(), 16)));
    // SAFETY: the vector is open, and `numbers` has the length that is passed.
    let remove = |numbers: &mut [fi_addr_t], flags| unsafe {
        opened.ops().remove.unwrap()(opened.av, numbers.as_mut_ptr(), numbers.len(), flags)
    };
    assert_eq!(remove(&mut [0, 1], 1), Errno::EINVAL.to_c());
    assert_eq!(remove(&mut [0, 1], 0), 0);
    assert_eq!(remove(&mut [1], 0), Errno::EINVAL.to_c());
    assert_eq!(opened.lookup(1, 64), Err(Errno::EINVAL.to_c()));
}

#[test]
fn a_short_buffer_gets_the_beginning_and_the_whole_length() {
    let opened = open(FI_SOCKADDR_IN);
    let addrs = bytes(&["10.0.0.1:1"]);
    opened.insert(&addrs, 1, &mut [], 0);
    assert_eq!(opened.lookup(0, 6), Ok((addrs[..6].to_vec(), 16)));
    assert_eq!(opened.lookup(0, 0), Ok((vec![], 16)));
}

#[test]
fn bad_addresses_and_arguments_are_distinguished() {
    let opened = open(FI_SOCKADDR_IN);
    let addrs = bytes(&["10.0.0.1:1", "10.0.0.2:0", "10.0.0.3:3"]);
    let mut numbers = [7; 3];
    assert_eq!(opened.insert(&addrs, 3, &mut numbers, 0), 2);
    assert_eq!(numbers, [0, NONE, 1]);

    let mut errors = [-1; 3];
    // SAFETY: the vector is open, and `addrs` and `errors` have three entries each.
    let count = unsafe {
        opened.ops().insert.unwrap()(
            opened.av,
            addrs.as_ptr().cast(),
            3,
            null_mut(),
            FI_SYNC_ERR,
            errors.as_mut_ptr().cast(),
        )
    };
    assert_eq!((count, errors), (2, [0, Errno::EADDRNOTAVAIL.number(), 0]));

    assert_eq!(
        opened.insert(&addrs, 1, &mut [], FI_AV_USER_ID),
        Errno::EINVAL.to_c()
    );
    // Without an array for errors, and with a flag that has no meaning.
    assert_eq!(opened.insert(&addrs, 1, &mut [], FI_SYNC_ERR), 1);
    assert_eq!(opened.insert(&addrs, 1, &mut [], 1), 1);
    assert_eq!(opened.insert(&[], 0, &mut [], 0), 0);
}

#[test]
fn general_formats_take_either_family() {
    let opened = open(FI_SOCKADDR_IP);
    let v6 = bytes(&["[fd00::1]:1", "[fd00::2]:2"]);
    assert_eq!(opened.insert(&v6, 2, &mut [], 0), 2);
    assert_eq!(opened.insert(&bytes(&["10.0.0.1:1"]), 1, &mut [], 0), 1);
    assert_eq!(opened.lookup(1, 64), Ok((v6[28..].to_vec(), 28)));
    assert_eq!(
        opened.insert(&[0xff; 28], 1, &mut [], 0),
        Errno::EINVAL.to_c()
    );
}

#[test]
fn texts_are_addresses_if_the_format_is_one_of_texts() {
    let opened = open(FI_ADDR_STR);
    let list = [
        c"fi_sockaddr_in://10.0.0.1:7".as_ptr(),
        c"nonsense".as_ptr(),
    ];
    let mut numbers = [7; 2];
    // SAFETY: the vector is open, `list` has two terminated texts, and `numbers` two entries.
    let count = unsafe {
        opened.ops().insert.unwrap()(
            opened.av,
            list.as_ptr().cast(),
            2,
            numbers.as_mut_ptr(),
            0,
            null_mut(),
        )
    };
    assert_eq!((count, numbers), (1, [0, NONE]));
    let (text, len) = opened.lookup(0, 64).unwrap();
    assert_eq!(text, b"fi_sockaddr_in://10.0.0.1:7\0");
    assert_eq!(len, text.len());
}

#[test]
fn a_providers_own_strings_lie_one_behind_the_other() {
    let opened = open_format(Format::text(16));
    let names = b"fi_shm://1:0\0fi_shm://22:0\0\0fi_shm://1:0\0";
    let mut numbers = [7; 4];
    assert_eq!(opened.insert(names, 4, &mut numbers, 0), 3);
    assert_eq!(numbers, [0, 1, NONE, 0]);
    assert_eq!(opened.lookup(1, 64), Ok((b"fi_shm://22:0\0".to_vec(), 14)));
    assert_eq!(opened.lookup(1, 6), Ok((b"fi_shm".to_vec(), 14)));
    assert_eq!(
        opened.straddr(b"fi_shm://1:0\0", 64),
        Some(("fi_shm://1:0".into(), 13))
    );
    // The start of the address after an unterminated string is unknown.
    let endless = [b'x'; 17];
    assert_eq!(opened.insert(&endless, 2, &mut numbers, 0), 0);
    assert_eq!(numbers[..2], [NONE, NONE]);
}

#[test]
fn addresses_of_devices_are_bytes_of_one_size() {
    let opened = open_format(Format::fixed(FI_FORMAT_UNSPEC, 16));
    let gids: Vec<u8> = (0..48).map(|n| n % 32).collect();
    let mut numbers = [7; 3];
    assert_eq!(opened.insert(&gids, 3, &mut numbers, 0), 3);
    assert_eq!(numbers, [0, 1, 0]);
    assert_eq!(opened.lookup(1, 64), Ok((gids[16..32].to_vec(), 16)));
    assert_eq!(opened.straddr(&gids, 64), None);

    let opened = open(FI_ADDR_PSMX2);
    let words = [0x17_u64, 0xab].map(u64::to_ne_bytes).concat();
    assert_eq!(opened.insert(&words, 1, &mut [], 0), 1);
    let (text, _) = opened.straddr(&words, 64).unwrap();
    assert_eq!(text, "fi_addr_psmx2://17:ab");
}

#[test]
fn infiniband_addresses_are_checked_one_by_one() {
    let opened = open(FI_SOCKADDR_IB);
    let addr = |family: u16, last: u8| {
        let mut addr = vec![0; 48];
        addr[..2].copy_from_slice(&family.to_ne_bytes());
        (addr[2], addr[3], addr[8], addr[23]) = (0xff, 0xff, 0xfe, last);
        addr
    };
    let mut nowhere = addr(27, 0);
    nowhere[8] = 0;
    let three = [addr(27, 1), nowhere, addr(2, 1), addr(27, 2)].concat();
    let mut numbers = [7; 4];
    assert_eq!(opened.insert(&three, 4, &mut numbers, 0), 2);
    assert_eq!(numbers, [0, NONE, NONE, 1]);
    let (text, _) = opened.straddr(&three, 64).unwrap();
    assert_eq!(text, "fi_sockaddr_ib://[fe00::1]:0xffff:0x0:0x0");
}

/// A byte that counts parts, then the parts: a length and as many bytes.
fn parts(seen: &[u8]) -> Extent {
    let Some(&count) = seen.first() else {
        return Extent::Unseen(1);
    };
    let mut end = 1;
    for _ in 0..count {
        match seen.get(end) {
            Some(&len) => end += 1 + usize::from(len),
            None => return Extent::Unseen(end + 1),
        }
    }
    Extent::Is(end)
}

#[test]
fn composites_say_how_long_they_are() {
    let opened = open_format(Format::composite(FI_FORMAT_UNSPEC, 20, parts));
    let (one, two): (&[u8], &[u8]) = (&[1, 3, 7, 8, 9], &[2, 1, 5, 0]);
    let mut numbers = [7; 3];
    assert_eq!(
        opened.insert(&[one, two, one].concat(), 3, &mut numbers, 0),
        3
    );
    assert_eq!(numbers, [0, 1, 0]);
    assert_eq!(opened.lookup(1, 64), Ok((two.to_vec(), 4)));
    let too_long = [2, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    assert_eq!(opened.insert(&too_long, 2, &mut numbers, 0), 0);
    assert_eq!(opened.straddr(one, 64), None);
}

#[test]
fn only_internet_addresses_have_services() {
    let opened = open_format(Format::text(64));
    let enosys = Errno::ENOSYS.to_c();
    assert_eq!(opened.insertsym(c"10.1.1.1", 2, Some(c"5"), 2), enosys);
    // SAFETY: the vector is open, the texts are terminated, and the results are not requested.
    let outcome = unsafe {
        let (node, service) = (c"10.1.1.1".as_ptr(), c"5".as_ptr());
        opened.ops().insertsvc.unwrap()(opened.av, node, service, null_mut(), 0, null_mut())
    };
    assert_eq!(outcome, enosys);
}

#[test]
fn a_domain_whose_addresses_no_vector_can_hold_has_none() {
    let domain = TestDomain::of_format(Format::fixed(FI_ADDR_MLX, 0), 0);
    let refused = open_on(domain, attr(), null_mut()).err();
    assert_eq!(refused, Some(Errno::EINVAL.to_c()));
}

#[test]
fn services_and_symmetric_ranges_are_inserted() {
    let opened = open(FI_SOCKADDR_IN);
    assert_eq!(opened.insertsym(c"10.1.1.1", 2, Some(c"5000"), 2), 4);
    assert_eq!(opened.lookup(2, 64), Ok((bytes(&["10.1.1.2:5000"]), 16)));
    assert_eq!(
        opened.insertsym(c"fi_sockaddr_in://10.9.9.9:1", 1, None, 1),
        1
    );
    assert_eq!(opened.lookup(4, 64), Ok((bytes(&["10.9.9.9:1"]), 16)));
    assert_eq!(opened.insertsym(c"10.1.1.1", 1, Some(c"70000"), 1), 0);
    assert_eq!(
        opened.insertsym(c"10.1.1.1", 1, Some(c"65535"), 2),
        Errno::EINVAL.to_c()
    );
}

#[test]
fn addresses_print_and_long_ones_are_cut() {
    let opened = open(FI_SOCKADDR_IN);
    let addr = bytes(&["10.0.0.1:17"]);
    let text = "fi_sockaddr_in://10.0.0.1:17";
    let whole = text.len() + 1;
    assert_eq!(opened.straddr(&addr, 64), Some((text.into(), whole)));
    assert_eq!(opened.straddr(&addr, 6), Some(("fi_so".into(), whole)));
    assert_eq!(opened.straddr(&addr, 0), Some((String::new(), whole)));
    assert_eq!(opened.straddr(&[0xff; 28], 64), None);
}

#[test]
fn a_vector_of_no_type_becomes_a_table() {
    assert_eq!(open(FI_SOCKADDR_IN).attr.type_, FI_AV_TABLE);
    let refused = |attr| try_open(FI_SOCKADDR_IN, attr).err();
    assert_eq!(
        refused(fi_av_attr {
            type_: 77,
            ..attr()
        }),
        Some(Errno::EINVAL.to_c())
    );
    assert_eq!(
        refused(fi_av_attr { flags: 1, ..attr() }),
        Some(Errno::EINVAL.to_c())
    );
}

#[test]
fn attributes_that_are_for_others_change_nothing() {
    let flags = |flags| fi_av_attr { flags, ..attr() };
    let bits = |rx_ctx_bits| fi_av_attr {
        rx_ctx_bits,
        ..attr()
    };
    // A name, an owner and receive context bits of scalable endpoints are ignored.
    for attr in [flags(FI_READ), flags(FI_PEER), bits(-1), bits(33)] {
        let opened = try_open(FI_SOCKADDR_IN, attr).unwrap();
        let addrs = bytes(&["10.0.0.1:1", "10.0.0.2:2"]);
        let mut numbers = [NONE; 2];
        assert_eq!(opened.insert(&addrs, 2, &mut numbers, 0), 2);
        assert_eq!(numbers, [0, 1]);
        assert_eq!(opened.lookup(1, 64), Ok((addrs[16..].to_vec(), 16)));
    }
}

#[test]
fn a_named_vector_has_a_place_in_memory() {
    let name = std::ffi::CString::new(format!("ffi-av-{}", std::process::id())).unwrap();
    let attr = fi_av_attr {
        name: name.as_ptr(),
        ..attr()
    };
    let writer = try_open(FI_SOCKADDR_IN, attr).unwrap();
    assert!(!writer.attr.map_addr.is_null());
    let addrs = bytes(&["10.0.0.1:1", "10.0.0.2:2"]);
    assert_eq!(writer.insert(&addrs, 2, &mut [], 0), 2);
    let reader = try_open(
        FI_SOCKADDR_IN,
        fi_av_attr {
            flags: FI_READ,
            ..attr
        },
    )
    .unwrap();
    // SAFETY: the array has an entry for each inserted address.
    let second = unsafe { reader.attr.map_addr.cast::<fi_addr_t>().add(1).read() };
    assert_eq!(reader.lookup(second, 64), Ok((addrs[16..].to_vec(), 16)));
}

#[test]
fn asynchronous_insertions_report_to_the_event_queue_that_is_bound() {
    let flags = FI_EVENT;
    let opened = try_open(FI_SOCKADDR_IN, fi_av_attr { flags, ..attr() }).unwrap();
    let addrs = bytes(&["10.0.0.1:1", "10.0.0.2:0"]);
    // Without an event queue the insertion is synchronous.
    assert_eq!(opened.insert(&addrs, 2, &mut [], 0), 1);

    let eq = Handle::new(
        Eq::new(Attachment::None, prov_objects::attr::version(2, 7)),
        null_mut(),
        Vec::new(),
    );
    // SAFETY: the vector and the queue are open.
    let bind =
        |flags| unsafe { (*(*opened.av).fid.ops).bind.unwrap()(opened.av.cast(), eq.fid(), flags) };
    assert_eq!(bind(1), Errno::EINVAL.to_c());
    assert_eq!(bind(0), 0);
    assert_eq!(close(eq.fid()), Errno::EBUSY.to_c());
    assert_eq!(opened.insert(&addrs, 2, &mut [], 0), 0);

    assert_eq!(eq.read(100, false, |_| ()), Err(Errno::EAVAIL));
    let error = eq.read_error(false).unwrap();
    assert_eq!((error.data, error.err), (1, Errno::EADDRNOTAVAIL));
    let complete = eq.read(100, false, |event| {
        assert_eq!(event.kind, FI_AV_COMPLETE);
        assert!(matches!(event.body, EventBody::Control { data: 1, .. }));
    });
    assert!(complete.is_ok());
    assert_eq!(eq.read(100, false, |_| ()), Err(Errno::EAGAIN));
    drop(opened);
    assert_eq!(close(eq.into_c().cast()), 0);
}

#[test]
fn authorization_keys_have_handles() {
    let opened = open(FI_SOCKADDR_IN);
    let mut handle = NONE;
    // SAFETY: the vector is open and all pointers are valid.
    unsafe {
        let insert = opened.ops().insert_auth_key.unwrap();
        let lookup = opened.ops().lookup_auth_key.unwrap();
        assert_eq!(
            insert(opened.av, b"key".as_ptr().cast(), 3, &mut handle, 0),
            0
        );
        let (mut key, mut size) = ([0u8; 2], 2);
        assert_eq!(
            lookup(opened.av, handle, key.as_mut_ptr().cast(), &mut size),
            0
        );
        assert_eq!((&key, size), (b"ke", 3));
        let missing = lookup(opened.av, 99, key.as_mut_ptr().cast(), &mut size);
        assert_eq!(missing, Errno::EINVAL.to_c());
    }
    let mut numbers = [handle];
    let addrs = bytes(&["10.0.0.1:1"]);
    assert_eq!(opened.insert(&addrs, 1, &mut numbers, FI_AUTH_KEY), 1);
    assert_eq!(numbers, [0]);
}

#[test]
fn a_set_has_the_addresses_of_a_range_that_there_are() {
    let opened = open(FI_SOCKADDR_IN);
    let addrs = bytes(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4"]);
    let mut numbers = [0; 4];
    assert_eq!(opened.insert(&addrs, 4, &mut numbers, 0), 4);
    let make = opened.ops().av_set.unwrap();
    let mut set: *mut fid_av_set = null_mut();
    // SAFETY: the vector is open, and the attributes are valid or missing.
    unsafe {
        let missing = make(opened.av, null_mut(), &raw mut set, null_mut());
        assert_eq!(missing, Errno::EINVAL.to_c());
        let mut attr: fi_av_set_attr = std::mem::zeroed();
        (attr.start_addr, attr.end_addr, attr.stride) = (1, u64::MAX - 1, 2);
        attr.count = 1;
        let too_many = make(opened.av, &raw mut attr, &raw mut set, null_mut());
        assert_eq!(too_many, Errno::EINVAL.to_c());
        attr.count = 0;
        assert_eq!(make(opened.av, &raw mut attr, &raw mut set, null_mut()), 0);
        let members = Handle::<AvSet>::borrow(set).members().clone();
        assert_eq!(members, [numbers[1], numbers[3]]);
        // A set keeps its vector open.
        assert_eq!(close(opened.av.cast()), Errno::EBUSY.to_c());
        assert_eq!(close(set.cast()), 0);
    }
}

#[test]
fn a_domain_with_a_vector_cannot_be_closed() {
    let domain = {
        let opened = open(FI_SOCKADDR_IN);
        let domain = opened.domain.clone();
        assert_eq!(close(domain.fid()), Errno::EBUSY.to_c());
        domain
    };
    // The application's reference, which `Handle::new` does not create.
    assert_eq!(close(domain.into_c().cast()), 0);
}
