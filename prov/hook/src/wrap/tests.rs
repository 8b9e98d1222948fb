use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use fabric_abi::*;

use super::*;
use crate::stand_in;

/// A provider below: one object of each class, and what it was last called with.
struct Lower {
    fabric: fid_fabric,
    domain: fid_domain,
    ep: fid_ep,
    eq: fid_eq,
    cq: fid_cq,
    cntr: fid_cntr,
    mr: fid_mr,
    wait: fid_wait,
    /// The queue that a shared event queue writes to.
    relay: *mut fid_eq,
    /// Arguments of the last call, addresses and numbers.
    seen: Vec<usize>,
}

/// The state of the test that runs.
static LOWER: Mutex<usize> = Mutex::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn see(arguments: &[usize]) {
    lower().seen = arguments.to_vec();
}

fn lower() -> &'static mut Lower {
    let place = *LOWER.lock().unwrap();
    // SAFETY: the test that runs has put it there, and no other one runs.
    unsafe { &mut *std::ptr::with_exposed_provenance_mut::<Lower>(place) }
}

extern "C" fn close(object: *mut fid) -> c_int {
    see(&[object.addr()]);
    0
}

extern "C" fn bind(object: *mut fid, other: *mut fid, flags: u64) -> c_int {
    see(&[object.addr(), other.addr(), flags as usize]);
    lower().mr.key = 77;
    0
}

extern "C" fn control(object: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    see(&[object.addr(), command as usize, argument.addr()]);
    0
}

static OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: Some(close),
    bind: Some(bind),
    control: Some(control),
    ops_open: None,
    tostr: None,
    ops_set: None,
};

macro_rules! opens {
    ($name:ident($parent:ty, $attr:ty) -> $object:ty = $member:ident) => {
        extern "C" fn $name(
            parent: *mut $parent,
            attr: *mut $attr,
            place: *mut *mut $object,
            context: *mut c_void,
        ) -> c_int {
            see(&[parent.addr(), attr.addr(), context.addr()]);
            let object = &raw mut lower().$member;
            // SAFETY: the wrapper has passed a place.
            unsafe {
                (*object).fid.context = context;
                place.write(object);
            }
            0
        }
    };
}

opens!(domain(fid_fabric, fi_info) -> fid_domain = domain);
extern "C" fn eq_open(
    _fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    place: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the tests give attributes, the wrapper has passed a place, and the context is that of
    // a shared queue where the flags say so.
    unsafe {
        if (*attr).flags & FI_PEER != 0 {
            lower().relay = (*context.cast::<fi_peer_eq_context>()).eq;
        }
        lower().eq.fid.context = context;
        place.write(&raw mut lower().eq);
    }
    0
}

opens!(cntr_open(fid_domain, fi_cntr_attr) -> fid_cntr = cntr);
opens!(endpoint(fid_domain, fi_info) -> fid_ep = ep);

extern "C" fn cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    place: *mut *mut fid_cq,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: the tests give attributes, and the wrapper has passed a place.
    unsafe {
        see(&[domain.addr(), (*attr).wait_set.addr()]);
        (*attr).size = 128;
        place.write(&raw mut lower().cq);
    }
    0
}

extern "C" fn wait_open(
    _fabric: *mut fid_fabric,
    _attr: *mut fi_wait_attr,
    place: *mut *mut fid_wait,
) -> c_int {
    // SAFETY: the wrapper has passed a place.
    unsafe { place.write(&raw mut lower().wait) };
    0
}

extern "C" fn trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    // SAFETY: the array has so many objects.
    let objects = (0..count as usize).map(|at| unsafe { *fids.add(at) }.addr());
    see(&std::iter::once(fabric.addr())
        .chain(objects)
        .collect::<Vec<_>>());
    0
}

extern "C" fn mr_regattr(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    _flags: u64,
    place: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the tests give attributes, and the wrapper has passed a place.
    unsafe {
        see(&[domain.addr(), (*attr).base_mr.addr()]);
        lower().mr.key = 5;
        place.write(&raw mut lower().mr);
    }
    0
}

extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    see(&[ep.addr(), msg.addr(), flags as usize]);
    0
}

extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    address: u64,
    context: *mut c_void,
) -> isize {
    see(&[
        ep.addr(),
        buf.addr(),
        len,
        desc.addr(),
        address as usize,
        context.addr(),
    ]);
    0
}

extern "C" fn eq_read(
    _eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    _len: usize,
    _flags: u64,
) -> isize {
    // SAFETY: the tests give room.
    unsafe {
        event.write(FI_CONNECTED);
        buf.cast::<*mut fid>().write((&raw mut lower().ep).cast());
    }
    size_of::<fi_eq_cm_entry>() as isize
}

extern "C" fn cq_sread(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    see(&[cq.addr(), buf.addr(), count, timeout as usize]);
    // SAFETY: the tests give room for two entries.
    unsafe {
        for at in 0..2 {
            buf.cast::<fi_cq_msg_entry>()
                .add(at)
                .write(fi_cq_msg_entry {
                    op_context: std::ptr::without_provenance_mut(at + 1),
                    flags: FI_RECV,
                    len: 10 * (at + 1),
                });
        }
    }
    2
}

/// Tables whose other slots are null.
fn table<T>(fill: impl FnOnce(&mut T)) -> *mut T {
    // SAFETY: tables of function pointers may be zero.
    let mut table: Box<T> = Box::new(unsafe { zeroed() });
    fill(&mut table);
    Box::into_raw(table)
}

/// What the hook of the tests has seen.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Watch;

impl Hook for Watch {
    const NAME: &'static CStr = c"watch";
    const KEEPS_CLOSED: bool = true;

    fn install(_below: Below) -> Result<Self> {
        Ok(Watch)
    }

    fn before(&self, call: &Call<'_>) -> u64 {
        call.operation() as u64 + 1
    }

    fn after(&self, call: &Call<'_>, before: u64, result: i64) {
        assert_eq!(before, call.operation() as u64 + 1);
        let name = call.operation().name();
        let mut seen = SEEN.lock().unwrap();
        seen.push(format!("{name} {result} {}", call.bytes()));
        for completion in call.completions(result) {
            seen.push(format!(
                "completion {} {}",
                completion.context, completion.len
            ));
        }
    }

    fn after_close(&self, call: &Call<'_>) {
        let name = call.operation().name();
        SEEN.lock().unwrap().push(format!("{name} after close"));
    }

    fn finish(&self) {
        SEEN.lock().unwrap().push("finish".into());
    }
}

fn seen() -> Vec<String> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

/// A fabric of the provider below with the hook over it, for one test.
struct Bed {
    lower: *mut Lower,
    fabric: *mut fid_fabric,
    tables: Vec<Box<dyn FnOnce()>>,
    _alone: std::sync::MutexGuard<'static, ()>,
}

impl Bed {
    fn new() -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tables: Vec<Box<dyn FnOnce()>> = Vec::new();
        macro_rules! make {
            ($type:ty, |$table:ident| $fill:expr) => {{
                let made = table::<$type>(|$table| {
                    $table.size = size_of::<$type>();
                    $fill
                });
                // SAFETY: `table` made it, and it is given back once, at the end.
                tables.push(Box::new(move || drop(unsafe { Box::from_raw(made) })));
                made
            }};
        }
        // SAFETY: the objects may be zero.
        let mut lower: Box<Lower> = Box::new(Lower {
            seen: Vec::new(),
            ..unsafe { zeroed_objects() }
        });
        let ops = from_ref(&OPS).cast_mut();
        lower.fabric.fid = fid_of(FI_CLASS_FABRIC, ops);
        lower.fabric.ops = make!(fi_ops_fabric, |table| {
            table.domain = Some(domain);
            table.eq_open = Some(eq_open);
            table.wait_open = Some(wait_open);
            table.trywait = Some(trywait);
        });
        lower.domain.fid = fid_of(FI_CLASS_DOMAIN, ops);
        lower.domain.ops = make!(fi_ops_domain, |table| {
            table.endpoint = Some(endpoint);
            table.cq_open = Some(cq_open);
            table.cntr_open = Some(cntr_open);
        });
        lower.domain.mr = make!(fi_ops_mr, |table| table.regattr = Some(mr_regattr));
        lower.ep.fid = fid_of(FI_CLASS_EP, ops);
        lower.ep.msg = make!(fi_ops_msg, |table| {
            table.sendmsg = Some(sendmsg);
            table.send = Some(send);
        });
        lower.eq.fid = fid_of(FI_CLASS_EQ, ops);
        lower.eq.ops = make!(fi_ops_eq, |table| table.read = Some(eq_read));
        lower.cq.fid = fid_of(FI_CLASS_CQ, ops);
        lower.cq.ops = make!(fi_ops_cq, |table| table.sread = Some(cq_sread));
        // A table of an older interface: it ends before `wait`.
        lower.cntr.fid = fid_of(FI_CLASS_CNTR, ops);
        lower.cntr.ops = make!(fi_ops_cntr, |table| {
            table.size = std::mem::offset_of!(fi_ops_cntr, wait);
        });
        lower.mr.fid = fid_of(FI_CLASS_MR, ops);
        lower.wait.fid = fid_of(FI_CLASS_WAIT, ops);
        let lower = Box::into_raw(lower);
        *LOWER.lock().unwrap() = lower.expose_provenance();
        let provider = Entry::of::<Watch>();
        // SAFETY: attributes may be zero but for the fabric, and the provider outlives the call.
        let fabric = unsafe {
            let mut attr: fi_fabric_attr = zeroed();
            attr.fabric = &raw mut (*lower).fabric;
            let mut fabric = null_mut();
            let open = (*provider.as_c()).fabric.unwrap();
            assert_eq!(open(&mut attr, &mut fabric, provider.as_c().cast()), 0);
            fabric
        };
        seen();
        stand_in::logged();
        Bed {
            lower,
            fabric,
            tables,
            _alone: alone,
        }
    }

    /// Opens a domain.
    fn domain(&self) -> *mut fid_domain {
        let mut domain = null_mut();
        // SAFETY: the fabric is open.
        let opened = unsafe {
            let open = (*(*self.fabric).ops).domain.unwrap();
            open(self.fabric, null_mut(), &mut domain, null_mut())
        };
        assert_eq!(opened, 0);
        domain
    }

    fn endpoint(&self, domain: *mut fid_domain, context: usize) -> *mut fid_ep {
        let mut ep = null_mut();
        // SAFETY: the domain is open.
        let opened = unsafe {
            let open = (*(*domain).ops).endpoint.unwrap();
            let context = std::ptr::without_provenance_mut(context);
            open(domain, null_mut(), &mut ep, context)
        };
        assert_eq!(opened, 0);
        ep
    }

    fn cntr(&self, domain: *mut fid_domain) -> *mut fid_cntr {
        let mut cntr = null_mut();
        // SAFETY: the domain is open.
        let opened = unsafe {
            let open = (*(*domain).ops).cntr_open.unwrap();
            open(domain, null_mut(), &mut cntr, null_mut())
        };
        assert_eq!(opened, 0);
        cntr
    }

    fn seen_below(&self) -> Vec<usize> {
        lower().seen.clone()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        close_it(self.fabric.cast());
        for table in self.tables.drain(..) {
            table();
        }
        // SAFETY: made in `new`.
        drop(unsafe { Box::from_raw(self.lower) });
    }
}

/// # Safety
/// The objects consist of numbers and pointers.
unsafe fn zeroed_objects() -> Lower {
    // SAFETY: the caller's promise; an empty vector is made in its place.
    unsafe {
        Lower {
            fabric: zeroed(),
            domain: zeroed(),
            ep: zeroed(),
            eq: zeroed(),
            cq: zeroed(),
            cntr: zeroed(),
            mr: zeroed(),
            wait: zeroed(),
            relay: null_mut(),
            seen: Vec::new(),
        }
    }
}

fn fid_of(fclass: usize, ops: *mut fi_ops) -> fid {
    fid {
        fclass,
        context: null_mut(),
        ops,
    }
}

fn close_it(object: *mut fid) -> c_int {
    // SAFETY: the object is wrapped; a closed one is kept by the hook.
    unsafe { (*(*object).ops).close.unwrap()(object) }
}

/// Addresses of objects below.
macro_rules! below_of {
    ($member:ident) => {
        (&raw const lower().$member).addr()
    };
}

#[test]
fn an_object_has_the_class_and_the_context_of_the_one_below_and_a_call_reaches_that() {
    let bed = Bed::new();
    let domain = bed.domain();
    let ep = bed.endpoint(domain, 0xabc);
    assert_eq!(bed.seen_below()[0], below_of!(domain));
    // SAFETY: the endpoint is open.
    unsafe {
        assert_eq!(
            ((*ep).fid.fclass, (*ep).fid.context.addr()),
            (FI_CLASS_EP, 0xabc)
        );
        let send = (*(*ep).msg).send.unwrap();
        let buf = [0u8; 3];
        let context = std::ptr::without_provenance_mut(9);
        assert_eq!(send(ep, buf.as_ptr().cast(), 3, null_mut(), 4, context), 0);
        assert_eq!(
            bed.seen_below(),
            [below_of!(ep), buf.as_ptr().addr(), 3, 0, 4, 9]
        );
    }
    assert_eq!(seen(), ["fi_domain 0 0", "fi_endpoint 0 0", "fi_send 0 3"]);
    close_it(ep.cast());
    close_it(domain.cast());
}

#[test]
fn a_function_that_the_provider_lacks_returns_enosys() {
    let bed = Bed::new();
    let domain = bed.domain();
    let cntr = bed.cntr(domain);
    let ep = bed.endpoint(domain, 0);
    // SAFETY: the objects are open.
    unsafe {
        // The slot is null, the table is older, the table is missing.
        assert_eq!((*(*cntr).ops).add.unwrap()(cntr, 1), -libc::ENOSYS);
        assert_eq!((*(*cntr).ops).wait.unwrap()(cntr, 1, 0), -libc::ENOSYS);
        assert_eq!((*(*cntr).ops).read.unwrap()(cntr), 0);
        let barrier = (*(*ep).collective).barrier.unwrap();
        assert_eq!(barrier(ep, 0, null_mut()), -libc::ENOSYS as isize);
    }
    for object in [ep.cast(), cntr.cast(), domain.cast()] {
        close_it(object);
    }
}

#[test]
fn objects_among_the_arguments_are_those_below() {
    let bed = Bed::new();
    let domain = bed.domain();
    let cntr = bed.cntr(domain);
    let ep = bed.endpoint(domain, 0);
    // SAFETY: the objects are open.
    unsafe {
        let bind = (*(*ep).fid.ops).bind.unwrap();
        assert_eq!(bind(ep.cast(), cntr.cast(), FI_SEND), 0);
        assert_eq!(
            bed.seen_below(),
            [below_of!(ep), below_of!(cntr), FI_SEND as usize]
        );
        // An object that is not wrapped is passed as it is.
        let mut foreign: fid_av = zeroed();
        assert_eq!(bind(ep.cast(), (&raw mut foreign).cast(), 0), 0);
        assert_eq!(bed.seen_below()[1], (&raw const foreign).addr());

        let mut both: [*mut fid; 40] = [ep.cast(); 40];
        both[39] = cntr.cast();
        let trywait = (*(*bed.fabric).ops).trywait.unwrap();
        assert_eq!(trywait(bed.fabric, both.as_mut_ptr(), 40), 0);
        // The last part of the array.
        assert_eq!(bed.seen_below().last(), Some(&below_of!(cntr)));
        assert_eq!(bed.seen_below()[0], below_of!(fabric));
    }
    for object in [ep.cast(), cntr.cast(), domain.cast()] {
        close_it(object);
    }
}

#[test]
fn a_wait_set_in_attributes_is_the_one_below_and_answers_come_back() {
    let bed = Bed::new();
    let domain = bed.domain();
    let mut wait = null_mut();
    let mut cq = null_mut();
    // SAFETY: the objects are open.
    unsafe {
        let mut wait_attr: fi_wait_attr = zeroed();
        let open = (*(*bed.fabric).ops).wait_open.unwrap();
        assert_eq!(open(bed.fabric, &mut wait_attr, &mut wait), 0);
        let mut attr: fi_cq_attr = zeroed();
        attr.wait_obj = FI_WAIT_SET;
        attr.wait_set = wait;
        let open = (*(*domain).ops).cq_open.unwrap();
        assert_eq!(open(domain, &mut attr, &mut cq, null_mut()), 0);
        assert_eq!(bed.seen_below(), [below_of!(domain), below_of!(wait)]);
        assert_eq!((attr.wait_set, attr.size), (wait, 128));
    }
    for object in [cq.cast(), wait.cast(), domain.cast()] {
        close_it(object);
    }
}

#[test]
fn a_context_of_an_accelerator_in_attributes_is_the_one_below() {
    use super::argument::Argument;
    let bed = Bed::new();
    let domain = bed.domain();
    let cntr = bed.cntr(domain);
    // SAFETY: the attributes are valid, and any wrapped object stands for a context.
    unsafe {
        let mut attr: fi_cntr_attr = zeroed();
        attr.xpu_ctx = cntr.cast();
        attr.flags = FI_XPU;
        let mut room = None;
        let lowered = (&raw mut attr).lowered(&mut room);
        assert_eq!((*lowered).xpu_ctx.addr(), below_of!(cntr));
        assert_eq!(attr.xpu_ctx, cntr.cast());
        // Without the flag the member means nothing.
        attr.flags = 0;
        attr.xpu_ctx = std::ptr::without_provenance_mut(1);
        let place = &raw mut attr;
        assert_eq!(place.lowered(&mut room), place);
    }
    for object in [cntr.cast(), domain.cast()] {
        close_it(object);
    }
}

#[test]
fn a_thread_that_sleeps_in_the_provider_gets_its_completions_and_the_hook_sees_them() {
    let bed = Bed::new();
    let domain = bed.domain();
    let mut cq = null_mut();
    // SAFETY: the objects are open, and the buffer has room for two entries.
    unsafe {
        let mut attr: fi_cq_attr = zeroed();
        attr.format = FI_CQ_FORMAT_MSG;
        let open = (*(*domain).ops).cq_open.unwrap();
        assert_eq!(open(domain, &mut attr, &mut cq, null_mut()), 0);
        seen();
        let mut entries: [fi_cq_msg_entry; 2] = zeroed();
        let buf = entries.as_mut_ptr().cast();
        let sread = (*(*cq).ops).sread.unwrap();
        assert_eq!(sread(cq, buf, 2, null(), -1), 2);
        assert_eq!(
            bed.seen_below(),
            [below_of!(cq), buf.addr(), 2, -1i32 as usize]
        );
        assert_eq!(
            seen(),
            ["fi_cq_sread 2 0", "completion 1 10", "completion 2 20"]
        );
        // The slot is null.
        let sreadfrom = (*(*cq).ops).sreadfrom.unwrap();
        let result = sreadfrom(cq, buf, 2, null_mut(), null(), -1);
        assert_eq!(result, -libc::ENOSYS as isize);
        assert_eq!(seen(), [format!("fi_cq_sreadfrom {} 0", -libc::ENOSYS)]);
    }
    for object in [cq.cast(), domain.cast()] {
        close_it(object);
    }
}

#[test]
fn an_event_is_about_the_object_that_the_application_has() {
    let bed = Bed::new();
    let domain = bed.domain();
    let ep = bed.endpoint(domain, 0);
    let mut eq = null_mut();
    // SAFETY: the objects are open.
    unsafe {
        let mut attr: fi_eq_attr = zeroed();
        let open = (*(*bed.fabric).ops).eq_open.unwrap();
        assert_eq!(open(bed.fabric, &mut attr, &mut eq, null_mut()), 0);
        let mut entry: fi_eq_cm_entry = zeroed();
        let mut event = 0;
        let read = (*(*eq).ops).read.unwrap();
        let room = size_of::<fi_eq_cm_entry>();
        let length = read(eq, &mut event, (&raw mut entry).cast(), room, 0);
        assert_eq!(length, room as isize);
        assert_eq!((event, entry.fid), (FI_CONNECTED, ep.cast()));
    }
    for object in [eq.cast(), ep.cast(), domain.cast()] {
        close_it(object);
    }
}

#[test]
fn counters_of_triggered_operations_and_deferred_work_are_those_below() {
    let bed = Bed::new();
    let domain = bed.domain();
    let cntr = bed.cntr(domain);
    let ep = bed.endpoint(domain, 0);
    // SAFETY: the objects are open, and the structures as fi_trigger(3) asks.
    unsafe {
        let mut context: fi_triggered_context = zeroed();
        context.event_type = FI_TRIGGER_THRESHOLD;
        context.trigger.threshold = fi_trigger_threshold { cntr, threshold: 3 };
        let mut msg: fi_msg = zeroed();
        msg.context = (&raw mut context).cast();
        let sendmsg = (*(*ep).msg).sendmsg.unwrap();
        assert_eq!(sendmsg(ep, &msg, 0), 0);
        assert_eq!(
            context.trigger.threshold.cntr, cntr,
            "it is no triggered one"
        );
        assert_eq!(sendmsg(ep, &msg, FI_TRIGGER), 0);
        assert_eq!(context.trigger.threshold.cntr.addr(), below_of!(cntr));
        assert_eq!(context.trigger.threshold.threshold, 3);

        let mut op: fi_op_msg = zeroed();
        op.ep = ep;
        let mut work: fi_deferred_work = zeroed();
        work.triggering_cntr = cntr;
        work.completion_cntr = cntr;
        work.op_type = FI_OP_SEND;
        work.op.msg = &mut op;
        let control = (*(*domain).fid.ops).control.unwrap();
        assert_eq!(
            control(domain.cast(), FI_QUEUE_WORK, (&raw mut work).cast()),
            0
        );
        assert_eq!(work.triggering_cntr.addr(), below_of!(cntr));
        assert_eq!(work.completion_cntr.addr(), below_of!(cntr));
        assert_eq!(op.ep.addr(), below_of!(ep));
    }
    for object in [ep.cast(), cntr.cast(), domain.cast()] {
        close_it(object);
    }
}

#[test]
fn a_region_has_the_key_that_the_provider_gives_it_when_it_is_bound() {
    let bed = Bed::new();
    let domain = bed.domain();
    // SAFETY: the objects are open.
    unsafe {
        let mut attr: fi_mr_attr = zeroed();
        let mut mr = null_mut();
        let register = (*(*domain).mr).regattr.unwrap();
        assert_eq!(register(domain.cast(), &attr, 0, &mut mr), 0);
        assert_eq!((*mr).key, 5);
        let bind = (*(*mr).fid.ops).bind.unwrap();
        assert_eq!(bind(mr.cast(), null_mut(), 0), 0);
        assert_eq!((*mr).key, 77);

        // A part of the region.
        attr.base_mr = mr;
        let mut part = null_mut();
        assert_eq!(register(domain.cast(), &attr, 0, &mut part), 0);
        assert_eq!(bed.seen_below()[1], below_of!(mr));
        for object in [part.cast(), mr.cast(), domain.cast()] {
            close_it(object);
        }
    }
}

#[test]
fn a_call_on_a_closed_object_is_not_carried_out_if_the_hook_keeps_objects() {
    let bed = Bed::new();
    let domain = bed.domain();
    let ep = bed.endpoint(domain, 0);
    assert_eq!(close_it(ep.cast()), 0);
    seen();
    lower().seen.clear();
    // SAFETY: the hook keeps the endpoint.
    unsafe {
        let send = (*(*ep).msg).send.unwrap();
        let result = send(ep, null(), 0, null_mut(), 0, null_mut());
        assert_eq!(result, -libc::ENOSYS as isize);
    }
    assert_ne!(close_it(ep.cast()), 0);
    assert_eq!(seen(), ["fi_send after close", "fi_close after close"]);
    assert_eq!(bed.seen_below(), [0usize; 0]);
    close_it(domain.cast());
    drop(bed);
    let last = seen();
    assert_eq!(last.last().map(String::as_str), Some("finish"));
}

/// Where events of a shared queue arrive.
static WRITTEN: Mutex<Vec<(u32, usize)>> = Mutex::new(Vec::new());

extern "C" fn eq_write(
    _eq: *mut fid_eq,
    event: u32,
    buf: *const c_void,
    _len: usize,
    _flags: u64,
) -> isize {
    // SAFETY: events begin with an object.
    let object = unsafe { buf.cast::<*mut fid>().read_unaligned() };
    WRITTEN.lock().unwrap().push((event, object.addr()));
    0
}

#[test]
fn an_event_of_a_shared_queue_is_written_about_the_object_that_the_owner_has() {
    let bed = Bed::new();
    let domain = bed.domain();
    let ep = bed.endpoint(domain, 0);
    // SAFETY: the objects are open, and the owner's queue outlives the peer's.
    unsafe {
        let mut table: fi_ops_eq = zeroed();
        table.size = size_of::<fi_ops_eq>();
        table.write = Some(eq_write);
        let mut owner: fid_eq = zeroed();
        owner.fid.fclass = FI_CLASS_EQ;
        owner.ops = &mut table;
        let mut context = fi_peer_eq_context {
            size: size_of::<fi_peer_eq_context>(),
            eq: &mut owner,
        };
        let mut attr: fi_eq_attr = zeroed();
        attr.flags = FI_PEER;
        let mut eq = null_mut();
        let open = (*(*bed.fabric).ops).eq_open.unwrap();
        let place: *mut c_void = (&raw mut context).cast();
        assert_eq!(open(bed.fabric, &mut attr, &mut eq, place), 0);
        // What the provider has got, and does when the endpoint is connected.
        let given = lower().eq.fid.context.cast::<fi_peer_eq_context>();
        assert_ne!(given, &raw mut context);
        let relay = lower().relay;
        let mut entry: fi_eq_entry = zeroed();
        entry.fid = (&raw mut lower().ep).cast();
        let write = (*(*relay).ops).write.unwrap();
        let len = size_of::<fi_eq_entry>();
        write(relay, FI_CONNECTED, (&raw const entry).cast(), len, 0);
        assert_eq!(*WRITTEN.lock().unwrap(), [(FI_CONNECTED, ep.addr())]);
        for object in [eq.cast(), ep.cast(), domain.cast()] {
            close_it(object);
        }
    }
}
