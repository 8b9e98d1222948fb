//! A call of a wrapped object, as hooks see it: values, never pointers to follow.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr::null;

use fabric_abi::symbols::fi_tostr_r;
use fabric_abi::*;
use libc::iovec;

use super::{Core, Kind};

include!(concat!(env!("OUT_DIR"), "/operations.rs"));

/// The table that an operation is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Table {
    Fid,
    Fabric,
    Domain,
    Mr,
    Av,
    AvSet,
    Ep,
    Cm,
    Msg,
    Tagged,
    Rma,
    Atomic,
    Collective,
    Cq,
    Cntr,
    Eq,
    Wait,
    Poll,
    XpuCtx,
}

impl Table {
    /// Returns the subsystem of the log that calls of the table belong to.
    pub fn subsystem(self) -> fi_log_subsys {
        match self {
            Table::Fid => FI_LOG_CORE,
            Table::Fabric | Table::Wait => FI_LOG_FABRIC,
            Table::Domain | Table::Poll | Table::XpuCtx => FI_LOG_DOMAIN,
            Table::Mr => FI_LOG_MR,
            Table::Av | Table::AvSet => FI_LOG_AV,
            Table::Ep | Table::Cm => FI_LOG_EP_CTRL,
            Table::Msg | Table::Tagged | Table::Rma | Table::Atomic | Table::Collective => {
                FI_LOG_EP_DATA
            }
            Table::Cq => FI_LOG_CQ,
            Table::Cntr => FI_LOG_CNTR,
            Table::Eq => FI_LOG_EQ,
        }
    }
}

/// What the text of the interface says about an operation. Arguments are numbered from 0, without
/// the object; `NONE` where there is no such argument.
struct Facts {
    name: &'static str,
    table: Table,
    arguments: &'static [&'static str],
    context: usize,
    flags: usize,
    /// A structure with the other arguments (`fi_msg` and its relatives, `fi_mr_attr`).
    described: usize,
    len: usize,
    vector: usize,
    count: usize,
    opened: usize,
    datatype: usize,
    buf: usize,
    event: usize,
}

const NONE: usize = usize::MAX;

impl Operation {
    /// Returns the number of the operation, an index of [`Operation::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    #[allow(clippy::indexing_slicing, reason = "there are facts of each operation")]
    fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// Returns the name of the function that applications call.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the table that the operation is in.
    pub fn table(self) -> Table {
        self.facts().table
    }

    /// Returns whether the operation moves data.
    #[inline]
    pub fn is_transfer(self) -> bool {
        use Table::*;
        matches!(self.table(), Msg | Tagged | Rma | Atomic | Collective)
    }

    /// Returns whether the operation posts a receive.
    pub fn is_receive(self) -> bool {
        use Operation::*;
        matches!(
            self,
            MsgRecv | MsgRecvv | MsgRecvmsg | TaggedRecv | TaggedRecvv | TaggedRecvmsg
        )
    }

    /// Returns whether the operation copies its data before it returns, and never completes.
    pub fn is_inject(self) -> bool {
        use Operation::*;
        matches!(
            self,
            MsgInject
                | MsgInjectdata
                | TaggedInject
                | TaggedInjectdata
                | RmaInject
                | RmaInjectdata
                | AtomicInject
        )
    }

    /// Returns whether the operation reads entries of a completion queue.
    pub fn reads_completions(self) -> bool {
        use Operation::*;
        matches!(self, CqRead | CqReadfrom | CqSread | CqSreadfrom)
    }
}

/// An argument.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Number(u64),
    Count(usize),
    Signed(i64),
    Pointer(*const c_void),
    Text(*const c_char),
    Vector(*const iovec),
    Elements(*const fi_ioc),
    Msg(*const fi_msg),
    Tagged(*const fi_msg_tagged),
    Rma(*const fi_msg_rma),
    Atomic(*const fi_msg_atomic),
    Collective(*const fi_msg_collective),
    Memory(*const fi_mr_attr),
    /// A structure of the interface that fi_tostr(3) knows.
    Structure(*const c_void, fi_type),
    /// The place for an object that is opened.
    Opened(*const *mut fid),
}

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
    fn number(&self, place: usize) -> Option<u64> {
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
                Some(unsafe { place.read() }.addr())
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
unsafe fn elements(vector: *const fi_ioc, count: usize) -> u64 {
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

impl Value {
    /// Returns the address in a pointer, or a number as one.
    fn address(self) -> usize {
        match self {
            Value::Number(number) => number as usize,
            Value::Count(count) => count,
            Value::Signed(number) => number as usize,
            Value::Pointer(pointer) | Value::Structure(pointer, _) => pointer.addr(),
            Value::Text(text) => text.addr(),
            Value::Vector(vector) => vector.addr(),
            Value::Elements(vector) => vector.addr(),
            Value::Msg(msg) => msg.addr(),
            Value::Tagged(msg) => msg.addr(),
            Value::Rma(msg) => msg.addr(),
            Value::Atomic(msg) => msg.addr(),
            Value::Collective(msg) => msg.addr(),
            Value::Memory(attr) => attr.addr(),
            Value::Opened(place) => place.addr(),
        }
    }
}

impl fmt::Display for Call<'_> {
    /// The name of the function and its arguments, as a call in C with names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.operation.facts();
        write!(f, "{}({:#x}", facts.name, self.object)?;
        for (name, value) in facts.arguments.iter().zip(self.values) {
            write!(f, ", {name}=")?;
            // SAFETY: the pointers are those of the call that the application is in.
            unsafe { write_value(f, *value, self) }?;
        }
        f.write_str(")")
    }
}

/// # Safety
/// The value is an argument of the call, which lasts.
unsafe fn write_value(f: &mut fmt::Formatter<'_>, value: Value, call: &Call<'_>) -> fmt::Result {
    // SAFETY: the caller's promise.
    unsafe {
        match value {
            Value::Number(u64::MAX) | Value::Signed(-1) => f.write_str("-1"),
            Value::Number(number) => write!(f, "{number:#x}"),
            Value::Count(count) => write!(f, "{count}"),
            Value::Signed(number) => write!(f, "{number}"),
            Value::Text(text) if !text.is_null() => {
                write!(f, "{:?}", CStr::from_ptr(text).to_string_lossy())
            }
            Value::Vector(vector) if !vector.is_null() => {
                let count = call.number(call.operation.facts().count);
                write_parts(f, vector, count.unwrap_or_default() as usize)
            }
            Value::Msg(msg) if !msg.is_null() => {
                let msg = &*msg;
                f.write_str("{msg_iov=")?;
                write_parts(f, msg.msg_iov, msg.iov_count)?;
                write!(
                    f,
                    ", addr={:#x}, context={:?}, data={:#x}}}",
                    msg.addr, msg.context, msg.data
                )
            }
            Value::Tagged(msg) if !msg.is_null() => {
                let msg = &*msg;
                f.write_str("{msg_iov=")?;
                write_parts(f, msg.msg_iov, msg.iov_count)?;
                write!(
                    f,
                    ", addr={:#x}, tag={:#x}, ignore={:#x}, context={:?}, data={:#x}}}",
                    msg.addr, msg.tag, msg.ignore, msg.context, msg.data
                )
            }
            Value::Rma(msg) if !msg.is_null() => {
                let msg = &*msg;
                f.write_str("{msg_iov=")?;
                write_parts(f, msg.msg_iov, msg.iov_count)?;
                write!(f, ", addr={:#x}, rma_iov=[", msg.addr)?;
                for at in 0..msg.rma_iov_count {
                    let part = &*msg.rma_iov.add(at);
                    let space = if at == 0 { "" } else { ", " };
                    write!(
                        f,
                        "{space}{:#x}+{} key {:#x}",
                        part.addr, part.len, part.key
                    )?;
                }
                write!(f, "], context={:?}, data={:#x}}}", msg.context, msg.data)
            }
            Value::Atomic(msg) if !msg.is_null() => {
                let msg = &*msg;
                write!(
                    f,
                    "{{{} elements, addr={:#x}, datatype={}, op={}, context={:?}, data={:#x}}}",
                    elements(msg.msg_iov, msg.iov_count),
                    msg.addr,
                    msg.datatype,
                    msg.op,
                    msg.context,
                    msg.data
                )
            }
            Value::Memory(attr) if !attr.is_null() => {
                write_structure(f, attr.cast(), FI_TYPE_MR_ATTR)
            }
            Value::Structure(place, type_) if !place.is_null() && type_ != FI_TYPE_INFO => {
                write_structure(f, place, type_)
            }
            other => write!(f, "{:#x}", other.address()),
        }
    }
}

/// # Safety
/// `first` is the first of `count` parts, unless null.
unsafe fn write_parts(
    f: &mut fmt::Formatter<'_>,
    first: *const iovec,
    count: usize,
) -> fmt::Result {
    f.write_str("[")?;
    if !first.is_null() {
        for at in 0..count {
            // SAFETY: the caller's promise.
            let part = unsafe { &*first.add(at) };
            let space = if at == 0 { "" } else { ", " };
            write!(f, "{space}{:?}+{}", part.iov_base, part.iov_len)?;
        }
    }
    f.write_str("]")
}

/// Writes the text that fi_tostr(3) has for a structure, on one line.
///
/// # Safety
/// A structure of the type is at `place`.
unsafe fn write_structure(
    f: &mut fmt::Formatter<'_>,
    place: *const c_void,
    type_: fi_type,
) -> fmt::Result {
    let mut text = [0u8; 2048];
    // SAFETY: the caller's promise; the function writes a C string within the length.
    let text = unsafe {
        let start = text.as_mut_ptr().cast::<c_char>();
        if fi_tostr_r(start, text.len(), place, type_).is_null() {
            return write!(f, "{place:?}");
        }
        CStr::from_ptr(start).to_string_lossy()
    };
    f.write_str("{")?;
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .peekable();
    while let Some(line) = lines.next() {
        f.write_str(line)?;
        if lines.peek().is_some() && !line.ends_with('{') {
            f.write_str(", ")?;
        }
    }
    f.write_str("}")
}

/// A type of arguments, as a value.
pub(super) trait Shown: Copy {
    fn value(self) -> Value;
}

macro_rules! shown {
    ($($type:ty => |$argument:ident| $value:expr;)*) => {
        $(
            impl Shown for $type {
                #[inline(always)]
                fn value(self) -> Value {
                    let $argument = self;
                    $value
                }
            }
        )*
    };
}

shown! {
    u64 => |number| Value::Number(number);
    usize => |count| Value::Count(count);
    u32 => |number| Value::Count(number as usize);
    c_int => |number| Value::Signed(number.into());
    *const c_char => |text| Value::Text(text);
    *const iovec => |vector| Value::Vector(vector);
    *const fi_ioc => |vector| Value::Elements(vector);
    *const fi_msg => |msg| Value::Msg(msg);
    *const fi_msg_tagged => |msg| Value::Tagged(msg);
    *const fi_msg_rma => |msg| Value::Rma(msg);
    *const fi_msg_atomic => |msg| Value::Atomic(msg);
    *const fi_msg_collective => |msg| Value::Collective(msg);
    *const fi_mr_attr => |attr| Value::Memory(attr);
    *mut fi_info => |info| Value::Structure(info.cast_const().cast(), FI_TYPE_INFO);
    *mut fi_cq_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_CQ_ATTR);
    *mut fi_cntr_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_CNTR_ATTR);
    *mut fi_av_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_AV_ATTR);
    *mut fi_tx_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_TX_ATTR);
    *mut fi_rx_attr => |attr| Value::Structure(attr.cast_const().cast(), FI_TYPE_RX_ATTR);
}

macro_rules! shown_as_pointers {
    ($($type:ty),* $(,)?) => {
        $(
            impl Shown for $type {
                #[inline(always)]
                fn value(self) -> Value {
                    Value::Pointer(self.cast::<c_void>().cast_const())
                }
            }
        )*
    };
}

shown_as_pointers!(
    *mut c_void,
    *mut c_char,
    *mut usize,
    *mut u32,
    *mut u64,
    *mut *mut c_void,
    *mut *mut fid,
    *mut fi_ioc,
    *mut fi_cq_err_entry,
    *mut fi_eq_err_entry,
    *mut fi_eq_attr,
    *mut fi_wait_attr,
    *mut fi_poll_attr,
    *mut fi_av_set_attr,
    *mut fi_atomic_attr,
    *mut fi_collective_attr,
    *mut fi_xpu_attr,
    *mut fi_xpu_ctx_attr,
    *mut fid_xpu_cq,
    *mut fid_xpu_cntr,
    *mut fid_xpu_ep,
    *mut fid,
    *mut fid_xpu_ctx,
);

impl Shown for *const c_void {
    #[inline(always)]
    fn value(self) -> Value {
        Value::Pointer(self)
    }
}

impl Shown for *const fid_av_set {
    #[inline(always)]
    fn value(self) -> Value {
        Value::Pointer(self.cast())
    }
}

macro_rules! shown_as_places {
    ($($object:ident),*) => {
        $(
            impl Shown for *mut *mut $object {
                #[inline(always)]
                fn value(self) -> Value {
                    Value::Opened(self.cast_const().cast())
                }
            }
        )*
    };
}

shown_as_places!(
    fid_domain,
    fid_pep,
    fid_eq,
    fid_wait,
    fid_av,
    fid_cq,
    fid_ep,
    fid_cntr,
    fid_poll,
    fid_stx,
    fid_mr,
    fid_av_set,
    fid_mc,
    fid_xpu_ctx
);
