//! The parameters (fi_lnx(7)).

use prov_base::param_table;

use crate::LOG;

param_table! {
    /// The parameters of the provider.
    pub struct Params for "lnx" {
        /// Providers to link: links are separated by '|', providers of a link by '+', and a
        /// provider may be followed by ':' and its domains, separated by ','. For example
        /// shm+tcp:eth0,eth1
        prov_links: Option<String> = None;
        /// Which of several paths to a peer operations take: PER_PEER, the same one for all of
        /// them, or PER_MSG, one after the other, which keeps no order. Unset means PER_PEER
        multi_rail_selection: Option<String> = None;
        /// Whether peers of the same host are not reached through shm
        disable_shm: bool = false;
        /// Accepted without effect: no statistics are logged
        dump_stats: bool = false;
    }
}

/// Which of several paths to a peer operations take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The same one for all operations with a peer.
    PerPeer,
    /// One after the other.
    PerMessage,
}

impl Params {
    /// See `multi_rail_selection`. `None` for an unknown value, which is reported.
    pub fn selection(&self) -> Option<Selection> {
        let Some(text) = &self.multi_rail_selection else {
            return Some(Selection::PerPeer);
        };
        // A beginning of a value is the value, as in the C library.
        let is = |value: &str| {
            let start = value.get(..text.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(text))
        };
        if is("PER_MSG") {
            Some(Selection::PerMessage)
        } else if is("PER_PEER") {
            Some(Selection::PerPeer)
        } else {
            log::warn!(
                target: LOG.core,
                "FI_LNX_MULTI_RAIL_SELECTION is PER_PEER or PER_MSG, and not {text}"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_has_two_values_in_any_case() {
        for (text, expected) in [
            (None, Some(Selection::PerPeer)),
            (Some("per_msg"), Some(Selection::PerMessage)),
            (Some("PER_M"), Some(Selection::PerMessage)),
            (Some("PER_PEER"), Some(Selection::PerPeer)),
            (Some("PER_PEERS"), None),
            (Some("all"), None),
        ] {
            let params = Params {
                multi_rail_selection: text.map(str::to_owned),
                ..Params::default()
            };
            assert_eq!(params.selection(), expected, "{text:?}");
        }
    }
}
