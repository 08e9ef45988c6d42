//! The server's side of a connection, played by a test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_types::{Secret, TlsMode, TlsOptions};

use crate::capability as cap;
use crate::cursor::{put_lenenc, put_lenenc_bytes};
use crate::endpoint::Endpoint;

pub(crate) const USER: &str = "repl";
pub(crate) const PASSWORD: &str = "pässword";
pub(crate) const NONCE: [u8; 20] = *b"abcdefghijklmnopqrst";
/// What our fake server can do: everything the client wants, without TLS.
pub(crate) const CAPABILITIES: u32 = cap::WANTED;
/// Limits of the client in tests of what must not take long.
pub(crate) const SHORT: Duration = Duration::from_millis(150);
/// Limits of the client where nothing is to be waited for.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// One connection, as packets, over `S`.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
    pub(crate) sequence: u8,
}

impl<S: Read + Write> Peer<S> {
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a payload, split as it must be.
    pub(crate) fn send(&mut self, payload: &[u8]) {
        for packet in packets(payload, &mut self.sequence) {
            self.raw(&packet);
        }
    }

    /// Reads one payload; its number must be the next one, or 0 for a command.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut head = [0_u8; 4];
        self.stream.read_exact(&mut head).unwrap();
        assert!(head[3] == self.sequence || head[3] == 0, "{head:?}");
        self.sequence = head[3].wrapping_add(1);
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        payload
    }

    pub(crate) fn greet(&mut self, capabilities: u32, plugin: &str) {
        self.sequence = 0;
        self.send(&greeting(capabilities, plugin));
    }

    pub(crate) fn ok(&mut self) {
        self.send(&[0, 0, 0, 2, 0, 0, 0]);
    }

    pub(crate) fn eof(&mut self) {
        self.send(&[0xfe, 0, 0, 2, 0]);
    }

    pub(crate) fn error(&mut self, code: u16, message: &str) {
        self.send(&error(code, message));
    }

    /// Greets, lets the client in and acknowledges.
    pub(crate) fn let_in(&mut self) {
        self.greet(CAPABILITIES, "mysql_native_password");
        self.receive();
        self.ok();
    }

    /// Sends a result of one row per text.
    pub(crate) fn rows(&mut self, column: &str, values: &[Option<&[u8]>]) {
        self.send(&[1]);
        self.send(&definition(column));
        self.eof();
        for value in values {
            let mut row = Vec::new();
            match value {
                Some(bytes) => put_lenenc_bytes(&mut row, bytes),
                None => row.push(0xfb),
            }
            self.send(&row);
        }
        self.eof();
    }
}

/// A payload as packets.
pub(crate) fn packets(payload: &[u8], sequence: &mut u8) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = payload;
    loop {
        let part = &rest[..rest.len().min(0xff_ffff)];
        let mut packet = (part.len() as u32).to_le_bytes().to_vec();
        packet[3] = *sequence;
        *sequence = sequence.wrapping_add(1);
        packet.extend_from_slice(part);
        out.push(packet);
        rest = &rest[part.len()..];
        if part.len() < 0xff_ffff {
            return out;
        }
    }
}

pub(crate) fn greeting(capabilities: u32, plugin: &str) -> Vec<u8> {
    let mut out = vec![10];
    out.extend_from_slice(b"5.5.5-11.8.9-MariaDB\0");
    out.extend_from_slice(&77_u32.to_le_bytes());
    out.extend_from_slice(&NONCE[..8]);
    out.push(0);
    out.extend_from_slice(&(capabilities as u16).to_le_bytes());
    out.extend_from_slice(&[45, 2, 0]);
    out.extend_from_slice(&((capabilities >> 16) as u16).to_le_bytes());
    out.push(21);
    out.extend_from_slice(&[0; 10]);
    out.extend_from_slice(&NONCE[8..]);
    out.push(0);
    out.extend_from_slice(plugin.as_bytes());
    out.push(0);
    out
}

pub(crate) fn error(code: u16, message: &str) -> Vec<u8> {
    let mut out = vec![0xff];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(b"#HY000");
    out.extend_from_slice(message.as_bytes());
    out
}

pub(crate) fn definition(column: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for text in ["def", "", "", "", column, ""] {
        put_lenenc_bytes(&mut out, text.as_bytes());
    }
    put_lenenc(&mut out, 12);
    out.extend_from_slice(&[45, 0, 0, 1, 0, 0, 253, 0, 0, 0, 0, 0]);
    out
}

/// An event of `bytes` bytes whose body follows from `seed`.
pub(crate) fn event(bytes: usize, seed: u8) -> Vec<u8> {
    let mut out = vec![seed; bytes];
    out[9..13].copy_from_slice(&(bytes as u32).to_le_bytes());
    let last = bytes - 1;
    out[last] = !seed;
    out
}

/// The event as the payload that carries it.
pub(crate) fn carried(event: &[u8]) -> Vec<u8> {
    [&[0], event].concat()
}

/// Runs `script` for one connection; an endpoint that leads there.
pub(crate) fn serve<T: Send + 'static>(
    script: impl FnOnce(&mut Peer<TcpStream>) -> T + Send + 'static,
) -> (Endpoint, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
        user: USER.to_owned(),
        password: Some(Secret::new(PASSWORD.to_owned())),
        tls: TlsOptions {
            mode: TlsMode::Preferred,
            ca: None,
            cert: None,
            key: None,
        },
        connect_timeout: LONG,
        read_timeout: LONG,
    };
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        script(&mut Peer { stream, sequence: 0 })
    });
    (endpoint, server)
}
