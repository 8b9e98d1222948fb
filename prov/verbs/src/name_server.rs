//! The name server of a host, which turns services into addresses of endpoints
//! for datagrams: `FI_VERBS_DGRAM_USE_NAME_SERVER`.
//!
//! The first process on a host that opens a fabric has it, in a thread; the others
//! find its port taken. It speaks the C library's protocol. Names are taken from
//! processes of its own host alone, and given to everybody.

mod message;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use prov_util::errno::{Errno, Result};

use crate::endpoint::Name;
use message::{Answer, Command, Names, Question};

/// How long the other side may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What has the name server run as long as it lives, if this process has it.
pub struct NameServer {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// The name server at this port, which one value of a process has. `None`
    /// where another process has it, or none can run.
    pub fn start(port: u16) -> Option<Arc<Self>> {
        static RUNNING: Mutex<Weak<NameServer>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = running.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::listen(port)?);
        *running = Arc::downgrade(&server);
        Some(server)
    }

    fn listen(port: u16) -> Option<Self> {
        let listener = match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)) {
            Ok(listener) => listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse => return None,
            Err(error) => {
                log::warn!(target: crate::LOG.fabric, "no name server at port {port}: {error}");
                return None;
            }
        };
        let port = listener.local_addr().ok()?.port();
        let is_over = Arc::new(AtomicBool::new(false));
        let told = is_over.clone();
        let thread = std::thread::Builder::new()
            .name("verbs-names".to_owned())
            .spawn(move || serve(&listener, &told))
            .inspect_err(|error| {
                log::warn!(target: crate::LOG.fabric, "no name server: {error}");
            })
            .ok()?;
        Some(NameServer {
            port,
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread waits for somebody to come.
        let came = connect((Ipv4Addr::LOCALHOST, self.port).into()).is_ok();
        if came && let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, is_over: &AtomicBool) {
    let mut names = Names::default();
    for stream in listener.incoming() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // What one caller does is no matter of the others.
        if let Ok(mut stream) = stream {
            let _ = answer(&mut stream, &mut names);
        }
    }
}

fn answer(stream: &mut TcpStream, names: &mut Names) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let is_local = stream.peer_addr()?.ip() == stream.local_addr()?.ip();
    let mut head = [0; message::HEAD];
    stream.read_exact(&mut head)?;
    let mut question = vec![0; Question::rest(&head).ok_or(ErrorKind::InvalidData)?];
    stream.read_exact(&mut question)?;
    let question = Question::decode(&head, &question).ok_or(ErrorKind::InvalidData)?;
    if let Some(answer) = names.ask(&question, is_local) {
        stream.write_all(&answer.encode())?;
    }
    Ok(())
}

fn connect(server: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Tells the name server of this host about an endpoint, or that it is gone.
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

/// The address of the endpoint that offers a service on a host; service 0 is any.
///
/// # Errors
/// `-FI_ENODATA` where nobody knows.
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
    use super::*;

    #[test]
    fn a_service_is_found_until_it_is_gone() {
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
}
