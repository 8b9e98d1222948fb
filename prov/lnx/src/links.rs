//! The syntax of `FI_LNX_PROV_LINKS` (fi_lnx(7)).

use prov_base::errno::{Errno, Result};

/// Name of the provider through which peers of the same host are reached.
pub const SHM: &str = "shm";

/// Providers that are linked into one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// shm first.
    pub members: Vec<Member>,
}

/// A provider in a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, with its layers: `tcp;ofi_rxm`.
    pub provider: String,
    /// The domains to use; all of them if there are none.
    pub domains: Vec<String>,
}

impl Member {
    /// Returns whether it is the provider for peers of the same host.
    pub fn is_shm(&self) -> bool {
        self.provider.eq_ignore_ascii_case(SHM)
    }
}

/// Reads links.
///
/// # Errors
/// `-FI_EINVAL` for a link that contains this provider, and if there is no link.
pub fn parse(text: &str) -> Result<Vec<Link>> {
    let links: Vec<Link> = text.split('|').filter_map(link).collect();
    let names_itself = |member: &Member| {
        let mut layers = member.provider.split(';');
        layers.any(|layer| layer.trim().eq_ignore_ascii_case("lnx"))
    };
    let mut members = links.iter().flat_map(|link| &link.members);
    match links.is_empty() || members.any(names_itself) {
        true => Err(Errno::EINVAL),
        false => Ok(links),
    }
}

fn link(text: &str) -> Option<Link> {
    let mut members: Vec<Member> = text.split('+').filter_map(member).collect();
    members.sort_by_key(|member| !member.is_shm());
    (!members.is_empty()).then_some(Link { members })
}

fn member(text: &str) -> Option<Member> {
    let (provider, domains) = text.split_once(':').unwrap_or((text, ""));
    let domains = domains.split(',').map(str::trim);
    let provider = provider.trim();
    (!provider.is_empty()).then(|| Member {
        provider: provider.to_owned(),
        domains: domains
            .filter(|domain| !domain.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        let links = parse(text).ok()?;
        let member = |member: &Member| format!("{}{:?}", member.provider, member.domains);
        let link = |link: &Link| {
            let members: Vec<_> = link.members.iter().map(member).collect();
            members.join("+")
        };
        let links: Vec<_> = links.iter().map(link).collect();
        Some(links.join("|").replace('"', ""))
    }

    #[test]
    fn links_have_providers_and_these_have_domains() {
        for (text, expected) in [
            ("shm", "shm[]"),
            ("shm+tcp", "shm[]+tcp[]"),
            ("tcp;ofi_rxm", "tcp;ofi_rxm[]"),
            ("shm + cxi:cxi0, cxi1", "shm[]+cxi[cxi0, cxi1]"),
            (
                "shm+cxi:a+tcp:b|shm+cxi:c",
                "shm[]+cxi[a]+tcp[b]|shm[]+cxi[c]",
            ),
            ("tcp:eth0+shm", "shm[]+tcp[eth0]"),
            ("|tcp:,|+", "tcp[]"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_link_of_nothing_or_of_the_provider_itself_is_refused() {
        for text in [
            "",
            " ",
            "|",
            "+:x",
            "lnx",
            "shm+LNX",
            "shm+tcp;lnx",
            "shm|lnx:a",
        ] {
            assert_eq!(parse(text), Err(Errno::EINVAL), "{text}");
        }
        // A domain may be called so.
        assert!(parse("tcp:lnx0").is_ok());
    }
}
