//! Endpoints with keys, and peers with and without them.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::wire::handshake::{Features, Kind as MessageKind, Message};
use crate::wire::rdm::Identity;

fn with_key(secret: &str) -> Side {
    keyed_side(Params::default(), Key::new(secret.as_bytes()))
}

/// Sends to the only peer that `from` knows, and returns the error.
fn fails_with(from: &Side, to: &Side) -> Errno {
    from.knows(to.addr);
    let mut out = [7; 8];
    send(from, &mut out, 1);
    until([from, to], || from.failed.borrow().len() == 1);
    assert_eq!((from.count(), to.count()), (0, 0));
    assert_eq!(to.connections(), 0);
    from.failed.borrow_mut().remove(0).err
}

#[test]
fn only_peers_with_the_key_are_let_in() {
    let listener = with_key("secret");
    assert_eq!(
        fails_with(&with_key("guess"), &listener),
        Errno::EKEYREJECTED
    );
    assert_eq!(fails_with(&side(), &listener), Errno::EKEYREJECTED);
    let friend = with_key("secret");
    let (mut out, mut place) = ([7u8; 8], [0u8; 8]);
    friend.knows(listener.addr);
    receive(&listener, &mut place, 1);
    send(&friend, &mut out, 1);
    until([&friend, &listener], || listener.count() == 1);
    assert_eq!(place, out);
}

#[test]
fn a_side_with_a_key_does_not_talk_to_one_without() {
    assert_eq!(
        fails_with(&with_key("secret"), &side()),
        Errno::EKEYREJECTED
    );
}

#[test]
fn two_sides_with_a_key_that_connect_simultaneously_get_one_connection() {
    for _ in 0..20 {
        let (a, b) = (with_key("secret"), with_key("secret"));
        a.knows(b.addr);
        b.knows(a.addr);
        let (mut out, mut to_a, mut to_b) = ([7u8; 8], [0u8; 8], [0u8; 8]);
        receive(&a, &mut to_a, 1);
        receive(&b, &mut to_b, 1);
        send(&a, &mut out, 1);
        send(&b, &mut out, 1);
        until([&a, &b], || a.count() == 2 && b.count() == 2);
        assert_eq!((to_a, to_b), (out, out));
    }
}

#[test]
fn a_stranger_that_knows_the_protocol_gets_nothing() {
    let listener = with_key("secret");
    let identity = Identity {
        version: 1,
        version_checked: false,
        behind_firewall: true,
        port: 1,
        pid: 1,
    };
    let hello = Key::hello(&[1; 32]);
    let proof = Message::new(MessageKind::Proof, Features::default(), 0, &[0; 32]);
    let request = |features| Message::new(MessageKind::Request, features, 0, &identity.encode());
    for (messages, answers) in [
        // A peer of the C library.
        (vec![request(Features::default())], vec![]),
        (vec![request(Features::OURS)], vec![MessageKind::Reject]),
        (
            vec![hello.clone(), request(Features::OURS)],
            vec![MessageKind::Challenge],
        ),
        (
            vec![hello.clone(), proof.clone(), request(Features::OURS)],
            vec![MessageKind::Challenge],
        ),
        (
            vec![hello.clone(), hello.clone()],
            vec![MessageKind::Challenge],
        ),
        (vec![proof], vec![]),
    ] {
        let mut stranger = TcpStream::connect(listener.addr).unwrap();
        for message in &messages {
            // The listener may have closed the connection already.
            let _ = stranger.write_all(&message.encode());
        }
        stranger.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        let mut ended = false;
        until([&listener, &listener], || {
            let mut buffer = [0; 1024];
            match stranger.read(&mut buffer) {
                Ok(0) => ended = true,
                Ok(n) => answer.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => ended = true,
            }
            ended
        });
        // A reset may overtake the answer; nothing else ever arrives.
        if let Some(&kind) = answer.get(1) {
            let code = match answers.as_slice() {
                [MessageKind::Reject] => 6,
                [MessageKind::Challenge] => 0x21,
                _ => panic!("answered {kind}"),
            };
            assert_eq!(kind, code);
        }
        let core = listener.engine.core();
        assert!(core.conns.is_empty());
    }
}

#[test]
fn the_secret_of_a_file_ends_before_its_last_white_space() {
    let directory = std::env::temp_dir().join(format!("fi_tcp-{:x}", prov_base::random::number()));
    std::fs::create_dir(&directory).unwrap();
    let key = |name: &str| {
        let path = directory.join(name);
        let params = Params {
            auth_key_file: Some(path.to_str().unwrap().to_string()),
            ..Params::default()
        };
        params.auth_key()
    };
    std::fs::write(directory.join("secret"), "secret \n").unwrap();
    std::fs::write(directory.join("empty"), "\n").unwrap();
    assert_eq!(key("secret"), Ok(Key::new(b"secret")));
    assert_eq!(key("empty"), Err(Errno::EACCES));
    assert_eq!(key("missing"), Err(Errno::EACCES));
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(directory.join("secret"), open_to_all).unwrap();
    assert_eq!(key("secret"), Err(Errno::EACCES));
    let kind = rustix::fs::FileType::Fifo;
    let fifo = directory.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
    assert_eq!(key("fifo"), Err(Errno::EACCES));
    std::fs::remove_dir_all(&directory).unwrap();
}
