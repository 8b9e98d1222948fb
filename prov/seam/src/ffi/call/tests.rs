//! Tests every form of every data call, from the C tables to the request that the endpoint gets.

mod atomics;

use std::ptr::{null, null_mut, without_provenance_mut};

use fabric_abi::*;

use super::super::test_endpoint::{DEFAULT_FLAGS, INJECT_SIZE, Piece, Request, TestEndpoint, What};
use super::*;
use prov_objects::request::{Access, Select, Tag};

const PEER: fi_addr_t = 3;
const TAG: u64 = 4;
const IGNORE: u64 = 5;
const DATA: u64 = 6;
const ADDR: u64 = 0x1000;
const KEY: u64 = 8;
/// Flags of calls with a flags argument.
const GIVEN: u64 = FI_MORE;
const PLAIN: u64 = DEFAULT_FLAGS | FI_COMPLETION;
const INJECT: u64 = DEFAULT_FLAGS | FI_INJECT;
const CONTEXT: *mut c_void = pointer(0xc0);

/// The arguments of a call with one buffer, two elements of 8 bytes, and the buffer in its request.
const BUF: *mut c_void = pointer(ONE.0);
const DESC: *mut c_void = pointer(ONE.2);
const ONE: Piece = (0x100, 16, 0xd0);
/// The buffer in an inject call's request.
const NO_DESC: Piece = (0x100, 16, 0);
/// Address of the first buffer of a vector.
const MANY: usize = 0x200;

/// Two buffers with an empty one between them, each with a descriptor.
struct Buffers {
    iov: [iovec; 3],
    ioc: [fi_ioc; 3],
    descs: [*mut c_void; 3],
}

impl Buffers {
    fn at(address: usize) -> Self {
        let places = [(address, 8), (address + 8, 0), (address + 8, 24)];
        Buffers {
            iov: places.map(|(address, len)| iovec {
                iov_base: pointer(address),
                iov_len: len,
            }),
            ioc: places.map(|(address, len)| fi_ioc {
                addr: pointer(address),
                count: len / 8,
            }),
            descs: [1, 2, 3].map(|desc| pointer(address + desc)),
        }
    }

    fn messages(&mut self) -> (fi_msg, fi_msg_tagged) {
        let message = fi_msg {
            msg_iov: self.iov.as_ptr(),
            desc: self.descs.as_mut_ptr(),
            iov_count: 3,
            addr: PEER,
            context: CONTEXT,
            data: DATA,
        };
        let tagged = fi_msg_tagged {
            msg_iov: message.msg_iov,
            desc: message.desc,
            iov_count: 3,
            addr: PEER,
            tag: TAG,
            ignore: IGNORE,
            context: message.context,
            data: DATA,
        };
        (message, tagged)
    }
}

/// The request's form of [`Buffers::at`].
fn two(address: usize) -> [Piece; 2] {
    [(address, 8, address + 1), (address + 8, 24, address + 3)]
}

impl Request {
    fn with_data(self) -> Self {
        Request {
            data: Some(DATA),
            ..self
        }
    }
}

const fn pointer(address: usize) -> *mut c_void {
    without_provenance_mut(address)
}

/// The request of a call that succeeded.
fn posted(test: &TestEndpoint, status: isize) -> Request {
    assert_eq!(status, 0);
    test.take().unwrap()
}

/// The request that a call should have created.
fn request(what: What, local: &[&[Piece]], flags: u64) -> Request {
    let bytes = |pieces: &[Piece]| pieces.iter().map(|&(_, len, _)| len as u64).sum();
    let remote = match what {
        What::Send(_) | What::Receive(_) => Vec::new(),
        What::Access(_) | What::Atomic(_) => vec![RemotePiece {
            addr: ADDR,
            len: bytes(local.last().unwrap()),
            key: KEY,
        }],
    };
    Request {
        what,
        local: local.iter().map(|pieces| pieces.to_vec()).collect(),
        remote,
        peer: PEER,
        data: None,
        flags,
        context: if flags & FI_INJECT != 0 {
            0
        } else {
            CONTEXT.addr()
        },
    }
}

/// The forms of receives, without and with tags.
#[test]
fn every_receive_passes_the_arguments_of_the_call() {
    let test = TestEndpoint::open();
    let (msg, tagged, ..) = test.tables();
    let ep = test.ep();
    let mut many = Buffers::at(MANY);
    let (iov, descs) = (many.iov.as_ptr(), many.descs.as_mut_ptr());
    let (message, tagged_message) = many.messages();
    // SAFETY: the endpoint is open, and the test's provider does not access the memory.
    let found = unsafe {
        [
            posted(&test, msg.recv.unwrap()(ep, BUF, 16, DESC, PEER, CONTEXT)),
            posted(&test, msg.recvv.unwrap()(ep, iov, descs, 3, PEER, CONTEXT)),
            posted(&test, msg.recvmsg.unwrap()(ep, &message, GIVEN)),
            posted(
                &test,
                tagged.recv.unwrap()(ep, BUF, 16, DESC, PEER, TAG, IGNORE, CONTEXT),
            ),
            posted(
                &test,
                tagged.recvv.unwrap()(ep, iov, descs, 3, PEER, TAG, IGNORE, CONTEXT),
            ),
            posted(&test, tagged.recvmsg.unwrap()(ep, &tagged_message, GIVEN)),
        ]
    };
    let tagged = Select::Tagged {
        tag: TAG,
        ignore: IGNORE,
    };
    let expected = [Select::Untagged, tagged].map(|select| {
        let what = What::Receive(select);
        [
            request(what, &[&[ONE]], PLAIN),
            request(what, &[&two(MANY)], PLAIN),
            request(what, &[&two(MANY)], GIVEN | FI_COMPLETION),
        ]
    });
    assert_eq!(found, expected.as_flattened());
}

/// The forms of sends, without and with tags.
#[test]
fn every_send_passes_the_arguments_of_the_call() {
    let test = TestEndpoint::open();
    let (msg, tagged, ..) = test.tables();
    let ep = test.ep();
    let mut many = Buffers::at(MANY);
    let (iov, descs) = (many.iov.as_ptr(), many.descs.as_mut_ptr());
    let (message, tagged_message) = many.messages();
    let flags = GIVEN | FI_REMOTE_CQ_DATA;
    // SAFETY: the endpoint is open, and the test's provider does not access the memory.
    let found = unsafe {
        [
            posted(&test, msg.send.unwrap()(ep, BUF, 16, DESC, PEER, CONTEXT)),
            posted(&test, msg.sendv.unwrap()(ep, iov, descs, 3, PEER, CONTEXT)),
            posted(&test, msg.sendmsg.unwrap()(ep, &message, GIVEN)),
            posted(&test, msg.inject.unwrap()(ep, BUF, 16, PEER)),
            posted(&test, msg.sendmsg.unwrap()(ep, &message, flags)),
            posted(
                &test,
                msg.senddata.unwrap()(ep, BUF, 16, DESC, DATA, PEER, CONTEXT),
            ),
            posted(&test, msg.injectdata.unwrap()(ep, BUF, 16, DATA, PEER)),
            posted(
                &test,
                tagged.send.unwrap()(ep, BUF, 16, DESC, PEER, TAG, CONTEXT),
            ),
            posted(
                &test,
                tagged.sendv.unwrap()(ep, iov, descs, 3, PEER, TAG, CONTEXT),
            ),
            posted(&test, tagged.sendmsg.unwrap()(ep, &tagged_message, GIVEN)),
            posted(&test, tagged.inject.unwrap()(ep, BUF, 16, PEER, TAG)),
            posted(&test, tagged.sendmsg.unwrap()(ep, &tagged_message, flags)),
            posted(
                &test,
                tagged.senddata.unwrap()(ep, BUF, 16, DESC, DATA, PEER, TAG, CONTEXT),
            ),
            posted(
                &test,
                tagged.injectdata.unwrap()(ep, BUF, 16, DATA, PEER, TAG),
            ),
        ]
    };
    let expected = [Tag::None, Tag::Value(TAG)].map(|tag| {
        let what = What::Send(tag);
        [
            request(what, &[&[ONE]], PLAIN),
            request(what, &[&two(MANY)], PLAIN),
            request(what, &[&two(MANY)], GIVEN | FI_COMPLETION),
            request(what, &[&[NO_DESC]], INJECT),
            request(what, &[&two(MANY)], GIVEN | FI_COMPLETION).with_data(),
            request(what, &[&[ONE]], PLAIN).with_data(),
            request(what, &[&[NO_DESC]], INJECT).with_data(),
        ]
    });
    assert_eq!(found, expected.as_flattened());
}

/// The forms of reads and writes.
#[test]
fn every_access_passes_the_arguments_of_the_call() {
    let test = TestEndpoint::open();
    let (.., rma, _) = test.tables();
    let ep = test.ep();
    let mut many = Buffers::at(MANY);
    let (iov, descs) = (many.iov.as_ptr(), many.descs.as_mut_ptr());
    let target = fi_rma_iov {
        addr: ADDR,
        len: 32,
        key: KEY,
    };
    let message = fi_msg_rma {
        msg_iov: iov,
        desc: descs,
        iov_count: 3,
        addr: PEER,
        rma_iov: &target,
        rma_iov_count: 1,
        context: CONTEXT,
        data: DATA,
    };
    let flags = GIVEN | FI_REMOTE_CQ_DATA;
    // SAFETY: the endpoint is open, and the test's provider does not access the memory.
    let found = unsafe {
        [
            posted(
                &test,
                rma.read.unwrap()(ep, BUF, 16, DESC, PEER, ADDR, KEY, CONTEXT),
            ),
            posted(
                &test,
                rma.readv.unwrap()(ep, iov, descs, 3, PEER, ADDR, KEY, CONTEXT),
            ),
            posted(&test, rma.readmsg.unwrap()(ep, &message, GIVEN)),
            posted(
                &test,
                rma.write.unwrap()(ep, BUF, 16, DESC, PEER, ADDR, KEY, CONTEXT),
            ),
            posted(
                &test,
                rma.writev.unwrap()(ep, iov, descs, 3, PEER, ADDR, KEY, CONTEXT),
            ),
            posted(&test, rma.writemsg.unwrap()(ep, &message, GIVEN)),
            posted(&test, rma.inject.unwrap()(ep, BUF, 16, PEER, ADDR, KEY)),
            posted(&test, rma.writemsg.unwrap()(ep, &message, flags)),
            posted(
                &test,
                rma.writedata.unwrap()(ep, BUF, 16, DESC, DATA, PEER, ADDR, KEY, CONTEXT),
            ),
            posted(
                &test,
                rma.injectdata.unwrap()(ep, BUF, 16, DATA, PEER, ADDR, KEY),
            ),
        ]
    };
    let [read, write] = [Access::Read, Access::Write].map(What::Access);
    let expected = [
        request(read, &[&[ONE]], PLAIN),
        request(read, &[&two(MANY)], PLAIN),
        request(read, &[&two(MANY)], GIVEN | FI_COMPLETION),
        request(write, &[&[ONE]], PLAIN),
        request(write, &[&two(MANY)], PLAIN),
        request(write, &[&two(MANY)], GIVEN | FI_COMPLETION),
        request(write, &[&[NO_DESC]], INJECT),
        request(write, &[&two(MANY)], GIVEN | FI_COMPLETION).with_data(),
        request(write, &[&[ONE]], PLAIN).with_data(),
        request(write, &[&[NO_DESC]], INJECT).with_data(),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_call_without_its_memory_or_message_is_refused() {
    let test = TestEndpoint::open();
    let (msg, tagged, rma, atomic) = test.tables();
    let (ep, none) = (test.ep(), null_mut());
    // SAFETY: the endpoint is open, and null pointers are refused and not dereferenced.
    let refused = unsafe {
        let atomic_of = |buf, datatype, op| {
            atomic.write.unwrap()(ep, buf, 1, none, PEER, ADDR, KEY, datatype, op, none)
        };
        [
            msg.sendv.unwrap()(ep, null(), none.cast(), 1, PEER, none),
            msg.recvmsg.unwrap()(ep, null(), 0),
            tagged.sendmsg.unwrap()(ep, null(), 0),
            rma.readmsg.unwrap()(ep, null(), 0),
            atomic.writemsg.unwrap()(ep, null(), 0),
            atomic_of(null_mut(), FI_UINT64, FI_SUM),
            // Operations that this form does not support.
            atomic_of(BUF, FI_UINT64, FI_CSWAP),
            atomic_of(BUF, u32::MAX, FI_SUM),
        ]
    };
    let [invalid, unsupported] = [Errno::EINVAL, Errno::EOPNOTSUPP].map(|it| it.to_c() as isize);
    assert_eq!(refused[..6], [invalid; 6]);
    assert_eq!(refused[6..], [unsupported; 2]);
    assert_eq!(test.take(), None);
}

#[test]
fn an_inject_beyond_the_inject_size_of_the_endpoint_is_refused() {
    let test = TestEndpoint::open();
    let (.., atomic) = test.tables();
    let ep = test.ep();
    let inject = |count| {
        // SAFETY: the endpoint is open, and the test's provider does not access the memory.
        unsafe { atomic.inject.unwrap()(ep, BUF, count, PEER, ADDR, KEY, FI_UINT8, FI_SUM) }
    };
    assert_eq!(inject(INJECT_SIZE), 0);
    assert!(test.take().is_some());
    assert_eq!(inject(INJECT_SIZE + 1), Errno::EINVAL.to_c() as isize);
    assert_eq!(test.take(), None);
}

/// A send, a receive, a read and an atomic update, with the kinds that they are of.
fn one_of_each_kind(test: &TestEndpoint) -> [(u64, isize); 4] {
    let (ep, none) = (test.ep(), null_mut());
    let (msg, tagged, rma, atomic) = test.tables();
    // SAFETY: the endpoint is open, and the test's provider does not access the memory.
    unsafe {
        let update = atomic.write.unwrap();
        [
            (FI_MSG, msg.send.unwrap()(ep, BUF, 8, none, PEER, none)),
            (
                FI_TAGGED,
                tagged.recv.unwrap()(ep, BUF, 8, none, PEER, TAG, IGNORE, none),
            ),
            (
                FI_RMA,
                rma.read.unwrap()(ep, BUF, 8, none, PEER, ADDR, KEY, none),
            ),
            (
                FI_ATOMIC,
                update(ep, BUF, 1, none, PEER, ADDR, KEY, FI_UINT64, FI_SUM, none),
            ),
        ]
    }
}

#[test]
fn an_endpoint_has_the_calls_that_its_provider_offers_whatever_it_was_opened_with() {
    let all = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    for asked in [
        all,
        FI_MSG,
        FI_RMA | FI_WRITE,
        FI_TAGGED | FI_SEND,
        FI_RECV,
        0,
    ] {
        for offered in [all, FI_MSG | FI_RMA, FI_MSG | FI_TAGGED] {
            let test = TestEndpoint::with_caps(asked, offered);
            for (kind, result) in one_of_each_kind(&test) {
                let expected = match offered & kind {
                    0 => Errno::ENOSYS.to_c() as isize,
                    _ => 0,
                };
                assert_eq!(result, expected, "{kind:#x} of {offered:#x}, {asked:#x}");
            }
        }
    }
}

/// fi_rma(3) does not define which length applies if they differ.
#[test]
fn the_shorter_side_of_an_uneven_access_decides() {
    let test = TestEndpoint::open();
    let (.., rma, _) = test.tables();
    let mut iov = [iovec {
        iov_base: BUF,
        iov_len: 16,
    }];
    let piece = |len, key| fi_rma_iov {
        addr: ADDR,
        len,
        key,
    };
    let mut access = |reads: bool, local: usize, remote: [fi_rma_iov; 2]| {
        iov[0].iov_len = local;
        let msg = fi_msg_rma {
            msg_iov: iov.as_ptr(),
            desc: null_mut(),
            iov_count: 1,
            addr: PEER,
            rma_iov: remote.as_ptr(),
            rma_iov_count: 2,
            context: CONTEXT,
            data: DATA,
        };
        let call = if reads { rma.readmsg } else { rma.writemsg };
        // SAFETY: the endpoint is open, the message is valid, and the test's provider does not
        // access the memory.
        let result = unsafe { call.unwrap()(test.ep(), &raw const msg, GIVEN) };
        let lengths = test.take().map(|request| {
            let local: usize = request.local[0].iter().map(|piece| piece.1).sum();
            let remote = request.remote.iter().map(|piece| (piece.key, piece.len));
            (local, remote.collect::<Vec<_>>())
        });
        (result, lengths)
    };
    let longer = [piece(12, 1), piece(12, 2)];
    let shorter = [piece(4, 1), piece(6, 2)];
    for reads in [true, false] {
        let cut = Some((16, vec![(1, 12), (2, 4)]));
        assert_eq!(access(reads, 16, longer), (0, cut));
        let cut = Some((8, vec![(1, 8)]));
        assert_eq!(access(reads, 8, longer), (0, cut));
    }
    let cut = Some((10, vec![(1, 4), (2, 6)]));
    assert_eq!(access(true, 16, shorter), (0, cut));
    let refused = Errno::EINVAL.to_c() as isize;
    assert_eq!(access(false, 16, shorter), (refused, None));
}
