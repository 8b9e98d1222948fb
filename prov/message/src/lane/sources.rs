//! How messages get their sources from the address vector of their endpoint, which may learn of a
//! peer only after its messages have arrived.

use crate::lane::reaching::Reaching;
use crate::operation::EpKey;

/// How the messages of a core `C` get their sources.
pub trait Sources<C> {
    /// Called before a receive that names its peer is posted: messages must have their sources by
    /// then. Returns whether [`Sources::awaits`] has to be called afterwards.
    fn expects(_core: &mut C, _ep: EpKey) -> bool {
        false
    }

    /// Called after a receive was posted that only messages of this peer can match.
    fn awaits(_core: &mut C, _ep: EpKey, _peer: u64) {}

    /// Called after a receive of a provider above was posted that only messages of this peer can
    /// match, for instance that of a collective operation: it ends with an error when the peer ends,
    /// even if the peer has never sent anything.
    fn depends(_core: &mut C, _ep: EpKey, _peer: u64) {}

    /// Looks up the sources of messages after the address vector has grown, for an endpoint whose
    /// receives belong to another provider.
    fn look(_core: &mut C, _ep: EpKey) {}
}

/// For transports whose messages have their sources from the start.
pub enum Known {}

impl<C> Sources<C> for Known {}

/// For transports that find the sources among the peers of an endpoint.
pub enum ByPeers {}

impl<C: Reaching> Sources<C> for ByPeers {
    #[inline]
    fn expects(core: &mut C, ep: EpKey) -> bool {
        core.expects_one(ep)
    }

    fn awaits(core: &mut C, ep: EpKey, peer: u64) {
        core.look_for_peer(ep, peer);
    }

    fn depends(core: &mut C, ep: EpKey, peer: u64) {
        core.expect_peer(ep, peer);
    }

    fn look(core: &mut C, ep: EpKey) {
        core.follow_av(ep);
    }
}
