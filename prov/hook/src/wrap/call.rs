//! A call of a wrapped object, as hooks see it: values, never pointers to follow.

use std::ffi::c_void;
use std::ptr::null;

use fabric_abi::*;
use libc::iovec;

use super::operation::{NONE, Operation};
use super::value::Value;
use super::{Core, Kind};

/// A call. The pointers in it are valid while a hook has it: they are those of the call that the
/// application is in.
pub struct Call<'a> {
    operation: Operation,
    object: usize,
    core: &'a Core,
    values: &'a [Value],
}

/// What a completion queue said about an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The address that the operation was given as its context.
    pub context: usize,
    /// What completed: `FI_SEND`, `FI_RECV`; `None` if the queue's format does not say.
    pub flags: Option<u64>,
    /// Bytes received.
    pub len: u64,
    /// Where the data is.
    pub buf: usize,
    /// Immediate data.
    pub data: u64,
    /// The tag of the message; `None` if the queue's format does not say.
    pub tag: Option<u64>,
    /// The error number, positive, of an operation that failed.
    pub error: i32,
}

impl<'a> Call<'a> {
    /// # Safety
    /// The values are the arguments of a call of `operation` on the object, by an application that
    /// keeps to the interface, and that lasts longer than the new value.
    #[inline(always)]
    pub(super) unsafe fn new(
        operation: Operation,
        object: usize,
        core: &'a Core,
        values: &'a [Value],
    ) -> Self {
        Call {
            operation,
            object,
            core,
            values,
        }
    }

    /// Returns the operation.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the address of the object, as the application has it.
    pub fn object(&self) -> usize {
        self.object
    }

    /// Returns what the object is.
    pub fn kind(&self) -> Kind {
        self.core.kind()
    }

    /// Returns the format of the completion queue's entries, `FI_CQ_FORMAT_*`.
    pub fn format(&self) -> fi_cq_format {
        self.core.format()
    }

    /// Returns the arguments without the object.
    pub(super) fn values(&self) -> &'a [Value] {
        self.values
    }

    #[inline]
    pub(super) fn value(&self, place: usize) -> Option<Value> {
        self.values.get(place).copied()
    }

    /// Returns the value of the argument with this name: a number, or the address in a pointer.
    pub fn argument(&self, name: &str) -> Option<u64> {
        let names = self.operation.facts().arguments;
        let place = names.iter().position(|known| *known == name)?;
        self.number(place)
    }

    #[inline]
    pub(super) fn number(&self, place: usize) -> Option<u64> {
        Some(match self.value(place)? {
            Value::Number(number) => number,
            Value::Count(count) => count as u64,
            Value::Signed(number) => number as u64,
            other => other.address() as u64,
        })
    }

    /// Returns the operation's context, from the arguments or from the structure that describes the
    /// operation.
    pub fn context(&self) -> Option<usize> {
        let facts = self.operation.facts();
        if let Some(value) = self.value(facts.context) {
            return Some(value.address());
        }
        // SAFETY: the structures are those of the call that the application is in.
        unsafe {
            Some(match self.value(facts.described)? {
                Value::Msg(msg) => msg.as_ref()?.context.addr(),
                Value::Tagged(msg) => msg.as_ref()?.context.addr(),
                Value::Rma(msg) => msg.as_ref()?.context.addr(),
                Value::Atomic(msg) => msg.as_ref()?.context.addr(),
                Value::Collective(msg) => msg.as_ref()?.context.addr(),
                _ => return None,
            })
        }
    }

    /// Returns the flags that the call was given; `None` for a call that takes none.
    #[inline]
    pub fn flags(&self) -> Option<u64> {
        self.number(self.operation.facts().flags)
    }

    /// Returns the flags that a transfer has because its endpoint was opened so.
    pub fn default_flags(&self) -> u64 {
        self.core.default_flags(self.operation.is_receive())
    }

    /// Returns the number of bytes that the call is about: those of all buffers of a transfer or of
    /// a memory region.
    pub fn bytes(&self) -> u64 {
        let facts = self.operation.facts();
        let element = |datatype| size_of_datatype(datatype);
        // SAFETY: the arrays and structures are those of the call that the application is in.
        unsafe {
            if let Some(described) = self.value(facts.described) {
                return match described {
                    Value::Msg(msg) => msg.as_ref().map_or(0, |m| total(m.msg_iov, m.iov_count)),
                    Value::Tagged(msg) => msg.as_ref().map_or(0, |m| total(m.msg_iov, m.iov_count)),
                    Value::Rma(msg) => msg.as_ref().map_or(0, |m| total(m.msg_iov, m.iov_count)),
                    Value::Atomic(msg) => msg.as_ref().map_or(0, |m| {
                        elements(m.msg_iov, m.iov_count) * element(m.datatype)
                    }),
                    Value::Collective(msg) => msg.as_ref().map_or(0, |m| {
                        elements(m.msg_iov, m.iov_count) * element(m.datatype)
                    }),
                    Value::Memory(attr) => self.region(attr),
                    _ => 0,
                };
            }
            let count = self.number(facts.count).unwrap_or_default();
            let datatype = self.number(facts.datatype).unwrap_or_default() as fi_datatype;
            match self.value(facts.vector) {
                Some(Value::Vector(vector)) => return total(vector, count as usize),
                Some(Value::Elements(vector)) => {
                    return elements(vector, count as usize) * element(datatype);
                }
                _ => {}
            }
            match self.number(facts.len) {
                Some(len) => len,
                None if facts.datatype != NONE => count.saturating_mul(element(datatype)),
                None => 0,
            }
        }
    }

    /// # Safety
    /// `attr` is null or the argument of fi_mr_regattr(3).
    unsafe fn region(&self, attr: *const fi_mr_attr) -> u64 {
        // SAFETY: the caller's promise.
        unsafe {
            let Some(attr) = attr.as_ref() else { return 0 };
            if self.flags().unwrap_or_default() & FI_MR_DMABUF != 0 {
                let parts = attr.mr_iov.cast::<fi_mr_dmabuf>();
                return sum(parts, attr.iov_count, |part| part.len as u64);
            }
            total(attr.mr_iov, attr.iov_count)
        }
    }

    /// Returns the interface to the memory that is registered, `FI_HMEM_*`.
    pub fn memory_interface(&self) -> fi_hmem_iface {
        match self.value(self.operation.facts().described) {
            // SAFETY: the structure is that of the call that the application is in.
            Some(Value::Memory(attr)) => unsafe {
                attr.as_ref().map_or(FI_HMEM_SYSTEM, |attr| attr.iface)
            },
            _ => FI_HMEM_SYSTEM,
        }
    }

    /// Returns the address of the object that a call has opened, which ended with `result`.
    pub fn opened(&self, result: i64) -> Option<usize> {
        match self.value(self.operation.facts().opened)? {
            Value::Opened(place) if result == 0 && !place.is_null() => {
                // SAFETY: the call has succeeded, and stored the object there.
                let opened = unsafe { place.read() };
                (!opened.is_null()).then(|| opened.addr())
            }
            _ => None,
        }
    }

    /// Returns the numbers of operations that an endpoint which the call opens may have outstanding
    /// (`fi_tx_attr::size`, `fi_rx_attr::size`).
    pub fn queue_sizes(&self) -> Option<(usize, usize)> {
        let info = self.values.iter().find_map(|value| match value {
            Value::Structure(info, FI_TYPE_INFO) => Some(info.cast::<fi_info>()),
            _ => None,
        })?;
        // SAFETY: the structure is that of the call that the application is in.
        unsafe {
            let info = info.as_ref()?;
            let sent = info.tx_attr.as_ref().map_or(0, |attr| attr.size);
            let received = info.rx_attr.as_ref().map_or(0, |attr| attr.size);
            Some((sent, received))
        }
    }

    /// Returns the completions that a call has read which returned `result`.
    pub fn completions(&self, result: i64) -> impl Iterator<Item = Completion> {
        let facts = self.operation.facts();
        let format = self.format();
        let size = entry_size(format);
        let is_read = self.operation.reads_completions() && result > 0 && size > 0;
        let start = match self.value(facts.buf) {
            Some(Value::Pointer(start)) if is_read => start,
            _ => null(),
        };
        let count = if start.is_null() { 0 } else { result as usize };
        // SAFETY: the call has stored so many entries of this size there.
        (0..count).map(move |at| unsafe { entry(format, start.byte_add(at * size)) })
    }

    /// Returns the completion that a call of fi_cq_readerr(3) has read which returned `result`.
    pub fn failed(&self, result: i64) -> Option<Completion> {
        if self.operation != Operation::CqReaderr || result <= 0 {
            return None;
        }
        match self.value(0)? {
            // SAFETY: the call has stored an entry there, whose members up to `err` are in all
            // versions of the interface.
            Value::Pointer(entry) if !entry.is_null() => Some(unsafe {
                let entry = entry.cast::<fi_cq_err_entry>();
                Completion {
                    context: (*entry).op_context.addr(),
                    flags: Some((*entry).flags),
                    len: (*entry).len as u64,
                    buf: (*entry).buf.addr(),
                    data: (*entry).data,
                    tag: Some((*entry).tag),
                    error: (*entry).err,
                }
            }),
            _ => None,
        }
    }

    /// Returns the event that a call of fi_eq_read(3) or fi_eq_sread(3) has read which returned
    /// `result`.
    pub fn event(&self, result: i64) -> Option<u32> {
        match self.value(self.operation.facts().event)? {
            Value::Pointer(place) if result > 0 && !place.is_null() => {
                // SAFETY: the call has stored the event there.
                Some(unsafe { place.cast::<u32>().read() })
            }
            _ => None,
        }
    }
}

/// # Safety
/// `first` is the first of `count` structures, unless null.
unsafe fn sum<T>(first: *const T, count: usize, part: impl Fn(&T) -> u64) -> u64 {
    if first.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    (0..count)
        .map(|at| part(unsafe { &*first.add(at) }))
        .fold(0, u64::saturating_add)
}

/// # Safety
/// That of [`sum`].
unsafe fn total(vector: *const iovec, count: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { sum(vector, count, |part| part.iov_len as u64) }
}

/// # Safety
/// That of [`sum`].
pub(super) unsafe fn elements(vector: *const fi_ioc, count: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { sum(vector, count, |part| part.count as u64) }
}

/// Returns the bytes of an element.
fn size_of_datatype(datatype: fi_datatype) -> u64 {
    match datatype {
        FI_INT8 | FI_UINT8 | FI_FLOAT8_E4M3 | FI_FLOAT8_E5M2 => 1,
        FI_INT16 | FI_UINT16 | FI_FLOAT16 | FI_BFLOAT16 => 2,
        FI_INT32 | FI_UINT32 | FI_FLOAT => 4,
        FI_INT64 | FI_UINT64 | FI_DOUBLE | FI_FLOAT_COMPLEX => 8,
        FI_DOUBLE_COMPLEX | FI_LONG_DOUBLE | FI_INT128 | FI_UINT128 => 16,
        FI_LONG_DOUBLE_COMPLEX => 32,
        // FI_VOID counts bytes.
        _ => 1,
    }
}

fn entry_size(format: fi_cq_format) -> usize {
    match format {
        FI_CQ_FORMAT_CONTEXT => size_of::<fi_cq_entry>(),
        FI_CQ_FORMAT_MSG => size_of::<fi_cq_msg_entry>(),
        FI_CQ_FORMAT_DATA => size_of::<fi_cq_data_entry>(),
        FI_CQ_FORMAT_TAGGED => size_of::<fi_cq_tagged_entry>(),
        _ => 0,
    }
}

/// # Safety
/// An entry of the format is at `place`.
unsafe fn entry(format: fi_cq_format, place: *const c_void) -> Completion {
    let mut completion = Completion::default();
    // SAFETY: each format begins with the members of those before it.
    unsafe {
        completion.context = place
            .cast::<fi_cq_entry>()
            .read_unaligned()
            .op_context
            .addr();
        if matches!(
            format,
            FI_CQ_FORMAT_MSG | FI_CQ_FORMAT_DATA | FI_CQ_FORMAT_TAGGED
        ) {
            let entry = place.cast::<fi_cq_msg_entry>().read_unaligned();
            completion.flags = Some(entry.flags);
            completion.len = entry.len as u64;
        }
        if matches!(format, FI_CQ_FORMAT_DATA | FI_CQ_FORMAT_TAGGED) {
            let entry = place.cast::<fi_cq_data_entry>().read_unaligned();
            completion.buf = entry.buf.addr();
            completion.data = entry.data;
        }
        if format == FI_CQ_FORMAT_TAGGED {
            let entry = place.cast::<fi_cq_tagged_entry>().read_unaligned();
            completion.tag = Some(entry.tag);
        }
    }
    completion
}
