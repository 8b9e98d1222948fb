//! The name server of a host, which resolves services to addresses of endpoints for datagrams
//! (`FI_VERBS_DGRAM_USE_NAME_SERVER`).
//!
//! The first process on a host that opens a fabric runs it, in a thread; the others find its port
//! in use. It uses the C library's protocol. Names are accepted from processes of its own host
//! only, and given to everybody.

mod message;
mod server;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use prov_base::errno::{Errno, Result};

use crate::name::Name;
use message::{Answer, Command, Question};

pub use server::NameServer;

/// Time limit for the other side.
const PATIENCE: Duration = Duration::from_secs(1);

fn connect(server: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Informs the name server of this host that an endpoint exists, or is gone.
pub fn announce(port: u16, service: u16, name: &Name, is_gone: bool) {
    let command = match is_gone {
        true => Command::Remove,
        false => Command::Add,
    };
    let question = Question {
        command,
        service: service.into(),
        name: name.encode(),
    };
    let told = connect((Ipv4Addr::LOCALHOST, port).into())
        .and_then(|mut stream| stream.write_all(&question.encode()));
    if let Err(error) = told {
        log::info!(target: crate::LOG.ep_ctrl, "no name server hears of service {service}: {error}");
    }
}

/// Returns the address of the endpoint that offers a service on a host; service 0 is any.
///
/// # Errors
/// `-FI_ENODATA` if it is not known.
pub fn ask(host: IpAddr, port: u16, service: u16) -> Result<Name> {
    let question = Question {
        command: Command::Ask,
        service: service.into(),
        name: [0; 32],
    };
    let ask = || -> std::io::Result<Option<Name>> {
        let mut stream = connect((host, port).into())?;
        stream.write_all(&question.encode())?;
        let mut head = [0; message::HEAD];
        stream.read_exact(&mut head)?;
        if !Answer::is_known(&head) {
            return Ok(None);
        }
        let mut rest = [0; message::FOUND];
        stream.read_exact(&mut rest)?;
        Ok(Name::decode(&rest[message::SERVICE..]))
    };
    match ask() {
        Ok(Some(name)) => Ok(name),
        Ok(None) => {
            log::info!(target: crate::LOG.fabric, "{host} knows no service {service}");
            Err(Errno::ENODATA)
        }
        Err(error) => {
            log::info!(target: crate::LOG.fabric, "the name server of {host}: {error}");
            Err(Errno::ENODATA)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_service_is_found_until_it_is_removed() {
        let server = NameServer::listen(0).unwrap();
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let name = Name {
            pair: 17,
            service: 4711,
            ..Name::default()
        };
        assert_eq!(ask(host, server.port, 4711), Err(Errno::ENODATA));
        announce(server.port, 4711, &name, false);
        assert_eq!(ask(host, server.port, 4711), Ok(name));
        assert_eq!(ask(host, server.port, 0), Ok(name));
        assert_eq!(ask(host, server.port, 4712), Err(Errno::ENODATA));
        announce(server.port, 4711, &name, true);
        assert_eq!(ask(host, server.port, 4711), Err(Errno::ENODATA));
    }

    #[test]
    fn nonsense_ends_nothing_but_its_connection() {
        let server = NameServer::listen(0).unwrap();
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        for nonsense in [&[0xff; 64][..], &[0, 9, 0, 0, 0, 0, 0, 0], &[0, 2]] {
            let mut stream = connect((host, server.port).into()).unwrap();
            stream.write_all(nonsense).unwrap();
            drop(stream);
            assert_eq!(ask(host, server.port, 1), Err(Errno::ENODATA));
        }
    }

    #[test]
    fn a_port_that_is_taken_is_another_ones_server() {
        let server = NameServer::listen(0).unwrap();
        assert!(NameServer::listen(server.port).is_none());
    }

    #[test]
    fn a_silent_caller_blocks_no_other() {
        let server = NameServer::listen(0).unwrap();
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let begun = Instant::now();
        let idle: Vec<_> = (0..100)
            .map(|_| connect((host, server.port).into()).unwrap())
            .collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let trickling = {
            let (is_over, port) = (is_over.clone(), server.port);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut stream = connect((host, port).into()).unwrap();
                    // An `Add`, except for its last byte.
                    for byte in [0; message::HEAD + message::FOUND - 1] {
                        let is_done = is_over.load(Ordering::Relaxed);
                        if is_done || stream.write_all(&[byte]).is_err() {
                            break;
                        }
                        std::thread::sleep(PATIENCE / 10);
                    }
                }
            })
        };
        let name = Name {
            pair: 17,
            ..Name::default()
        };
        for service in 1..=3 {
            announce(server.port, service, &name, false);
            assert_eq!(ask(host, server.port, service), Ok(name));
        }
        drop(server);
        // Each of the idle callers has that time for itself.
        assert!(begun.elapsed() < PATIENCE * 10, "{:?}", begun.elapsed());
        is_over.store(true, Ordering::Relaxed);
        let _ = trickling.join();
        drop(idle);
    }

    #[test]
    fn a_caller_that_takes_too_long_is_disconnected() {
        let server = NameServer::listen(0).unwrap();
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mut stream = connect((host, server.port).into()).unwrap();
        let most = message::HEAD + message::FOUND - 1;
        let said = (0..most).take_while(|_| {
            std::thread::sleep(PATIENCE / 10);
            stream.write_all(&[0]).is_ok()
        });
        assert!(said.count() < most);
    }
}
