//! Include and exclude lists of names, the values of `FI_PROVIDER`, `FI_LOG_PROV` and
//! `FI_LOG_SUBSYS` (fabric(7)).

/// Separates the layers of a provider name, lowest layer first: `tcp;ofi_rxm`.
pub const LAYER_SEPARATOR: char = ';';

/// A list of names, either of those wanted or, if the text begins with `^`, of those excluded.
/// Names are compared without regard to case.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NameFilter {
    /// `None`: no list, everything is accepted.
    names: Option<Vec<String>>,
    negated: bool,
}

impl NameFilter {
    /// Parses `a,b` or `^a,b`. A text without names is no list.
    pub fn parse(text: &str) -> Self {
        let NameFilter { names, negated } = Self::listing(text);
        NameFilter {
            names: names.filter(|names| !names.is_empty()),
            negated,
        }
    }

    /// Parses `a,b` or `^a,b`. A text without names is an empty list: nothing is accepted, or
    /// nothing excluded.
    pub fn listing(text: &str) -> Self {
        let (negated, list) = match text.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let names: Vec<String> = list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        NameFilter {
            names: Some(names),
            negated,
        }
    }

    /// Whether the filter accepts everything.
    pub fn is_empty(&self) -> bool {
        self.names.is_none()
    }

    /// Whether the list names what is excluded.
    pub fn is_negated(&self) -> bool {
        self.negated
    }

    /// Returns the names of the list, as they were written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().flatten().map(String::as_str)
    }

    /// Whether a plain name (a subsystem, a provider's log) is accepted.
    pub fn allows(&self, name: &str) -> bool {
        self.is_empty() || self.lists(name) != self.negated
    }

    /// Whether the list is one of wanted names and contains this one.
    pub fn wants(&self, name: &str) -> bool {
        !self.negated && self.lists(name)
    }

    /// Whether a provider itself is accepted, before any layering: a list with `tcp;ofi_rxm` needs
    /// `tcp` for it, and one that excludes `tcp;ofi_rxm` does not exclude `tcp`.
    pub fn allows_core(&self, name: &str) -> bool {
        if self.is_empty() {
            return true;
        }
        if self.negated {
            return !self.lists(name);
        }
        self.names().any(|listed| {
            listed.eq_ignore_ascii_case(name)
                || listed
                    .split_once(LAYER_SEPARATOR)
                    .is_some_and(|(first, _)| first.eq_ignore_ascii_case(name))
        })
    }

    /// Whether a result of `fi_getinfo` is accepted with its full layered name: a listed `tcp`
    /// stands for `tcp` and everything layered over it.
    pub fn allows_layered(&self, name: &str) -> bool {
        if self.is_empty() {
            return true;
        }
        let lowest = name.split(LAYER_SEPARATOR).next().unwrap_or(name);
        let prefix_listed = self.names().any(|listed| {
            listed.eq_ignore_ascii_case(lowest)
                || (name.len() > listed.len()
                    && name.is_char_boundary(listed.len())
                    && name[..listed.len()].eq_ignore_ascii_case(listed)
                    && name[listed.len()..].starts_with(LAYER_SEPARATOR))
        });
        (self.lists(name) || prefix_listed) != self.negated
    }

    fn lists(&self, name: &str) -> bool {
        self.names().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_text_lets_everything_pass() {
        for text in ["", "^", " , "] {
            let filter = NameFilter::parse(text);
            assert!(
                filter.allows("tcp") && filter.allows_core("tcp"),
                "{text:?}"
            );
            assert!(filter.allows_layered("tcp;ofi_rxm"), "{text:?}");
        }
    }

    #[test]
    fn an_empty_listing_lists_nothing() {
        assert!(!NameFilter::listing("").allows("tcp"));
        assert!(!NameFilter::listing(" , ").allows("tcp"));
        assert!(NameFilter::listing("^").allows("tcp"));
        assert!(NameFilter::listing("tcp").allows("tcp"));
    }

    #[test]
    fn names_are_compared_without_regard_to_case() {
        let filter = NameFilter::parse("TCP, udp");
        assert!(filter.allows("tcp") && filter.allows("UDP") && !filter.allows("shm"));
        let filter = NameFilter::parse("^TCP");
        assert!(!filter.allows("tcp") && filter.allows("shm"));
    }

    #[test]
    fn a_wanted_layering_keeps_its_core_provider() {
        let filter = NameFilter::parse("tcp;ofi_rxm");
        assert!(filter.allows_core("tcp") && !filter.allows_core("udp"));
        assert!(!filter.allows_layered("tcp") && filter.allows_layered("tcp;ofi_rxm"));
    }

    #[test]
    fn an_unwanted_layering_leaves_its_core_provider() {
        let filter = NameFilter::parse("^tcp;ofi_rxm");
        assert!(filter.allows_core("tcp") && filter.allows_layered("tcp"));
        assert!(!filter.allows_layered("tcp;ofi_rxm"));
    }

    #[test]
    fn a_listed_core_provider_includes_the_layers_over_it() {
        let wanted = NameFilter::parse("tcp");
        assert!(wanted.allows_layered("tcp;ofi_rxm") && wanted.allows_layered("tcp"));
        assert!(!wanted.allows_layered("tcpx") && !wanted.allows_layered("udp;ofi_rxd"));
        let unwanted = NameFilter::parse("^tcp");
        assert!(!unwanted.allows_layered("tcp;ofi_rxm") && unwanted.allows_layered("udp;ofi_rxd"));
    }
}
