//! Fabric objects: a C structure that starts with a `fid`, followed by the Rust value, in one
//! reference-counted allocation.
//!
//! The application holds one reference from the call that opened the object to fi_close(3). Inside
//! the library a [`Handle`] keeps the memory, and a [`Use`] in addition keeps the object open:
//! fi_close(3) of an object in use returns `-FI_EBUSY`.

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fabric_abi::{fi_ops, fi_ops_ep, fid, fid_ep};

use prov_base::errno::{Errno, Result};
pub use prov_layer::missing::{self, status};
pub use prov_objects::fid::AnyFid;

/// A C structure of the interface whose first member is a `fid`.
///
/// # Safety
/// Implementors are `repr(C)` and begin with `fabric_abi::fid`.
pub unsafe trait Header: 'static {}

macro_rules! headers {
    ($($name:ident),*) => {
        $(
            // SAFETY: the structure begins with a `fid`, as the interface specifies and the layout
            // test of fabric-abi checks.
            unsafe impl Header for fabric_abi::$name {}
        )*
    };
}

headers!(
    fid_fabric, fid_domain, fid_ep, fid_pep, fid_cq, fid_eq, fid_cntr, fid_av, fid_mr, fid_wait,
    fid_poll, fid_stx, fid_av_set, fid_mc, fid
);

/// A type whose values are objects of the C interface.
pub trait Class: Send + Sync + Sized + 'static {
    /// The C structure, such as `fid_cq`.
    type Header: Header;

    /// `FI_CLASS_*`.
    fn class(&self) -> usize;

    /// Returns the structure with its function tables, around the given `fid`.
    fn header(&self, fid: fid) -> Self::Header;

    /// Implements fi_close(3): called when the object has no users. An error leaves the object
    /// open.
    fn close(_this: &Handle<Self>) -> Result {
        Ok(())
    }

    /// Implements fi_ep_bind(3) and its relatives.
    fn bind(_this: &Handle<Self>, _other: AnyFid<'_>, _flags: u64) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_control(3).
    ///
    /// # Safety
    /// `arg` is what fi_control(3) asks for `command`.
    unsafe fn control(_this: &Handle<Self>, _command: c_int, _arg: *mut c_void) -> Result<c_int> {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_set_ops(3): takes a table of functions of the application.
    ///
    /// # Safety
    /// `ops` is the table that is known by this name.
    unsafe fn set_ops(_this: &Handle<Self>, _name: &std::ffi::CStr, _ops: *mut c_void) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_open_ops(3): returns a table of provider-specific functions.
    fn open_ops(_this: &Handle<Self>, _name: &std::ffi::CStr) -> Result<*mut c_void> {
        Err(Errno::ENOSYS)
    }
}

/// The memory layout of an object: first the C structure, then the Rust value.
#[repr(C)]
pub struct Object<T: Class> {
    /// C code may change its members (`fid::context`), hence the cell; this library writes it only
    /// before the object is shared.
    header: UnsafeCell<T::Header>,
    inner: T,
    users: AtomicUsize,
    closed: AtomicBool,
    /// Objects that must stay open as long as this one is.
    parents: Mutex<Vec<AnyUse>>,
}

// SAFETY: `T` is Send and Sync by the bound of `Class`; once the object is shared, this library
// only reads the header, and the application's accesses follow the interface's rules.
unsafe impl<T: Class> Send for Object<T> {}
// SAFETY: a shared reference permits the same accesses, as above.
unsafe impl<T: Class> Sync for Object<T> {}

/// A reference that keeps the object's memory, but does not keep the object open.
pub struct Handle<T: Class>(Arc<Object<T>>);

/// A reference that keeps the object open.
pub struct Use<T: Class>(Handle<T>);

/// A [`Use`] of an object of any type.
#[derive(Clone)]
pub struct AnyUse(Arc<dyn Send + Sync>);

/// A reference to an object of any type for events: keeps its memory, but does not keep it open.
#[derive(Clone)]
pub struct FidRef {
    fid: *mut fid,
    _memory: Arc<dyn Send + Sync>,
}

// SAFETY: the pointer is returned to the application, and this library reads only the context,
// which the application does not change while other threads use the object.
unsafe impl Send for FidRef {}
// SAFETY: a shared reference permits the same accesses, as above.
unsafe impl Sync for FidRef {}

impl FidRef {
    /// Returns the pointer that the application has.
    pub fn as_ptr(&self) -> *mut fid {
        self.fid
    }

    /// Returns the current value of the application's context in the object.
    pub fn context(&self) -> *mut c_void {
        // SAFETY: the value keeps the object's memory, which begins with a `fid`.
        unsafe { (*self.fid).context }
    }
}

/// A function table with a mark by which this library recognises its own objects. `fi_ops::size`
/// covers the whole structure, which a foreign table's does not.
#[repr(C)]
struct MarkedOps {
    ops: fi_ops,
    mark: *const u8,
    type_id: TypeId,
    keep_open: unsafe fn(*mut fid) -> AnyUse,
}

// SAFETY: the table is never changed, so that any thread may read it.
unsafe impl Sync for MarkedOps {}

/// Its address is the mark. Another copy of this code in the process (an external provider) has
/// another address, so its objects are treated as foreign.
static MARK: u8 = 0;

struct OpsOf<T>(PhantomData<T>);

impl<T: Class> OpsOf<T> {
    const TABLE: &'static MarkedOps = &MarkedOps {
        ops: fi_ops {
            size: size_of::<MarkedOps>(),
            close: Some(close::<T>),
            bind: Some(bind::<T>),
            control: Some(control::<T>),
            ops_open: Some(ops_open::<T>),
            tostr: missing::slot(),
            ops_set: Some(ops_set::<T>),
        },
        mark: &raw const MARK,
        type_id: TypeId::of::<T>(),
        keep_open: keep_open::<T>,
    };
}

impl<T: Class> Handle<T> {
    /// Creates an object with the application's `context`; `parents` cannot be closed before it.
    pub fn new(inner: T, context: *mut c_void, parents: Vec<AnyUse>) -> Self {
        let header = inner.header(fid {
            fclass: inner.class(),
            context,
            ops: (&raw const OpsOf::<T>::TABLE.ops).cast_mut(),
        });
        Handle(Arc::new(Object {
            header: UnsafeCell::new(header),
            inner,
            users: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            parents: Mutex::new(parents),
        }))
    }

    /// Returns the address of the C structure, without a reference. As that of [`Handle::into_c`],
    /// it is a pointer to the whole object, which [`Handle::from_c`] needs.
    pub fn as_c(&self) -> *mut T::Header {
        Arc::as_ptr(&self.0).cast_mut().cast()
    }

    /// Converts the handle into the application's reference, which fi_close(3) takes back.
    pub fn into_c(self) -> *mut T::Header {
        Arc::into_raw(self.0).cast_mut().cast()
    }

    /// Returns the object's `fid`, as events report it.
    pub fn fid(&self) -> *mut fid {
        self.as_c().cast()
    }

    /// Returns a reference for events.
    pub fn named(&self) -> FidRef {
        FidRef {
            fid: self.fid(),
            _memory: self.0.clone(),
        }
    }

    /// Returns the current value of the application's context in the object.
    pub fn context(&self) -> *mut c_void {
        // SAFETY: the header begins with a `fid` and lives as long as `self`.
        unsafe { (*self.fid()).context }
    }

    /// Keeps another object open as long as this one is.
    pub fn keep_open(&self, parent: AnyUse) {
        self.parents().push(parent);
        bounded!(self.parents(), OBJECTS);
    }

    fn parents(&self) -> std::sync::MutexGuard<'_, Vec<AnyUse>> {
        self.0
            .parents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a new reference to the object at a C pointer.
    ///
    /// # Safety
    /// `object` came from [`Handle::into_c`] of the same `T` and is open.
    pub unsafe fn from_c(object: *mut T::Header) -> Self {
        let object = object.cast::<Object<T>>().cast_const();
        // SAFETY: the caller guarantees that the pointer is from `into_c` and that the object is
        // open, so that the application's reference keeps the count above zero.
        unsafe {
            Arc::increment_strong_count(object);
            Handle(Arc::from_raw(object))
        }
    }

    /// Borrows the value of the object at a C pointer.
    ///
    /// # Safety
    /// As for [`Handle::from_c`], for as long as the result lives.
    #[inline(always)]
    pub unsafe fn borrow<'a>(object: *mut T::Header) -> &'a T {
        // SAFETY: the caller guarantees that the pointer is from `into_c` and that the object stays
        // open for 'a.
        unsafe { &(*object.cast::<Object<T>>()).inner }
    }

    /// Closes the object like fi_close(3), but keeps the caller's reference.
    pub(crate) fn close(&self) -> Result {
        if self.0.users.load(Ordering::Acquire) != 0 {
            return Err(Errno::EBUSY);
        }
        T::close(self)?;
        self.0.closed.store(true, Ordering::Release);
        let parents = std::mem::take(&mut *self.parents());
        drop(parents);
        Ok(())
    }

    /// Returns whether fi_close(3) has succeeded.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }
}

impl<T: Class> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

impl<T: Class> Deref for Handle<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.inner
    }
}

impl<T: Class> Use<T> {
    /// Keeps the object of `handle` open.
    pub fn of(handle: &Handle<T>) -> Self {
        handle.0.users.fetch_add(1, Ordering::AcqRel);
        Use(handle.clone())
    }

    /// Returns the handle, which does not keep the object open.
    pub fn handle(&self) -> &Handle<T> {
        &self.0
    }

    /// Erases the type.
    pub fn any(self) -> AnyUse {
        AnyUse(Arc::new(self))
    }
}

impl<T: Class> Clone for Use<T> {
    fn clone(&self) -> Self {
        Use::of(&self.0)
    }
}

impl<T: Class> Drop for Use<T> {
    fn drop(&mut self) {
        self.0.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T: Class> Deref for Use<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl AnyUse {
    /// Returns whether both hold the same reference.
    pub fn is_same(&self, other: &AnyUse) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What this library knows of an object that an application passed to a call, if the object is its
/// own.
pub trait Downcast: Copy {
    /// Returns the object if it belongs to this library and has type `T`.
    fn downcast<T: Class>(self) -> Option<Handle<T>>;

    /// Like [`Downcast::downcast`], for an argument that must be a `T`: `-FI_EINVAL` otherwise.
    fn expect<T: Class>(self) -> Result<Handle<T>> {
        self.downcast().ok_or(Errno::EINVAL)
    }

    /// Keeps an object of this library open, whatever its type; `-FI_EINVAL` for a foreign object.
    fn keep_open(self) -> Result<AnyUse>;
}

impl Downcast for AnyFid<'_> {
    fn downcast<T: Class>(self) -> Option<Handle<T>> {
        if marked(self)?.type_id != TypeId::of::<T>() {
            return None;
        }
        // SAFETY: the object is open, and its table shows that it is an object of `T`.
        Some(unsafe { Handle::from_c(self.as_ptr().cast()) })
    }

    fn keep_open(self) -> Result<AnyUse> {
        let marked = marked(self).ok_or(Errno::EINVAL)?;
        // SAFETY: the object is open, and the function belongs to its own table.
        Ok(unsafe { (marked.keep_open)(self.as_ptr()) })
    }
}

/// Returns the function table of an object of this library.
fn marked(object: AnyFid<'_>) -> Option<&'static MarkedOps> {
    // SAFETY: the table of an open object is a valid `fi_ops`; if it says that it has the size of a
    // `MarkedOps`, the members up to that size exist, and the mark is compared before the rest is
    // used.
    unsafe {
        let ops = (*object.as_ptr()).ops;
        if ops.is_null() || (*ops).size != size_of::<MarkedOps>() {
            return None;
        }
        let marked = &*ops.cast::<MarkedOps>().cast_const();
        (marked.mark == &raw const MARK).then_some(marked)
    }
}

/// # Safety
/// `fid` is that of an open object of `T`.
unsafe fn keep_open<T: Class>(fid: *mut fid) -> AnyUse {
    // SAFETY: the caller guarantees that `fid` is that of an open object of `T`.
    Use::of(&unsafe { Handle::<T>::from_c(fid.cast()) }).any()
}

/// An endpoint, or a context, without a call but those of this table.
pub fn without_calls(fid: fid, ops: *const fi_ops_ep) -> fid_ep {
    fid_ep {
        fid,
        ops: ops.cast_mut(),
        cm: (&raw const missing::CM).cast_mut(),
        msg: (&raw const missing::MSG).cast_mut(),
        rma: (&raw const missing::RMA).cast_mut(),
        tagged: (&raw const missing::TAGGED).cast_mut(),
        atomic: (&raw const missing::ATOMIC).cast_mut(),
        collective: (&raw const missing::COLLECTIVE).cast_mut(),
    }
}

unsafe extern "C" fn close<T: Class>(fid: *mut fid) -> c_int {
    // Joining threads is a cancellation point, and a device's library may contain others.
    let _uncancelled = prov_base::uncancelled::Uncancelled::begin();
    // SAFETY: this function is only in tables of objects of `T`, and the application passes an open
    // object.
    let handle = unsafe { Handle::<T>::from_c(fid.cast()) };
    match handle.close() {
        Ok(()) => {
            // SAFETY: the reference is the application's own, which it gives up by closing the
            // object.
            unsafe { Arc::decrement_strong_count(fid.cast::<Object<T>>().cast_const()) };
            0
        }
        Err(error) => error.to_c(),
    }
}

unsafe extern "C" fn bind<T: Class>(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: this function is only in tables of objects of `T`, and the application passes two
    // open objects.
    status(unsafe {
        let handle = Handle::<T>::from_c(fid.cast());
        AnyFid::new(other).and_then(|other| T::bind(&handle, other, flags))
    })
}

unsafe extern "C" fn control<T: Class>(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: this function is only in tables of objects of `T`, and the application passes an open
    // object and an argument of the command's type.
    let outcome = unsafe { T::control(&Handle::<T>::from_c(fid.cast()), command, arg) };
    outcome.unwrap_or_else(Errno::to_c)
}

unsafe extern "C" fn ops_open<T: Class>(
    fid: *mut fid,
    name: *const c_char,
    _flags: u64,
    ops: *mut *mut c_void,
    _context: *mut c_void,
) -> c_int {
    if name.is_null() || ops.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: this function is only in tables of objects of `T`, and the application passes an open
    // object; `name` and `ops` are not null, and the application guarantees that the text is
    // terminated and that `ops` is writable.
    status(unsafe {
        let handle = Handle::<T>::from_c(fid.cast());
        T::open_ops(&handle, std::ffi::CStr::from_ptr(name)).map(|table| ops.write(table))
    })
}

unsafe extern "C" fn ops_set<T: Class>(
    fid: *mut fid,
    name: *const c_char,
    _flags: u64,
    ops: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    if name.is_null() || ops.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: this function is only in tables of objects of `T`, and the application passes an open
    // object, a terminated text that is not null, and the table of that name.
    status(unsafe {
        let handle = Handle::<T>::from_c(fid.cast());
        T::set_ops(&handle, std::ffi::CStr::from_ptr(name), ops)
    })
}
