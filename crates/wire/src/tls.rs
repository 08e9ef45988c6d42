//! TLS with OpenSSL: which certificates are trusted and how failures are told apart.

use std::fs;
use std::io;
use std::path::Path;

use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{
    self, ErrorCode, HandshakeError, SslConnector, SslConnectorBuilder, SslMethod, SslStream, SslVerifyMode,
    SslVersion,
};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509VerifyResult};
use weir_types::{TlsMode, TlsOptions};

use crate::endpoint::Endpoint;
use crate::error::WireError;
use crate::socket::Socket;

/// Reason codes by which OpenSSL reports the alerts of the other side about our
/// certificate: 1000 + the number of the alert (RFC 8446, section 6.2): bad, unsupported,
/// revoked, expired, unknown certificate, unknown authority, a signature that does not fit
/// (an authority of the same name, as servers make them for themselves), certificate
/// required.
const CERTIFICATE_ALERTS: [i32; 8] = [1042, 1043, 1044, 1045, 1046, 1048, 1051, 1116];

/// What is needed to go over to TLS, made before anything is sent.
pub(crate) struct Handshake<'a> {
    connector: SslConnector,
    endpoint: &'a Endpoint,
}

/// Why a handshake failed.
pub(crate) enum Failure {
    /// By the connection below.
    Io(io::Error),
    /// By TLS itself.
    Tls(WireError),
}

impl<'a> Handshake<'a> {
    /// Reads the files and builds the settings.
    pub(crate) fn new(endpoint: &'a Endpoint) -> Result<Self, WireError> {
        let own = |error: ErrorStack| WireError::TlsHandshake {
            address: endpoint.address(),
            what: reasons(&error),
        };
        let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(own)?;
        builder
            .set_min_proto_version(Some(SslVersion::TLS1_2))
            .map_err(own)?;
        if verifies(endpoint.tls.mode) {
            trust(&mut builder, endpoint.tls.ca.as_deref())?;
        } else {
            builder.set_verify(SslVerifyMode::NONE);
        }
        present(&mut builder, &endpoint.tls)?;
        Ok(Self {
            connector: builder.build(),
            endpoint,
        })
    }

    /// Runs the handshake.
    pub(crate) fn run(&self, mut socket: Socket) -> Result<SslStream<Socket>, Failure> {
        let address = || self.endpoint.address();
        let own = |error: ErrorStack| {
            Failure::Tls(WireError::TlsHandshake {
                address: address(),
                what: reasons(&error),
            })
        };
        socket.read_ahead();
        let configuration = self
            .connector
            .configure()
            .map_err(own)?
            .verify_hostname(self.endpoint.tls.mode == TlsMode::VerifyIdentity);
        let middle = match configuration.connect(&self.endpoint.host, socket) {
            Ok(stream) => return Ok(stream),
            Err(HandshakeError::SetupFailure(error)) => return Err(own(error)),
            Err(HandshakeError::Failure(middle) | HandshakeError::WouldBlock(middle)) => middle,
        };
        let verdict = middle.ssl().verify_result();
        if verifies(self.endpoint.tls.mode) && verdict != X509VerifyResult::OK {
            return Err(Failure::Tls(WireError::Certificate {
                address: address(),
                what: verdict.error_string().to_owned(),
            }));
        }
        Err(match middle.into_error().into_io_error() {
            Ok(error) => Failure::Io(error),
            Err(error) => Failure::Tls(match alert_text(&error) {
                Some(what) => WireError::Certificate {
                    address: address(),
                    what,
                },
                None => WireError::TlsHandshake {
                    address: address(),
                    what: error.ssl_error().map_or_else(|| error.to_string(), reasons),
                },
            }),
        })
    }
}

const fn verifies(mode: TlsMode) -> bool {
    matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyIdentity)
}

fn file_error(path: &Path, what: impl ToString) -> WireError {
    WireError::TlsFile {
        path: path.display().to_string(),
        what: what.to_string(),
    }
}

/// Certificates of a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<X509>, WireError> {
    let pem = fs::read(path).map_err(|error| file_error(path, error))?;
    let found = X509::stack_from_pem(&pem).map_err(|error| file_error(path, reasons(&error)))?;
    if found.is_empty() {
        return Err(file_error(path, "it holds no certificate"));
    }
    Ok(found)
}

/// Trusts the authorities of `ca` and no others, or those of the system.
fn trust(builder: &mut SslConnectorBuilder, ca: Option<&Path>) -> Result<(), WireError> {
    let Some(path) = ca else {
        // OpenSSL is built with its own paths, so those of the system are looked for.
        let system = openssl_probe::probe();
        let dirs = system.cert_dir.iter().map(|dir| (None, Some(dir.as_path())));
        let file = system.cert_file.as_deref().map(|file| (Some(file), None));
        for (file, dir) in file.into_iter().chain(dirs) {
            if let Err(error) = builder.load_verify_locations(file, dir) {
                tracing::debug!(%error, "trusted certificates of the system");
            }
        }
        return Ok(());
    };
    let own = |error: ErrorStack| file_error(path, reasons(&error));
    let mut store = X509StoreBuilder::new().map_err(own)?;
    for certificate in certificates(path)? {
        store.add_cert(certificate).map_err(own)?;
    }
    builder.set_cert_store(store.build());
    Ok(())
}

/// Presents our certificate if there is one.
fn present(builder: &mut SslConnectorBuilder, options: &TlsOptions) -> Result<(), WireError> {
    let (cert, key) = match (&options.cert, &options.key) {
        (None, None) => return Ok(()),
        (Some(cert), Some(key)) => (cert, key),
        (Some(alone), None) => return Err(file_error(alone, "`tls.key` is not set beside `tls.cert`")),
        (None, Some(alone)) => return Err(file_error(alone, "`tls.cert` is not set beside `tls.key`")),
    };
    let bad_cert = |error: ErrorStack| file_error(cert, reasons(&error));
    let bad_key = |error: ErrorStack| file_error(key, reasons(&error));
    for (index, certificate) in certificates(cert)?.into_iter().enumerate() {
        if index == 0 {
            builder.set_certificate(&certificate).map_err(bad_cert)?;
        } else {
            builder.add_extra_chain_cert(certificate).map_err(bad_cert)?;
        }
    }
    let pem = fs::read(key).map_err(|error| file_error(key, error))?;
    // With a passphrase given, even an empty one, OpenSSL does not ask for it at the
    // terminal.
    let private = PKey::private_key_from_pem_passphrase(&pem, &[]).map_err(bad_key)?;
    builder
        .set_private_key(&private)
        .and_then(|()| builder.check_private_key())
        .map_err(bad_key)
}

/// What OpenSSL says, without its source lines.
fn reasons(stack: &ErrorStack) -> String {
    let mut out = Vec::<&str>::new();
    for error in stack.errors() {
        let reason = error.reason().unwrap_or("unknown reason");
        if !out.contains(&reason) {
            out.push(reason);
        }
    }
    if out.is_empty() {
        "unknown reason".to_owned()
    } else {
        out.join(", ")
    }
}

/// An error of a running TLS connection without OpenSSL's source lines.
pub(crate) fn plain_error(error: io::Error) -> io::Error {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<ssl::Error>());
    match inner.map(|inner| (inner.code(), inner.ssl_error())) {
        Some((ErrorCode::SSL, Some(stack))) => {
            io::Error::new(error.kind(), format!("TLS: {}", reasons(stack)))
        }
        Some(_) => io::Error::new(error.kind(), "TLS ended without notice"),
        None => error,
    }
}

/// Text of an alert about our certificate. Under TLS 1.3 it comes after the handshake,
/// with the first read.
pub(crate) fn certificate_alert(error: &io::Error) -> Option<String> {
    alert_text(error.get_ref()?.downcast_ref::<ssl::Error>()?)
}

fn alert_text(error: &ssl::Error) -> Option<String> {
    let found = error
        .ssl_error()?
        .errors()
        .iter()
        .find(|e| CERTIFICATE_ALERTS.contains(&e.reason_code()))?;
    let reason = found.reason().unwrap_or("alert about a certificate");
    Some(format!("the server refused our certificate ({reason})"))
}
