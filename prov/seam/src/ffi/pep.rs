//! Passive endpoints (fi_passive_ep(3)), and the connection requests that they receive.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};

use fabric_abi::*;
use parking_lot::Mutex;

use super::names::give_name;
use super::object::{AnyFid, Class, Downcast, Handle, Use};
use super::options::{Options, getopt};
use super::{bytes, missing, status};
use crate::endpoint::{OptionValue, PassiveEndpoint};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::{Info, Opaque};
use prov_objects::eq::Eq;

/// The C object of a passive endpoint.
pub struct PassiveObject<P: PassiveEndpoint>(pub P);

impl<P: PassiveEndpoint> Options for PassiveObject<P> {
    fn option(&self, name: c_int) -> Result<OptionValue> {
        match name {
            FI_OPT_CM_DATA_SIZE => Ok(OptionValue::Size(self.0.connection_data_limit())),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}

/// The addresses of the open passive endpoints. An `fi_info` outlives the object that its handle
/// names, so the handle is dereferenced only if it is found here or among the unanswered connection
/// requests.
static OPEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

impl<P: PassiveEndpoint> PassiveObject<P> {
    /// Registers the endpoint as a possible `fi_info::handle`, until it is closed.
    pub(super) fn open(this: &Handle<Self>) {
        OPEN.lock().insert(this.fid().addr());
    }

    /// Returns the passive endpoint of this type that `fi_info::handle` names (fi_endpoint(3)).
    ///
    /// # Errors
    /// `-FI_EINVAL` if it names no open one.
    pub fn of_info(info: &Info) -> Result<Handle<Self>> {
        let handle = info.handle.0;
        let open = OPEN.lock();
        if !open.contains(&handle.addr()) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the objects in the list are open, and are not closed while the lock is held.
        unsafe { AnyFid::new(handle.cast()) }?.expect()
    }
}

impl<P: PassiveEndpoint> std::ops::Deref for PassiveObject<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0
    }
}

impl<P: PassiveEndpoint> Class for PassiveObject<P> {
    type Header = fid_pep;

    fn class(&self) -> usize {
        FI_CLASS_PEP
    }

    fn header(&self, fid: fid) -> fid_pep {
        fid_pep {
            fid,
            ops: std::ptr::from_ref(Tables::<P>::EP).cast_mut(),
            cm: std::ptr::from_ref(Tables::<P>::CM).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        P::close(this)?;
        OPEN.lock().remove(&this.fid().addr());
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        PassiveEndpoint::bind(&this.0, Use::of(&other.expect::<Eq>()?))
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        match command {
            FI_BACKLOG => {
                // SAFETY: the application passes an argument of the command's type, which is an
                // `int` (fi_cm(3)).
                let backlog = unsafe { arg.cast::<c_int>().as_ref() }.ok_or(Errno::EINVAL)?;
                this.set_backlog(*backlog).map(|()| 0)
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

struct Tables<P>(std::marker::PhantomData<P>);

impl<P: PassiveEndpoint> Tables<P> {
    const EP: &'static fi_ops_ep = &fi_ops_ep {
        cancel: Some(cancel),
        getopt: Some(getopt::<PassiveObject<P>>),
        ..missing::EP
    };

    const CM: &'static fi_ops_cm = &fi_ops_cm {
        size: size_of::<fi_ops_cm>(),
        setname: Some(setname::<P>),
        getname: Some(getname::<P>),
        getpeer: missing::slot(),
        connect: missing::slot(),
        listen: Some(listen::<P>),
        accept: missing::slot(),
        reject: Some(reject::<P>),
        shutdown: missing::slot(),
        join: missing::slot(),
    };
}

/// A passive endpoint has no operations to cancel.
unsafe extern "C" fn cancel(_: fid_t, _: *mut c_void) -> isize {
    0
}

unsafe extern "C" fn setname<P: PassiveEndpoint>(
    fid: fid_t,
    name: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: this function is only in the tables of passive endpoints of `P`; the application
    // passes an open one, and a name of `len` bytes.
    status(unsafe { Handle::<PassiveObject<P>>::borrow(fid.cast()).set_name(bytes(name, len)) })
}

unsafe extern "C" fn getname<P: PassiveEndpoint>(
    fid: fid_t,
    name: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: this function is only in the tables of passive endpoints of `P`; the application
    // passes an open one, and a buffer of `*len` bytes.
    status(unsafe {
        give_name(
            Handle::<PassiveObject<P>>::borrow(fid.cast()).name(),
            name,
            len,
        )
    })
}

unsafe extern "C" fn listen<P: PassiveEndpoint>(pep: *mut fid_pep) -> c_int {
    // SAFETY: this function is only in the tables of passive endpoints of `P`, and the application
    // passes an open one.
    status(P::listen(&unsafe { Handle::from_c(pep) }))
}

unsafe extern "C" fn reject<P: PassiveEndpoint>(
    pep: *mut fid_pep,
    handle: fid_t,
    param: *const c_void,
    paramlen: usize,
) -> c_int {
    let handle = Opaque(handle.cast());
    // SAFETY: this function is only in the tables of passive endpoints of `P`; the application
    // passes an open one, and `paramlen` bytes of data.
    status(unsafe {
        Handle::<PassiveObject<P>>::borrow(pep).reject(handle, bytes(param, paramlen))
    })
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;

    /// A provider that does not really listen.
    struct NeverListening;

    impl PassiveEndpoint for NeverListening {
        fn bind(&self, _: Use<Eq>) -> Result {
            Ok(())
        }

        fn listen(_: &Handle<PassiveObject<Self>>) -> Result {
            Ok(())
        }

        fn reject(&self, _: Opaque, _: &[u8]) -> Result {
            Ok(())
        }

        fn name(&self) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }

        fn set_name(&self, _: &[u8]) -> Result {
            Ok(())
        }

        fn set_backlog(&self, _: c_int) -> Result {
            Ok(())
        }

        fn connection_data_limit(&self) -> usize {
            0
        }
    }

    fn naming(handle: *mut c_void) -> Info {
        Info {
            handle: Opaque(handle),
            ..Info::default()
        }
    }

    #[test]
    fn a_handle_names_a_passive_endpoint_while_it_is_open() {
        let endpoint = Handle::new(PassiveObject(NeverListening), null_mut(), Vec::new());
        PassiveObject::open(&endpoint);
        let fid = endpoint.into_c().cast::<fid>();
        let info = naming(fid.cast());
        let found = PassiveObject::<NeverListening>::of_info(&info).unwrap();
        assert_eq!(found.fid(), fid);
        drop(found);
        // SAFETY: the endpoint is open, and closed only once.
        unsafe {
            let close = (*(*fid).ops).close.unwrap();
            assert_eq!(close(fid), 0);
        }
        // Its memory may have been reused.
        let found = PassiveObject::<NeverListening>::of_info(&info);
        assert_eq!(found.err(), Some(Errno::EINVAL));
    }

    #[test]
    fn an_object_that_was_never_opened_is_not_found() {
        let endpoint = Handle::new(PassiveObject(NeverListening), null_mut(), Vec::new());
        for handle in [null_mut(), std::ptr::dangling_mut(), endpoint.fid().cast()] {
            let found = PassiveObject::<NeverListening>::of_info(&naming(handle));
            assert_eq!(found.err(), Some(Errno::EINVAL));
        }
    }
}
