//! Datagram endpoints of the provider below (fi_endpoint(3), `FI_EP_DGRAM`).
//!
//! A provider may use the first bytes of each buffer itself (`FI_MSG_PREFIX`). These are part of
//! what is sent and received here, as they are in fi_msg(3).

use std::ptr::null_mut;
use std::sync::Arc;

use fabric_abi::*;

use super::lending::{Posted, inject, next_owner, post, receive};
use super::slots::{Memory, Slot, Slots};
use super::{Addresses, Cq, Domain, Made, Object, name_of, set_name_of};
use crate::marshal::info;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_objects::attr::Info;

/// A datagram endpoint; closed when it is dropped.
pub struct DatagramEndpoint {
    object: Object<fid_ep>,
    owner: u32,
    // Declared after the endpoint, so that the bound objects are closed after it.
    bound: Option<Bound>,
    _domain: Arc<Domain>,
}

/// The objects that an enabled endpoint uses.
struct Bound {
    _memory: [Arc<Memory>; 2],
    _cqs: [Arc<Cq>; 2],
    _addresses: Arc<Addresses>,
}

impl DatagramEndpoint {
    /// Opens an endpoint. It has to be [enabled](Self::enable) before anything is sent or received.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open(domain: &Arc<Domain>, entry: &Info) -> Result<Self> {
        let entry = Made(info::to_c(std::slice::from_ref(entry))?);
        let mut ep = null_mut();
        // SAFETY: the domain is open, and the entry has all of its attributes.
        let object = unsafe {
            let open = (*(*domain.as_c()).ops).endpoint.ok_or(Errno::ENOSYS)?;
            let status = open(domain.as_c(), entry.as_c(), &mut ep, null_mut());
            Object::opened(status, ep)?
        };
        Ok(DatagramEndpoint {
            object,
            owner: next_owner(),
            bound: None,
            _domain: domain.clone(),
        })
    }

    /// Binds the endpoint to its queues and to its address vector, and enables it. Queues and slots
    /// are those of sends and of receives. Datagrams that are copied have no completion
    /// (`FI_SELECTIVE_COMPLETION`), unless they cannot be sent, or the provider ignores that flag: who
    /// sends reads the queue from time to time.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn enable<T>(
        &mut self,
        [tx_cq, rx_cq]: [&Arc<Cq>; 2],
        addresses: &Arc<Addresses>,
        slots: [&Slots<T>; 2],
    ) -> Result {
        self.object.bind(addresses.fid(), 0)?;
        self.object
            .bind(tx_cq.fid(), FI_TRANSMIT | FI_SELECTIVE_COMPLETION)?;
        self.object.bind(rx_cq.fid(), FI_RECV)?;
        self.object.control(FI_ENABLE, null_mut())?;
        self.bound = Some(Bound {
            _memory: slots.map(Slots::memory),
            _cqs: [tx_cq.clone(), rx_cq.clone()],
            _addresses: addresses.clone(),
        });
        Ok(())
    }

    /// Closes the endpoint. Returns the data of its operations that have not completed, and never
    /// will.
    pub fn close<T>(self, slots: &mut Slots<T>) -> Vec<T> {
        let owner = self.owner;
        drop(self);
        slots.orphan(owner)
    }

    /// Returns its own address.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn address(&self) -> Result<Vec<u8>> {
        // SAFETY: the endpoint is open, and the table is its own.
        unsafe { name_of((*self.object.as_ptr()).cm, self.object.fid()) }
    }

    /// Sets its address.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn set_address(&self, address: &[u8]) -> Result {
        // SAFETY: the endpoint is open, and the table is its own.
        unsafe { set_name_of((*self.object.as_ptr()).cm, self.object.fid(), address) }
    }

    /// Posts a slot as a receive buffer.
    ///
    /// # Errors
    /// The provider's, with the slot.
    #[inline]
    pub fn receive<T>(&self, slots: &mut Slots<T>, slot: Slot) -> Posted {
        receive(&self.object, self.owner, slots, slot)
    }

    /// Sends a datagram that is copied by the call and whose completion is not reported, to a
    /// number of the address vector.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room for it.
    #[inline]
    pub fn inject(&self, datagram: &[u8], to: fi_addr_t) -> Result {
        inject(&self.object, datagram, to)
    }

    /// [`DatagramEndpoint::inject`] for a header and the memory behind it, which has at most
    /// [`IOV_LIMIT`] - 1 segments.
    ///
    /// # Errors
    /// Those of [`DatagramEndpoint::inject`], `-FI_EINVAL` for more segments.
    #[inline]
    pub fn inject_with(&self, head: &[u8], behind: &AppIov, to: fi_addr_t) -> Result {
        const NOTHING: libc::iovec = libc::iovec {
            iov_base: null_mut(),
            iov_len: 0,
        };
        let mut iov = [NOTHING; IOV_LIMIT];
        let (first, rest) = iov.split_first_mut().ok_or(Errno::EINVAL)?;
        *first = libc::iovec {
            iov_base: head.as_ptr().cast_mut().cast(),
            iov_len: head.len(),
        };
        let pieces = behind.pieces();
        let places = rest.get_mut(..pieces.len()).ok_or(Errno::EINVAL)?;
        places.copy_from_slice(pieces);
        let message = fi_msg {
            msg_iov: iov.as_ptr(),
            desc: null_mut(),
            iov_count: 1 + pieces.len(),
            addr: to,
            context: null_mut(),
            data: 0,
        };
        // SAFETY: the endpoint is open; header and memory are valid during the call (see `AppIov`),
        // and the provider has copied them when it returns.
        let status = unsafe {
            let send = (*(*self.object.as_ptr()).msg).sendmsg;
            send.ok_or(Errno::ENOSYS)?(self.object.as_ptr(), &message, FI_INJECT)
        };
        match status {
            0 => Ok(()),
            error => Err(Errno::new(error as i32)),
        }
    }

    /// Sends this many bytes of a slot to a number of the address vector.
    ///
    /// # Errors
    /// The provider's, with the slot; `-FI_EAGAIN` if there is no room for it.
    #[inline]
    pub fn send<T>(&self, slots: &mut Slots<T>, slot: Slot, len: usize, to: fi_addr_t) -> Posted {
        post(slots, slot, self.owner, |lent| {
            let piece = libc::iovec {
                iov_base: lent.bytes,
                iov_len: len.min(lent.len),
            };
            let mut desc = lent.desc;
            let message = fi_msg {
                msg_iov: &piece,
                desc: &mut desc,
                iov_count: 1,
                addr: to,
                context: lent.context,
                data: 0,
            };
            // SAFETY: the endpoint is open, and the slot's bytes are lent to this operation until it
            // completes.
            unsafe {
                match (*(*self.object.as_ptr()).msg).sendmsg {
                    Some(send) => send(self.object.as_ptr(), &message, FI_COMPLETION),
                    None => Errno::ENOSYS.to_c() as isize,
                }
            }
        })
    }
}
