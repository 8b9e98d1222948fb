//! Addresses: text with a prefix; the rest is an endpoint's name.
//!
//! `fi_shm://` is the prefix of a name that is not unique by itself, such as a process id; the
//! user's id and an index are appended when an endpoint is opened, unless they are there already.
//! `fi_ns://` and any other are prefixes of unique names. The prefix is not part of the name: with
//! another one it is the same endpoint.
//!
//! A name has no control characters, so that an address of another format, such as an internet
//! address, is not mistaken for one.

use std::sync::atomic::{AtomicU32, Ordering};

use prov_message::attributes::MOST_CONTEXTS;

use crate::listener::{LONGEST_NAME, user};

/// The prefix of a name that is not unique by itself.
const NOT_UNIQUE: &str = "fi_shm://";
/// The prefix of a unique name.
const UNIQUE: &str = "fi_ns://";
/// Length in bytes of the longest address, without the zero at its end.
pub const LONGEST: usize = LONGEST_NAME + 32;

/// Returns the name in an address, with or without its zero; `None` if it has none.
pub fn name(address: &[u8]) -> Option<&str> {
    let text = address.strip_suffix(b"\0").unwrap_or(address);
    let text = str::from_utf8(text).ok()?;
    let name = text.split_once("://").map_or(text, |(_, name)| name);
    let is_name = !name.is_empty() && name.len() <= LONGEST_NAME;
    (is_name && !text.contains(char::is_control)).then_some(name)
}

/// Returns the address of the endpoint with this name.
pub fn of_name(name: &str) -> Vec<u8> {
    [NOT_UNIQUE, name].concat().into_bytes()
}

/// Separates the name of a scalable endpoint and the index of a context. Names that an application
/// gives do not contain this character.
const CONTEXT: char = '\u{1}';

/// Returns the name of a context of the scalable endpoint with this name; the first context has the
/// endpoint's own name. `None` if there is no such name.
pub fn context_name(name: &str, context: usize) -> Option<String> {
    match context {
        0 => Some(name.to_owned()),
        1..MOST_CONTEXTS => Some(format!("{name}{CONTEXT}{context}")),
        _ => None,
    }
}

/// Returns the name of the scalable endpoint to whose context this name belongs; for another
/// endpoint, the name itself.
pub fn base_name(name: &str) -> &str {
    name.split_once(CONTEXT).map_or(name, |(base, _)| base)
}

/// Returns the addresses that lead to the endpoint with this name, most likely first.
pub fn all_of_name(name: &str) -> [Vec<u8>; 3] {
    [NOT_UNIQUE, UNIQUE, ""].map(|prefix| [prefix, name].concat().into_bytes())
}

/// Number of names that are not unique by themselves which were made so far. No index is used twice in a
/// process: a peer that still has a link to an endpoint that was closed would take the next one of
/// that name for it, and what it sends would be lost.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Number of bits of an index that count the names of a process; those above are the process's id, which
/// has up to 22 (`PID_MAX_LIMIT` of the kernel). Endpoints that several processes open at the same node
/// differ in it, so that the name of a closed one is not soon another process's.
const COUNT: u32 = 10;

/// Returns the index of the name with this number in the process `pid`.
fn index_of(pid: u32, number: u32) -> u32 {
    (pid << COUNT).wrapping_add(number)
}

/// Returns the names that an endpoint with this source address tries to get, the best first.
/// Without a source address they are those of the process; `None` if the source address is invalid.
pub fn candidates(source: &[u8]) -> Option<impl Iterator<Item = String> + use<>> {
    let own = own();
    let source = match source {
        b"" | b"\0" => own.as_bytes(),
        _ => source,
    };
    let base = name(source)?.to_owned();
    let user = user();
    let is_unique = !source.starts_with(NOT_UNIQUE.as_bytes()) || is_numbered(&base, user);
    let count = if is_unique { 1 } else { u32::MAX };
    Some((0..count).map(move |_| match is_unique {
        true => base.clone(),
        false => {
            let index = index_of(std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            format!("{base}:{user}:{index}")
        }
    }))
}

/// Whether a name is one that an endpoint of this user has been given.
fn is_numbered(name: &str, user: u32) -> bool {
    let Some((rest, index)) = name.rsplit_once(':') else {
        return false;
    };
    let named_user = rest.rsplit_once(':').map(|(_, user)| user);
    index.parse::<u32>().is_ok() && named_user == Some(user.to_string().as_str())
}

/// Returns the address for a node and a service.
pub fn of_service(node: Option<&str>, service: Option<&str>) -> String {
    match (node, service) {
        (Some(node), Some(service)) => format!("{UNIQUE}{node}:{service}"),
        (None, Some(service)) => format!("{UNIQUE}{service}"),
        (Some(node), None) => format!("{NOT_UNIQUE}{node}"),
        (None, None) => own(),
    }
}

/// The initial PID namespace (`PROC_PID_INIT_INO` of the kernel), as namespaces(7) shows it.
const INITIAL: &str = "pid:[4026531836]";

/// Returns the address of this process, to which its endpoints append. In a PID namespace of its own,
/// as in a container, it has the namespace's number, too: a process of another container with the same
/// id is another one, even if it cannot be reached.
pub fn own() -> String {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    own_in(&namespace.to_string_lossy(), std::process::id())
}

fn own_in(namespace: &str, pid: u32) -> String {
    let number = namespace
        .strip_prefix("pid:[")
        .and_then(|text| text.strip_suffix(']'));
    match number {
        Some(number) if namespace != INITIAL => format!("{NOT_UNIQUE}{pid}@{number}"),
        _ => format!("{NOT_UNIQUE}{pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_text_after_the_prefix() {
        for text in ["fi_shm://a:b", "fi_ns://a:b\0", "x://a:b", "a:b"] {
            assert_eq!(name(text.as_bytes()), Some("a:b"));
        }
        let long = format!("fi_ns://{}", "x".repeat(LONGEST_NAME + 1));
        for bad in [
            &b""[..],
            b"fi_shm://",
            b"fi_shm://\0",
            b"\xff",
            b"a\0b",
            b"\x02",
            b"\x02\0\x1d\x2f\x7f\0\0\x01\0\0\0\0\0\0\0\0",
            long.as_bytes(),
        ] {
            assert_eq!(name(bad), None);
            assert!(bad.is_empty() || candidates(bad).is_none());
        }
    }

    #[test]
    fn the_names_of_contexts_lead_to_their_scalable_endpoint_only() {
        assert_eq!(context_name("a:b", 0).unwrap(), "a:b");
        for context in [1, 9, MOST_CONTEXTS - 1] {
            let own = context_name("a:b", context).unwrap();
            assert_eq!(base_name(&own), "a:b");
            assert_eq!(name(own.as_bytes()), None);
        }
        assert_eq!(context_name("a:b", MOST_CONTEXTS), None);
        assert_eq!(base_name("a:b"), "a:b");
    }

    #[test]
    fn names_that_are_not_unique_are_numbered() {
        fn names(source: &[u8]) -> Vec<String> {
            candidates(source).into_iter().flatten().take(2).collect()
        }
        let user = user();
        let process = own().replace(NOT_UNIQUE, "");
        let is_numbered = |name: &String, base: &str| {
            let index = name.strip_prefix(&format!("{base}:{user}:"));
            index.is_some_and(|index| index.parse::<u32>().is_ok())
        };
        for (source, base) in [
            (&b"fi_shm://77\0"[..], "77"),
            (b"", &process),
            (b"\0", &process),
        ] {
            let names = names(source);
            assert!(names.iter().all(|name| is_numbered(name, base)));
        }
        assert_eq!(names(b"fi_ns://node:7\0"), ["node:7"]);
        let again = format!("fi_shm://77:{user}:1\0");
        assert_eq!(names(again.as_bytes()), [format!("77:{user}:1")]);
    }

    #[test]
    fn processes_of_two_containers_have_different_addresses() {
        assert_eq!(own_in(INITIAL, 7), "fi_shm://7");
        assert_eq!(own_in("", 7), "fi_shm://7");
        assert_eq!(own_in("pid:[4026532801]", 7), "fi_shm://7@4026532801");
    }

    #[test]
    fn no_number_is_given_twice() {
        let first = || candidates(b"fi_shm://77").unwrap().next();
        assert_ne!(first(), first());
    }

    #[test]
    fn processes_give_different_numbers() {
        let numbers = |pid| (0..1 << COUNT).map(move |number| index_of(pid, number));
        let mut all: Vec<u32> = [1, 2, 3, (1 << 22) - 1]
            .into_iter()
            .flat_map(numbers)
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 << COUNT);
    }

    #[test]
    fn nodes_and_services_become_addresses() {
        assert_eq!(of_service(Some("n"), Some("s")), "fi_ns://n:s");
        assert_eq!(of_service(None, Some("s")), "fi_ns://s");
        assert_eq!(of_service(Some("n"), None), "fi_shm://n");
        assert_eq!(of_service(None, None), own());
    }
}
