//! A TCP proxy with faults that can be switched while connections are open.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::rng::Rng;

/// How often a thread looks at the fault that is set.
const POLL: Duration = Duration::from_millis(5);
const BUFFER_BYTES: usize = 16 << 10;

/// What happens to the bytes of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They pass.
    None,
    /// Each piece waits that long.
    Delay(Duration),
    /// Nothing passes; connections stay open.
    Stall,
    /// The same for connections that are open now; later ones pass. To both ends it looks like a network that forgot
    /// a connection.
    StallOpen,
    /// Both ends are closed after a random number of bytes below this one, counted per connection and direction.
    CutWithin(u64),
    /// The same, but only the receiver's side of the direction is closed; the other direction goes on.
    HalfCloseWithin(u64),
    /// New connections are closed at once; those that are open pass.
    Refuse,
}

#[derive(Debug)]
struct Shared {
    fault: Mutex<(u64, Fault)>,
    /// Rises with each order to cut all connections.
    cuts: AtomicU64,
    /// Connections closed by a fault.
    closed: AtomicU64,
    stopped: AtomicBool,
}

impl Shared {
    fn fault(&self) -> (u64, Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A proxy in front of one server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When the target's name is not known or no port is free.
    pub fn start(target: &str, seed: u64) -> Result<Self> {
        let target = target
            .to_socket_addrs()?
            .next()
            .with_context(|| format!("no address for {target}"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            fault: Mutex::new((0, Fault::None)),
            cuts: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let inner = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, target, &inner, seed));
        Ok(Self {
            port,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the fault for open and new connections; byte counts begin anew.
    pub fn set(&self, fault: Fault) {
        let mut slot = self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = (slot.0 + 1, fault);
    }

    /// Closes all open connections.
    pub fn cut_all(&self) {
        self.shared.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Connections that a fault has closed so far, wholly or in one direction.
    pub fn closed(&self) -> u64 {
        self.shared.closed.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, shared: &Arc<Shared>, seed: u64) {
    let mut rng = Rng::new(seed);
    while !shared.stopped.load(Ordering::SeqCst) {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(POLL);
            continue;
        };
        if shared.fault().1 == Fault::Refuse {
            continue;
        }
        let Ok(server) = TcpStream::connect(target) else {
            continue;
        };
        let ends = (client.try_clone(), server.try_clone());
        let (Ok(client_too), Ok(server_too)) = ends else {
            continue;
        };
        for (from, to) in [(client, server_too), (server, client_too)] {
            let pump = Pump {
                from,
                to,
                shared: Arc::clone(shared),
                rng: Rng::new(rng.draw()),
            };
            std::thread::spawn(move || pump.run());
        }
    }
}

/// One direction of one connection.
struct Pump {
    from: TcpStream,
    to: TcpStream,
    shared: Arc<Shared>,
    rng: Rng,
}

impl Pump {
    fn run(mut self) {
        let cuts = self.shared.cuts.load(Ordering::SeqCst);
        let prepared = self
            .from
            .set_nonblocking(false)
            .and_then(|()| self.from.set_read_timeout(Some(POLL)))
            .and_then(|()| self.to.set_nodelay(true));
        if prepared.is_err() {
            return;
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        let born = self.shared.fault().0;
        let (mut number, mut left) = (u64::MAX, 0);
        loop {
            if self.shared.stopped.load(Ordering::SeqCst) || self.shared.cuts.load(Ordering::SeqCst) != cuts {
                return self.close();
            }
            let (current, fault) = self.shared.fault();
            if current != number {
                number = current;
                left = match fault {
                    Fault::CutWithin(bytes) | Fault::HalfCloseWithin(bytes) => self.rng.below(bytes),
                    _ => u64::MAX,
                };
            }
            if fault == Fault::Stall || (fault == Fault::StallOpen && born < current) {
                std::thread::sleep(POLL);
                continue;
            }
            let read = match self.from.read(&mut buffer) {
                Ok(0) => {
                    // The other end learns of it as it would without us.
                    drop(self.to.shutdown(Shutdown::Write));
                    return;
                }
                Ok(read) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => return self.close(),
            };
            if let Fault::Delay(time) = fault {
                std::thread::sleep(time);
            }
            let pass = read.min(usize::try_from(left).unwrap_or(usize::MAX));
            let piece = buffer.get(..pass).unwrap_or_default();
            if self.to.write_all(piece).is_err() {
                return self.close();
            }
            if left != u64::MAX {
                left -= pass as u64;
            }
            if pass < read {
                self.shared.closed.fetch_add(1, Ordering::SeqCst);
                if matches!(fault, Fault::HalfCloseWithin(_)) {
                    drop(self.to.shutdown(Shutdown::Write));
                    return self.swallow();
                }
                return self.close();
            }
        }
    }

    /// After a half-close: what still comes is taken and lost, as a network would lose it.
    fn swallow(mut self) {
        let cuts = self.shared.cuts.load(Ordering::SeqCst);
        let mut buffer = vec![0; BUFFER_BYTES];
        while !self.shared.stopped.load(Ordering::SeqCst) && self.shared.cuts.load(Ordering::SeqCst) == cuts {
            match self.from.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
        }
        self.close();
    }

    fn close(&self) {
        drop(self.from.shutdown(Shutdown::Both));
        drop(self.to.shutdown(Shutdown::Both));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().expect("a handle"), stream);
                    drop(std::io::copy(&mut from, &mut to));
                });
            }
        });
        address
    }

    fn ask(stream: &mut TcpStream, bytes: usize) -> std::io::Result<usize> {
        stream.write_all(&vec![7; bytes])?;
        let mut got = vec![0; bytes];
        stream.read_exact(&mut got)?;
        Ok(got.len())
    }

    #[test]
    fn bytes_pass_stall_and_are_cut() {
        let proxy = Proxy::start(&echo().to_string(), 1).expect("a proxy");
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .expect("a timeout");
        assert_eq!(ask(&mut stream, 1000).expect("an answer"), 1000);
        proxy.set(Fault::Stall);
        // Threads notice within a poll.
        std::thread::sleep(POLL * 4);
        let error = ask(&mut stream, 1000).expect_err("nothing passes");
        assert!(matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut
        ));
        proxy.set(Fault::CutWithin(100));
        assert!(ask(&mut stream, 1000).is_err());
        assert!(proxy.closed() >= 1);
        proxy.set(Fault::None);
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("a connection");
        assert_eq!(ask(&mut stream, 5000).expect("an answer"), 5000);
        proxy.cut_all();
        std::thread::sleep(POLL * 4);
        assert!(ask(&mut stream, 10).is_err());
    }

    #[test]
    fn a_half_close_leaves_the_other_direction() {
        let proxy = Proxy::start(&echo().to_string(), 2).expect("a proxy");
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("a connection");
        proxy.set(Fault::HalfCloseWithin(1));
        std::thread::sleep(POLL * 4);
        stream.write_all(&[1; 10]).expect("a write");
        let mut rest = Vec::new();
        // The echo server sees the end of our side and closes.
        assert_eq!(stream.read_to_end(&mut rest).expect("an end"), 0);
    }
}
