//! The TCP connection over which the two sides coordinate.
//!
//! A name: its length (32 bits, network order), its address format (32 bits, the sender's
//! order), its bytes. Before each size, `q` and the answer `a`; after it, the client's count of
//! messages as ten bytes of text, and the answer `cnt ok`. Words end in a zero byte.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::options::DEFAULT_PORT;
use super::{Options, Problem};

/// Time limit for answers of the other side.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Longest address that is accepted.
const MAX_ADDRESS: usize = 1024;

const ASK: &[u8] = b"q\0";
const ANSWER: &[u8] = b"a\0";
const COUNT_OK: &[u8] = b"cnt ok\0";
const COUNT_LEN: usize = 10;

/// The connection.
pub struct Control {
    stream: TcpStream,
    is_server: bool,
    debug: bool,
}

/// A fabric address, and the format that it has.
pub struct Name {
    pub format: u32,
    pub address: Vec<u8>,
}

impl Control {
    /// Connects to the server, or waits for the client.
    pub fn open(options: &Options) -> Result<Control, Problem> {
        let stream = match &options.server {
            Some(server) => connect(options, server),
            None => accept(options),
        }?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(|error| Problem::Control("set-up", error))?;
        debug!(options, "control connection stands");
        Ok(Control {
            stream,
            is_server: options.is_server(),
            debug: options.debug,
        })
    }

    /// Sends a fabric address to the other side.
    pub fn send_name(&self, name: &Name) -> Result<(), Problem> {
        debug!(self, "sending an address of {} bytes", name.address.len());
        let length = u32::try_from(name.address.len())
            .map_err(|_| Problem::Protocol(String::from("the address is too long")))?;
        let mut message = Vec::with_capacity(8 + name.address.len());
        message.extend(length.to_be_bytes());
        message.extend(name.format.to_ne_bytes());
        message.extend(&name.address);
        self.send(&message)
    }

    /// Returns the other side's fabric address.
    pub fn receive_name(&self) -> Result<Name, Problem> {
        let mut word = [0; 4];
        self.receive(&mut word)?;
        let length = u32::from_be_bytes(word) as usize;
        if length > MAX_ADDRESS {
            return Err(Problem::Protocol(format!("an address of {length} bytes")));
        }
        self.receive(&mut word)?;
        let format = u32::from_ne_bytes(word);
        let mut address = vec![0; length];
        self.receive(&mut address)?;
        debug!(self, "received an address of {length} bytes");
        Ok(Name { format, address })
    }

    /// Returns when both sides have called this.
    pub fn synchronise(&self) -> Result<(), Problem> {
        if self.is_server {
            self.expect(ASK)?;
            self.send(ANSWER)
        } else {
            self.send(ASK)?;
            self.expect(ANSWER)
        }
    }

    /// Returns the client's count of messages, on both sides.
    pub fn agree_on_count(&self, count: u64) -> Result<u64, Problem> {
        let mut text = [0; COUNT_LEN];
        if self.is_server {
            self.receive(&mut text)?;
            let count = parse_count(&text)?;
            self.send(COUNT_OK)?;
            Ok(count)
        } else {
            for (place, digit) in text.iter_mut().zip(count.to_string().bytes()) {
                *place = digit;
            }
            self.send(&text)?;
            self.expect(COUNT_OK)?;
            Ok(count)
        }
    }

    /// Returns whether the other side closed the connection: it ended, or reached the end of the
    /// test.
    pub fn peer_left(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        match SockRef::from(&self.stream).recv_with_flags(&mut byte, flags) {
            Ok(received) => received == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn expect(&self, word: &[u8]) -> Result<(), Problem> {
        let mut heard = vec![0; word.len()];
        self.receive(&mut heard)?;
        if heard != word {
            let (heard, word) = (heard.escape_ascii(), word.escape_ascii());
            return Err(Problem::Protocol(format!(
                "\"{heard}\" instead of \"{word}\""
            )));
        }
        Ok(())
    }

    fn send(&self, data: &[u8]) -> Result<(), Problem> {
        (&self.stream)
            .write_all(data)
            .map_err(|error| Problem::Control("send", error))
    }

    fn receive(&self, data: &mut [u8]) -> Result<(), Problem> {
        (&self.stream)
            .read_exact(data)
            .map_err(|error| Problem::Control("receive", error))
    }
}

fn parse_count(text: &[u8]) -> Result<u64, Problem> {
    let digits = text.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Problem::Protocol(format!("a count of \"{}\"", text.escape_ascii())))
}

fn connect(options: &Options, server: &str) -> Result<TcpStream, Problem> {
    let failed = |error| Problem::Control("connect", error);
    let addresses = (server, options.server_port)
        .to_socket_addrs()
        .map_err(failed)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.filter(|address| address.is_ipv6() == options.ipv6) {
        debug!(options, "connecting to {address}");
        match connect_from(options.source_port, address) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Connects from this port, unless it is 0.
fn connect_from(port: u16, address: SocketAddr) -> io::Result<TcpStream> {
    if port == 0 {
        return TcpStream::connect(address);
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // The port may be that of the last test, whose connection still exists in the kernel.
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(any(address.is_ipv6()), port).into())?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

fn accept(options: &Options) -> Result<TcpStream, Problem> {
    let port = match options.source_port {
        0 => DEFAULT_PORT,
        port => port,
    };
    let listener = TcpListener::bind((any(options.ipv6), port))
        .map_err(|error| Problem::Control("listen", error))?;
    debug!(options, "waiting for the client at port {port}");
    let (stream, peer) = listener
        .accept()
        .map_err(|error| Problem::Control("accept", error))?;
    debug!(options, "client {peer}");
    Ok(stream)
}

/// The address of all interfaces.
fn any(ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Both ends of a connection: server, client.
    fn pair() -> (Control, Control) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let control = |stream, is_server| Control {
            stream,
            is_server,
            debug: false,
        };
        (control(server, true), control(client, false))
    }

    #[test]
    fn both_sides_agree_on_the_clients_count() {
        let (server, client) = pair();
        let server = thread::spawn(move || {
            server.synchronise().unwrap();
            server.agree_on_count(0).unwrap()
        });
        client.synchronise().unwrap();
        assert_eq!(client.agree_on_count(1_000_000).unwrap(), 1_000_000);
        assert_eq!(server.join().unwrap(), 1_000_000);
    }

    #[test]
    fn names_arrive_as_they_were_sent() {
        let (server, client) = pair();
        let sent = Name {
            format: 2,
            address: vec![2, 0, 1, 2, 127, 0, 0, 1],
        };
        server.send_name(&sent).unwrap();
        let received = client.receive_name().unwrap();
        assert_eq!(
            (received.format, received.address),
            (sent.format, sent.address)
        );
    }

    #[test]
    fn a_closed_connection_is_noticed() {
        let (server, client) = pair();
        assert!(!client.peer_left());
        drop(server);
        assert!(client.peer_left());
    }

    #[test]
    fn a_name_without_end_is_refused() {
        let (server, client) = pair();
        server.send(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(client.receive_name(), Err(Problem::Protocol(_))));
    }

    #[test]
    fn another_word_than_agreed_is_refused() {
        let (server, client) = pair();
        server.send(b"x\0").unwrap();
        assert!(matches!(client.synchronise(), Err(Problem::Protocol(_))));
        assert!(matches!(parse_count(b"-1\0"), Err(Problem::Protocol(_))));
    }
}
