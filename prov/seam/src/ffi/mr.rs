//! The C interface of memory registration (fi_mr(3)).

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_abi::*;
use libc::iovec;

use super::object::{AnyFid, AnyUse, Class, Downcast, Handle, Use};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::version;
use prov_objects::cntr::Cntr;
use prov_objects::eq::{Eq, Event, EventBody};
use prov_objects::mr::{
    Allocation, Dmabuf, Interface, Memory, MemoryKind, MrTable, NO_KEY, Region, RemoteEvents,
    Request,
};
use prov_objects::progress::Progress;

/// A domain with memory registration.
pub trait MrDomain: Class<Header = fid_domain> {
    /// Returns its registrations.
    fn mr_table(&self) -> &Arc<MrTable>;
    /// Returns the interface version of the application, which determines the size of `fi_mr_attr`.
    fn api_version(&self) -> u32;

    /// Returns the event queue to which registrations are reported (`FI_REG_MR`).
    fn mr_eq(&self) -> Option<Use<Eq>> {
        None
    }

    /// Returns the engine that receives the accesses of peers, which regions may count.
    fn access_progress(&self) -> Option<Arc<dyn Progress>> {
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
    /// The engine that receives the accesses that are counted.
    progress: Option<Arc<dyn Progress>>,
    /// Whether an endpoint was bound.
    has_endpoint: AtomicBool,
}

impl Mr {
    /// Returns the region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns whether the region must be bound to an endpoint before it is enabled.
    fn needs_endpoint(&self) -> bool {
        self.table.mode() & FI_MR_ENDPOINT != 0
    }
}

/// Flags about the kind of memory, for calls with the corresponding attributes.
const PLACE_FLAGS: u64 = FI_MR_DMABUF | FI_HMEM_DEVICE_ONLY | FI_HMEM_HOST_ALLOC;

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
    // SAFETY: `iov` is a vector of one entry, and the other arguments are those of this function,
    // for which the application keeps the same contract.
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
    // SAFETY: the application passes an open domain, a vector of `count` entries and a writable
    // location for the result.
    unsafe {
        register::<D>(domain, mr, context, || {
            ignore_offset(offset);
            let request = Request::new(memory(iov, count)?, access, key);
            // These calls cannot describe other memory than ordinary one.
            let flags = flags & !PLACE_FLAGS;
            Ok((Request { flags, ..request }, None))
        })
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
    // SAFETY: the application passes an open domain, a structure of its interface version, and a
    // writable location for the result.
    unsafe {
        let context = (&raw const (*attr).context).read();
        let api_version = Handle::<D>::borrow(domain.cast()).api_version();
        register::<D>(domain, mr, context, || request(attr, flags, api_version))
    }
}

/// fi_mr(3) requires the offset to be 0. Regions start at the beginning of their memory.
fn ignore_offset(offset: u64) {
    if offset != 0 {
        log::warn!(
            target: prov_base::logging::UTIL.mr,
            "registration with offset {offset}, which is ignored"
        );
    }
}

/// A registration request, and the region that it is a part of.
type Wanted = (Request, Option<Handle<Mr>>);

/// Reads the request in a structure of fi_mr_regattr(3).
///
/// # Safety
/// `attr` is as an interface of this version has it, and what it leads to is as
/// fi_mr(3) asks.
unsafe fn request(attr: *const fi_mr_attr, flags: u64, api_version: u32) -> Result<Wanted> {
    let since = |major, minor| api_version >= version(major, minor);
    // SAFETY: the caller guarantees that the structure has the members of this interface version;
    // members are read one by one, and those of later versions are not read.
    unsafe {
        ignore_offset((&raw const (*attr).offset).read());
        let auth_key = match since(1, 5) {
            true => authorization(
                (&raw const (*attr).auth_key).read(),
                (&raw const (*attr).auth_key_size).read(),
            )?,
            false => None,
        };
        let base = match since(2, 0) {
            true => (&raw const (*attr).base_mr).read().cast_mut(),
            false => std::ptr::null_mut(),
        };
        let base = match base.is_null() {
            true => None,
            false => Some(AnyFid::new(base.cast())?.expect::<Mr>()?),
        };
        let iov = (&raw const (*attr).mr_iov).read();
        let count = (&raw const (*attr).iov_count).read();
        let dmabuf = match flags & FI_MR_DMABUF {
            0 => None,
            _ if base.is_some() || count != 1 => return Err(Errno::EINVAL),
            _ => iov.cast::<fi_mr_dmabuf>().as_ref(),
        };
        let memory = match dmabuf {
            Some(dmabuf) => shared_file(dmabuf)?,
            None if flags & FI_MR_DMABUF != 0 => return Err(Errno::EINVAL),
            None => memory(iov, count)?,
        };
        let kind = match &base {
            // A part has the same kind of memory as the whole.
            Some(base) => *base.region.kind(),
            None => MemoryKind {
                interface: match since(1, 10) {
                    true => interface(attr)?,
                    false => Interface::System,
                },
                allocation: Allocation::from_flags(flags),
                dmabuf: dmabuf.map(|dmabuf| Dmabuf {
                    fd: dmabuf.fd,
                    offset: dmabuf.offset,
                    base: dmabuf.base_addr.addr(),
                }),
            },
        };
        let request = Request {
            memory,
            access: (&raw const (*attr).access).read(),
            key: (&raw const (*attr).requested_key).read(),
            flags: flags & !PLACE_FLAGS,
            kind,
            part_of: base.as_ref().map(|base| base.region.clone()),
            auth_key,
        };
        Ok((request, base))
    }
}

/// Returns the memory of an I/O vector.
///
/// # Safety
/// `iov` is null or has `count` entries, whose memory obeys fi_mr(3).
unsafe fn memory(iov: *const iovec, count: usize) -> Result<Memory> {
    if iov.is_null() || count == 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller guarantees that the vector has `count` entries, whose memory obeys
    // fi_mr(3); it is not null, which was checked.
    unsafe { Memory::new(std::slice::from_raw_parts(iov, count)) }
}

/// Returns the memory of a dma-buf file.
///
/// # Safety
/// It obeys fi_mr(3).
unsafe fn shared_file(dmabuf: &fi_mr_dmabuf) -> Result<Memory> {
    let offset = usize::try_from(dmabuf.offset).map_err(|_| Errno::EINVAL)?;
    let address = dmabuf.base_addr.addr().checked_add(offset);
    let iov = iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(address.ok_or(Errno::EINVAL)?),
        iov_len: dmabuf.len,
    };
    // SAFETY: the caller guarantees that the structure obeys fi_mr(3).
    unsafe { Memory::new(&[iov]) }
}

/// Returns the memory's interface; `-FI_ENOSYS` for an unknown one.
///
/// # Safety
/// The structure has the members for it.
unsafe fn interface(attr: *const fi_mr_attr) -> Result<Interface> {
    // SAFETY: the caller guarantees that the structure has these members; every device in the union
    // is an integer that is not longer than `cuda` and is at the union's beginning.
    let (number, device) = unsafe {
        (
            (&raw const (*attr).iface).read(),
            (&raw const (*attr).device.cuda).read(),
        )
    };
    Interface::new(number, device).ok_or(Errno::ENOSYS)
}

/// Returns the authorization key of a registration, if there is one; a size with a null pointer is
/// none.
///
/// # Safety
/// `key` is null or has `size` bytes.
unsafe fn authorization(key: *const u8, size: usize) -> Result<Option<Vec<u8>>> {
    if size == 0 || key.is_null() {
        return Ok(None);
    }
    if size > isize::MAX as usize {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller guarantees that the key has `size` bytes.
    Ok(Some(unsafe { super::bytes(key.cast(), size) }.to_vec()))
}

/// Performs the registration `wanted`, delivers the region, and reports it if registration is
/// asynchronous.
///
/// # Safety
/// `domain` is an open domain of type `D`; `place` is null or may be written.
unsafe fn register<D: MrDomain>(
    domain: *mut fid,
    place: *mut *mut fid_mr,
    context: *mut c_void,
    wanted: impl FnOnce() -> Result<Wanted>,
) -> c_int {
    if place.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller guarantees that `domain` is an open domain of type `D`.
    let domain = unsafe { Handle::<D>::from_c(domain.cast()) };
    let made = wanted().and_then(|(request, base)| open(&domain, request, base, context));
    let about = made.as_ref().ok().map(|mr| (mr.fid(), mr.context()));
    // SAFETY: the caller guarantees that `place` is null or writable.
    let status = unsafe { super::deliver(place, made) };
    if let (Some(eq), Some((fid, context))) = (domain.mr_eq(), about) {
        let event = Event {
            kind: FI_MR_COMPLETE,
            body: EventBody::Control {
                fid,
                context,
                data: 0,
            },
        };
        if let Err(error) = eq.write(event) {
            log::warn!(target: prov_base::logging::UTIL.mr, "event of a registration lost: {error}");
        }
    }
    status
}

fn open<D: MrDomain>(
    domain: &Handle<D>,
    request: Request,
    base: Option<Handle<Mr>>,
    context: *mut c_void,
) -> Result<Handle<Mr>> {
    let table = domain.mr_table().clone();
    let mut parents: Vec<AnyUse> = vec![Use::of(domain).any()];
    if let Some(base) = base {
        let is_part = base.region.memory().contains(&request.memory);
        if !is_part || !Arc::ptr_eq(&base.table, &table) {
            return Err(Errno::EINVAL);
        }
        parents.push(Use::of(&base).any());
    }
    let mr = Mr {
        region: table.register(request)?,
        table,
        progress: domain.access_progress(),
        has_endpoint: AtomicBool::new(false),
    };
    Ok(Handle::new(mr, context, parents))
}

/// The counter of accesses by peers.
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
            mem_desc: std::ptr::without_provenance_mut(self.region.desc()),
            key: match self.table.mode() & FI_MR_RAW {
                0 => self.region.key(),
                // The raw key has to be used.
                _ => NO_KEY,
            },
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        this.table.close(&this.region)
    }

    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        let set_up_first = this.needs_endpoint() || this.table.mode() & FI_MR_RMA_EVENT != 0;
        if set_up_first && this.region.is_enabled() {
            return Err(Errno::EOPBADSTATE);
        }
        match other.class() {
            FI_CLASS_EP => {
                if flags != 0 {
                    return Err(Errno::EBADFLAGS);
                }
                if this.needs_endpoint() {
                    let keep = other.keep_open()?;
                    this.region.bind(other)?;
                    this.keep_open(keep);
                    this.has_endpoint.store(true, Ordering::Release);
                }
                Ok(())
            }
            FI_CLASS_CNTR => {
                let counted = FI_REMOTE_READ | FI_REMOTE_WRITE;
                if flags == 0 || flags & !counted != 0 {
                    return Err(Errno::EBADFLAGS);
                }
                let cntr = other.expect::<Cntr>()?;
                if let Some(progress) = &this.progress {
                    // Undone when the region is closed.
                    cntr.add_source(progress.clone())?;
                }
                let counter = Arc::new(CountIn(Use::of(&cntr)));
                this.table.count_in(&this.region, flags, counter)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        match command {
            FI_GET_RAW_MR => {
                // SAFETY: the application passes an argument of the command's type, which is this
                // structure.
                unsafe { raw_attr(this, arg.cast()) }
            }
            FI_REFRESH => {
                // SAFETY: the application passes an argument of the command's type, which is this
                // structure.
                unsafe { refresh(this, arg.cast()) }
            }
            FI_ENABLE => {
                if this.needs_endpoint() && !this.has_endpoint.load(Ordering::Acquire) {
                    return Err(Errno::EINVAL);
                }
                this.table.enable(&this.region)
            }
            _ => Err(Errno::ENOSYS),
        }
        .map(|()| 0)
    }
}

/// # Safety
/// `attr` is null or as fi_mr_raw_attr(3) passes it.
unsafe fn raw_attr(mr: &Mr, attr: *mut fi_mr_raw_attr) -> Result {
    // SAFETY: the caller guarantees that the structure is null or valid, and its pointers null or
    // writable.
    unsafe {
        let attr = attr.as_ref().ok_or(Errno::EINVAL)?;
        if attr.key_size.is_null() {
            return Err(Errno::EINVAL);
        }
        let (base, key) = (mr.region.base(), mr.region.raw_key());
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

/// # Safety
/// `modify` is null or as fi_mr_refresh(3) passes it.
unsafe fn refresh(mr: &Mr, modify: *const fi_mr_modify) -> Result {
    // SAFETY: the caller guarantees that the structure is null or valid, and its vector null or of
    // the stated length.
    let iov = unsafe {
        let modify = modify.as_ref().ok_or(Errno::EINVAL)?;
        match (modify.attr.mr_iov, modify.attr.iov_count) {
            (iov, count) if iov.is_null() || count == 0 => &[],
            (iov, count) => std::slice::from_raw_parts(iov, count),
        }
    };
    let part = |piece: &iovec| {
        // SAFETY: only memory is accessed that is part of the region, which the application has
        // registered.
        let part = unsafe { Memory::new(std::slice::from_ref(piece)) }?;
        match mr.region.memory().contains(&part) {
            true => Ok(part),
            false => Err(Errno::EINVAL),
        }
    };
    let parts: Vec<Memory> = iov.iter().map(part).collect::<Result<_>>()?;
    mr.region.refresh(&parts)
}

/// Handles the commands of fi_control(3) on a domain that concern registrations; `None` for others.
///
/// # Safety
/// `arg` is what the command asks for.
pub unsafe fn control(table: &MrTable, command: c_int, arg: *mut c_void) -> Option<Result<c_int>> {
    if command == FI_UNMAP_KEY as c_int {
        // SAFETY: the caller guarantees that the argument has the command's type, which is a key.
        let key = unsafe { arg.cast::<u64>().as_ref() };
        let unmapped = key.ok_or(Errno::EINVAL).and_then(|&key| table.unmap(key));
        return Some(unmapped.map(|()| 0));
    }
    if command != FI_MAP_RAW_MR as c_int {
        return None;
    }
    // SAFETY: the application passes an argument of the command's type, which is this structure.
    let map = unsafe { arg.cast::<fi_mr_map_raw>().as_ref() };
    let mapped = map.ok_or(Errno::EINVAL).and_then(|map| {
        if map.key.is_null() || map.raw_key.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller guarantees that the raw key has the stated size and that the location
        // of the key is writable.
        unsafe {
            let raw = super::bytes(map.raw_key.cast(), map.key_size);
            let key = table.map_raw(map.base_addr, raw)?;
            map.key.write(key);
        }
        Ok(0)
    });
    Some(mapped)
}

#[cfg(test)]
mod tests;
