mod lower;

use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use fabric_abi::*;

use self::lower::{Bed, close_it, lower};
use super::*;

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
