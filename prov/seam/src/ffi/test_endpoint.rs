//! An endpoint for the tests of the data calls.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use fabric_abi::*;

use super::ep::{EndpointObject, Limits};
use super::test_domain::TestDomain;
use super::{Handle, Use};
use crate::endpoint::{Bindings, Endpoint, NoSharedReceive};
use prov_base::atomic_ops::Offered;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_objects::attr::{Info, Offers};
use prov_objects::desc::Descs;
use prov_objects::progress::Progress;
use prov_objects::request::{
    Access, Atomic, AtomicKind, Receive, RemoteAccess, RemotePiece, Select, Tag, Transmit,
};

/// `op_flags` of the endpoint.
pub const DEFAULT_FLAGS: u64 = FI_TRANSMIT_COMPLETE;
/// `inject_size` of the endpoint.
pub const INJECT_SIZE: usize = 64;

/// Address, length and descriptor.
pub type Piece = (usize, usize, usize);

/// A request in a form that can be compared.
#[derive(Debug, PartialEq)]
pub struct Request {
    pub what: What,
    pub local: Vec<Vec<Piece>>,
    pub remote: Vec<RemotePiece>,
    pub peer: fi_addr_t,
    pub data: Option<u64>,
    pub flags: u64,
    pub context: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Send(Tag),
    Receive(Select),
    Access(Access),
    Atomic(fi_op),
}

pub struct LastRequest(Mutex<Option<Request>>);

impl LastRequest {
    fn keep(
        &self,
        what: What,
        local: &[(&AppIov, &Descs)],
        remote: &[RemotePiece],
        rest: (fi_addr_t, Option<u64>, u64, *mut c_void),
    ) -> Result {
        let (peer, data, flags, context) = rest;
        let pieces = |(memory, descs): &(&AppIov, &Descs)| {
            let pieces = memory.pieces().iter().enumerate();
            pieces
                .map(|(position, piece)| {
                    let desc = descs.of_piece(position);
                    let desc = desc.map_or(0, |desc| desc.0.addr());
                    (piece.iov_base.addr(), piece.iov_len, desc)
                })
                .collect()
        };
        *self.0.lock().unwrap() = Some(Request {
            what,
            local: local.iter().map(pieces).collect(),
            remote: remote.to_vec(),
            peer,
            data,
            flags: flags & !FI_REMOTE_CQ_DATA,
            context: context.addr(),
        });
        Ok(())
    }
}

impl Endpoint for LastRequest {
    type SharedReceive = NoSharedReceive;

    fn enable(
        _: &Handle<EndpointObject<Self>>,
        _: &Bindings<NoSharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        Err(Errno::ENOSYS)
    }

    fn rebind(_: &Handle<EndpointObject<Self>>, _: &Bindings<NoSharedReceive>) -> Result {
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        0
    }

    fn close(_: &Handle<EndpointObject<Self>>) -> Result {
        Ok(())
    }

    fn transmit(&self, it: &mut Transmit) -> Result {
        let rest = (it.peer, it.immediate(), it.flags, it.context);
        self.keep(What::Send(it.tag), &[(&it.buffers, &it.desc)], &[], rest)
    }

    fn receive(&self, it: &mut Receive) -> Result {
        let rest = (it.peer, None, it.flags, it.context);
        let what = What::Receive(it.select);
        self.keep(what, &[(&it.buffers, &it.desc)], &[], rest)
    }

    fn access(&self, it: &mut RemoteAccess) -> Result {
        let rest = (it.peer, it.immediate(), it.flags, it.context);
        let what = What::Access(it.access);
        self.keep(what, &[(&it.local, &it.desc)], it.remote.pieces(), rest)
    }

    fn atomic(&self, it: &mut Atomic) -> Result {
        let rest = (it.peer, it.immediate(), it.flags, it.context);
        let mut local = vec![(&it.operand, &it.desc)];
        match &it.kind {
            AtomicKind::Base => (),
            AtomicKind::Fetch {
                result,
                result_desc,
            } => local.push((result, result_desc)),
            AtomicKind::Compare {
                compare,
                compare_desc,
                result,
                result_desc,
            } => local.extend([(compare, compare_desc), (result, result_desc)]),
        }
        self.keep(What::Atomic(it.op), &local, it.remote.pieces(), rest)
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        Ok(())
    }
}

/// An open endpoint that records the last request.
pub struct TestEndpoint(Handle<EndpointObject<LastRequest>>);

impl TestEndpoint {
    pub fn open() -> Self {
        Self::of(Info::default(), &Offers::default())
    }

    /// Opens an endpoint with the capabilities `caps`, of a provider with `offered`.
    pub fn with_caps(caps: u64, offered: u64) -> Self {
        let info = |caps| Info {
            caps,
            ..Info::default()
        };
        let offers = Offers::new(vec![info(offered).into()], "test");
        Self::of(info(caps), &offers)
    }

    fn of(mut info: Info, offers: &Offers) -> Self {
        let domain = Use::of(&TestDomain::open(FI_SOCKADDR_IN, 0)).any();
        let endpoint = LastRequest(Mutex::default());
        info.tx.op_flags = DEFAULT_FLAGS;
        info.rx.op_flags = DEFAULT_FLAGS;
        info.tx.inject_size = INJECT_SIZE;
        let limits = Limits::of(offers, &info, Offered::NONE);
        TestEndpoint(EndpointObject::open(
            endpoint,
            &info,
            null_mut(),
            limits,
            domain,
            None,
            crate::trigger::Triggers::new(false),
        ))
    }

    pub fn ep(&self) -> *mut fid_ep {
        self.0.as_c()
    }

    /// Returns the tables.
    pub fn tables(&self) -> (&fi_ops_msg, &fi_ops_tagged, &fi_ops_rma, &fi_ops_atomic) {
        // SAFETY: the endpoint is open, and its tables are constant.
        unsafe {
            let ep = &*self.ep();
            (&*ep.msg, &*ep.tagged, &*ep.rma, &*ep.atomic)
        }
    }

    /// Takes the last request.
    pub fn take(&self) -> Option<Request> {
        self.0.0.lock().unwrap().take()
    }
}
