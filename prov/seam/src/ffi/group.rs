//! The membership of an endpoint in a group of peers, `struct fid_mc` (fi_cm(3)): a multicast group
//! or a group for collective operations.

use fabric_abi::*;

use super::ep::EndpointObject;
use super::object::{Class, Handle};
use crate::endpoint::Endpoint;
use prov_base::errno::Result;

/// What a group is for.
pub(super) enum Purpose {
    Multicast,
    Collective,
}

/// A group that an endpoint has joined. It keeps the endpoint's memory; whether it keeps the endpoint
/// open is up to those that make its handle.
pub(super) struct Group<E: Endpoint> {
    pub(super) endpoint: Handle<EndpointObject<E>>,
    /// The group as a destination (`fi_mc_addr`).
    pub(super) address: fi_addr_t,
    pub(super) purpose: Purpose,
}

impl<E: Endpoint> Class for Group<E> {
    type Header = fid_mc;

    fn class(&self) -> usize {
        FI_CLASS_MC
    }

    fn header(&self, fid: fid) -> fid_mc {
        fid_mc {
            fid,
            fi_addr: self.address,
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        match this.purpose {
            Purpose::Collective => this.endpoint.leave(this.address),
            Purpose::Multicast => {
                // A child of fork(2) does not take its parent out of the group.
                if let Ok(endpoint) = this.endpoint.to_move() {
                    endpoint.leave_multicast(this.address)?;
                }
                if let Some(eq) = this.endpoint.event_queue() {
                    eq.forget(this.fid());
                }
                Ok(())
            }
        }
    }
}
