//! Which addresses an answer has where they are strings.

use super::super::named::{Naming, getinfo};
use super::*;
use prov_base::errno::Result;

/// Addresses like those of shared memory.
struct Strings;

impl Naming for Strings {
    fn address(&self, node: Option<&str>, service: Option<&str>) -> Result<Vec<u8>> {
        Ok(match (node, service) {
            (node, Some(service)) => format!("fi_ns://{}:{service}\0", node.unwrap_or_default()),
            (node, None) => format!("fi_shm://{}\0", node.unwrap_or_default()),
        }
        .into_bytes())
    }

    fn is_address(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(b"fi_shm://") || bytes.starts_with(b"fi_ns://")
    }

    fn own(&self) -> Vec<u8> {
        b"fi_shm://own\0".to_vec()
    }
}

fn strings() -> Base {
    Info {
        addr_format: FI_ADDR_STR,
        ..base()
    }
    .into()
}

fn request<'a>(hints: Option<&'a Hints>) -> Request<'a> {
    Request {
        version: NOW,
        hints,
        target: "test::core",
        ..Request::default()
    }
}

/// Source and destination of the one answer.
fn ends(request: &Request<'_>) -> Result<(String, String)> {
    let infos = getinfo(request, &[strings()], &Strings)?;
    assert_eq!(infos.len(), 1);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', "");
    Ok((text(&infos[0].src_addr), text(&infos[0].dest_addr)))
}

fn pair(src: &str, dest: &str) -> Result<(String, String)> {
    Ok((src.into(), dest.into()))
}

#[test]
fn without_names_the_answer_has_the_providers_own_source() {
    assert_eq!(ends(&request(None)), pair("fi_shm://own", ""));
}

#[test]
fn node_and_service_name_the_destination_or_the_source() {
    let mut named = request(None);
    named.node = Some(c"job");
    assert_eq!(ends(&named), pair("fi_shm://own", "fi_shm://job"));
    named.service = Some(c"7");
    assert_eq!(ends(&named), pair("fi_shm://own", "fi_ns://job:7"));
    named.flags = FI_SOURCE;
    assert_eq!(ends(&named), pair("fi_ns://job:7", ""));
}

#[test]
fn a_node_that_is_an_address_stands_for_itself() {
    let mut named = request(None);
    named.node = Some(c"fi_shm://3");
    assert_eq!(ends(&named), pair("fi_shm://own", "fi_shm://3"));
    named.service = Some(c"7");
    assert_eq!(ends(&named), pair("fi_shm://own", "fi_ns://fi_shm://3:7"));
    named.service = None;
    named.node = Some(c"fi_sockaddr://10.0.0.1:80");
    assert_eq!(ends(&named), Err(Errno::ENODATA));
}

#[test]
fn hints_name_the_addresses_that_node_and_service_leave_open() {
    let mut hints = hints();
    hints.addr_format = FI_ADDR_STR;
    hints.src_addr = b"fi_shm://1\0".to_vec();
    hints.dest_addr = b"fi_shm://2\0".to_vec();
    let mut asked = request(Some(&hints));
    assert_eq!(ends(&asked), pair("fi_shm://1", "fi_shm://2"));
    asked.node = Some(c"job");
    assert_eq!(ends(&asked), pair("fi_shm://1", "fi_shm://job"));
    asked.flags = FI_SOURCE;
    assert_eq!(ends(&asked), pair("fi_shm://job", "fi_shm://2"));

    hints.dest_addr = b"nonsense".to_vec();
    assert_eq!(ends(&request(Some(&hints))), Err(Errno::ENODATA));
}

#[test]
fn a_source_without_a_name_is_refused_and_other_formats_and_names_do_not_fit() {
    let mut nameless = request(None);
    nameless.flags = FI_SOURCE;
    assert_eq!(ends(&nameless), Err(Errno::EINVAL));

    let mut hints = hints();
    hints.addr_format = FI_SOCKADDR_IN;
    assert_eq!(ends(&request(Some(&hints))), Err(Errno::ENODATA));
    hints.addr_format = FI_ADDR_STR;
    domain(&mut hints).name = Some("eth0".into());
    assert_eq!(ends(&request(Some(&hints))), Err(Errno::ENODATA));
}
