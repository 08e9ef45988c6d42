//! TLS modes against a server with a certificate made here.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::thread::JoinHandle;

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslAcceptor, SslMethod, SslStream, SslVerifyMode};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Name};
use weir_types::{Classified, ErrorClass, TlsMode};

use crate::capability as cap;
use crate::dump::DumpRequest;
use crate::error::WireError;
use crate::fake_server::{CAPABILITIES, PASSWORD, Peer, carried, event, serve};
use crate::{Connection, Endpoint};

const VERIFYING: [TlsMode; 2] = [TlsMode::VerifyCa, TlsMode::VerifyIdentity];

struct Certificate {
    cert: X509,
    key: PKey<Private>,
}

/// A certificate for `host`, signed by `issuer` or, if there is none, an authority.
fn certificate(issuer: Option<&Certificate>, host: &str) -> Certificate {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut name = X509Name::builder().unwrap();
    let common = if issuer.is_none() { "authority" } else { "leaf" };
    name.append_entry_by_nid(Nid::COMMONNAME, common).unwrap();
    let name = name.build();
    let mut cert = X509::builder().unwrap();
    cert.set_version(2).unwrap();
    let mut serial = BigNum::new().unwrap();
    serial.rand(64, openssl::bn::MsbOption::ONE, false).unwrap();
    cert.set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    cert.set_subject_name(&name).unwrap();
    cert.set_issuer_name(issuer.map_or(&name, |i| i.cert.subject_name()))
        .unwrap();
    cert.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    cert.set_not_after(&Asn1Time::days_from_now(2).unwrap()).unwrap();
    cert.set_pubkey(&key).unwrap();
    if issuer.is_none() {
        let authority = BasicConstraints::new().critical().ca().build().unwrap();
        cert.append_extension(authority).unwrap();
    } else {
        let context = cert.x509v3_context(None, None);
        let mut names = SubjectAlternativeName::new();
        if host.parse::<std::net::IpAddr>().is_ok() {
            names.ip(host);
        } else {
            names.dns(host);
        }
        let names = names.build(&context).unwrap();
        cert.append_extension(names).unwrap();
    }
    cert.sign(issuer.map_or(&key, |i| &i.key), MessageDigest::sha256())
        .unwrap();
    Certificate {
        cert: cert.build(),
        key,
    }
}

fn write(path: &Path, authority: &Certificate) -> std::path::PathBuf {
    fs::write(path, authority.cert.to_pem().unwrap()).unwrap();
    path.to_owned()
}

/// A server that offers TLS with `own`; `clients` is the authority of its clients. After
/// the handshake it lets the client in and runs `script`; `false` if it came to no login.
fn serve_tls(
    own: Certificate,
    clients: Option<X509>,
    script: impl FnOnce(&mut Peer<SslStream<TcpStream>>) + Send + 'static,
) -> (Endpoint, JoinHandle<bool>) {
    serve(move |peer| {
        peer.greet(CAPABILITIES | cap::SSL, "caching_sha2_password");
        let request = peer.receive();
        assert_eq!(request.len(), 32);
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
        acceptor.set_private_key(&own.key).unwrap();
        acceptor.set_certificate(&own.cert).unwrap();
        if let Some(authority) = clients {
            acceptor.cert_store_mut().add_cert(authority).unwrap();
            acceptor.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        }
        let Ok(stream) = acceptor.build().accept(peer.stream.try_clone().unwrap()) else {
            return false;
        };
        let mut peer = Peer {
            stream,
            sequence: peer.sequence,
        };
        peer.receive();
        // The password itself, now that nobody else can read it.
        peer.send(&[1, 4]);
        assert_eq!(peer.receive(), [PASSWORD.as_bytes(), &[0]].concat());
        peer.ok();
        script(&mut peer);
        true
    })
}

/// How a login of `mode` ends at a server with a certificate for `host`.
fn login(mode: TlsMode, host: &str, trusted: bool) -> Result<bool, WireError> {
    let dir = tempfile::tempdir().unwrap();
    let authority = certificate(None, "");
    let other = certificate(None, "");
    let own = certificate(Some(&authority), host);
    let (mut endpoint, server) = serve_tls(own, None, |_| ());
    endpoint.tls.mode = mode;
    let trust = if trusted { &authority } else { &other };
    endpoint.tls.ca = Some(write(&dir.path().join("ca.pem"), trust));
    let outcome = Connection::open(&endpoint).map(|c| c.server().encrypted);
    assert_eq!(server.join().unwrap(), outcome.is_ok());
    outcome
}

#[test]
fn modes_that_do_not_verify_take_any_certificate() {
    for mode in [TlsMode::Preferred, TlsMode::Required] {
        assert!(login(mode, "other.example", false).unwrap());
    }
}

#[test]
fn verifying_modes_want_a_trusted_authority() {
    for mode in VERIFYING {
        assert!(login(mode, "127.0.0.1", true).unwrap());
        let error = login(mode, "127.0.0.1", false).unwrap_err();
        assert!(matches!(error, WireError::Certificate { .. }), "{error}");
        assert_eq!(error.class(), ErrorClass::Changefeed);
    }
}

#[test]
fn only_verify_identity_looks_at_the_name() {
    assert!(login(TlsMode::VerifyCa, "other.example", true).unwrap());
    let error = login(TlsMode::VerifyIdentity, "other.example", true).unwrap_err();
    assert!(matches!(error, WireError::Certificate { .. }), "{error}");
}

#[test]
fn without_an_authority_a_strangers_certificate_is_refused() {
    let authority = certificate(None, "");
    let (mut endpoint, server) = serve_tls(certificate(Some(&authority), "127.0.0.1"), None, |_| ());
    endpoint.tls.mode = TlsMode::VerifyCa;
    let error = Connection::open(&endpoint).unwrap_err();
    assert!(matches!(error, WireError::Certificate { .. }), "{error}");
    assert!(!server.join().unwrap());
}

#[test]
fn a_client_certificate_is_presented() {
    let dir = tempfile::tempdir().unwrap();
    let authority = certificate(None, "");
    let stranger = certificate(None, "");
    for good in [true, false] {
        let own = certificate(Some(&authority), "127.0.0.1");
        let client = certificate(Some(if good { &authority } else { &stranger }), "client");
        let (mut endpoint, server) = serve_tls(own, Some(authority.cert.clone()), |_| ());
        endpoint.tls.cert = Some(write(&dir.path().join("cert.pem"), &client));
        // The format of one algorithm, as older releases of OpenSSL write it.
        let pem = client.key.ec_key().unwrap().private_key_to_pem().unwrap();
        assert!(pem.starts_with(b"-----BEGIN EC PRIVATE KEY-----"));
        fs::write(dir.path().join("key.pem"), pem).unwrap();
        endpoint.tls.key = Some(dir.path().join("key.pem"));
        let outcome = Connection::open(&endpoint);
        assert_eq!(server.join().unwrap(), good);
        match outcome {
            Ok(connection) => assert!(good && connection.server().encrypted),
            Err(error) => assert!(
                !good && matches!(error, WireError::Certificate { .. }),
                "{error:?}"
            ),
        }
    }
}

#[test]
fn files_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (ours, other) = (certificate(None, ""), certificate(None, ""));
    write(&path("cert"), &ours);
    fs::write(path("key"), other.key.private_key_to_pem_pkcs8().unwrap()).unwrap();
    let cipher = openssl::symm::Cipher::aes_256_cbc();
    let sealed = ours
        .key
        .private_key_to_pem_pkcs8_passphrase(cipher, b"secret")
        .unwrap();
    fs::write(path("sealed"), sealed).unwrap();
    fs::write(path("empty"), b"").unwrap();
    // Authority, certificate and key.
    let cases = [
        (Some("missing"), None, None),
        (Some("empty"), None, None),
        (Some("key"), None, None),
        (None, Some("cert"), None),
        (None, None, Some("key")),
        (None, Some("cert"), Some("key")),
        (None, Some("cert"), Some("sealed")),
        (None, Some("cert"), Some("empty")),
        (None, Some("cert"), Some("missing")),
    ];
    for (ca, cert, key) in cases {
        // Found out before a connection is made.
        let (mut endpoint, _server) = serve(|_| ());
        endpoint.tls.mode = TlsMode::VerifyCa;
        endpoint.tls.ca = ca.map(path);
        endpoint.tls.cert = cert.map(path);
        endpoint.tls.key = key.map(path);
        let error = Connection::open(&endpoint).unwrap_err();
        assert!(
            matches!(error, WireError::TlsFile { .. }),
            "{ca:?} {cert:?} {key:?}: {error}"
        );
    }
}

#[test]
fn a_failed_handshake_is_no_reason_to_go_on_in_clear() {
    let (endpoint, server) = serve(|peer| {
        peer.greet(CAPABILITIES | cap::SSL, "mysql_native_password");
        peer.receive();
        peer.raw(b"this is not TLS at all");
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut peer.stream, &mut rest).unwrap_or_default();
        rest
    });
    let error = Connection::open(&endpoint).unwrap_err();
    assert!(matches!(error, WireError::TlsHandshake { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Transient);
    // Only records of TLS (handshake, alert) came, never a login.
    let sent = server.join().unwrap();
    assert!(sent.is_empty() || [0x15, 0x16].contains(&sent[0]), "{sent:?}");
    assert!(!sent.windows(4).any(|w| w == b"repl"));
}

#[test]
fn nothing_in_clear_is_taken_for_the_start_of_tls() {
    let (endpoint, server) = serve(|peer| {
        // In one write, so that the client has read both when it starts TLS.
        let greeting = crate::fake_server::greeting(CAPABILITIES | cap::SSL, "mysql_native_password");
        let mut bytes = crate::fake_server::packets(&greeting, &mut peer.sequence).concat();
        bytes.extend_from_slice(b"\x07\0\0\x02\0\0\0\x02\0\0\0");
        peer.raw(&bytes);
        peer.receive();
    });
    let error = Connection::open(&endpoint).unwrap_err();
    assert!(matches!(error, WireError::Malformed { .. }), "{error}");
    server.join().unwrap();
}

#[test]
fn a_dump_under_tls() {
    let authority = certificate(None, "");
    let sizes = [19, 5000, 60_000, 20_000_000];
    let (endpoint, server) = serve_tls(certificate(Some(&authority), "127.0.0.1"), None, move |peer| {
        peer.receive();
        for (seed, size) in sizes.into_iter().enumerate() {
            peer.send(&carried(&event(size, seed as u8)));
        }
        peer.eof();
    });
    let connection = Connection::open(&endpoint).unwrap();
    let request = DumpRequest::File {
        server_id: 5,
        file: String::new(),
        offset: 4,
    };
    let mut stream = connection.dump(&request).unwrap();
    for (seed, size) in sizes.into_iter().enumerate() {
        let bytes = stream.next(1 << 30).unwrap().unwrap();
        assert!(*bytes == *event(size, seed as u8), "{size}");
    }
    assert!(stream.next(1 << 30).unwrap().is_none());
    assert!(server.join().unwrap());
}
