//! Certificates for servers and clients, made anew for each test.

use std::path::{Path, PathBuf};

use anyhow::Result;
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Name};

const KEY_BITS: u32 = 2048;
const SERIAL_BITS: i32 = 64;
const VALID_DAYS: u32 = 2;

/// A certificate with its key, as PEM files.
#[derive(Debug)]
pub struct Certificate {
    cert: X509,
    key: PKey<Private>,
    /// File of the certificate.
    pub cert_file: PathBuf,
    /// File of its key, not encrypted.
    pub key_file: PathBuf,
}

impl Certificate {
    /// An authority that signs others; its files lie in `folder`.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn authority(folder: &Path, name: &str) -> Result<Self> {
        Self::make(folder, name, None)
    }

    /// A certificate made out to `host`: an address or a name.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn sign(&self, folder: &Path, name: &str, host: &str) -> Result<Self> {
        Self::make(folder, name, Some((self, host)))
    }

    fn make(folder: &Path, name: &str, issuer: Option<(&Self, &str)>) -> Result<Self> {
        let key = PKey::from_rsa(Rsa::generate(KEY_BITS)?)?;
        let mut subject = X509Name::builder()?;
        subject.append_entry_by_nid(Nid::COMMONNAME, name)?;
        let subject = subject.build();
        let mut serial = BigNum::new()?;
        serial.rand(SERIAL_BITS, MsbOption::ONE, false)?;
        let (serial, from, to) = (
            serial.to_asn1_integer()?,
            Asn1Time::days_from_now(0)?,
            Asn1Time::days_from_now(VALID_DAYS)?,
        );
        let mut cert = X509::builder()?;
        // Version 3 counts from 0.
        cert.set_version(2)?;
        cert.set_serial_number(&serial)?;
        cert.set_subject_name(&subject)?;
        cert.set_issuer_name(issuer.map_or(&subject, |(issuer, _)| issuer.cert.subject_name()))?;
        cert.set_not_before(&from)?;
        cert.set_not_after(&to)?;
        cert.set_pubkey(&key)?;
        match issuer {
            None => cert.append_extension(BasicConstraints::new().critical().ca().build()?)?,
            Some((_, host)) => {
                let context = cert.x509v3_context(None, None);
                let mut names = SubjectAlternativeName::new();
                if host.parse::<std::net::IpAddr>().is_ok() {
                    names.ip(host);
                } else {
                    names.dns(host);
                }
                let names = names.build(&context)?;
                cert.append_extension(names)?;
            }
        }
        cert.sign(
            issuer.map_or(&key, |(issuer, _)| &issuer.key),
            MessageDigest::sha256(),
        )?;
        let made = Self {
            cert: cert.build(),
            key,
            cert_file: folder.join(format!("{name}.pem")),
            key_file: folder.join(format!("{name}-key.pem")),
        };
        std::fs::write(&made.cert_file, made.cert.to_pem()?)?;
        std::fs::write(&made.key_file, made.key.private_key_to_pem_pkcs8()?)?;
        Ok(made)
    }
}
