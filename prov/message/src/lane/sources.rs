//! Where messages have their sources from: the address vector of their endpoint,
//! which may know a peer only after its messages have come.

use crate::lane::reaching::Reaching;
use crate::operation::EpKey;

/// How the messages of a core `C` get their sources.
pub trait Sources<C> {
    /// A receive will be posted that names the peer it is for: messages are to
    /// have their sources by then. Returns whether [`Sources::awaits`] is to be
    /// called once it is.
    fn expects(_core: &mut C, _ep: EpKey) -> bool {
        false
    }

    /// A receive was posted that only messages of this peer can fill.
    fn awaits(_core: &mut C, _ep: EpKey, _peer: u64) {}

    /// Looks for the sources of messages in the address vector, which has grown:
    /// for an endpoint whose receives another provider has.
    fn look(_core: &mut C, _ep: EpKey) {}
}

/// Messages say what their sources are, from the start.
pub enum Known {}

impl<C> Sources<C> for Known {}

/// They are what the address vector calls the peers of an endpoint.
pub enum ByPeers {}

impl<C: Reaching> Sources<C> for ByPeers {
    #[inline]
    fn expects(core: &mut C, ep: EpKey) -> bool {
        core.expects_one(ep)
    }

    fn awaits(core: &mut C, ep: EpKey, peer: u64) {
        core.look_for_peer(ep, peer);
    }

    fn look(core: &mut C, ep: EpKey) {
        core.follow_av(ep);
    }
}
