//! Tests registrations through the C tables.

mod device;

use std::ptr::null_mut;

use super::super::test_domain::{TestDomain, close};
use super::*;
use prov_objects::cntr::CntrEvents;
use prov_objects::mr::Job;
use prov_objects::wait::Attachment;

const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

fn ops(domain: &Handle<TestDomain>) -> &fi_ops_mr {
    // SAFETY: the domain is open as long as the test uses it.
    unsafe { &*(*domain.as_c()).mr }
}

fn register(
    domain: &Handle<TestDomain>,
    memory: &mut [u8],
    access: u64,
    key: u64,
    flags: u64,
) -> std::result::Result<*mut fid_mr, i32> {
    let mut mr = null_mut();
    // SAFETY: the domain is open, and the memory outlives the region.
    let status = unsafe {
        ops(domain).reg.unwrap()(
            domain.fid(),
            memory.as_ptr().cast(),
            memory.len(),
            access,
            0,
            key,
            flags,
            &mut mr,
            null_mut(),
        )
    };
    if status == 0 { Ok(mr) } else { Err(status) }
}

fn attr(iov: &iovec) -> fi_mr_attr {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut attr: fi_mr_attr = unsafe { std::mem::zeroed() };
    attr.mr_iov = iov;
    attr.iov_count = 1;
    attr.access = REMOTE;
    attr.requested_key = 8;
    attr
}

fn iov(memory: &mut [u8]) -> iovec {
    iovec {
        iov_base: memory.as_mut_ptr().cast(),
        iov_len: memory.len(),
    }
}

fn regattr(
    domain: &Handle<TestDomain>,
    attr: &fi_mr_attr,
    flags: u64,
) -> std::result::Result<*mut fid_mr, i32> {
    let mut mr = null_mut();
    // SAFETY: the domain is open, and the memory outlives the region.
    let status = unsafe { ops(domain).regattr.unwrap()(domain.fid(), attr, flags, &mut mr) };
    if status == 0 { Ok(mr) } else { Err(status) }
}

/// An endpoint, as far as regions use it.
struct TestEndpoint;

impl Class for TestEndpoint {
    type Header = fid;

    fn class(&self) -> usize {
        FI_CLASS_EP
    }

    fn header(&self, fid: fid) -> fid {
        fid
    }
}

fn control<T>(mr: *mut fid_mr, command: c_int, arg: *mut T) -> i32 {
    // SAFETY: the region is open, and the tests pass an argument of the command's type.
    unsafe { (*(*mr).fid.ops).control.unwrap()(mr.cast(), command, arg.cast()) }
}

#[test]
fn a_region_has_its_key_until_it_is_closed() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
    // SAFETY: the region is open as long as the test uses it.
    unsafe {
        assert_eq!((*mr).key, 7);
        assert!(!(*mr).mem_desc.is_null());
    }
    let again = register(&domain, &mut memory, REMOTE, 7, 0);
    assert_eq!(again.err(), Some(Errno::ENOKEY.to_c()));
    assert!(
        domain
            .table
            .accessor()
            .resolve(7, 0, 16, FI_REMOTE_READ, Job::NONE)
            .is_ok()
    );
    assert_eq!(close(domain.fid()), Errno::EBUSY.to_c());
    assert_eq!(close(mr.cast()), 0);
    assert!(
        domain
            .table
            .accessor()
            .resolve(7, 0, 16, FI_REMOTE_READ, Job::NONE)
            .is_err()
    );
}

#[test]
fn arguments_without_a_meaning_are_ignored() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let vector = iov(&mut memory);
    for flags in [FI_MORE, FI_RMA, FI_HMEM_HOST_ALLOC, FI_MR_DMABUF, u64::MAX] {
        for access in [REMOTE | FI_RMA | FI_MSG, u64::MAX] {
            let attr = fi_mr_attr {
                offset: 1,
                access,
                ..attr(&vector)
            };
            let mut mr = null_mut();
            // SAFETY: the domain is open, and the memory outlives the region.
            let reg = |offset, mr: &mut _| unsafe {
                let (buf, context) = (memory.as_ptr().cast(), null_mut());
                ops(&domain).reg.unwrap()(
                    domain.fid(),
                    buf,
                    16,
                    access,
                    offset,
                    8,
                    flags,
                    mr,
                    context,
                )
            };
            assert_eq!(reg(77, &mut mr), 0, "{flags:#x}");
            assert_eq!(close(mr.cast()), 0);
            // SAFETY: the arguments have the types of the call, and refer to variables of the test.
            let regv = unsafe {
                let ops = ops(&domain).regv.unwrap();
                let domain = domain.fid();
                ops(domain, &vector, 1, access, 1, 8, flags, &mut mr, null_mut())
            };
            assert_eq!(regv, 0, "{flags:#x}");
            assert_eq!(close(mr.cast()), 0);
            let region = regattr(&domain, &attr, flags & !FI_MR_DMABUF).unwrap();
            let allowed = domain
                .table
                .accessor()
                .resolve(8, 0, 16, FI_REMOTE_WRITE, Job::NONE);
            assert!(allowed.is_ok());
            assert_eq!(close(region.cast()), 0);
        }
    }
}

#[test]
fn an_offset_is_ignored_and_memory_has_to_be_somewhere() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let vector = iov(&mut memory);
    let offset = fi_mr_attr {
        offset: 1,
        ..attr(&vector)
    };
    let mr = regattr(&domain, &offset, 0).unwrap();
    assert_eq!(close(mr.cast()), 0);
    let none = fi_mr_attr {
        iov_count: 0,
        ..attr(&vector)
    };
    assert_eq!(regattr(&domain, &none, 0).err(), Some(Errno::EINVAL.to_c()));
    let device = fi_mr_attr {
        iface: FI_HMEM_CUDA,
        ..attr(&vector)
    };
    assert_eq!(
        regattr(&domain, &device, 0).err(),
        Some(Errno::ENOSYS.to_c())
    );
}

#[test]
fn a_part_of_a_region_keeps_it_open() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let base = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
    let inner = iov(&mut memory[4..8]);
    let part = fi_mr_attr {
        base_mr: base,
        ..attr(&inner)
    };
    let part = regattr(&domain, &part, 0).unwrap();
    assert_eq!(close(base.cast()), Errno::EBUSY.to_c());
    assert_eq!(close(part.cast()), 0);

    let mut elsewhere = [0; 4];
    let outer = iov(&mut elsewhere);
    let foreign = fi_mr_attr {
        base_mr: base,
        ..attr(&outer)
    };
    assert_eq!(
        regattr(&domain, &foreign, 0).err(),
        Some(Errno::EINVAL.to_c())
    );
    assert_eq!(close(base.cast()), 0);
}

#[test]
fn raw_keys_go_out_and_are_mapped_back() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, FI_MR_VIRT_ADDR);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 0x1234, 0).unwrap();
    let (mut base, mut raw, mut size) = (0, [0u8; 8], 4);
    let mut attr = fi_mr_raw_attr {
        flags: 0,
        base_addr: &mut base,
        raw_key: raw.as_mut_ptr(),
        key_size: &mut size,
    };
    assert_eq!(
        control(mr, FI_GET_RAW_MR, &mut attr),
        Errno::ETOOSMALL.to_c()
    );
    assert_eq!(size, 8);
    assert_eq!(control(mr, FI_GET_RAW_MR, &mut attr), 0);
    assert_eq!(base, memory.as_ptr() as u64);

    let mut key = 0;
    let mut map = fi_mr_map_raw {
        flags: 0,
        base_addr: base,
        raw_key: raw.as_mut_ptr(),
        key_size: 8,
        key: &mut key,
    };
    // SAFETY: the argument has the command's type.
    let mapped = unsafe { super::control(&domain.table, FI_MAP_RAW_MR, (&raw mut map).cast()) };
    assert_eq!((mapped, key), (Some(Ok(0)), 0x1234));
    // SAFETY: the arguments have the types of the call, and refer to variables of the test.
    let unmapped = unsafe { super::control(&domain.table, FI_UNMAP_KEY, (&raw mut key).cast()) };
    assert_eq!(unmapped, Some(Ok(0)));
    // SAFETY: an unknown command does not use its argument.
    let unknown = unsafe { super::control(&domain.table, 999, null_mut()) };
    assert_eq!(unknown, None);
    assert_eq!(close(mr.cast()), 0);
}

#[test]
fn a_refresh_is_about_the_region() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
    let mut elsewhere = [0; 4];
    for (vector, outcome) in [
        (iov(&mut memory[8..]), 0),
        (iov(&mut elsewhere), Errno::EINVAL.to_c()),
    ] {
        let mut modify = fi_mr_modify {
            flags: 0,
            attr: attr(&vector),
        };
        assert_eq!(control(mr, FI_REFRESH, &mut modify), outcome);
    }
    assert_eq!(close(mr.cast()), 0);
}

#[test]
fn a_region_of_an_endpoint_is_bound_before_it_is_enabled() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, FI_MR_ENDPOINT);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 7, 0).unwrap();
    let enable = || control(mr, FI_ENABLE, null_mut::<c_void>());
    assert_eq!(enable(), Errno::EINVAL.to_c());
    let mut stranger = fid {
        fclass: FI_CLASS_EP,
        context: null_mut(),
        ops: null_mut(),
    };
    let endpoint = Handle::new(TestEndpoint, null_mut(), Vec::new()).into_c();
    // SAFETY: the region and the endpoint are open, and no function of the unknown object is
    // called.
    let bind =
        |endpoint: *mut fid| unsafe { (*(*mr).fid.ops).bind.unwrap()(mr.cast(), endpoint, 0) };
    assert_eq!(bind(&mut stranger), Errno::EINVAL.to_c());
    assert_eq!(bind(endpoint), 0);
    assert!(
        domain
            .table
            .accessor()
            .resolve(7, 0, 1, FI_REMOTE_READ, Job::NONE)
            .is_err()
    );
    assert_eq!(enable(), 0);
    assert!(
        domain
            .table
            .accessor()
            .resolve(7, 0, 1, FI_REMOTE_READ, Job::NONE)
            .is_ok()
    );
    assert_eq!(bind(endpoint), Errno::EOPBADSTATE.to_c());
    assert_eq!(close(endpoint), Errno::EBUSY.to_c());
    assert_eq!(close(mr.cast()), 0);
    assert_eq!(close(endpoint), 0);
}

#[test]
fn accesses_by_peers_are_counted_by_the_counter_that_is_bound() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let mr = register(&domain, &mut memory, REMOTE, 7, FI_RMA_EVENT).unwrap();
    let cntr = Cntr::new(CntrEvents::Completions, Attachment::None, None);
    let cntr = Handle::new(cntr, null_mut(), Vec::new());
    // SAFETY: the region and the counter are open.
    let bind = |flags| unsafe { (*(*mr).fid.ops).bind.unwrap()(mr.cast(), cntr.fid(), flags) };
    assert_eq!(bind(FI_SEND), Errno::EBADFLAGS.to_c());
    assert_eq!(bind(FI_REMOTE_WRITE), 0);
    for access in [FI_REMOTE_WRITE, FI_REMOTE_READ] {
        let mut accessor = domain.table.accessor();
        let granted = accessor.resolve(7, 0, 8, access, Job::NONE).unwrap();
        accessor.complete(&granted);
    }
    assert_eq!(cntr.read(), 1);
    assert_eq!(close(cntr.fid()), Errno::EBUSY.to_c());
    assert_eq!(close(mr.cast()), 0);
    assert_eq!(close(cntr.into_c().cast()), 0);
}

#[test]
fn a_registration_may_have_an_authorization_key() {
    let domain = TestDomain::open(FI_SOCKADDR_IN, 0);
    let mut memory = [0; 16];
    let vector = iov(&mut memory);
    let mut key = *b"region";
    let with_key = fi_mr_attr {
        access: FI_REMOTE_READ,
        requested_key: 7,
        auth_key_size: key.len(),
        auth_key: key.as_mut_ptr(),
        ..attr(&vector)
    };
    let mr = regattr(&domain, &with_key, 0).unwrap();
    let resolve = |job| {
        domain
            .table
            .accessor()
            .resolve(7, 0, 16, FI_REMOTE_READ, job)
            .err()
    };
    assert_eq!(resolve(Job::NONE), Some(Errno::EACCES));
    assert_eq!(resolve(domain.table.job(b"region")), None);
    assert_eq!(close(mr.cast()), 0);
    let of_vector = fi_mr_attr {
        auth_key_size: FI_AV_AUTH_KEY,
        ..with_key
    };
    let refused = regattr(&domain, &of_vector, 0).err();
    assert_eq!(refused, Some(Errno::EINVAL.to_c()));
    // A size without a key counts as no key.
    let nowhere = fi_mr_attr {
        auth_key: null_mut(),
        ..with_key
    };
    let mr = regattr(&domain, &nowhere, 0).unwrap();
    assert_eq!(resolve(Job::NONE), None);
    assert_eq!(close(mr.cast()), 0);
}

#[test]
fn callers_of_old_interfaces_have_no_new_members() {
    let table = TestDomain::open(FI_SOCKADDR_IN, 0).table.clone();
    let domain = Handle::new(
        TestDomain {
            format: prov_objects::av::format::Format::IN,
            auth_key_size: None,
            table,
            api_version: version(1, 4),
        },
        null_mut(),
        Vec::new(),
    );
    let mut memory = [0; 16];
    let vector = iov(&mut memory);
    let garbage = fi_mr_attr {
        auth_key_size: 0xdead,
        iface: 0xbeef,
        base_mr: std::ptr::dangling(),
        ..attr(&vector)
    };
    let mr = regattr(&domain, &garbage, 0).unwrap();
    assert_eq!(close(mr.cast()), 0);
}
