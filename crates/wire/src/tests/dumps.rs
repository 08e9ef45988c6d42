//! The binlog stream.

use std::thread;
use std::time::Instant;

use weir_types::GtidSet;

use crate::dump::{DumpRequest, DumpStream, EventBuf};
use crate::error::WireError;
use crate::fake_server::{LONG, Peer, SHORT, carried, event, packets, serve};
use crate::{Connection, Endpoint};

/// Largest event that the tests take.
const LIMIT: u64 = 64 << 20;
/// Sizes at the edges: header only, buffer, packet, two packets.
const SIZES: [usize; 12] = [
    19,
    20,
    100,
    8192,
    (1 << 20) - 6,
    (1 << 20) - 5,
    (1 << 20) - 4,
    0xff_ffff - 2,
    0xff_ffff - 1,
    0xff_ffff,
    2 * 0xff_ffff - 1,
    2 * 0xff_ffff + 7,
];

fn request() -> DumpRequest {
    DumpRequest::File {
        server_id: 5,
        file: "bin.000001".to_owned(),
        offset: 4,
    }
}

fn dump(endpoint: &Endpoint) -> DumpStream {
    Connection::open(endpoint).unwrap().dump(&request()).unwrap()
}

/// Serves a dump: the login, then `script`.
fn serve_dump<T: Send + 'static>(
    script: impl FnOnce(&mut Peer<std::net::TcpStream>) -> T + Send + 'static,
) -> (Endpoint, thread::JoinHandle<T>) {
    serve(|peer| {
        peer.let_in();
        let command = peer.receive();
        assert_eq!(command, b"\x12\x04\0\0\0\0\0\x05\0\0\0bin.000001");
        script(peer)
    })
}

#[test]
fn events_of_all_sizes_and_the_end() {
    let (endpoint, server) = serve_dump(|peer| {
        for (seed, size) in SIZES.into_iter().enumerate() {
            peer.send(&carried(&event(size, seed as u8)));
        }
        peer.eof();
    });
    let mut stream = dump(&endpoint);
    for (seed, size) in SIZES.into_iter().enumerate() {
        let event_bytes = stream.next(LIMIT).unwrap().unwrap();
        assert!(*event_bytes == *event(size, seed as u8), "{size}");
        // Five bytes more than the event must fit the buffer of 1 MiB.
        let owned = matches!(event_bytes, EventBuf::Owned(_));
        assert_eq!(owned, size > (1 << 20) - 5, "{size}");
    }
    assert!(stream.next(LIMIT).unwrap().is_none());
    assert!(stream.next(LIMIT).unwrap().is_none());
    server.join().unwrap();
}

#[test]
fn numbers_of_packets_start_again() {
    let (endpoint, server) = serve_dump(|peer| {
        for number in 0..2000_u32 {
            peer.send(&carried(&event(19 + number as usize % 300, number as u8)));
        }
        peer.eof();
    });
    let mut stream = dump(&endpoint);
    for number in 0..2000_u32 {
        let expected = event(19 + number as usize % 300, number as u8);
        assert!(*stream.next(LIMIT).unwrap().unwrap() == *expected);
    }
    assert!(stream.next(LIMIT).unwrap().is_none());
    server.join().unwrap();
}

#[test]
fn a_timeout_anywhere_loses_nothing() {
    for size in [200, 3 << 20, 0xff_ffff + 100] {
        let (endpoint, server) = serve_dump(move |peer| {
            let bytes = packets(&carried(&event(size, 3)), &mut peer.sequence).concat();
            // Pauses in the header, in the event's header, in its body, and between packets.
            let mut from = 0;
            for to in [2, 5, 20, 100, bytes.len() / 2, 0xff_ffff + 6, bytes.len()] {
                let to = to.min(bytes.len());
                peer.raw(&bytes[from..to]);
                from = to;
                thread::sleep(SHORT);
            }
            peer.send(&carried(&event(30, 4)));
            peer.eof();
        });
        let mut stream = dump(&endpoint);
        stream.set_read_timeout(SHORT / 3).unwrap();
        let mut timeouts = 0;
        for (size, seed) in [(size, 3), (30, 4)] {
            loop {
                match stream.next(LIMIT) {
                    Ok(Some(bytes)) => {
                        assert!(*bytes == *event(size, seed));
                        break;
                    }
                    Err(WireError::ReadTimeout { .. }) => timeouts += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(timeouts >= 3, "{timeouts}");
        stream.set_read_timeout(LONG).unwrap();
        assert!(stream.next(LIMIT).unwrap().is_none());
        server.join().unwrap();
    }
}

#[test]
fn a_half_open_connection_is_noticed() {
    let (endpoint, server) = serve_dump(|peer| {
        peer.send(&carried(&event(30, 1)));
        std::io::Read::read(&mut peer.stream, &mut [0]).unwrap_or_default();
    });
    let mut stream = dump(&endpoint);
    stream.set_read_timeout(SHORT).unwrap();
    stream.next(LIMIT).unwrap().unwrap();
    let start = Instant::now();
    let error = stream.next(LIMIT).unwrap_err();
    assert!(matches!(error, WireError::ReadTimeout { waited, .. } if waited == SHORT));
    assert!(start.elapsed() < LONG / 2);
    drop(stream);
    server.join().unwrap();
}

#[test]
fn another_thread_can_end_a_blocked_read() {
    let (endpoint, server) = serve_dump(|peer| {
        std::io::Read::read(&mut peer.stream, &mut [0]).unwrap_or_default();
    });
    let mut stream = dump(&endpoint);
    let closer = stream.closer().unwrap();
    let other = thread::spawn(move || {
        thread::sleep(SHORT);
        closer.close();
        closer.close();
    });
    let start = Instant::now();
    let error = stream.next(LIMIT).unwrap_err();
    assert!(matches!(error, WireError::Disconnected { .. }), "{error}");
    assert!(start.elapsed() < LONG / 2);
    other.join().unwrap();
    server.join().unwrap();
}

#[test]
fn dropping_the_stream_ends_it_even_with_a_closer_held() {
    let (endpoint, server) =
        serve_dump(|peer| std::io::Read::read(&mut peer.stream, &mut [0]).unwrap_or_default());
    let stream = dump(&endpoint);
    let _closer = stream.closer().unwrap();
    drop(stream);
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn an_event_that_is_too_large_is_not_read() {
    // Only its first bytes are ever sent.
    let (endpoint, server) = serve_dump(|peer| {
        let bytes = packets(&carried(&event(40 << 20, 1)), &mut peer.sequence).concat();
        peer.raw(&bytes[..100]);
        std::io::Read::read(&mut peer.stream, &mut [0]).unwrap_or_default();
    });
    let mut stream = dump(&endpoint);
    let error = stream.next(1 << 20).unwrap_err();
    let expected = (40 << 20, 1 << 20);
    assert!(matches!(error, WireError::EventTooLarge { bytes, limit } if (bytes, limit) == expected));
    assert!(matches!(
        stream.next(LIMIT).unwrap_err(),
        WireError::Disconnected { .. }
    ));
    drop(stream);
    server.join().unwrap();
}

#[test]
fn errors_of_the_stream() {
    type Check = fn(&WireError) -> bool;
    let cases: [(u16, Check); 3] = [
        (
            1236,
            |e| matches!(e, WireError::DumpRefused { message, .. } if message == "m"),
        ),
        (
            4052,
            |e| matches!(e, WireError::Server { error, .. } if error.code == 4052),
        ),
        (1227, |e| matches!(e, WireError::Server { .. })),
    ];
    for (code, check) in cases {
        let (endpoint, server) = serve_dump(move |peer| peer.error(code, "m"));
        let error = dump(&endpoint).next(LIMIT).unwrap_err();
        assert!(check(&error), "{error}");
        server.join().unwrap();
    }
}

#[test]
fn events_that_contradict_themselves() {
    let with_length = |size: usize, says: u32| {
        let mut out = event(size, 1);
        out[9..13].copy_from_slice(&says.to_le_bytes());
        carried(&out)
    };
    let full = 0xff_ffff - 1;
    let bad = [
        Vec::new(),
        vec![0],
        vec![7, 1],
        vec![0; 19],
        vec![0xfe; 9],
        with_length(100, 99),
        with_length(100, 101),
        with_length(100, 0),
        with_length(2 << 20, (2 << 20) + 1),
        // Over two packets: less than the first, less and more than both.
        with_length(full + 50, 1000),
        with_length(full + 50, full as u32 + 49),
        with_length(full + 50, full as u32 + 51),
    ];
    for payload in bad {
        let (endpoint, server) = serve_dump(move |peer| peer.send(&payload));
        let error = dump(&endpoint).next(LIMIT).unwrap_err();
        assert!(matches!(error, WireError::Malformed { .. }), "{error}");
        // The server's writes may have failed: we do not read on.
        server.join().unwrap_or_default();
    }
}

#[test]
fn the_connection_ends_in_an_event() {
    for (size, cut) in [(200, 3), (200, 100), (3 << 20, 10), (3 << 20, 2 << 20)] {
        let (endpoint, server) = serve_dump(move |peer| {
            let bytes = packets(&carried(&event(size, 3)), &mut peer.sequence).concat();
            peer.raw(&bytes[..cut]);
        });
        let error = dump(&endpoint).next(LIMIT).unwrap_err();
        assert!(matches!(error, WireError::Disconnected { .. }), "{error}");
        server.join().unwrap();
    }
}

#[test]
fn gtid_sets_are_encoded() {
    let uuid: Vec<u8> = (1..=16).collect();
    let encode = |text: &str| {
        DumpRequest::MysqlGtid {
            server_id: 7,
            executed: GtidSet::parse(text).unwrap(),
        }
        .encode()
    };
    let id = "01020304-0506-0708-090a-0b0c0d0e0f10";
    let long = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    let head = |length: u32| {
        let mut out = vec![0x1e, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        out.extend_from_slice(&length.to_le_bytes());
        out
    };
    assert_eq!(encode("").unwrap(), [head(8), long(&[0])].concat());
    assert_eq!(
        encode(&format!("{id}:1-3:7")).unwrap(),
        [head(64), long(&[1]), uuid.clone(), long(&[2, 1, 4, 7, 8])].concat()
    );
    // Format 1 in both outer bytes, the count between them, a tag behind each uuid.
    assert_eq!(
        encode(&format!("{id}:1-3,{id}:ab:5")).unwrap(),
        [
            head(92),
            vec![1, 2, 0, 0, 0, 0, 0, 1],
            uuid.clone(),
            vec![0],
            long(&[1, 1, 4]),
            uuid,
            vec![4, b'a', b'b'],
            long(&[1, 5, 6]),
        ]
        .concat()
    );
    assert!(matches!(encode("0-1-2"), Err(WireError::Request { .. })));
}

#[test]
fn an_offset_of_five_bytes_cannot_be_asked() {
    let request = DumpRequest::File {
        server_id: 1,
        file: "bin.1".to_owned(),
        offset: 1 << 32,
    };
    let error = request.encode().unwrap_err();
    assert!(matches!(error, WireError::OffsetTooLarge { offset, .. } if offset == 1 << 32));
}
