//! The forms of atomic operations.

use super::*;

/// The forms of the three kinds of atomic operations, two elements or four.
#[test]
fn every_atomic_passes_the_arguments_of_the_call() {
    const COMPARE: Piece = (0x1100, 16, 0x1d0);
    const RESULT: Piece = (0x2100, 16, 0x2d0);
    let test = TestEndpoint::open();
    let (.., atomic) = test.tables();
    let ep = test.ep();
    let [(compare, compare_desc), (result, result_desc)] =
        [COMPARE, RESULT].map(|(base, _, desc)| (pointer(base), pointer(desc)));
    let [mut many, mut compares, mut results] =
        [MANY, MANY + 0x1000, MANY + 0x2000].map(Buffers::at);
    let (ioc, descs) = (many.ioc.as_ptr(), many.descs.as_mut_ptr());
    let (comparev, compare_descs) = (compares.ioc.as_ptr(), compares.descs.as_mut_ptr());
    let (resultv, result_descs) = (results.ioc.as_mut_ptr(), results.descs.as_mut_ptr());
    let target = fi_rma_ioc {
        addr: ADDR,
        count: 4,
        key: KEY,
    };
    let message = |op| fi_msg_atomic {
        msg_iov: ioc,
        desc: descs,
        iov_count: 3,
        addr: PEER,
        rma_iov: &target,
        rma_iov_count: 1,
        datatype: FI_UINT64,
        op,
        context: CONTEXT,
        data: DATA,
    };
    let flags = GIVEN | FI_REMOTE_CQ_DATA;
    // SAFETY: the endpoint is open, and the test's provider does not access the memory.
    let found = unsafe {
        [
            posted(
                &test,
                atomic.write.unwrap()(
                    ep, BUF, 2, DESC, PEER, ADDR, KEY, FI_UINT64, FI_SUM, CONTEXT,
                ),
            ),
            posted(
                &test,
                atomic.writev.unwrap()(
                    ep, ioc, descs, 3, PEER, ADDR, KEY, FI_UINT64, FI_SUM, CONTEXT,
                ),
            ),
            posted(&test, atomic.writemsg.unwrap()(ep, &message(FI_SUM), flags)),
            posted(
                &test,
                atomic.inject.unwrap()(ep, BUF, 2, PEER, ADDR, KEY, FI_UINT64, FI_SUM),
            ),
            posted(
                &test,
                atomic.readwrite.unwrap()(
                    ep,
                    BUF,
                    2,
                    DESC,
                    result,
                    result_desc,
                    PEER,
                    ADDR,
                    KEY,
                    FI_UINT64,
                    FI_SUM,
                    CONTEXT,
                ),
            ),
            posted(
                &test,
                atomic.readwritev.unwrap()(
                    ep,
                    ioc,
                    descs,
                    3,
                    resultv,
                    result_descs,
                    3,
                    PEER,
                    ADDR,
                    KEY,
                    FI_UINT64,
                    FI_SUM,
                    CONTEXT,
                ),
            ),
            posted(
                &test,
                atomic.readwritemsg.unwrap()(ep, &message(FI_SUM), resultv, result_descs, 3, flags),
            ),
            posted(
                &test,
                atomic.compwrite.unwrap()(
                    ep,
                    BUF,
                    2,
                    DESC,
                    compare,
                    compare_desc,
                    result,
                    result_desc,
                    PEER,
                    ADDR,
                    KEY,
                    FI_UINT64,
                    FI_CSWAP,
                    CONTEXT,
                ),
            ),
            posted(
                &test,
                atomic.compwritev.unwrap()(
                    ep,
                    ioc,
                    descs,
                    3,
                    comparev,
                    compare_descs,
                    3,
                    resultv,
                    result_descs,
                    3,
                    PEER,
                    ADDR,
                    KEY,
                    FI_UINT64,
                    FI_CSWAP,
                    CONTEXT,
                ),
            ),
            posted(
                &test,
                atomic.compwritemsg.unwrap()(
                    ep,
                    &message(FI_CSWAP),
                    comparev,
                    compare_descs,
                    3,
                    resultv,
                    result_descs,
                    3,
                    flags,
                ),
            ),
        ]
    };
    let [sum, swap] = [FI_SUM, FI_CSWAP].map(What::Atomic);
    let (operands, compares, results) = (two(MANY), two(MANY + 0x1000), two(MANY + 0x2000));
    let many: [&[Piece]; 3] = [&operands, &compares, &results];
    let message = GIVEN | FI_COMPLETION;
    let expected = [
        request(sum, &[&[ONE]], PLAIN),
        request(sum, &many[..1], PLAIN),
        request(sum, &many[..1], message).with_data(),
        request(sum, &[&[NO_DESC]], INJECT),
        request(sum, &[&[ONE], &[RESULT]], PLAIN),
        request(sum, &[many[0], many[2]], PLAIN),
        request(sum, &[many[0], many[2]], message).with_data(),
        request(swap, &[&[ONE], &[COMPARE], &[RESULT]], PLAIN),
        request(swap, &many, PLAIN),
        request(swap, &many, message).with_data(),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_atomic_read_needs_no_operands() {
    let test = TestEndpoint::open();
    let (.., atomic) = test.tables();
    let ep = test.ep();
    let mut results = Buffers::at(MANY);
    let (resultv, descs) = (results.ioc.as_mut_ptr(), results.descs.as_mut_ptr());
    // SAFETY: the endpoint is open, and the test's provider does not access the memory.
    let found = unsafe {
        let call = atomic.readwritev.unwrap();
        posted(
            &test,
            call(
                ep,
                null(),
                null_mut(),
                0,
                resultv,
                descs,
                3,
                PEER,
                ADDR,
                KEY,
                FI_UINT64,
                FI_ATOMIC_READ,
                CONTEXT,
            ),
        )
    };
    let what = What::Atomic(FI_ATOMIC_READ);
    assert_eq!(found, request(what, &[&[], &two(MANY)], PLAIN));
}
