//! Greeting and authentication.

use std::time::Instant;

use openssl::pkey::{Id, PKey};
use openssl::rsa::{Padding, Rsa};
use openssl::sha::{Sha1, Sha256, sha1, sha256};
use openssl::sign::Verifier;
use weir_types::{Classified, ErrorClass, Flavor, TlsMode};

use crate::capability as cap;
use crate::cursor::Cursor;
use crate::error::WireError;
use crate::fake_server::{CAPABILITIES, LONG, NONCE, PASSWORD, Peer, SHORT, USER, serve};
use crate::{Connection, Endpoint};

/// User, answer and plugin of a login request.
fn login(packet: &[u8]) -> (String, Vec<u8>, String) {
    let mut c = Cursor::new(packet);
    let flags = c.u32().unwrap();
    assert_eq!(flags & cap::DEMANDED, cap::DEMANDED);
    c.take(4 + 1 + 23).unwrap();
    let user = String::from_utf8(c.until_nul().unwrap().to_vec()).unwrap();
    let answer = c.lenenc_bytes().unwrap().to_vec();
    let plugin = String::from_utf8(c.until_nul().unwrap().to_vec()).unwrap();
    let attributes = c.lenenc_bytes().unwrap();
    assert!(attributes.starts_with(b"\x0cprogram_name\x04weir"));
    assert!(c.is_empty());
    (user, answer, plugin)
}

/// The check that a server makes: `SHA1(password)` from the answer must have the hash that
/// it keeps.
fn native_fits(answer: &[u8], nonce: &[u8]) -> bool {
    let kept = sha1(&sha1(PASSWORD.as_bytes()));
    let mut mask = Sha1::new();
    mask.update(nonce);
    mask.update(&kept);
    let once: Vec<u8> = answer.iter().zip(mask.finish()).map(|(a, b)| a ^ b).collect();
    answer.len() == 20 && sha1(&once) == kept
}

fn sha2_fits(answer: &[u8], nonce: &[u8]) -> bool {
    let kept = sha256(&sha256(PASSWORD.as_bytes()));
    let mut mask = Sha256::new();
    mask.update(&kept);
    mask.update(nonce);
    let once: Vec<u8> = answer.iter().zip(mask.finish()).map(|(a, b)| a ^ b).collect();
    answer.len() == 32 && sha256(&once) == kept
}

fn refused(endpoint: &Endpoint) -> WireError {
    Connection::open(endpoint).unwrap_err()
}

#[test]
fn a_native_login() {
    let (endpoint, server) = serve(|peer| {
        peer.greet(CAPABILITIES, "mysql_native_password");
        let request = peer.receive();
        peer.ok();
        request
    });
    let connection = Connection::open(&endpoint).unwrap();
    let info = connection.server().clone();
    drop(connection);
    let (user, answer, plugin) = login(&server.join().unwrap());
    assert_eq!((user.as_str(), plugin.as_str()), (USER, "mysql_native_password"));
    assert!(native_fits(&answer, &NONCE));
    assert_eq!(info.version, "11.8.9-MariaDB");
    assert_eq!(info.flavor, Flavor::Mariadb);
    assert_eq!((info.connection_id, info.encrypted), (77, false));
}

#[test]
fn the_server_is_told_of_the_end() {
    let (endpoint, server) = serve(|peer| {
        peer.let_in();
        peer.receive()
    });
    drop(Connection::open(&endpoint).unwrap());
    assert_eq!(server.join().unwrap(), [1]);
}

#[test]
fn a_switch_to_another_plugin() {
    let (endpoint, server) = serve(|peer| {
        // Not one of ours, so that the client must start with something else.
        peer.greet(CAPABILITIES, "auth_gssapi_client");
        peer.receive();
        peer.send(b"\xfecaching_sha2_password\0ABCDEFGHIJKLMNOPQRST\0");
        let answer = peer.receive();
        peer.send(&[1, 3]);
        peer.ok();
        answer
    });
    Connection::open(&endpoint).unwrap();
    assert!(sha2_fits(&server.join().unwrap(), b"ABCDEFGHIJKLMNOPQRST"));
}

#[test]
fn an_empty_password_has_an_empty_answer() {
    for plugin in ["mysql_native_password", "caching_sha2_password"] {
        let (mut endpoint, server) = serve(move |peer| {
            peer.greet(CAPABILITIES, plugin);
            let request = peer.receive();
            peer.ok();
            request
        });
        endpoint.password = None;
        Connection::open(&endpoint).unwrap();
        assert_eq!(login(&server.join().unwrap()).1, b"");
    }
}

#[test]
fn in_clear_the_password_is_sealed_with_the_servers_key() {
    let (endpoint, server) = serve(|peer| {
        let key = Rsa::generate(2048).unwrap();
        peer.greet(CAPABILITIES, "caching_sha2_password");
        peer.receive();
        peer.send(&[1, 4]);
        assert_eq!(peer.receive(), [2]);
        peer.send(&[&[1], key.public_key_to_pem().unwrap().as_slice()].concat());
        let sealed = peer.receive();
        peer.ok();
        let mut text = vec![0; 256];
        let count = key
            .private_decrypt(&sealed, &mut text, Padding::PKCS1_OAEP)
            .unwrap();
        text.truncate(count);
        for (byte, mask) in text.iter_mut().zip(NONCE.iter().cycle()) {
            *byte ^= mask;
        }
        text
    });
    Connection::open(&endpoint).unwrap();
    assert_eq!(server.join().unwrap(), [PASSWORD.as_bytes(), &[0]].concat());
}

#[test]
fn a_key_that_is_none_is_an_error() {
    for key in [
        &b"\x01-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"[..],
        b"\x01-----BEGIN",
        b"\x01",
        b"\x01\x05",
    ] {
        let (endpoint, server) = serve(move |peer| {
            peer.greet(CAPABILITIES, "caching_sha2_password");
            peer.receive();
            peer.send(&[1, 4]);
            peer.receive();
            peer.send(key);
        });
        let error = refused(&endpoint);
        server.join().unwrap();
        assert!(
            matches!(error, WireError::AuthPlugin { .. } | WireError::Malformed { .. }),
            "{error}"
        );
    }
}

#[test]
fn plugins_that_are_not_ours() {
    for (request, name) in [
        (&b"\xfe"[..], "mysql_old_password"),
        (b"\xfemysql_clear_password\0", "mysql_clear_password"),
        (b"\xfeauth_gssapi_client\0x", "auth_gssapi_client"),
    ] {
        let (endpoint, server) = serve(move |peer| {
            peer.greet(CAPABILITIES, "mysql_native_password");
            peer.receive();
            peer.send(request);
        });
        let error = refused(&endpoint);
        server.join().unwrap();
        assert_eq!(error.class(), ErrorClass::Changefeed);
        assert!(matches!(error, WireError::AuthPlugin { plugin, .. } if plugin == name));
    }
}

#[test]
fn ed25519_signs_with_the_documented_key() {
    // `ed25519_password('secret')` as MariaDB's documentation prints it.
    let public = openssl::base64::decode_block("ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY=").unwrap();
    let nonce = [9_u8; 32];
    let (mut endpoint, server) = serve(move |peer| {
        peer.greet(CAPABILITIES, "mysql_native_password");
        peer.receive();
        peer.send(&[&b"\xfeclient_ed25519\0"[..], &nonce].concat());
        let answer = peer.receive();
        peer.ok();
        answer
    });
    endpoint.password = Some(weir_types::Secret::new("secret".to_owned()));
    Connection::open(&endpoint).unwrap();
    let key = PKey::public_key_from_raw_bytes(&public, Id::ED25519).unwrap();
    let mut verifier = Verifier::new_without_digest(&key).unwrap();
    assert!(verifier.verify_oneshot(&server.join().unwrap(), &nonce).unwrap());
}

#[test]
fn parsec_signs_both_challenges() {
    // With and without the byte that marks data of a plugin.
    for mark in [&b"\x01"[..], b""] {
        let nonce = [0_u8; 32];
        let salt = [7_u8; 18];
        let (endpoint, server) = serve(move |peer| {
            peer.greet(CAPABILITIES, "mysql_native_password");
            peer.receive();
            peer.send(&[&b"\xfeparsec\0"[..], &nonce].concat());
            assert_eq!(peer.receive(), b"");
            peer.send(&[mark, b"P\x00", &salt].concat());
            let answer = peer.receive();
            peer.ok();
            answer
        });
        Connection::open(&endpoint).unwrap();
        let answer = server.join().unwrap();
        let (ours, signature) = answer.split_at(32);
        let mut seed = [0; 32];
        let digest = openssl::hash::MessageDigest::sha512();
        openssl::pkcs5::pbkdf2_hmac(PASSWORD.as_bytes(), &salt, 1024, digest, &mut seed).unwrap();
        let key = PKey::private_key_from_raw_bytes(&seed, Id::ED25519).unwrap();
        let mut verifier = Verifier::new_without_digest(&key).unwrap();
        assert!(
            verifier
                .verify_oneshot(signature, &[&nonce, ours].concat())
                .unwrap()
        );
    }
}

#[test]
fn refusals_before_and_after_the_greeting() {
    type Script = fn(&mut Peer<std::net::TcpStream>);
    let cases: [(Script, &str); 4] = [
        // Before the greeting there is no SQLSTATE.
        (
            |peer| peer.send(b"\xff\x10\x04Too many connections"),
            "WEIR-WIR-007",
        ),
        (
            |peer| peer.send(b"\xff\x6a\x04Host '1.2.3.4' is not allowed"),
            "WEIR-WIR-005",
        ),
        (
            |peer| {
                peer.greet(CAPABILITIES, "mysql_native_password");
                peer.receive();
                peer.error(1045, "Access denied");
            },
            "WEIR-WIR-005",
        ),
        (
            |peer| {
                peer.greet(CAPABILITIES, "mysql_native_password");
                peer.receive();
                peer.error(3159, "insecure transport");
            },
            "WEIR-WIR-009",
        ),
    ];
    for (script, code) in cases {
        let (endpoint, server) = serve(script);
        let error = refused(&endpoint);
        server.join().unwrap();
        assert_eq!(error.code(), code, "{error}");
        assert!(!error.to_string().contains(PASSWORD));
    }
}

#[test]
fn something_else_on_the_port() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x05\0\0\0\x0b\x08\x05\x1a\0",
        b"\x01\0\0\0\x09",
        b"\0\0\0\0",
        b"\x02\0\0\x07\x0a8",
    ] {
        let (endpoint, server) = serve(move |peer| peer.raw(bytes));
        let error = refused(&endpoint);
        server.join().unwrap();
        let sorted = matches!(
            error,
            WireError::Malformed { .. } | WireError::AnswerTooLarge { .. } | WireError::Disconnected { .. }
        );
        assert!(sorted, "{error}");
    }
}

#[test]
fn a_silent_or_dripping_server_is_given_up_in_time() {
    for drip in [false, true] {
        let (mut endpoint, server) = serve(move |peer| {
            use std::io::Write;
            if drip {
                // A byte at a time, so that no single read takes long.
                let greeting = crate::fake_server::greeting(CAPABILITIES, "mysql_native_password");
                for byte in [&[greeting.len() as u8, 0, 0, 0][..], &greeting].concat() {
                    if peer.stream.write_all(&[byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(SHORT / 10);
                }
            } else {
                // Until the client has given up.
                std::io::Read::read(&mut peer.stream, &mut [0]).unwrap_or_default();
            }
        });
        endpoint.connect_timeout = SHORT;
        let start = Instant::now();
        let error = refused(&endpoint);
        assert!(matches!(error, WireError::ReadTimeout { waited, .. } if waited == SHORT));
        assert!(start.elapsed() < LONG / 2);
        server.join().unwrap();
    }
}

#[test]
fn a_login_without_an_end_is_given_up() {
    let (endpoint, server) = serve(|peer| {
        peer.greet(CAPABILITIES, "caching_sha2_password");
        peer.receive();
        for _ in 0..16 {
            peer.send(&[1, 3]);
        }
    });
    assert!(matches!(refused(&endpoint), WireError::Malformed { .. }));
    server.join().unwrap();
}

#[test]
fn a_mode_that_demands_tls_sends_no_login_without() {
    for mode in [TlsMode::Required, TlsMode::VerifyCa, TlsMode::VerifyIdentity] {
        let (mut endpoint, server) = serve(|peer| {
            peer.greet(CAPABILITIES, "mysql_native_password");
            let mut rest = Vec::new();
            std::io::Read::read_to_end(&mut peer.stream, &mut rest).unwrap();
            rest
        });
        endpoint.tls.mode = mode;
        assert!(matches!(refused(&endpoint), WireError::NoTls { .. }));
        assert_eq!(server.join().unwrap(), b"");
    }
}

#[test]
fn nobody_listens() {
    let (mut endpoint, _server) = serve(|_| ());
    // The lowest port, which is never given to a listener that leaves the choice open.
    endpoint.port = 1;
    let error = refused(&endpoint);
    assert!(matches!(error, WireError::Unreachable { .. }));
    assert_eq!(error.class(), ErrorClass::Transient);
}

#[test]
fn a_user_with_a_zero_byte_is_not_sent() {
    let (mut endpoint, _server) = serve(|_| ());
    endpoint.user.push('\0');
    assert!(matches!(refused(&endpoint), WireError::Request { .. }));
}
