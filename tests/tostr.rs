//! Compares `fi_tostr_r` of this library with that of another libfabric
//! (`LIBFABRIC_COMPARE=<directory>`), which must return the same texts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what does not hold fails the test"
)]

mod library;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use fabric_abi::*;
use libloading::Library;

type ToStr = unsafe extern "C" fn(*mut c_char, usize, *const c_void, fi_type) -> *mut c_char;

/// Returns the function of each library to test: this library's first.
fn functions() -> Vec<ToStr> {
    let mut paths = vec![library::directory().join("libfabric.so.1")];
    paths.extend(library::other());
    paths
        .into_iter()
        .map(|path| {
            // SAFETY: loading libfabric runs only its own constructors, the function has this type,
            // and the library stays loaded as long as the process.
            unsafe {
                let library = Box::leak(Box::new(Library::new(path).unwrap()));
                *library.get::<ToStr>(b"fi_tostr_r\0").unwrap()
            }
        })
        .collect()
}

fn print<T>(to_str: ToStr, room: usize, value: &T, datatype: fi_type) -> String {
    let mut buffer = vec![0x7f as c_char; room.max(1)];
    // SAFETY: the buffer has the stated length, and each test passes a value of the type.
    unsafe {
        let text = to_str(
            buffer.as_mut_ptr(),
            room,
            (&raw const *value).cast(),
            datatype,
        );
        assert_eq!(text, buffer.as_mut_ptr());
        CStr::from_ptr(text).to_str().unwrap().to_owned()
    }
}

/// The text that all libraries agree on.
fn text<T>(value: &T, datatype: fi_type) -> String {
    let mut texts = functions()
        .into_iter()
        .map(|to_str| print(to_str, 8192, value, datatype));
    let ours = texts.next().unwrap();
    for theirs in texts {
        assert_eq!(ours, theirs, "type {datatype}");
    }
    ours
}

/// A C structure with nothing in it.
fn empty<T>() -> T {
    // SAFETY: the tests use it for C structures of integers and pointers, for which zero is a valid
    // value.
    unsafe { std::mem::zeroed() }
}

#[test]
fn every_enumerator_of_every_type_has_its_name() {
    for datatype in [
        FI_TYPE_EP_TYPE,
        FI_TYPE_ADDR_FORMAT,
        FI_TYPE_PROGRESS,
        FI_TYPE_PROTOCOL,
        FI_TYPE_AV_TYPE,
        FI_TYPE_ATOMIC_TYPE,
        FI_TYPE_ATOMIC_OP,
        FI_TYPE_EQ_EVENT,
        FI_TYPE_OP_TYPE,
        FI_TYPE_COLLECTIVE_OP,
        FI_TYPE_HMEM_IFACE,
        FI_TYPE_CQ_FORMAT,
        FI_TYPE_LOG_LEVEL,
        FI_TYPE_LOG_SUBSYS,
        FI_TYPE_CQ_WAIT_COND,
        FI_TYPE_WAIT_OBJ,
    ] {
        for value in 0..64u64 {
            text(&value, datatype);
        }
        assert_eq!(text(&9999u64, datatype), "Unknown");
    }
    assert_eq!(text(&u64::from(FI_EP_MSG), FI_TYPE_EP_TYPE), "FI_EP_MSG");
    assert_eq!(
        text(&u64::from(FI_THREAD_DOMAIN), FI_TYPE_THREADING),
        "FI_THREAD_DOMAIN"
    );
    assert_eq!(text(&u64::from(FI_WAIT_FD), FI_TYPE_WAIT_OBJ), "FI_WAIT_FD");
}

#[test]
fn every_flag_of_every_type_has_its_name() {
    // Capabilities that this library prints and the C library omits.
    let ours_alone = FI_TAGGED_DIRECTED_RECV | FI_TAGGED_MULTI_RECV | FI_EXACT_DIRECTED_RECV;
    for datatype in [
        FI_TYPE_CAPS,
        FI_TYPE_OP_FLAGS,
        FI_TYPE_MSG_ORDER,
        FI_TYPE_MODE,
        FI_TYPE_CQ_EVENT_FLAGS,
        FI_TYPE_MR_MODE,
    ] {
        for bit in (0..64).map(|shift| 1u64 << shift) {
            if bit & ours_alone == 0 {
                text(&bit, datatype);
            }
        }
        text(&!ours_alone, datatype);
        assert_eq!(text(&0u64, datatype), "");
    }
    assert_eq!(text(&(FI_MSG | FI_SEND), FI_TYPE_CAPS), "FI_MSG, FI_SEND");
}

#[test]
fn an_info_has_a_line_for_each_field() {
    let mut source = b"\x02\x00\x1d\x2f\x0a\x1f\x06\x0c\0\0\0\0\0\0\0\0".to_vec();
    let mut tx: fi_tx_attr = empty();
    tx.caps = FI_MSG | FI_SEND;
    tx.mode = FI_CONTEXT;
    tx.op_flags = FI_INJECT_COMPLETE;
    tx.msg_order = FI_ORDER_SAS;
    tx.inject_size = 128;
    tx.tclass = 0x21;
    let mut rx: fi_rx_attr = empty();
    rx.caps = FI_MSG | FI_RECV;
    rx.size = 1024;
    let mut ep: fi_ep_attr = empty();
    ep.type_ = FI_EP_RDM;
    ep.protocol = FI_PROTO_XNET;
    ep.max_msg_size = usize::MAX;
    ep.mem_tag_format = 0xaaaa;
    ep.tx_ctx_cnt = usize::MAX;
    ep.rx_ctx_cnt = 1;
    let mut domain: fi_domain_attr = empty();
    domain.name = c"lo".as_ptr().cast_mut();
    domain.threading = FI_THREAD_SAFE;
    domain.progress = FI_PROGRESS_MANUAL;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = FI_AV_TABLE;
    domain.mr_mode = FI_MR_LOCAL | FI_MR_RAW;
    domain.caps = FI_LOCAL_COMM;
    domain.max_cntr_value = u64::MAX;
    let mut fabric: fi_fabric_attr = empty();
    fabric.prov_name = c"tcp".as_ptr().cast_mut();
    fabric.prov_version = 0x00c8_0007;
    fabric.api_version = 0x0001_0012;
    let mut info: fi_info = empty();
    info.caps = FI_MSG | FI_TAGGED | FI_RMA;
    info.addr_format = FI_SOCKADDR_IN;
    info.src_addrlen = source.len();
    info.src_addr = source.as_mut_ptr().cast();
    info.tx_attr = &mut tx;
    info.rx_attr = &mut rx;
    info.ep_attr = &mut ep;
    info.domain_attr = &mut domain;
    info.fabric_attr = &mut fabric;
    let printed = text(&info, FI_TYPE_INFO);
    for line in [
        "fi_info:",
        "    caps: [ FI_MSG, FI_RMA, FI_TAGGED ]",
        "    src_addr: fi_sockaddr_in://10.31.6.12:7471",
        "    dest_addr: (null)",
        "    handle: (nil)",
        "    fi_tx_attr:",
        "        tclass: 0x21",
        "        mem_tag_format: 0x000000000000aaaa",
        "        tx_ctx_cnt: FI_SHARED_CONTEXT",
        "        name: lo",
        "        mr_mode: [ FI_MR_LOCAL, FI_MR_RAW ]",
        "        name: (null)",
        "        prov_version: 200.7",
        "        api_version: 1.18",
        "    nic: (nil)",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line:?} in {printed}"
        );
    }
    for (attr, datatype) in [
        (info.tx_attr.cast::<u64>(), FI_TYPE_TX_ATTR),
        (info.rx_attr.cast(), FI_TYPE_RX_ATTR),
        (info.ep_attr.cast(), FI_TYPE_EP_ATTR),
        (info.domain_attr.cast(), FI_TYPE_DOMAIN_ATTR),
        (info.fabric_attr.cast(), FI_TYPE_FABRIC_ATTR),
    ] {
        // SAFETY: each pointer refers to one of the attributes above, which are valid.
        let alone = text(unsafe { &*attr }, datatype);
        let indented: String = alone.lines().map(|line| format!("    {line}\n")).collect();
        assert!(printed.contains(&indented), "{indented}");
    }
    info.tx_attr = null_mut();
    info.domain_attr = null_mut();
    let printed = text(&info, FI_TYPE_INFO);
    assert!(printed.contains("    fi_tx_attr: (null)\n"), "{printed}");
}

#[test]
fn the_attributes_of_objects_have_a_line_for_each_field() {
    let mut av: fi_av_attr = empty();
    av.count = 7;
    av.name = c"shared".as_ptr().cast_mut();
    av.flags = FI_EVENT | FI_SYMMETRIC;
    assert!(text(&av, FI_TYPE_AV_ATTR).contains("    name: shared\n"));
    let mut cq: fi_cq_attr = empty();
    cq.size = 9;
    cq.format = FI_CQ_FORMAT_TAGGED;
    cq.wait_obj = FI_WAIT_UNSPEC;
    assert!(text(&cq, FI_TYPE_CQ_ATTR).contains("    format: FI_CQ_FORMAT_TAGGED\n"));
    let mut mr: fi_mr_attr = empty();
    mr.access = FI_REMOTE_WRITE;
    mr.requested_key = 0x77;
    assert!(text(&mr, FI_TYPE_MR_ATTR).contains("    requested_key: 0x77\n"));
    let cntr: fi_cntr_attr = empty();
    assert!(text(&cntr, FI_TYPE_CNTR_ATTR).contains("    events: FI_CNTR_EVENTS_COMP\n"));
    let mut entry: fi_cq_err_entry = empty();
    entry.err = 5;
    // The C library prints the error in this place too.
    entry.prov_errno = 5;
    assert!(text(&entry, FI_TYPE_CQ_ERR_ENTRY).contains("    err: 5\n"));
}

#[test]
fn a_text_that_does_not_fit_is_cut() {
    let caps = FI_MSG | FI_RMA;
    let ours = functions()[0];
    assert_eq!(print(ours, 5, &caps, FI_TYPE_CAPS), "FI_M");
    assert_eq!(print(ours, 1, &caps, FI_TYPE_CAPS), "");
    // SAFETY: the function writes nothing if the buffer is NULL or its length is 0, which this test
    // checks.
    unsafe {
        assert!(ours(null_mut(), 10, (&raw const caps).cast(), FI_TYPE_CAPS).is_null());
        let mut byte = 7;
        assert!(ours(&mut byte, 0, (&raw const caps).cast(), FI_TYPE_CAPS).is_null());
        assert_eq!(byte, 7);
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let ours = functions()[0];
    assert_eq!(
        print(ours, 100, &0u64, FI_TYPE_VERSION),
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(print(ours, 100, &0u64, 999), "Unknown type");
}
