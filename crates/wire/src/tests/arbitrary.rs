//! Bytes that no server sends: an error or an answer, never a panic, never a hang.

use std::io::{Read, Write};
use std::net::Shutdown;

use proptest::prelude::*;
use weir_types::TlsMode;

use crate::dump::DumpRequest;
use crate::fake_server::{CAPABILITIES, carried, definition, error, event, greeting, packets, serve};
use crate::handshake::Greeting;
use crate::{Connection, WireError};

/// Largest event that the tests take.
const LIMIT: u64 = 1 << 20;

/// Plays `bytes` to a client, whatever it sends, and closes; how far the client came:
/// logged in, answer read, events read.
fn play(bytes: Vec<u8>) -> (bool, bool, usize) {
    let (mut endpoint, server) = serve(move |peer| {
        // The client may be gone before it has read all.
        peer.stream.write_all(&bytes).unwrap_or_default();
        peer.stream.shutdown(Shutdown::Write).unwrap_or_default();
        peer.stream.read_to_end(&mut Vec::new()).unwrap_or_default();
    });
    // Settings for TLS take longer to make than the rest.
    endpoint.tls.mode = TlsMode::Disabled;
    let outcome = run(&endpoint);
    server.join().unwrap();
    outcome
}

fn run(endpoint: &crate::Endpoint) -> (bool, bool, usize) {
    let Ok(mut connection) = Connection::open(endpoint) else {
        return (false, false, 0);
    };
    if !matches!(
        connection.query("SELECT 1"),
        Ok(_) | Err(WireError::Server { .. })
    ) {
        return (true, false, 0);
    }
    let request = DumpRequest::File {
        server_id: 1,
        file: String::new(),
        offset: 4,
    };
    let mut events = 0;
    if let Ok(mut stream) = connection.dump(&request) {
        while let Ok(Some(event)) = stream.next(LIMIT) {
            assert!(event.len() >= 19);
            events += 1;
        }
    }
    (true, true, events)
}

/// All that a server says to a client that logs in, asks once and reads two events.
fn transcript() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut part = |first: u8, payloads: &[Vec<u8>]| {
        let mut sequence = first;
        for payload in payloads {
            out.extend(packets(payload, &mut sequence));
        }
    };
    part(0, &[greeting(CAPABILITIES, "caching_sha2_password")]);
    part(2, &[vec![1, 3], vec![0, 0, 0, 2, 0, 0, 0]]);
    let eof = vec![0xfe, 0, 0, 2, 0];
    part(
        1,
        &[vec![1], definition("a"), eof.clone(), vec![1, b'x'], eof.clone()],
    );
    part(1, &[carried(&event(40, 1)), carried(&event(300, 2)), eof]);
    out
}

#[test]
fn the_transcript_is_good_and_any_part_of_it_is_no_trap() {
    let whole = transcript().concat();
    assert_eq!(play(whole.clone()), (true, true, 2));
    let mut seen = std::collections::BTreeSet::new();
    for length in 0..whole.len() {
        seen.insert(play(whole[..length].to_vec()));
    }
    let expected = [
        (false, false, 0),
        (true, false, 0),
        (true, true, 0),
        (true, true, 1),
        (true, true, 2),
    ];
    assert!(seen.into_iter().eq(expected));
}

#[test]
fn greetings_cut_at_any_length() {
    let whole = greeting(CAPABILITIES, "caching_sha2_password");
    assert!(Greeting::parse(&whole).is_ok());
    let name_at = whole.len() - "caching_sha2_password\0".len();
    for length in 0..name_at {
        assert!(Greeting::parse(&whole[..length]).is_err(), "{length}");
    }
    // A length of the challenge that does not fit a signed byte.
    for bytes in [0, 7, 8, 21, 127, 128, 135, 136, 255] {
        let mut changed = whole.clone();
        let at = 1 + "5.5.5-11.8.9-MariaDB\0".len() + 4 + 8 + 1 + 2 + 3 + 2;
        assert_eq!(changed[at], 21);
        changed[at] = bytes;
        assert_eq!(Greeting::parse(&changed).is_ok(), bytes <= 42, "{bytes}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        play(bytes);
    }

    #[test]
    fn arbitrary_packets(
        payloads in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..60),
                (0..9_usize).prop_map(|n| transcript()[n][4..].to_vec()),
                Just(error(1236, "x")),
            ],
            0..12,
        ),
    ) {
        // Numbered rightly, so that the payloads are looked at.
        let mut bytes = packets(&greeting(CAPABILITIES, "parsec"), &mut 0).concat();
        let mut sequence = 2;
        for payload in payloads {
            bytes.extend(packets(&payload, &mut sequence).concat());
        }
        play(bytes);
    }

    #[test]
    fn one_byte_changed(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = transcript().concat();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let (_, _, events) = play(bytes);
        prop_assert!(events <= 2);
    }

    #[test]
    fn arbitrary_greetings(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let version = Greeting::parse(&[&[10][..], &bytes].concat()).map(|g| g.version);
        prop_assert!(version.map_or(true, |v| v.chars().all(|c| !c.is_control())));
    }
}
