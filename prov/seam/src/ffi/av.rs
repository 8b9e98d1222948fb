//! The C interface of address vectors (fi_av(3)).

mod addresses;
mod peer;
mod set;

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use fabric_abi::*;

pub use peer::SharedAv;
pub use set::AvSet;

use self::addresses::Addresses;
use super::object::{AnyFid, AnyUse, Class, Downcast, Handle, Use};
use super::status;
use prov_base::errno::{Errno, Result};
use prov_objects::attr::{Opaque, version};
use prov_objects::av::format::{Address, Format};
use prov_objects::av::symmetric::Symmetric;
use prov_objects::av::{Av, Config, InsertEvents, Insertion, MAX_RX_CTX_BITS, Name};
use prov_objects::eq::{Eq, Event, EventBody, EventError};

/// A domain with address vectors.
pub trait AvDomain: Class<Header = fid_domain> {
    /// Returns the common attributes of its vectors.
    fn av_traits(&self) -> AvTraits<'_>;
}

/// The attributes of a domain that determine those of its address vectors.
#[derive(Clone, Copy, Debug)]
pub struct AvTraits<'a> {
    /// `fi_domain_attr::name`, which distinguishes shared vectors.
    pub name: &'a str,
    /// The format of its addresses; `None` if vectors cannot hold them.
    pub format: Option<Format>,
    /// `fi_domain_attr::av_type`
    pub av_type: u32,
    /// Whether the domain was opened with `FI_AV_USER_ID`.
    pub user_ids: bool,
    /// Interface version of the application.
    pub api_version: u32,
    /// Size of authorization keys (0: any) if the domain takes them from its vectors
    /// (`FI_AV_AUTH_KEY`).
    pub auth_key_size: Option<usize>,
    /// Whether `fi_av_remove` refuses flags.
    pub is_strict: bool,
    /// The log target.
    pub target: &'static str,
}

/// Implements fi_av_open(3).
///
/// # Safety
/// `domain` is an open domain of type `D`; the other pointers are null or as
/// fi_av(3) asks.
pub unsafe extern "C" fn av_open<D: AvDomain>(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that the pointers are null or valid, as fi_av(3) demands.
    unsafe {
        let domain = Handle::<D>::from_c(domain);
        let parent = Use::of(&domain).any();
        super::deliver(av, open(&domain.av_traits(), attr, context, parent))
    }
}

/// # Safety
/// `attr` is null or a valid structure, and `context` is a
/// `fi_peer_av_context` under `FI_PEER`.
unsafe fn open(
    domain: &AvTraits<'_>,
    attr: *mut fi_av_attr,
    context: *mut c_void,
    parent: AnyUse,
) -> Result<Handle<Av>> {
    const FLAGS: u64 = FI_EVENT | FI_READ | FI_SYMMETRIC | FI_PEER | FI_AV_USER_ID;
    // SAFETY: the caller guarantees that `attr` is null or valid.
    let attr = unsafe { attr.as_mut() }.ok_or(Errno::EINVAL)?;
    let refused = |reason: &str| {
        log::warn!(target: domain.target, "cannot open an address vector: {reason}");
        Errno::EINVAL
    };
    if attr.flags & !FLAGS != 0 {
        return Err(refused("unknown flags"));
    }
    if attr.flags & FI_AV_USER_ID != 0 && !domain.user_ids {
        return Err(refused(
            "FI_AV_USER_ID is not among the domain's capabilities",
        ));
    }
    let any = FI_AV_UNSPEC;
    let known = [any, FI_AV_MAP, FI_AV_TABLE];
    let asked = attr.type_;
    if !known.contains(&asked) {
        return Err(refused("unknown type"));
    }
    if asked != any && domain.av_type != any && asked != domain.av_type {
        return Err(refused("the domain was opened for the other type"));
    }
    // SAFETY: the caller guarantees that the application's name is null or terminated.
    let name = match unsafe { super::string(attr.name) } {
        Some(name) => Some(name.to_str().map_err(|_| Errno::EINVAL)?),
        // Only a shared table, which has a name, can be opened for reading alone.
        None => None,
    };
    // Only addresses for scalable endpoints contain the number of a receive context.
    let rx_ctx_bits = u32::try_from(attr.rx_ctx_bits).unwrap_or(u32::MAX);
    let rx_ctx_bits = match rx_ctx_bits <= MAX_RX_CTX_BITS {
        true => rx_ctx_bits,
        false => {
            log::warn!(
                target: domain.target,
                "fi_av_open: rx_ctx_bits is {}, which is ignored",
                attr.rx_ctx_bits
            );
            0
        }
    };
    // Without a context there is nothing to import, and the vector is an ordinary one.
    let is_imported = attr.flags & FI_PEER != 0 && !context.is_null();
    let config = Config {
        format: domain.format.ok_or(Errno::ENOSYS)?,
        rx_ctx_bits,
        user_ids: attr.flags & FI_AV_USER_ID != 0,
        takes_user_ids: domain.user_ids,
        auth_key_size: domain
            .auth_key_size
            .filter(|_| domain.api_version >= version(1, 20)),
        asynchronous: attr.flags & FI_EVENT != 0,
        is_strict: domain.is_strict,
        count: attr.count,
        shared: name.map(|name| Name {
            name,
            domain: domain.name,
            read_only: attr.flags & FI_READ != 0,
            count: attr.count,
        }),
        target: domain.target,
    };
    let (av, context) = if !is_imported {
        (Av::open(&config)?, context)
    } else {
        // SAFETY: the caller guarantees that the context is null or a valid `fi_peer_av_context`.
        let owner = unsafe { peer::import(context) };
        let imported = owner.and_then(|owner| Av::import(&config, owner));
        let av = imported.map_err(|_| refused("there is nothing to import"))?;
        (av, std::ptr::null_mut())
    };
    if asked == any {
        let default = if domain.av_type == any {
            FI_AV_TABLE
        } else {
            domain.av_type
        };
        attr.type_ = default as _;
    }
    if name.is_some() {
        attr.map_addr = std::ptr::without_provenance_mut(av.map_addr());
    }
    Ok(Handle::new(av, context, vec![parent]))
}

impl Class for Av {
    type Header = fid_av;

    fn class(&self) -> usize {
        FI_CLASS_AV
    }

    fn header(&self, fid: fid) -> fid_av {
        static OPS: fi_ops_av = fi_ops_av {
            size: size_of::<fi_ops_av>(),
            insert: Some(insert),
            insertsvc: Some(insertsvc),
            insertsym: Some(insertsym),
            remove: Some(remove),
            lookup: Some(lookup),
            straddr: Some(straddr),
            av_set: Some(set::av_set),
            insert_auth_key: Some(insert_auth_key),
            lookup_auth_key: Some(lookup_auth_key),
            set_user_id: Some(set_user_id),
            lookup2: Some(lookup2),
        };
        fid_av {
            fid,
            ops: (&raw const OPS).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        this.report_to_nobody();
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let eq = other.expect::<Eq>()?;
        this.report_to(Arc::new(EventsIn {
            eq: Use::of(&eq),
            av: Opaque(this.fid().cast()),
        }))
    }
}

/// The event queue of an asynchronous vector.
struct EventsIn {
    eq: Use<Eq>,
    av: Opaque,
}

impl InsertEvents for EventsIn {
    fn failed(&self, context: *mut c_void, index: usize, error: Errno) {
        let error = EventError {
            data: index as u64,
            ..EventError::new(self.av.0.cast(), context, error)
        };
        self.lost(self.eq.write_error(error));
    }

    fn complete(&self, context: *mut c_void, count: usize) {
        self.lost(self.eq.write(Event {
            kind: FI_AV_COMPLETE,
            body: EventBody::Control {
                fid: self.av.0.cast(),
                context,
                data: count as u64,
            },
        }));
    }
}

impl EventsIn {
    /// The queue itself reports that it has lost events.
    fn lost(&self, outcome: Result) {
        if let Err(error) = outcome {
            log::warn!(target: prov_base::logging::UTIL.av, "event of an insertion lost: {error}");
        }
    }
}

/// The arrays for the numbers and errors of an insertion.
struct Results {
    fi_addr: *mut fi_addr_t,
    errors: *mut c_int,
}

impl Results {
    /// # Safety
    /// Both arrays are null or have more than `at` entries.
    unsafe fn note(&self, at: usize, outcome: Result<fi_addr_t>) {
        // SAFETY: the caller guarantees that both arrays are null or have more than `at` entries.
        unsafe {
            if !self.fi_addr.is_null() {
                let number = outcome.unwrap_or(FI_ADDR_NOTAVAIL as fi_addr_t);
                self.fi_addr.add(at).write(number);
            }
            if !self.errors.is_null() {
                let error = outcome.err().map_or(0, Errno::number);
                self.errors.add(at).write(error);
            }
        }
    }
}

/// Inserts addresses, for each of the three calls.
///
/// # Safety
/// `av` is an open vector; `fi_addr` is null or has an entry for each address,
/// and so has `context` under `FI_SYNC_ERR`.
unsafe fn insert_all<'a>(
    av: *mut fid_av,
    addresses: impl Iterator<Item = Result<Address<'a>>>,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> Result<usize> {
    // Errors are not reported if the application passes no array for them; flags without a meaning
    // are ignored.
    let reports_errors = flags & FI_SYNC_ERR != 0 && !context.is_null();
    let reads_numbers = flags & (FI_AV_USER_ID | FI_AUTH_KEY) != 0;
    if reads_numbers && fi_addr.is_null() {
        return Err(Errno::EINVAL);
    }
    let results = Results {
        fi_addr,
        errors: if reports_errors {
            context.cast()
        } else {
            std::ptr::null_mut()
        },
    };
    let insertions = addresses.enumerate().map(|(at, addr)| {
        // SAFETY: the caller guarantees that there is an entry for each address; it is read before
        // the address's result overwrites it.
        let number = reads_numbers.then(|| unsafe { fi_addr.add(at).read() });
        Insertion {
            addr,
            user_id: number.filter(|_| flags & FI_AV_USER_ID != 0),
            auth_key: number.filter(|_| flags & FI_AUTH_KEY != 0),
            only_calls: flags & FI_FIREWALL_ADDR != 0,
        }
    });
    // SAFETY: the caller guarantees that the vector is open and that the arrays are null or have an
    // entry for each address.
    unsafe {
        let av = Handle::<Av>::borrow(av);
        av.insert_with_events(insertions, context, |at, outcome| results.note(at, outcome))
    }
}

/// The return value of an insertion.
fn inserted(outcome: Result<usize>) -> c_int {
    match outcome {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(error) => error.to_c(),
    }
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application passes an open vector and `count` addresses of
    // its format.
    unsafe {
        let format = Handle::<Av>::borrow(av).format();
        let outcome = Addresses::new(format, addr, count)
            .and_then(|addresses| insert_all(av, addresses, fi_addr, flags, context));
        inserted(outcome)
    }
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are those of this function; the range has one address.
    unsafe { insertsym(av, node, 1, service, 1, fi_addr, flags, context) }
}

unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    node_count: usize,
    service: *const c_char,
    service_count: usize,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application passes an open vector, and texts that are terminated or null.
    unsafe {
        let format = Handle::<Av>::borrow(av).format();
        if !format.is_internet() {
            return Errno::ENOSYS.to_c();
        }
        let family = match format.number() {
            FI_SOCKADDR_IN => libc::AF_INET,
            FI_SOCKADDR_IN6 => libc::AF_INET6,
            _ => 0,
        };
        let (node, service) = (super::string(node), super::string(service));
        let outcome =
            Symmetric::new(node, node_count, service, service_count, family).and_then(|range| {
                let addresses = range.addresses().map(|addr| addr.map(Address::Internet));
                if range.is_numeric() {
                    return insert_all(av, addresses, fi_addr, flags, context);
                }
                // Names are resolved before the vector is locked.
                let resolved: Vec<_> = addresses.collect();
                insert_all(av, resolved.into_iter(), fi_addr, flags, context)
            });
        inserted(outcome)
    }
}

unsafe extern "C" fn remove(
    av: *mut fid_av,
    fi_addr: *mut fi_addr_t,
    count: usize,
    flags: u64,
) -> c_int {
    if fi_addr.is_null() && count != 0 {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the application passes an open vector and an array of `count` addresses.
    let (av, numbers) = unsafe {
        let numbers = match count {
            0 => &[][..],
            count => std::slice::from_raw_parts(fi_addr, count),
        };
        (Handle::<Av>::borrow(av), numbers)
    };
    let is_known = flags & !FI_AUTH_KEY == 0;
    if av.is_strict() && !is_known {
        return Errno::EINVAL.to_c();
    }
    status(if is_known && flags & FI_AUTH_KEY != 0 {
        av.remove_auth_keys(numbers)
    } else {
        av.remove(numbers)
    })
}

unsafe extern "C" fn lookup(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the application passes an open vector.
    let av = unsafe { Handle::<Av>::borrow(av) };
    let format = av.format();
    let copied = av.with_address(fi_addr, |found| {
        // SAFETY: the application passes a length and a buffer of as many bytes.
        format.write(found, |bytes| unsafe { copy_out(bytes, addr, len) })
    });
    status(copied.ok_or(Errno::EINVAL).flatten())
}

unsafe extern "C" fn lookup2(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    buf: *mut c_void,
    len: *mut usize,
    flags: u64,
    _ctx: *mut fid_xpu_ctx,
) -> c_int {
    if flags != 0 {
        return Errno::ENOSYS.to_c();
    }
    // SAFETY: the arguments are those of this function, for which the application keeps the same
    // contract.
    unsafe { lookup(av, fi_addr, buf, len) }
}

/// Copies as much as fits, and reports the whole length.
///
/// # Safety
/// `len` is null or readable and writable, and `buf` has room for `*len` bytes.
unsafe fn copy_out(bytes: &[u8], buf: *mut c_void, len: *mut usize) -> Result {
    if len.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller guarantees that the pointers are null or valid, as fi_av(3) demands.
    unsafe {
        let fits = bytes.len().min(len.read());
        if fits != 0 && buf.is_null() {
            return Err(Errno::EINVAL);
        }
        buf.cast::<u8>().copy_from(bytes.as_ptr(), fits);
        len.write(bytes.len());
    }
    Ok(())
}

unsafe extern "C" fn straddr(
    av: *mut fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    if addr.is_null() || len.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the application passes an open vector, an address of its format
    // and a buffer of `*len` bytes.
    unsafe {
        let format = Handle::<Av>::borrow(av).format();
        let text = addresses::bytes_to_print(format, addr).ok();
        let Some(text) = text.and_then(|bytes| format.to_text(bytes)) else {
            return std::ptr::null();
        };
        let mut text = text.into_bytes();
        let needed = text.len() + 1;
        let room = len.read();
        len.write(needed);
        if room != 0 && !buf.is_null() {
            text.truncate(room - 1);
            text.push(0);
            buf.cast::<u8>().copy_from(text.as_ptr(), text.len());
        }
    }
    buf
}

unsafe extern "C" fn insert_auth_key(
    av: *mut fid_av,
    key: *const c_void,
    size: usize,
    fi_addr: *mut fi_addr_t,
    flags: u64,
) -> c_int {
    if flags != 0 || fi_addr.is_null() || key.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the application passes an open vector, a key of `size` bytes and a writable location
    // for one address.
    unsafe {
        let handle = Handle::<Av>::borrow(av).insert_auth_key(super::bytes(key, size));
        status(handle.map(|handle| fi_addr.write(handle)))
    }
}

unsafe extern "C" fn lookup_auth_key(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    key: *mut c_void,
    size: *mut usize,
) -> c_int {
    // SAFETY: the application passes an open vector and a buffer of `*size`
    // bytes.
    status(unsafe {
        Handle::<Av>::borrow(av)
            .lookup_auth_key(fi_addr, |found| copy_out(found, key, size))
            .flatten()
    })
}

unsafe extern "C" fn set_user_id(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    user_id: fi_addr_t,
    flags: u64,
) -> c_int {
    if flags & !FI_AUTH_KEY != 0 {
        return Errno::EBADFLAGS.to_c();
    }
    // SAFETY: the application passes an open vector.
    let av = unsafe { Handle::<Av>::borrow(av) };
    status(if flags & FI_AUTH_KEY != 0 {
        av.set_auth_key_user_id(fi_addr, user_id)
    } else {
        av.set_user_id(fi_addr, user_id)
    })
}

#[cfg(test)]
mod tests;
