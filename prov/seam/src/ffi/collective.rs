//! fi_collective(3): groups, and the operations of their members.
//!
//! An endpoint has them in one of two ways. A provider of collective operations implements
//! [`Endpoint::collective`] and [`Endpoint::join`]. Any other endpoint that is opened with
//! `FI_COLLECTIVE` forwards the calls to an endpoint of such a provider, which transfers over it
//! (`ep::offload`).

use std::ffi::{c_int, c_void};

use fabric_abi::*;

use super::av::AvSet;
use super::call::answer;
use super::ep::{EndpointObject, Request};
use super::group::{Group, Purpose};
use super::object::{AnyFid, Downcast, Handle};
use super::{deliver, missing, posted, status, tagged};
use crate::collective::{self, Collective, Join, Kind, MemberView, RESERVED_TAG, extents};
use crate::endpoint::Endpoint;
use prov_base::atomic_ops::{Datatype, Op};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_base::siphash::SipHash;
use prov_objects::av::Av;

/// Returns the table of an endpoint.
pub(super) fn table<E: Endpoint>(has_collectives: bool) -> *const fi_ops_collective {
    match has_collectives {
        true => Table::<E>::COLLECTIVE,
        false => &raw const missing::COLLECTIVE,
    }
}

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const COLLECTIVE: &'static fi_ops_collective = &fi_ops_collective {
        size: size_of::<fi_ops_collective>(),
        barrier: Some(barrier::<E>),
        broadcast: Some(broadcast::<E>),
        alltoall: Some(alltoall::<E>),
        allreduce: Some(allreduce::<E>),
        allgather: Some(allgather::<E>),
        reduce_scatter: Some(reduce_scatter::<E>),
        reduce: Some(reduce::<E>),
        scatter: Some(scatter::<E>),
        gather: Some(gather::<E>),
        msg: Some(msg::<E>),
        barrier2: Some(barrier2::<E>),
    };
}

/// Returns the table for tagged messages of an endpoint with collective operations: a receive of
/// the application matches no message of these operations, whatever tag bits it ignores.
pub(super) fn tagged_table<E: Endpoint>() -> *const fi_ops_tagged {
    Table::<E>::TAGGED
}

impl<E: Endpoint> Table<E> {
    const TAGGED: &'static fi_ops_tagged = &fi_ops_tagged {
        recv: Some(recv::<E>),
        recvv: Some(recvv::<E>),
        recvmsg: Some(recvmsg::<E>),
        ..*tagged::all::<E>()
    };
}

unsafe extern "C" fn recv<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    source: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let Some(recv) = tagged::all::<E>().recv else {
        return Errno::ENOSYS.to_c() as isize;
    };
    // SAFETY: the arguments are those of this function, for which the application keeps the same
    // contract.
    unsafe {
        recv(
            ep,
            buf,
            len,
            desc,
            source,
            tag,
            ignore & !RESERVED_TAG,
            context,
        )
    }
}

unsafe extern "C" fn recvv<E: Endpoint>(
    ep: *mut fid_ep,
    iov: *const libc::iovec,
    descs: *mut *mut c_void,
    count: usize,
    source: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let Some(recvv) = tagged::all::<E>().recvv else {
        return Errno::ENOSYS.to_c() as isize;
    };
    // SAFETY: the arguments are those of this function, for which the application keeps the same
    // contract.
    unsafe {
        recvv(
            ep,
            iov,
            descs,
            count,
            source,
            tag,
            ignore & !RESERVED_TAG,
            context,
        )
    }
}

unsafe extern "C" fn recvmsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg_tagged,
    flags: u64,
) -> isize {
    let Some(recvmsg) = tagged::all::<E>().recvmsg else {
        return Errno::ENOSYS.to_c() as isize;
    };
    // SAFETY: the arguments are those of this function, for which the application keeps the same
    // contract; the called function refuses a null pointer.
    unsafe {
        match msg.as_ref() {
            Some(msg) if flags & FI_PEER_TRANSFER == 0 => {
                let masked = fi_msg_tagged {
                    ignore: msg.ignore & !RESERVED_TAG,
                    ..*msg
                };
                recvmsg(ep, &raw const masked, flags)
            }
            _ => recvmsg(ep, msg, flags),
        }
    }
}

/// Creates the functions of the table: each forwards its arguments if a peer has the operations,
/// otherwise it executes its body.
macro_rules! operations {
    ($(fn $name:ident($this:ident; $($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            unsafe extern "C" fn $name<E: Endpoint>(
                ep: *mut fid_ep,
                $($argument: $type),*
            ) -> isize {
                // SAFETY: this function is only in the tables of endpoints of `E`; the application
                // passes an open one, and lends memory as the manual page demands until the
                // operation completes.
                answer(|| unsafe {
                    let $this = Handle::<EndpointObject<E>>::borrow(ep);
                    $this.to_move()?;
                    if let Some(peer) = $this.collectives() {
                        let peer = peer.ep();
                        let call = (*peer).collective.as_ref().and_then(|table| table.$name);
                        return Ok(call.ok_or(Errno::ENOSYS)?(peer, $($argument),*));
                    }
                    $body
                })
            }
        )*
    };
}

/// The common arguments of the calls.
struct Call {
    operation: fi_collective_op,
    group: fi_addr_t,
    root: Option<fi_addr_t>,
    datatype: fi_datatype,
    op: fi_op,
    flags: u64,
    context: *mut c_void,
}

/// The memory of a call.
enum Given {
    /// The start of the memory; each call has its own length argument.
    At(*const c_void, *mut c_void),
    /// Vectors, which contain their lengths.
    Vectors(Elements, Elements),
}

/// A vector of `fi_ioc`.
struct Elements {
    entries: *const fi_ioc,
    count: usize,
}

operations! {
    fn barrier(this; group: fi_addr_t, context: *mut c_void) {
        perform::<E>(this, 0, Given::NONE, Call::barrier(group, 0, context))
    }

    fn barrier2(this; group: fi_addr_t, flags: u64, context: *mut c_void) {
        perform::<E>(this, 0, Given::NONE, Call::barrier(group, flags, context))
    }

    fn broadcast(this;
        buf: *mut c_void, count: usize, desc: *mut c_void, group: fi_addr_t, root: fi_addr_t,
        datatype: fi_datatype, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_BROADCAST, root: Some(root), group, datatype, op: FI_NOOP, flags, context };
        perform::<E>(this, count, Given::At(std::ptr::null(), buf), call)
    }

    fn alltoall(this;
        buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        group: fi_addr_t, datatype: fi_datatype, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_ALLTOALL, root: None, group, datatype, op: FI_NOOP, flags, context };
        perform::<E>(this, count, Given::At(buf, result), call)
    }

    fn allreduce(this;
        buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        group: fi_addr_t, datatype: fi_datatype, op: fi_op, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_ALLREDUCE, root: None, group, datatype, op, flags, context };
        perform::<E>(this, count, Given::At(buf, result), call)
    }

    fn allgather(this;
        buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        group: fi_addr_t, datatype: fi_datatype, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_ALLGATHER, root: None, group, datatype, op: FI_NOOP, flags, context };
        perform::<E>(this, count, Given::At(buf, result), call)
    }

    fn reduce_scatter(this;
        buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        group: fi_addr_t, datatype: fi_datatype, op: fi_op, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_REDUCE_SCATTER, root: None, group, datatype, op, flags, context };
        perform::<E>(this, count, Given::At(buf, result), call)
    }

    fn reduce(this;
        buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        group: fi_addr_t, root: fi_addr_t, datatype: fi_datatype, op: fi_op, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_REDUCE, root: Some(root), group, datatype, op, flags, context };
        perform::<E>(this, count, Given::At(buf, result), call)
    }

    fn scatter(this;
        buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        group: fi_addr_t, root: fi_addr_t, datatype: fi_datatype, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_SCATTER, root: Some(root), group, datatype, op: FI_NOOP, flags, context };
        perform::<E>(this, count, Given::At(buf, result), call)
    }

    fn gather(this;
        buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
        group: fi_addr_t, root: fi_addr_t, datatype: fi_datatype, flags: u64, context: *mut c_void,
    ) {
        let call = Call { operation: FI_GATHER, root: Some(root), group, datatype, op: FI_NOOP, flags, context };
        perform::<E>(this, count, Given::At(buf, result), call)
    }

    fn msg(this;
        msg: *const fi_msg_collective, resultv: *mut fi_ioc, result_descs: *mut *mut c_void, result_count: usize,
        flags: u64,
    ) {
        let msg = msg.as_ref().ok_or(Errno::EINVAL)?;
        let input = Elements { entries: msg.msg_iov, count: msg.iov_count };
        let result = Elements { entries: resultv, count: result_count };
        let kind = Kind::of(msg.coll, 0).ok_or(Errno::EINVAL)?;
        let call = Call {
            operation: msg.coll,
            root: kind.has_root().then_some(msg.root_addr),
            group: msg.coll_addr,
            datatype: msg.datatype,
            op: msg.op,
            flags,
            context: msg.context,
        };
        // A broadcast has one buffer, which is in the message structure.
        let memory = match kind {
            Kind::Broadcast { .. } => Given::Vectors(Elements::NONE, input),
            _ => Given::Vectors(input, result),
        };
        perform_message::<E>(this, memory, call)
    }
}

impl Call {
    fn barrier(group: fi_addr_t, flags: u64, context: *mut c_void) -> Self {
        Call {
            operation: FI_BARRIER,
            root: None,
            group,
            datatype: FI_VOID,
            op: FI_NOOP,
            flags,
            context,
        }
    }

    /// Returns the member's view of the operation, with no elements counted, and the operation.
    fn view<E: Endpoint>(
        &self,
        ep: &E,
    ) -> Result<(Kind, MemberView, Option<Datatype>, Option<Op>)> {
        let found = ep.group(self.group, self.root)?;
        let kind = Kind::of(self.operation, found.root).ok_or(Errno::EINVAL)?;
        let answer = collective::takes(self.operation, self.op, self.datatype)?;
        let view = MemberView {
            rank: found.rank,
            members: found.members,
            count: 0,
            size: answer.size,
        };
        let op = kind.reduces().then(|| Op::from_number(self.op)).flatten();
        let datatype = (answer.size != 0).then(|| Datatype::from_number(self.datatype));
        Ok((kind, view, datatype.flatten(), op))
    }
}

impl Given {
    const NONE: Given = Given::At(std::ptr::null(), std::ptr::null_mut());
}

impl Elements {
    const NONE: Elements = Elements {
        entries: std::ptr::null(),
        count: 0,
    };

    /// Returns the memory, for elements of this size, and the number of elements.
    ///
    /// # Safety
    /// The entries are as many as it says, and name memory that the application lends.
    unsafe fn memory(&self, size: usize) -> Result<(AppIov, usize)> {
        // SAFETY: the caller guarantees that the vector has the stated number of entries, whose
        // memory the application lends.
        let local = unsafe { super::atomic::elements(self.entries, self.count, size) }?;
        let elements = local.len().checked_div(size).unwrap_or(0);
        Ok((local, elements))
    }
}

/// Returns the memory of `elements` elements at `base`.
///
/// # Safety
/// The application lends as many.
unsafe fn lent(base: *mut c_void, elements: usize, size: usize) -> Result<AppIov> {
    if elements != 0 && base.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller guarantees that the application lends this number of elements, whose size
    // in bytes `extents` has checked.
    Ok(unsafe { AppIov::from_raw(base.cast(), elements.saturating_mul(size)) })
}

/// # Safety
/// The application lends the memory until the operation completes.
unsafe fn perform<E: Endpoint>(
    this: &EndpointObject<E>,
    count: usize,
    memory: Given,
    call: Call,
) -> Result<isize> {
    let (kind, mut view, datatype, op) = call.view::<E>(this)?;
    view.count = count;
    let (reads, writes) = extents(kind, &view).ok_or(Errno::EINVAL)?;
    let Given::At(input, output) = memory else {
        return Err(Errno::EINVAL);
    };
    // SAFETY: the caller guarantees that the application lends the memory until the operation
    // completes.
    let (input, output) = unsafe {
        let input = lent(input.cast_mut(), reads, view.size)?;
        (input, lent(output, writes, view.size)?)
    };
    post(this, kind, count, (datatype, op), (input, output), &call)
}

/// # Safety
/// As for [`perform`].
unsafe fn perform_message<E: Endpoint>(
    this: &EndpointObject<E>,
    memory: Given,
    call: Call,
) -> Result<isize> {
    let (kind, mut view, datatype, op) = call.view::<E>(this)?;
    let Given::Vectors(input, output) = memory else {
        return Err(Errno::EINVAL);
    };
    // SAFETY: the caller guarantees that the vectors have the stated numbers of entries, whose
    // memory the application lends.
    let ((input, reads), (output, writes)) =
        unsafe { (input.memory(view.size)?, output.memory(view.size)?) };
    view.count = match kind {
        Kind::Barrier => 0,
        Kind::Broadcast { .. } | Kind::ReduceScatter | Kind::Scatter { .. } => writes,
        Kind::AllReduce | Kind::AllGather | Kind::Reduce { .. } | Kind::Gather { .. } => reads,
        Kind::AllToAll => reads / view.members,
    };
    let (least, room) = extents(kind, &view).ok_or(Errno::EINVAL)?;
    if reads < least || writes < room {
        return Err(Errno::EINVAL);
    }
    let input = input.into_slice(0, least * view.size);
    let output = output.into_slice(0, room * view.size);
    post(
        this,
        kind,
        view.count,
        (datatype, op),
        (input, output),
        &call,
    )
}

fn post<E: Endpoint>(
    this: &EndpointObject<E>,
    kind: Kind,
    count: usize,
    (datatype, op): (Option<Datatype>, Option<Op>),
    (input, output): (AppIov, AppIov),
    call: &Call,
) -> Result<isize> {
    // The peer's queue does not know which operations the application has selected, so the owner's
    // flags are passed.
    let mut collective = Collective {
        kind,
        group: call.group,
        count,
        datatype,
        op,
        input,
        output,
        flags: this.tx.with(call.flags),
        context: call.context,
    };
    Ok(posted(match this.fast_path() {
        Some(endpoint) => endpoint.collective(&mut collective),
        None => this.post_watchfully(Request::Collective(collective)),
    }))
}

/// Implements `fi_ops_cm::join`: fi_join_collective(3), and fi_join(3) of a multicast group.
///
/// # Safety
/// As fi_collective(3) and fi_cm(3) ask; `ep` is an open endpoint of `E`.
pub(super) unsafe extern "C" fn join<E: Endpoint>(
    ep: *mut fid_ep,
    address: *const c_void,
    flags: u64,
    group: *mut *mut fid_mc,
    context: *mut c_void,
) -> c_int {
    if flags & FI_COLLECTIVE == 0 {
        // SAFETY: the caller guarantees that the endpoint is open and that the other arguments are
        // as fi_cm(3) demands.
        return unsafe { super::multicast::join::<E>(ep, address, flags, group, context) };
    }
    // SAFETY: the caller guarantees that the arguments are valid; with this flag the address is a
    // `struct fi_collective_addr`.
    unsafe {
        let this = Handle::<EndpointObject<E>>::from_c(ep);
        if let Err(error) = this.to_move() {
            return error.to_c();
        }
        if let Some(peer) = this.collectives() {
            let peer = peer.ep();
            let call = (*peer).cm.as_ref().and_then(|table| table.join);
            return match call {
                Some(join) => join(peer, address, flags, group, context),
                None => Errno::ENOSYS.to_c(),
            };
        }
        let Some(address) = address.cast::<fi_collective_addr>().as_ref() else {
            return Errno::EINVAL.to_c();
        };
        let set = AnyFid::new(address.set.cast_mut().cast());
        let made = set.and_then(|set| set.expect::<AvSet>());
        deliver(group, made.and_then(|set| joined(&this, &set, context)))
    }
}

/// Room of callers for short forms of addresses, in bytes (`FI_NAME_MAX`).
const SHORT_NAME: usize = 64;

fn joined<E: Endpoint>(
    this: &Handle<EndpointObject<E>>,
    set: &AvSet,
    context: *mut c_void,
) -> Result<Handle<Group<E>>> {
    let members = set.members().clone();
    let own = this.name()?;
    // Some providers have a form for callers with little room, which may have been inserted.
    let short = this.short_name(SHORT_NAME);
    let av = set.av();
    let is_own = |number: &fi_addr_t| {
        let found = av.with_address(*number, |found| {
            let mut is_own = false;
            av.format().write(found, |bytes| {
                is_own = bytes == own || short.as_deref() == Some(bytes);
            });
            is_own
        });
        found == Some(true)
    };
    let rank = members.iter().position(is_own).ok_or(Errno::EINVAL)?;
    let is_established = !set.key().is_empty();
    let identity = identity(av, &members, set.key())?;
    let address = this.new_group();
    let group = Group {
        endpoint: this.clone(),
        address,
        purpose: Purpose::Collective,
    };
    let group = Handle::new(group, context, Vec::new());
    let join = Join {
        members,
        identity,
        rank,
        is_established,
        group: group.named(),
        context,
    };
    this.join(address, join)?;
    Ok(group)
}

/// Computes the identity of the group, which all members compute independently: a hash of its
/// addresses, in order (docs/collectives-wire.md). It is no secret.
fn identity(av: &Av, members: &[fi_addr_t], key: &[u8]) -> Result<u64> {
    let mut hash = SipHash::default();
    hash.write(key);
    for member in members {
        let found = av.with_address(*member, |found| {
            av.format().write(found, |bytes| hash.write(bytes));
        });
        found.ok_or(Errno::EINVAL)?;
    }
    Ok(hash.finish())
}

/// Implements fi_query_collective(3), for a domain with or without collective operations.
///
/// # Safety
/// `attr` is null or a `struct fi_collective_attr`.
pub(super) unsafe fn query(
    has_collectives: bool,
    operation: fi_collective_op,
    attr: *mut fi_collective_attr,
) -> c_int {
    if !has_collectives {
        return Errno::EOPNOTSUPP.to_c();
    }
    // SAFETY: the caller guarantees that `attr` is null or valid.
    let Some(attr) = (unsafe { attr.as_mut() }) else {
        return Errno::EINVAL.to_c();
    };
    if attr.mode != 0 {
        return Errno::EINVAL.to_c();
    }
    status(
        collective::query(operation, attr.op, attr.datatype).map(|answer| {
            attr.datatype_attr.count = answer.count;
            attr.datatype_attr.size = answer.size;
            attr.max_members = answer.members;
        }),
    )
}
