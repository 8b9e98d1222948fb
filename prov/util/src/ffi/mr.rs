//! Memory registrations as C sees them (fi_mr(3)).

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use fabric_abi::*;
use libc::iovec;
use parking_lot::Mutex;

use super::object::{AnyFid, AnyUse, Class, Handle, Use};
use crate::attr::version;
use crate::cntr::Cntr;
use crate::eq::{Eq, Event, EventBody};
use crate::errno::{Errno, Result};
use crate::mr::{Memory, MrTable, Region, RemoteEvents, Request};

/// A domain that registers memory.
pub trait MrDomain: Class<Header = fid_domain> {
    /// Its registrations.
    fn mr_table(&self) -> &Arc<MrTable>;
    /// Interface version of the application, on which the size of `fi_mr_attr`
    /// depends.
    fn api_version(&self) -> u32;

    /// The event queue that registrations report to (`FI_REG_MR`).
    fn mr_eq(&self) -> Option<Use<Eq>> {
        None
    }
}

/// The `fi_ops_mr` of domains of type `D`.
pub struct MrOps<D>(std::marker::PhantomData<D>);

impl<D: MrDomain> MrOps<D> {
    /// The table.
    pub const TABLE: &'static fi_ops_mr = &fi_ops_mr {
        size: size_of::<fi_ops_mr>(),
        reg: Some(reg::<D>),
        regv: Some(regv::<D>),
        regattr: Some(regattr::<D>),
    };
}

/// A registered region.
pub struct Mr {
    region: Arc<Region>,
    table: Arc<MrTable>,
    /// The endpoint that a region of an `FI_MR_ENDPOINT` domain is bound to.
    endpoint: Mutex<Option<*mut fid>>,
}

// SAFETY: the endpoint's address is only compared.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// What is registered.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Whether the region must be bound to an endpoint before it is enabled.
    fn needs_endpoint(&self) -> bool {
        self.table.mode() & FI_MR_ENDPOINT != 0
    }
}

/// The arguments of any of the three calls.
struct Arguments {
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
    /// The key that peers must have proved; `None` for the domain's.
    auth_key: Option<Vec<u8>>,
}

unsafe extern "C" fn reg<D: MrDomain>(
    domain: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let iov = iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    };
    // SAFETY: an I/O vector of one entry; the rest is as the caller passes it.
    unsafe { regv::<D>(domain, &iov, 1, access, offset, key, flags, mr, context) }
}

unsafe extern "C" fn regv<D: MrDomain>(
    domain: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let arguments = Arguments {
        access,
        offset,
        key,
        flags,
        context,
        auth_key: None,
    };
    // SAFETY: the application passes an open domain, an I/O vector of `count`
    // entries and a place for the result.
    unsafe {
        let domain = Handle::<D>::from_c(domain.cast());
        finish(
            &*domain,
            mr,
            register(&domain, iov, count, &arguments, None),
        )
    }
}

unsafe extern "C" fn regattr<D: MrDomain>(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    if attr.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the application passes an open domain and a place for the
    // result. Its structure may be shorter than ours, so members are read one
    // by one, those that its interface version does not have not at all.
    unsafe {
        let domain = Handle::<D>::from_c(domain.cast());
        let since = |major, minor| domain.api_version() >= version(major, minor);
        let auth_key = match since(1, 5) {
            true => authorization(
                (&raw const (*attr).auth_key).read(),
                (&raw const (*attr).auth_key_size).read(),
            ),
            false => Ok(None),
        };
        let auth_key = match auth_key {
            Ok(auth_key) => auth_key,
            Err(error) => return error.to_c(),
        };
        if since(1, 10) && (&raw const (*attr).iface).read() != FI_HMEM_SYSTEM {
            return Errno::ENOSYS.to_c();
        }
        let base = match since(2, 0) {
            true => (&raw const (*attr).base_mr).read().cast_mut(),
            false => std::ptr::null_mut(),
        };
        let base = match base.is_null() {
            true => None,
            false => match AnyFid::new(base.cast()).and_then(AnyFid::expect::<Mr>) {
                Ok(base) => Some(base),
                Err(error) => return error.to_c(),
            },
        };
        let arguments = Arguments {
            access: (&raw const (*attr).access).read(),
            offset: (&raw const (*attr).offset).read(),
            key: (&raw const (*attr).requested_key).read(),
            flags,
            context: (&raw const (*attr).context).read(),
            auth_key,
        };
        let iov = (&raw const (*attr).mr_iov).read();
        let count = (&raw const (*attr).iov_count).read();
        finish(
            &*domain,
            mr,
            register(&domain, iov, count, &arguments, base),
        )
    }
}

/// The authorization key of a registration, where there is one.
///
/// # Safety
/// `key` is null or has `size` bytes.
unsafe fn authorization(key: *const u8, size: usize) -> Result<Option<Vec<u8>>> {
    if size == 0 {
        return Ok(None);
    }
    if key.is_null() || size > isize::MAX as usize {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller vouches for the pointer.
    Ok(Some(unsafe { super::bytes(key.cast(), size) }.to_vec()))
}

/// # Safety
/// `iov` is null or has `count` entries, whose memory obeys fi_mr(3).
unsafe fn register<D: MrDomain>(
    domain: &Handle<D>,
    iov: *const iovec,
    count: usize,
    arguments: &Arguments,
    base: Option<Handle<Mr>>,
) -> Result<Handle<Mr>> {
    if iov.is_null() || count == 0 || arguments.offset != 0 {
        return Err(Errno::EINVAL);
    }
    // The other kinds of memory come with flags of their own.
    if arguments.flags & (FI_MR_DMABUF | FI_HMEM_DEVICE_ONLY | FI_HMEM_HOST_ALLOC) != 0 {
        return Err(Errno::EBADFLAGS);
    }
    // SAFETY: the caller vouches for the vector and its memory.
    let memory = unsafe { Memory::new(std::slice::from_raw_parts(iov, count)) }?;
    let mut parents: Vec<AnyUse> = vec![Use::of(domain).any()];
    if let Some(base) = base {
        if !base.region.memory().contains(&memory) {
            return Err(Errno::EINVAL);
        }
        parents.push(Use::of(&base).any());
    }
    let table = domain.mr_table().clone();
    let region = table.register(Request {
        memory,
        access: arguments.access,
        key: arguments.key,
        flags: arguments.flags,
        auth_key: arguments.auth_key.clone(),
    })?;
    let mr = Mr {
        region,
        table,
        endpoint: Mutex::default(),
    };
    Ok(Handle::new(mr, arguments.context, parents))
}

/// Hands the region out, and reports it where registrations are asynchronous.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn finish<D: MrDomain>(
    domain: &D,
    place: *mut *mut fid_mr,
    made: Result<Handle<Mr>>,
) -> c_int {
    let about = made.as_ref().ok().map(|mr| (mr.fid(), mr.context()));
    // SAFETY: the caller vouches for the place.
    let status = unsafe { super::deliver(place, made) };
    if status == 0
        && let (Some(eq), Some((fid, context))) = (domain.mr_eq(), about)
    {
        let event = Event {
            kind: FI_MR_COMPLETE,
            body: EventBody::Control {
                fid,
                context,
                data: 0,
            },
        };
        if let Err(error) = eq.write(event) {
            log::warn!(target: crate::logging::UTIL.mr, "event of a registration lost: {error}");
        }
    }
    status
}

/// A counter of accesses by peers.
struct CountIn(Use<Cntr>);

impl RemoteEvents for CountIn {
    fn accessed(&self, bytes: usize) {
        self.0.count(bytes);
    }
}

impl Class for Mr {
    type Header = fid_mr;

    fn class(&self) -> usize {
        FI_CLASS_MR
    }

    fn header(&self, fid: fid) -> fid_mr {
        fid_mr {
            fid,
            // Nothing looks behind a descriptor, but it must not be null.
            mem_desc: Arc::as_ptr(&self.region).cast_mut().cast(),
            key: self.region.key(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        this.table.close(&this.region);
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid, flags: u64) -> Result {
        let set_up_first = this.needs_endpoint() || this.table.mode() & FI_MR_RMA_EVENT != 0;
        if set_up_first && this.region.is_enabled() {
            return Err(Errno::EOPBADSTATE);
        }
        match other.class() {
            FI_CLASS_EP => {
                if flags != 0 {
                    return Err(Errno::EBADFLAGS);
                }
                *this.endpoint.lock() = Some(other.as_ptr());
                Ok(())
            }
            FI_CLASS_CNTR => {
                if flags & !(FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
                    return Err(Errno::EBADFLAGS);
                }
                let cntr = other.expect::<Cntr>()?;
                let counter = CountIn(Use::of(&cntr));
                this.region.count_in(flags, Arc::new(counter));
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        match command {
            FI_GET_RAW_MR => {
                // SAFETY: the command's argument is this structure.
                unsafe { raw_attr(this, arg.cast()) }
            }
            FI_REFRESH => {
                // SAFETY: the command's argument is this structure.
                unsafe { refresh(this, arg.cast()) }
            }
            FI_ENABLE => {
                let endpoint = this.endpoint.lock();
                if this.needs_endpoint() && endpoint.is_none() {
                    return Err(Errno::EINVAL);
                }
                this.region.enable();
                Ok(())
            }
            _ => Err(Errno::ENOSYS),
        }
        .map(|()| 0)
    }
}

/// # Safety
/// `attr` is null or as fi_mr_raw_attr(3) passes it.
unsafe fn raw_attr(mr: &Mr, attr: *mut fi_mr_raw_attr) -> Result {
    // SAFETY: the caller vouches for the structure and what it points to.
    unsafe {
        let attr = attr.as_ref().ok_or(Errno::EINVAL)?;
        if attr.key_size.is_null() {
            return Err(Errno::EINVAL);
        }
        let (base, key) = mr.table.raw_attr(&mr.region);
        let room = attr.key_size.read();
        attr.key_size.write(key.len());
        if !attr.base_addr.is_null() {
            attr.base_addr.write(base);
        }
        if room < key.len() {
            return Err(Errno::ETOOSMALL);
        }
        if attr.raw_key.is_null() {
            return Err(Errno::EINVAL);
        }
        attr.raw_key
            .copy_from_nonoverlapping(key.as_ptr(), key.len());
    }
    Ok(())
}

/// Pages are looked up when they are accessed, so a refresh only has to be
/// about the region.
///
/// # Safety
/// `modify` is null or as fi_mr_refresh(3) passes it.
unsafe fn refresh(mr: &Mr, modify: *const fi_mr_modify) -> Result {
    // SAFETY: the caller vouches for the structure and its I/O vector.
    let iov = unsafe {
        let modify = modify.as_ref().ok_or(Errno::EINVAL)?;
        let (iov, count) = (modify.attr.mr_iov, modify.attr.iov_count);
        if iov.is_null() || count == 0 {
            return Ok(());
        }
        std::slice::from_raw_parts(iov, count)
    };
    for piece in iov {
        // SAFETY: nothing is accessed through it.
        let piece = unsafe { Memory::new(std::slice::from_ref(piece)) }?;
        if !mr.region.memory().contains(&piece) {
            return Err(Errno::EINVAL);
        }
    }
    Ok(())
}

/// The commands of `fi_control` on a domain that concern registrations:
/// `None` for others.
///
/// # Safety
/// `arg` is what the command asks for.
pub unsafe fn control(table: &MrTable, command: c_int, arg: *mut c_void) -> Option<Result<c_int>> {
    if command == FI_UNMAP_KEY as c_int {
        // Mapping a key takes nothing that could be given back.
        return Some(Ok(0));
    }
    if command != FI_MAP_RAW_MR as c_int {
        return None;
    }
    // SAFETY: the command's argument is this structure.
    let map = unsafe { arg.cast::<fi_mr_map_raw>().as_ref() };
    let mapped = map.ok_or(Errno::EINVAL).and_then(|map| {
        if map.key.is_null() || map.raw_key.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the application passes a raw key of that size and a place
        // for the key.
        unsafe {
            let key = table.map_raw(super::bytes(map.raw_key.cast(), map.key_size))?;
            map.key.write(key);
        }
        Ok(0)
    });
    Some(mapped)
}

#[cfg(test)]
mod tests;
