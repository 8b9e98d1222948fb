//! The C interface of completion queues (fi_cq(3)).

mod error;
mod peer;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use fabric_abi::*;

pub(super) use error::put_err_data;
pub use peer::{CompletionTarget, SharedCq};
pub(super) use peer::{error_entry, read_error_entry};

use super::cancel::{Call, Next, cancellation_point};
use super::object::{Class, Handle, Use};
use super::wait::{self, OpenedWait};
use super::{count as counted, status};
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_objects::cq::{Completion, Cq, CqConfig, CqFormat, ErrorTexts, FastRead, Outlook};

/// A domain with completion queues.
pub trait CqDomain: Class<Header = fid_domain> {
    /// Returns the common attributes of its queues.
    fn cq_traits(&self) -> CqTraits;
}

/// The attributes of a domain that determine those of its completion queues.
#[derive(Clone, Copy, Debug)]
pub struct CqTraits {
    /// The kind of lock that a queue needs.
    pub lock: LockKind,
    /// Whether endpoints report sources (`FI_SOURCE`).
    pub with_sources: bool,
    /// Interface version of the application.
    pub api_version: u32,
    /// Texts of the provider's error numbers.
    pub error_text: ErrorTexts,
    /// The log target.
    pub target: &'static str,
}

/// Implements fi_cq_open(3).
///
/// # Safety
/// `domain` is an open domain of type `D`; the other pointers are null or as
/// fi_cq(3) asks.
pub unsafe extern "C" fn cq_open<D: CqDomain>(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that the domain is open and that the other pointers are null or
    // as fi_cq(3) demands.
    unsafe {
        let domain = Handle::<D>::from_c(domain);
        let opened = open(&domain.cq_traits(), attr.as_ref(), context);
        let opened = opened.inspect(|cq| cq.keep_open(Use::of(&domain).any()));
        super::deliver(cq, opened)
    }
}

/// # Safety
/// A wait set in `attr` is open where one is asked for, and `context` is a
/// `fi_peer_cq_context` under `FI_PEER`.
unsafe fn open(
    domain: &CqTraits,
    attr: Option<&fi_cq_attr>,
    context: *mut c_void,
) -> Result<Handle<Cq>> {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let default = unsafe { std::mem::zeroed() };
    let attr = attr.unwrap_or(&default);
    let refuse = |reason: &str| {
        log::warn!(target: domain.target, "cannot open a completion queue: {reason}");
        Errno::EINVAL
    };
    if attr.flags & !(FI_AFFINITY | FI_PEER) != 0 {
        return Err(refuse("unknown flags"));
    }
    let format = match attr.format {
        FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => CqFormat::Context,
        FI_CQ_FORMAT_MSG => CqFormat::Msg,
        FI_CQ_FORMAT_DATA => CqFormat::Data,
        FI_CQ_FORMAT_TAGGED => CqFormat::Tagged,
        _ => return Err(refuse("unknown format")),
    };
    let by_threshold = match attr.wait_cond {
        FI_CQ_COND_THRESHOLD => true,
        FI_CQ_COND_NONE => false,
        _ if attr.wait_obj == FI_WAIT_NONE => false,
        other => {
            log::warn!(
                target: domain.target,
                "fi_cq_open: unknown wait condition {other}, any completion ends a wait"
            );
            false
        }
    };
    let (owner, context) = match attr.flags & FI_PEER {
        0 => (None, context),
        // SAFETY: the caller guarantees that the context is null or a valid `fi_peer_cq_context`.
        _ => (Some(unsafe { peer::import(context) }?), ptr::null_mut()),
    };
    // SAFETY: the caller guarantees that the wait set is open if one is requested.
    let mut opened = unsafe { OpenedWait::open(attr.wait_obj, attr.wait_set) }?;
    let joiner = opened.joiner();
    let cq = Cq::new(CqConfig {
        format,
        size: attr.size,
        with_sources: domain.with_sources,
        lock: domain.lock,
        wait: opened.attachment,
        by_threshold,
        api_version: domain.api_version,
        owner,
        ..CqConfig::default()
    })?;
    let cq = cq.with_error_texts(domain.error_text);
    Ok(joiner.join(Handle::new(cq, context, Vec::new())))
}

impl Class for Cq {
    type Header = fid_cq;

    fn class(&self) -> usize {
        FI_CLASS_CQ
    }

    fn header(&self, fid: fid) -> fid_cq {
        static OPS: fi_ops_cq = fi_ops_cq {
            size: size_of::<fi_ops_cq>(),
            read: Some(read),
            readfrom: Some(readfrom),
            readerr: Some(error::readerr),
            sread: Some(sread),
            sreadfrom: Some(sreadfrom),
            signal: Some(signal),
            strerror: Some(error::strerror),
            export_xpu: Some(export_xpu),
        };
        let ops = if self.is_peer() { &peer::OPS } else { &OPS };
        fid_cq {
            fid,
            ops: ptr::from_ref(ops).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        wait::leave_set(&**this);
        this.shut();
        Ok(())
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        // SAFETY: the caller guarantees that `arg` is as the command demands.
        unsafe { wait::control_of(&**this, command, arg) }
    }
}

/// The application's buffers for completions.
struct Destination {
    entries: *mut u8,
    /// Null if it does not ask for sources.
    sources: *mut fi_addr_t,
    entry_size: usize,
    with_sources: bool,
}

impl Destination {
    #[inline(always)]
    fn new(cq: &Cq, entries: *mut c_void, sources: *mut fi_addr_t) -> Self {
        Destination {
            entries: entries.cast(),
            sources,
            entry_size: cq.entry_size(),
            with_sources: cq.with_sources(),
        }
    }

    /// # Safety There is room for as many entries as all calls together write, and, unless it is
    /// null, for as many sources.
    #[inline(always)]
    unsafe fn put(&mut self, completion: &Completion) {
        // SAFETY: the caller guarantees that there is space for the entry, and for a source if
        // sources are requested.
        unsafe {
            put(self.entries, self.entry_size, completion);
            self.entries = self.entries.add(self.entry_size);
            if !self.sources.is_null() {
                self.put_source(completion);
            }
        }
    }

    /// # Safety
    /// As for [`Destination::put`].
    #[inline]
    unsafe fn put_source(&mut self, completion: &Completion) {
        let source = match self.with_sources {
            true => completion.src,
            false => FI_ADDR_NOTAVAIL as fi_addr_t,
        };
        // SAFETY: the caller guarantees that there is space for the entry, and for a source if
        // sources are requested.
        unsafe {
            self.sources.write(source);
            self.sources = self.sources.add(1);
        }
    }
}

/// Writes a completion as an entry of the format with this size ([`Cq::entry_size`]).
///
/// # Safety
/// There is room for it at `place`, which may be any address.
#[inline(always)]
unsafe fn put(place: *mut u8, size: usize, completion: &Completion) {
    // SAFETY: the caller guarantees that there is space for the entry, and for a source if sources
    // are requested.
    unsafe {
        // Most frequent format first: comparisons are faster than a jump table.
        if size >= size_of::<fi_cq_tagged_entry>() {
            put_entry::<fi_cq_tagged_entry>(place, completion);
        } else if size >= size_of::<fi_cq_data_entry>() {
            put_entry::<fi_cq_data_entry>(place, completion);
        } else if size >= size_of::<fi_cq_msg_entry>() {
            put_entry::<fi_cq_msg_entry>(place, completion);
        } else {
            put_entry::<fi_cq_entry>(place, completion);
        }
    }
}

/// # Safety
/// As for [`put`]; `Entry` is the structure of a format.
#[inline(always)]
unsafe fn put_entry<Entry: Copy>(place: *mut u8, completion: &Completion) {
    // SAFETY: a completion begins with the entry of every format, and the caller guarantees that
    // there is space for the entry.
    unsafe {
        let entry = ptr::from_ref(completion).cast::<Entry>().read();
        place.cast::<Entry>().write_unaligned(entry);
    }
}

unsafe extern "C" fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: this function is only in the tables of queues, and the application passes an open
    // one.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    // SAFETY: the application keeps the contract of fi_cq_read(3) for these arguments, which is
    // that of the called functions.
    unsafe {
        match this.outlook(count) {
            Outlook::Nothing => drive_and_read(cq, buf, count),
            Outlook::Single => {
                let size = this.entry_size();
                match this.read_fast(|completion| put(buf.cast(), size, completion)) {
                    FastRead::Taken => 1,
                    FastRead::Due => drive_and_read(cq, buf, count),
                    FastRead::Open => read_single(cq, buf, count),
                }
            }
            Outlook::Several => read_any(cq, buf, count),
        }
    }
}

/// Separate from `read`, which therefore saves no registers.
#[inline(never)]
unsafe extern "C" fn read_single(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: `read`, which is only in the tables of queues, passes the open queue of its caller.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    let size = this.entry_size();
    // SAFETY: the application keeps the contract of fi_cq_read(3) for these arguments, of which
    // there is space for one entry at least. It is that of the called functions.
    unsafe {
        match this.read_fast_shared(|completion| put(buf.cast(), size, completion)) {
            FastRead::Taken => 1,
            FastRead::Due => drive_and_read(cq, buf, count),
            FastRead::Open => read_any(cq, buf, count),
        }
    }
}

/// Separate from `read` for the same reason.
#[inline(never)]
unsafe extern "C" fn drive_and_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: `read`, which is only in the tables of queues, passes the open queue of its caller.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    this.drive();
    // SAFETY: the application keeps the contract of fi_cq_read(3) for these arguments, which is
    // that of the called functions.
    unsafe {
        match this.outlook(count) {
            Outlook::Single => take_fast(cq, buf, count),
            Outlook::Nothing if count != 0 => Errno::EAGAIN.to_c() as isize,
            Outlook::Nothing | Outlook::Several => take_any(cq, buf, count),
        }
    }
}

#[inline(always)]
unsafe fn take_fast(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: `read`, which is only in the tables of queues, passes the open queue of its caller.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    let size = this.entry_size();
    // SAFETY: the application passes space for `count` entries, of which there is at least one.
    if this.take_fast(|completion| unsafe { put(buf.cast(), size, completion) }) {
        return 1;
    }
    // SAFETY: the application keeps the contract of fi_cq_read(3) for these arguments, which is
    // that of the called functions.
    unsafe { take_single(cq, buf, count) }
}

/// Separate from `read` for the same reason.
#[inline(never)]
unsafe extern "C" fn take_single(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: `read`, which is only in the tables of queues, passes the open queue of its caller.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    let size = this.entry_size();
    // SAFETY: the application passes space for `count` entries, of which there is at least one.
    if this.take_single(|completion| unsafe { put(buf.cast(), size, completion) }) {
        return 1;
    }
    // SAFETY: the application keeps the contract of fi_cq_read(3) for these arguments, which is
    // that of the called functions.
    unsafe { take_any(cq, buf, count) }
}

/// Separate from `read` for the same reason.
#[inline(never)]
unsafe extern "C" fn read_any(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the application keeps the contract of fi_cq_read(3) for these arguments; no sources
    // are requested.
    unsafe { readfrom(cq, buf, count, ptr::null_mut()) }
}

/// Separate from `read` for the same reason.
#[inline(never)]
unsafe extern "C" fn take_any(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: `read`, which is only in the tables of queues, passes the open queue of its caller.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    let mut destination = Destination::new(this, buf, ptr::null_mut());
    // SAFETY: the queue returns at most `count` entries, for which the application passes space.
    counted(this.take(count, |completion| unsafe { destination.put(completion) }))
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    src_addr: *mut fi_addr_t,
) -> isize {
    // SAFETY: this function is only in the tables of queues, and the application passes an open
    // one.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    let mut destination = Destination::new(this, buf, src_addr);
    // SAFETY: the queue returns at most `count` entries, for which the application passes space.
    counted(this.read(count, |completion| unsafe { destination.put(completion) }))
}

cancellation_point! {
    fn sread(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize = sread_round
}

cancellation_point! {
    fn sreadfrom(
        *mut fid_cq,
        *mut c_void,
        usize,
        *mut fi_addr_t,
        *const c_void,
        c_int
    ) -> isize = sreadfrom_round
}

unsafe extern "C" fn sread_round(call: *mut Call) -> Next {
    // SAFETY: the application keeps the contract of fi_cq_sread(3) for the arguments of this call.
    unsafe {
        blocking_round(call, |&[cq, buf, count, cond, timeout, _]| Sread {
            cq,
            buf,
            count,
            src_addr: ptr::null_mut(),
            cond,
            timeout,
        })
    }
}

unsafe extern "C" fn sreadfrom_round(call: *mut Call) -> Next {
    // SAFETY: the application keeps the contract of fi_cq_sreadfrom(3) for the arguments of this
    // call.
    unsafe {
        blocking_round(call, |&[cq, buf, count, src_addr, cond, timeout]| Sread {
            cq,
            buf,
            count,
            src_addr,
            cond,
            timeout,
        })
    }
}

/// The arguments of `fi_cq_sreadfrom`.
struct Sread {
    cq: *mut c_void,
    buf: *mut c_void,
    count: *mut c_void,
    src_addr: *mut c_void,
    cond: *mut c_void,
    timeout: *mut c_void,
}

/// # Safety
/// `call` is a call of `fi_cq_sread` or `fi_cq_sreadfrom`, whose arguments `arguments`
/// names.
unsafe fn blocking_round(call: *mut Call, arguments: impl Fn(&[*mut c_void; 6]) -> Sread) -> Next {
    // SAFETY: these functions are only in the tables of queues; the application passes an open one,
    // keeps it open until the call returns, and passes space for `count` entries, of which the
    // queue returns at most as many.
    unsafe {
        Call::round(
            call,
            |words| {
                let arguments = arguments(words);
                let this = Handle::<Cq>::borrow(arguments.cq.cast());
                // The condition is the number itself, not a pointer to it.
                let threshold = match this.by_threshold() {
                    true => arguments.cond.addr(),
                    false => 1,
                };
                let timeout = arguments.timeout.addr() as c_int;
                this.start_blocking(arguments.count.addr(), threshold, timeout)
                    .map_err(|error| counted(Err(error)))
            },
            |read, words, woke| {
                let arguments = arguments(words);
                let this = Handle::<Cq>::borrow(arguments.cq.cast());
                let mut destination =
                    Destination::new(this, arguments.buf, arguments.src_addr.cast());
                read.round(woke, |completion| destination.put(completion))
                    .map_break(counted)
            },
        )
    }
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: this function is only in the tables of queues, and the application passes an open
    // one.
    status(unsafe { Handle::<Cq>::borrow(cq) }.signal())
}

/// The queues of this library are not accessible from a device.
unsafe extern "C" fn export_xpu(_: *mut fid_cq, _: u64, _: *mut fid_xpu_cq) -> c_int {
    Errno::ENOSYS.to_c()
}

/// Returns the text of an error number of either sign, and copies it to `buf`, if that is not null.
///
/// # Safety
/// `buf` is null or has room for `len` bytes.
pub(super) unsafe fn error_text(number: c_int, buf: *mut c_char, len: usize) -> *const c_char {
    // SAFETY: the caller keeps the contract of this function, which is that of the called one.
    unsafe {
        copy_text(
            prov_base::services::strerror(number.saturating_abs()),
            buf,
            len,
        )
    }
}

/// Returns a text, and copies it to `buf`, if that is not null.
///
/// # Safety
/// Those of [`error_text`].
unsafe fn copy_text(text: &CStr, buf: *mut c_char, len: usize) -> *const c_char {
    if !buf.is_null() && len > 0 {
        let bytes = text.to_bytes();
        let copied = bytes.len().min(len - 1);
        // SAFETY: the caller guarantees that `buf` has `len` bytes, of which one is left for the
        // terminating zero.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buf, copied);
            buf.add(copied).write(0);
        }
    }
    text.as_ptr()
}
