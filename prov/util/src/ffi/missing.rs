//! The functions of table slots that an object does not offer: each returns
//! `-FI_ENOSYS`, so that no slot is ever NULL.

use std::ffi::{c_char, c_int, c_void};

use fabric_abi::*;

const ENOSYS: c_int = -libc::ENOSYS;

macro_rules! missing {
    ($($(#[$doc:meta])* $name:ident($($arg:ty),*) -> $ret:ty;)*) => {
        $(
            $(#[$doc])*
            #[allow(clippy::too_many_arguments)]
            pub extern "C" fn $name($(_: $arg),*) -> $ret {
                ENOSYS as $ret
            }
        )*
    };
}

missing! {
    /// `fi_ops::tostr`
    tostr(*const fid, *mut c_char, usize) -> c_int;
    /// `fi_ops::ops_set`
    ops_set(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int;
    /// `fi_ops_ep::tx_ctx`
    tx_ctx(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    /// `fi_ops_ep::rx_ctx`
    rx_ctx(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    /// `fi_ops_ep::export_xpu`
    export_xpu(*mut fid_ep, u64, *mut fid_xpu_ep) -> c_int;
    /// `fi_ops_ep::cancel`
    ep_cancel(fid_t, *mut c_void) -> isize;
    /// `fi_ops_ep::setopt`
    ep_setopt(fid_t, c_int, c_int, *const c_void, usize) -> c_int;
    /// `fi_ops_ep::rx_size_left`
    ep_rx_size_left(*mut fid_ep) -> isize;
    /// `fi_ops_ep::tx_size_left`
    ep_tx_size_left(*mut fid_ep) -> isize;
    /// `fi_ops_cm::setname`
    setname(fid_t, *mut c_void, usize) -> c_int;
    /// `fi_ops_cm::getname`
    getname(fid_t, *mut c_void, *mut usize) -> c_int;
    /// `fi_ops_cm::getpeer`
    getpeer(*mut fid_ep, *mut c_void, *mut usize) -> c_int;
    /// `fi_ops_cm::connect`
    connect(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int;
    /// `fi_ops_cm::listen`
    listen(*mut fid_pep) -> c_int;
    /// `fi_ops_cm::accept`
    accept(*mut fid_ep, *const c_void, usize) -> c_int;
    /// `fi_ops_cm::reject`
    reject(*mut fid_pep, fid_t, *const c_void, usize) -> c_int;
    /// `fi_ops_cm::shutdown`
    shutdown(*mut fid_ep, u64) -> c_int;
    /// `fi_ops_cm::join`
    join(*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int;
    /// `fi_ops_msg::recv`
    msg_recv(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize;
    /// `fi_ops_msg::recvv`
    msg_recvv(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void) -> isize;
    /// `fi_ops_msg::recvmsg`
    msg_recvmsg(*mut fid_ep, *const fi_msg, u64) -> isize;
    /// `fi_ops_tagged::recv`
    tagged_recv(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
    /// `fi_ops_tagged::recvv`
    tagged_recvv(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> isize;
    /// `fi_ops_tagged::recvmsg`
    tagged_recvmsg(*mut fid_ep, *const fi_msg_tagged, u64) -> isize;
    /// `fi_ops_msg::send`
    msg_send(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize;
    /// `fi_ops_msg::sendv`
    msg_sendv(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void) -> isize;
    /// `fi_ops_msg::sendmsg`
    msg_sendmsg(*mut fid_ep, *const fi_msg, u64) -> isize;
    /// `fi_ops_msg::inject`
    msg_inject(*mut fid_ep, *const c_void, usize, fi_addr_t) -> isize;
    /// `fi_ops_msg::senddata`
    msg_senddata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, *mut c_void) -> isize;
    /// `fi_ops_msg::injectdata`
    msg_injectdata(*mut fid_ep, *const c_void, usize, u64, fi_addr_t) -> isize;
    /// `fi_ops_tagged::send`
    tagged_send(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, *mut c_void) -> isize;
    /// `fi_ops_tagged::sendv`
    tagged_sendv(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, *mut c_void) -> isize;
    /// `fi_ops_tagged::sendmsg`
    tagged_sendmsg(*mut fid_ep, *const fi_msg_tagged, u64) -> isize;
    /// `fi_ops_tagged::inject`
    tagged_inject(*mut fid_ep, *const c_void, usize, fi_addr_t, u64) -> isize;
    /// `fi_ops_tagged::senddata`
    tagged_senddata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, *mut c_void) -> isize;
    /// `fi_ops_tagged::injectdata`
    tagged_injectdata(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64) -> isize;
    /// `fi_ops_rma::read`
    rma_read(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
    /// `fi_ops_rma::readv`
    rma_readv(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> isize;
    /// `fi_ops_rma::readmsg`
    rma_readmsg(*mut fid_ep, *const fi_msg_rma, u64) -> isize;
    /// `fi_ops_rma::write`
    rma_write(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
    /// `fi_ops_rma::writev`
    rma_writev(*mut fid_ep, *const libc::iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> isize;
    /// `fi_ops_rma::writemsg`
    rma_writemsg(*mut fid_ep, *const fi_msg_rma, u64) -> isize;
    /// `fi_ops_rma::inject`
    rma_inject(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64) -> isize;
    /// `fi_ops_rma::writedata`
    rma_writedata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, u64, *mut c_void) -> isize;
    /// `fi_ops_rma::injectdata`
    rma_injectdata(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> isize;
    /// `fi_ops_atomic::write`
    atomic_write(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void) -> isize;
    /// `fi_ops_atomic::writev`
    atomic_writev(*mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void) -> isize;
    /// `fi_ops_atomic::writemsg`
    atomic_writemsg(*mut fid_ep, *const fi_msg_atomic, u64) -> isize;
    /// `fi_ops_atomic::inject`
    atomic_inject(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64, fi_datatype, fi_op) -> isize;
    /// `fi_ops_atomic::readwrite`
    atomic_readwrite(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void) -> isize;
    /// `fi_ops_atomic::readwritev`
    atomic_readwritev(*mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void) -> isize;
    /// `fi_ops_atomic::readwritemsg`
    atomic_readwritemsg(*mut fid_ep, *const fi_msg_atomic, *mut fi_ioc, *mut *mut c_void, usize, u64) -> isize;
    /// `fi_ops_atomic::compwrite`
    atomic_compwrite(*mut fid_ep, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void) -> isize;
    /// `fi_ops_atomic::compwritev`
    atomic_compwritev(*mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64, u64, fi_datatype, fi_op, *mut c_void) -> isize;
    /// `fi_ops_atomic::compwritemsg`
    atomic_compwritemsg(*mut fid_ep, *const fi_msg_atomic, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, u64) -> isize;
    /// `fi_ops_atomic::writevalid`
    atomic_writevalid(*mut fid_ep, fi_datatype, fi_op, *mut usize) -> c_int;
    /// `fi_ops_atomic::readwritevalid`
    atomic_readwritevalid(*mut fid_ep, fi_datatype, fi_op, *mut usize) -> c_int;
    /// `fi_ops_atomic::compwritevalid`
    atomic_compwritevalid(*mut fid_ep, fi_datatype, fi_op, *mut usize) -> c_int;
    /// `fi_ops_collective::barrier`
    collective_barrier(*mut fid_ep, fi_addr_t, *mut c_void) -> isize;
    /// `fi_ops_collective::broadcast`
    collective_broadcast(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, fi_addr_t, fi_datatype, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::alltoall`
    collective_alltoall(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_datatype, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::allreduce`
    collective_allreduce(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_datatype, fi_op, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::allgather`
    collective_allgather(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_datatype, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::reduce_scatter`
    collective_reduce_scatter(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_datatype, fi_op, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::reduce`
    collective_reduce(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, fi_datatype, fi_op, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::scatter`
    collective_scatter(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, fi_datatype, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::gather`
    collective_gather(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, fi_datatype, u64, *mut c_void) -> isize;
    /// `fi_ops_collective::msg`
    collective_msg(*mut fid_ep, *const fi_msg_collective, *mut fi_ioc, *mut *mut c_void, usize, u64) -> isize;
    /// `fi_ops_collective::barrier2`
    collective_barrier2(*mut fid_ep, fi_addr_t, u64, *mut c_void) -> isize;
    /// `fi_ops_domain::scalable_ep`
    domain_scalable_ep(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
    /// `fi_ops_domain::stx_ctx`
    domain_stx_ctx(*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int;
    /// `fi_ops_domain::query_collective`
    domain_query_collective(*mut fid_domain, fi_collective_op, *mut fi_collective_attr, u64) -> c_int;
    /// `fi_ops_domain::xpu_ctx`
    domain_xpu_ctx(*mut fid_domain, *mut fi_xpu_attr, *mut *mut fid_xpu_ctx, *mut c_void) -> c_int;
    /// `fi_ops_fabric::domain`
    fabric_domain(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int;
    /// `fi_ops_fabric::passive_ep`
    fabric_passive_ep(*mut fid_fabric, *mut fi_info, *mut *mut fid_pep, *mut c_void) -> c_int;
    /// `fi_ops_fabric::eq_open`
    fabric_eq_open(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int;
    /// `fi_ops_fabric::wait_open`
    fabric_wait_open(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int;
    /// `fi_ops_fabric::trywait`
    fabric_trywait(*mut fid_fabric, *mut *mut fid, c_int) -> c_int;
    /// `fi_ops_fabric::domain2`
    fabric_domain2(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void) -> c_int;
}

/// A `fi_ops_cm` without a function.
pub static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(getpeer),
    connect: Some(connect),
    listen: Some(listen),
    accept: Some(accept),
    reject: Some(reject),
    shutdown: Some(shutdown),
    join: Some(join),
};

/// A `fi_ops_msg` without a function.
pub static MSG: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(msg_recv),
    recvv: Some(msg_recvv),
    recvmsg: Some(msg_recvmsg),
    send: Some(msg_send),
    sendv: Some(msg_sendv),
    sendmsg: Some(msg_sendmsg),
    inject: Some(msg_inject),
    senddata: Some(msg_senddata),
    injectdata: Some(msg_injectdata),
};

/// A `fi_ops_tagged` without a function.
pub static TAGGED: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: Some(tagged_recv),
    recvv: Some(tagged_recvv),
    recvmsg: Some(tagged_recvmsg),
    send: Some(tagged_send),
    sendv: Some(tagged_sendv),
    sendmsg: Some(tagged_sendmsg),
    inject: Some(tagged_inject),
    senddata: Some(tagged_senddata),
    injectdata: Some(tagged_injectdata),
};

/// A `fi_ops_rma` without a function.
pub static RMA: fi_ops_rma = RMA_FUNCTIONS;

/// Its functions.
pub const RMA_FUNCTIONS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(rma_read),
    readv: Some(rma_readv),
    readmsg: Some(rma_readmsg),
    write: Some(rma_write),
    writev: Some(rma_writev),
    writemsg: Some(rma_writemsg),
    inject: Some(rma_inject),
    writedata: Some(rma_writedata),
    injectdata: Some(rma_injectdata),
};

/// A `fi_ops_atomic` without a function.
pub static ATOMIC: fi_ops_atomic = ATOMIC_FUNCTIONS;

/// Its functions.
pub const ATOMIC_FUNCTIONS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(atomic_write),
    writev: Some(atomic_writev),
    writemsg: Some(atomic_writemsg),
    inject: Some(atomic_inject),
    readwrite: Some(atomic_readwrite),
    readwritev: Some(atomic_readwritev),
    readwritemsg: Some(atomic_readwritemsg),
    compwrite: Some(atomic_compwrite),
    compwritev: Some(atomic_compwritev),
    compwritemsg: Some(atomic_compwritemsg),
    writevalid: Some(atomic_writevalid),
    readwritevalid: Some(atomic_readwritevalid),
    compwritevalid: Some(atomic_compwritevalid),
};

/// A `fi_ops_collective` without a function.
pub static COLLECTIVE: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier: Some(collective_barrier),
    broadcast: Some(collective_broadcast),
    alltoall: Some(collective_alltoall),
    allreduce: Some(collective_allreduce),
    allgather: Some(collective_allgather),
    reduce_scatter: Some(collective_reduce_scatter),
    reduce: Some(collective_reduce),
    scatter: Some(collective_scatter),
    gather: Some(collective_gather),
    msg: Some(collective_msg),
    barrier2: Some(collective_barrier2),
};
