//! Which addresses an answer has.

use super::super::ip;
use super::*;
use prov_base::errno::Result;
use prov_base::sockaddr;

fn request<'a>(hints: Option<&'a Hints>) -> Request<'a> {
    Request {
        version: NOW,
        hints,
        target: "test::core",
        ..Request::default()
    }
}

fn getinfo(request: &Request<'_>, bases: &[Base]) -> Result<Vec<Info>> {
    ip::getinfo(request, bases, None)
}

fn names(info: &Info) -> (&str, &str) {
    (
        info.fabric.name.as_deref().unwrap(),
        info.domain.name.as_deref().unwrap(),
    )
}

#[test]
fn without_an_address_every_interface_is_offered_loopback_last() {
    let infos = getinfo(&request(None), &[base().into()]).unwrap();
    let last = infos.last().unwrap();
    assert_eq!(names(last).1, "lo");
    // A machine without a network reaches all there is through loopback.
    let alone = infos.iter().all(|info| names(info).1 == "lo");
    assert_eq!(last.caps & FI_REMOTE_COMM != 0, alone);
    assert!(infos.iter().all(|info| !info.src_addr.is_empty()));

    let mut hints = hints();
    hints.addr_format = FI_SOCKADDR_IN;
    domain(&mut hints).name = Some("lo".into());
    let infos = getinfo(&request(Some(&hints)), &[base().into()]).unwrap();
    assert_eq!(infos.len(), 1);
    assert_eq!(
        sockaddr::decode(&infos[0].src_addr),
        Some("127.0.0.1:0".parse().unwrap())
    );

    hints.caps = FI_MSG | FI_REMOTE_COMM;
    let none = getinfo(&request(Some(&hints)), &[base().into()]);
    assert_eq!(none.is_ok(), alone);
}

#[test]
fn an_answer_without_its_address_is_accepted_as_hints() {
    let mut bound = request(None);
    bound.node = Some(c"127.0.0.1");
    bound.flags = FI_SOURCE;
    let answer = getinfo(&bound, &[base().into()]).unwrap().remove(0);
    let mut hints = Hints::from(answer);
    hints.src_addr.clear();
    let again = getinfo(&request(Some(&hints)), &[base().into()]).unwrap();
    assert_eq!(names(&again[0]).1, "lo");
}

#[test]
fn a_node_is_the_destination_and_decides_the_source() {
    let mut other = base();
    other.ep.protocol_version += 1;
    let infos = getinfo(
        &Request {
            node: Some(c"127.0.0.1"),
            service: Some(c"4711"),
            ..request(None)
        },
        &[base().into(), base().into(), other.into()],
    )
    .unwrap();
    // Kinds that are the same to the caller are one.
    assert_eq!(infos.len(), 2);
    assert_eq!(
        sockaddr::decode(&infos[0].dest_addr),
        Some("127.0.0.1:4711".parse().unwrap())
    );
    assert_eq!(
        sockaddr::decode(&infos[0].src_addr),
        Some("127.0.0.1:0".parse().unwrap())
    );
    assert_eq!(infos[0].addr_format, FI_SOCKADDR_IN);
    assert_eq!(names(&infos[0]), ("127.0.0.1/32", "lo"));
}

#[test]
fn a_loopback_address_reaches_this_machine_unless_the_caller_insists() {
    let caps = |asked| {
        let mut hints = hints();
        hints.caps = asked;
        let named = Request {
            node: Some(c"127.0.0.1"),
            ..request(Some(&hints))
        };
        getinfo(&named, &[base().into()]).unwrap()[0].caps
    };
    let both = FI_LOCAL_COMM | FI_REMOTE_COMM;
    assert_eq!(caps(FI_MSG) & both, FI_LOCAL_COMM);
    assert_eq!(caps(FI_MSG | FI_REMOTE_COMM) & both, both);
}

#[test]
fn a_source_service_is_the_wildcard_address_on_the_named_domain() {
    let mut hints = hints();
    hints.addr_format = FI_SOCKADDR_IN;
    fn passive(hints: &Hints) -> Request<'_> {
        Request {
            service: Some(c"4711"),
            flags: FI_SOURCE,
            ..request(Some(hints))
        }
    }
    let infos = getinfo(&passive(&hints), &[base().into()]).unwrap();
    assert_eq!(
        sockaddr::decode(&infos[0].src_addr),
        Some("0.0.0.0:4711".parse().unwrap())
    );
    assert!(infos[0].dest_addr.is_empty());
    assert_eq!(names(&infos[0]), ("tcp", "tcp"));

    domain(&mut hints).name = Some("lo".into());
    let infos = getinfo(&passive(&hints), &[base().into()]).unwrap();
    assert_eq!(names(&infos[0]).1, "lo");

    domain(&mut hints).name = Some("no-such-domain".into());
    let none = getinfo(&passive(&hints), &[base().into()]);
    assert_eq!(none, Err(Errno::ENODATA));
}

#[test]
fn a_source_needs_a_node_or_a_service() {
    let lone = Request {
        flags: FI_SOURCE,
        ..request(None)
    };
    assert_eq!(getinfo(&lone, &[base().into()]), Err(Errno::EINVAL));
}

#[test]
fn hinted_addresses_are_used_unless_the_call_names_others() {
    let mut hints = hints();
    let src = "127.0.0.1:5".parse().unwrap();
    let dest = "127.0.0.1:6".parse().unwrap();
    hints.src_addr = sockaddr::encode(&src).as_bytes().to_vec();
    hints.dest_addr = sockaddr::encode(&dest).as_bytes().to_vec();
    hints.addr_format = FI_SOCKADDR_IN;
    let infos = getinfo(&request(Some(&hints)), &[base().into()]).unwrap();
    assert_eq!(sockaddr::decode(&infos[0].src_addr), Some(src));
    assert_eq!(sockaddr::decode(&infos[0].dest_addr), Some(dest));

    let named = Request {
        node: Some(c"127.0.0.1"),
        service: Some(c"7"),
        ..request(Some(&hints))
    };
    let infos = getinfo(&named, &[base().into()]).unwrap();
    assert_eq!(
        sockaddr::decode(&infos[0].dest_addr),
        Some("127.0.0.1:7".parse().unwrap())
    );

    hints.src_addr = vec![1, 2, 3];
    let broken = getinfo(&request(Some(&hints)), &[base().into()]);
    assert_eq!(broken, Err(Errno::ENODATA));
}

#[test]
fn an_interface_that_is_not_there_offers_nothing() {
    let nowhere = ip::getinfo(&request(None), &[base().into()], Some("no-such-interface"));
    assert_eq!(nowhere, Err(Errno::ENODATA));
}
