//! Results of statements.

use crate::Connection;
use crate::error::WireError;
use crate::fake_server::{SHORT, definition, serve};

#[test]
fn rows_with_nulls() {
    let (endpoint, server) = serve(|peer| {
        peer.let_in();
        let request = peer.receive();
        peer.rows("Name", &[Some(b"a"), None, Some(b"")]);
        request
    });
    let mut connection = Connection::open(&endpoint).unwrap();
    let rows = connection.query("SELECT 'ä'").unwrap();
    drop(connection);
    assert_eq!(server.join().unwrap(), "\u{3}SELECT 'ä'".as_bytes());
    assert_eq!((rows.len(), rows.is_empty()), (3, false));
    assert_eq!(rows.text(0, "name"), Some("a"));
    assert_eq!(rows.get(1, "name"), None);
    assert_eq!(rows.get(2, "NAME"), Some(&b""[..]));
    assert_eq!(rows.get(3, "name"), None);
    assert_eq!(rows.get(0, "other"), None);
}

#[test]
fn a_value_over_several_packets() {
    // The row is exactly two full packets long, so that an empty one ends it.
    let bytes = 2 * 0xff_ffff - 9 + 5;
    let (endpoint, server) = serve(move |peer| {
        peer.let_in();
        peer.receive();
        peer.rows("v", &[Some(&vec![b'x'; bytes])]);
    });
    let mut connection = Connection::open(&endpoint).unwrap();
    let rows = connection.query("SELECT").unwrap();
    server.join().unwrap();
    assert_eq!(rows.get(0, "v").map(<[u8]>::len), Some(bytes));
}

#[test]
fn a_long_statement_is_split() {
    let (endpoint, server) = serve(|peer| {
        peer.let_in();
        let first = peer.receive().len();
        let second = peer.receive().len();
        peer.ok();
        (first, second)
    });
    let mut connection = Connection::open(&endpoint).unwrap();
    connection.execute(&"x".repeat(0xff_ffff - 1)).unwrap();
    assert_eq!(server.join().unwrap(), (0xff_ffff, 0));
}

#[test]
fn a_servers_error_leaves_the_connection_usable() {
    let (endpoint, server) = serve(|peer| {
        peer.let_in();
        peer.receive();
        peer.error(1146, "Table 'a.b' doesn't exist");
        peer.receive();
        // In the middle of the rows.
        peer.send(&[1]);
        peer.send(&definition("a"));
        peer.eof();
        peer.send(b"\x01x");
        peer.error(1317, "interrupted");
        peer.receive();
        peer.rows("a", &[]);
    });
    let mut connection = Connection::open(&endpoint).unwrap();
    for code in [1146, 1317] {
        let error = connection.query("SELECT").unwrap_err();
        assert!(matches!(error, WireError::Server { error, .. } if error.code == code));
    }
    assert!(connection.query("SELECT").unwrap().is_empty());
    server.join().unwrap();
}

#[test]
fn after_a_timeout_no_old_answer_is_taken_for_a_new_one() {
    let (mut endpoint, server) = serve(|peer| {
        peer.let_in();
        peer.receive();
        std::thread::sleep(SHORT * 2);
        peer.rows("a", &[Some(b"old")]);
    });
    endpoint.read_timeout = SHORT;
    let mut connection = Connection::open(&endpoint).unwrap();
    let error = connection.query("SELECT").unwrap_err();
    assert!(matches!(error, WireError::ReadTimeout { .. }));
    server.join().unwrap();
    let error = connection.query("SELECT").unwrap_err();
    assert!(matches!(error, WireError::Disconnected { .. }));
}

#[test]
fn what_no_server_sends() {
    let definition = definition("a");
    let bad: [&[&[u8]]; 9] = [
        // A packet without a byte; no columns at all; too many; a request for a file.
        &[b""],
        &[b"\xfc\x00\x00"],
        &[b"\xfd\xff\xff\xff"],
        &[b"\xfb/etc/passwd"],
        // A definition that is none; rows before the end of the definitions.
        &[b"\x01", b"\x03de"],
        &[b"\x01", &definition, b"\x01x"],
        // A row that is too short, and one that is too long.
        &[b"\x01", &definition, b"\xfe\0\0\x02\0", b"\x05x"],
        &[b"\x01", &definition, b"\xfe\0\0\x02\0", b"\x01xy"],
        // A second result.
        &[b"\0\0\0\x0a\0\0\0"],
    ];
    for packets in bad {
        let packets: Vec<Vec<u8>> = packets.iter().map(|p| p.to_vec()).collect();
        let (endpoint, server) = serve(move |peer| {
            peer.let_in();
            peer.receive();
            packets.iter().for_each(|packet| peer.send(packet));
        });
        let mut connection = Connection::open(&endpoint).unwrap();
        let error = connection.query("SELECT").unwrap_err();
        assert!(matches!(error, WireError::Malformed { .. }), "{error}");
        server.join().unwrap();
    }
}

#[test]
fn packets_must_be_in_order_but_for_a_last_word() {
    for (out_of_order, payload) in [
        (true, &b"\0\0\0\x02\0\0\0"[..]),
        (false, b"\xff\x1d\x04#08S01bye"),
    ] {
        let (endpoint, server) = serve(move |peer| {
            peer.let_in();
            peer.receive();
            peer.sequence = 9;
            peer.send(payload);
        });
        let mut connection = Connection::open(&endpoint).unwrap();
        let error = connection.query("SELECT").unwrap_err();
        assert_eq!(
            matches!(error, WireError::Malformed { .. }),
            out_of_order,
            "{error}"
        );
        server.join().unwrap();
    }
}

#[test]
fn an_answer_is_bounded() {
    let (endpoint, server) = serve(|peer| {
        use std::io::Write;
        peer.let_in();
        peer.receive();
        peer.send(&[1]);
        peer.send(&definition("a"));
        peer.eof();
        let row = [&b"\xfd\0\0\x10"[..], &vec![b'x'; 1 << 20]].concat();
        let mut sent = 0;
        loop {
            for packet in crate::fake_server::packets(&row, &mut peer.sequence) {
                if peer.stream.write_all(&packet).is_err() {
                    return sent;
                }
            }
            sent += 1;
        }
    });
    let mut connection = Connection::open(&endpoint).unwrap();
    let error = connection.query("SELECT").unwrap_err();
    assert!(matches!(error, WireError::AnswerTooLarge { limit, .. } if limit == 64 << 20));
    drop(connection);
    assert!(server.join().unwrap() >= 63);
}

#[test]
fn a_replica_is_registered() {
    let (endpoint, server) = serve(|peer| {
        peer.let_in();
        let request = peer.receive();
        peer.ok();
        request
    });
    let mut connection = Connection::open(&endpoint).unwrap();
    connection.register_replica(0x0102_0304, "weir-1").unwrap();
    let mut expected = b"\x15\x04\x03\x02\x01\x06weir-1".to_vec();
    expected.extend_from_slice(&[0; 12]);
    assert_eq!(server.join().unwrap(), expected);
}

#[test]
fn a_name_that_is_too_long_is_not_sent() {
    let (endpoint, server) = serve(super::super::fake_server::Peer::let_in);
    let mut connection = Connection::open(&endpoint).unwrap();
    let refused = connection.register_replica(1, &"w".repeat(61));
    assert!(matches!(refused, Err(WireError::Request { .. })));
    server.join().unwrap();
}

#[test]
fn many_small_values_count_as_what_they_take() {
    let (endpoint, server) = serve(|peer| {
        use std::io::Write;
        peer.let_in();
        peer.receive();
        peer.send(b"\xfc\xe8\x03");
        for _ in 0..1000 {
            peer.send(&definition("a"));
        }
        peer.eof();
        // A thousand NULLs take 1000 bytes on the wire.
        for _ in 0..64_000 {
            for packet in crate::fake_server::packets(&[0xfb; 1000], &mut peer.sequence) {
                if peer.stream.write_all(&packet).is_err() {
                    return;
                }
            }
        }
    });
    let mut connection = Connection::open(&endpoint).unwrap();
    let error = connection.query("SELECT").unwrap_err();
    assert!(matches!(error, WireError::AnswerTooLarge { .. }));
    drop(connection);
    server.join().unwrap();
}
