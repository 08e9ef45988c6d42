//! Authentication plugins: `mysql_native_password`, `caching_sha2_password` (MySQL manual,
//! "Pluggable Authentication"), `ed25519` and `parsec` (MariaDB knowledge base,
//! "Authentication Plugins").

use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{Id, PKey};
use openssl::rsa::{Padding, Rsa};
use openssl::sha::{Sha1, Sha256, Sha512, sha1, sha256, sha512};
use openssl::sign::Signer;

use crate::cursor::Cursor;
use crate::endpoint::Endpoint;
use crate::error::WireError;
use crate::frame::{EOF_BYTE, ERROR_BYTE, Framed};

/// Bytes of a packet of the login, at most.
const PACKET_BYTES_MAX: usize = 64 << 10;
/// Packets that the server may send until it decides: a switch and what its plugin needs.
const PACKETS_MAX: usize = 16;
/// First byte of a packet that belongs to the plugin.
const MORE_DATA: u8 = 1;
/// `caching_sha2_password`: the server knows the password by its hash; OK follows.
const FAST_AUTH_DONE: u8 = 3;
/// `caching_sha2_password`: the server needs the password itself.
const FULL_AUTH: u8 = 4;
/// `caching_sha2_password`: asks for the server's RSA key.
const ASK_PUBLIC_KEY: u8 = 2;
/// `parsec`: bytes of either challenge.
const PARSEC_NONCE_BYTES: usize = 32;
/// `parsec`: bytes of the salt.
const PARSEC_SALT_BYTES: usize = 18;
/// `parsec`: largest exponent of the iterations, 1024 · 2^10. The servers have 0 to 3; more
/// would only keep us busy.
const PARSEC_FACTOR_MAX: u8 = 10;

/// A plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plugin {
    Native,
    CachingSha2,
    Ed25519,
    Parsec,
}

impl Plugin {
    fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"mysql_native_password" => Some(Self::Native),
            b"caching_sha2_password" => Some(Self::CachingSha2),
            b"client_ed25519" => Some(Self::Ed25519),
            b"parsec" => Some(Self::Parsec),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Native => "mysql_native_password",
            Self::CachingSha2 => "caching_sha2_password",
            Self::Ed25519 => "client_ed25519",
            Self::Parsec => "parsec",
        }
    }

    /// What is sent first.
    fn answer(self, password: &str, nonce: &[u8]) -> Vec<u8> {
        let password = password.as_bytes();
        match self {
            // An empty password has an empty answer.
            Self::Native | Self::CachingSha2 if password.is_empty() => Vec::new(),
            Self::Native => answer_native(password, nonce).to_vec(),
            Self::CachingSha2 => answer_caching_sha2(password, nonce).to_vec(),
            Self::Ed25519 => sign_ed25519(password, nonce).to_vec(),
            // Asks for the salt.
            Self::Parsec => Vec::new(),
        }
    }
}

/// One login in progress.
pub(crate) struct Login<'a> {
    endpoint: &'a Endpoint,
    encrypted: bool,
    plugin: Plugin,
    nonce: Vec<u8>,
}

impl<'a> Login<'a> {
    /// Starts with the plugin of the greeting, or, if it is not ours, with one that makes
    /// the server switch to the account's.
    pub(crate) fn new(endpoint: &'a Endpoint, encrypted: bool, plugin: &[u8], nonce: Vec<u8>) -> Self {
        Self {
            endpoint,
            encrypted,
            plugin: Plugin::from_name(plugin).unwrap_or(Plugin::Native),
            nonce,
        }
    }

    /// Name and answer for the login request.
    pub(crate) fn first(&self) -> (&'static str, Vec<u8>) {
        (
            self.plugin.name(),
            self.plugin.answer(self.password(), &self.nonce),
        )
    }

    fn password(&self) -> &str {
        self.endpoint.password.as_ref().map_or("", |p| p.expose())
    }

    fn unusable(&self, plugin: &[u8], why: &'static str) -> WireError {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        WireError::AuthPlugin {
            address: self.endpoint.address(),
            user: self.endpoint.user.clone(),
            plugin: String::from_utf8_lossy(plugin)
                .chars()
                .take(64)
                .map(plain)
                .collect(),
            why,
        }
    }

    /// Answers the server until it has decided.
    pub(crate) fn run(mut self, frame: &mut Framed) -> Result<(), WireError> {
        frame.expect("the answer to the login");
        let mut packet = Vec::new();
        for _ in 0..PACKETS_MAX {
            frame.read_payload(&mut packet, PACKET_BYTES_MAX)?;
            match packet.split_first() {
                Some((0, _)) => return Ok(()),
                Some((&ERROR_BYTE, _)) => {
                    let error = frame.server_error(&packet)?;
                    return Err(WireError::from_login(frame.address(), &self.endpoint.user, error));
                }
                Some((&EOF_BYTE, rest)) => {
                    let answer = self.switch(frame, rest)?;
                    frame.write_payload(&answer)?;
                }
                Some((&MORE_DATA, data)) => self.more(frame, data)?,
                // The first releases with `parsec` leave out the byte before its salt.
                Some((b'P', _)) if self.plugin == Plugin::Parsec => self.more(frame, &packet)?,
                _ => return Err(frame.malformed("answer to the login")),
            }
        }
        Err(frame.malformed("login without an end"))
    }

    /// Takes the plugin of the account; what is to be sent.
    fn switch(&mut self, frame: &Framed, request: &[u8]) -> Result<Vec<u8>, WireError> {
        if request.is_empty() {
            return Err(self.unusable(b"mysql_old_password", "which is not safe and not supported"));
        }
        let mut c = Cursor::new(request);
        let name = c
            .until_nul()
            .ok_or_else(|| frame.malformed("switch of the plugin"))?;
        let nonce = c.take_all();
        self.plugin = Plugin::from_name(name).ok_or_else(|| self.unusable(name, "which is not supported"))?;
        self.nonce = nonce.strip_suffix(&[0]).unwrap_or(nonce).to_vec();
        if self.plugin == Plugin::Parsec {
            // Its challenge is binary and has no zero byte behind it.
            self.nonce = nonce.to_vec();
        }
        Ok(self.plugin.answer(self.password(), &self.nonce))
    }

    /// Goes on with what the plugin sent.
    fn more(&self, frame: &mut Framed, data: &[u8]) -> Result<(), WireError> {
        match (self.plugin, data) {
            (Plugin::CachingSha2, [FAST_AUTH_DONE]) => Ok(()),
            (Plugin::CachingSha2, [FULL_AUTH]) if self.encrypted => {
                let mut clear = self.password().as_bytes().to_vec();
                clear.push(0);
                frame.write_payload(&clear)
            }
            (Plugin::CachingSha2, [FULL_AUTH]) => frame.write_payload(&[ASK_PUBLIC_KEY]),
            (Plugin::CachingSha2, key) if key.starts_with(b"-----BEGIN") && !self.encrypted => {
                let sealed = seal(self.password(), &self.nonce, key).map_err(|_| {
                    self.unusable(
                        b"caching_sha2_password",
                        "and its public key cannot be used with this password; use TLS",
                    )
                })?;
                frame.write_payload(&sealed)
            }
            (Plugin::Parsec, salt) => {
                let answer = self
                    .parsec(salt)
                    .ok_or_else(|| frame.malformed("salt of the plugin `parsec`"))?
                    .map_err(|_| self.unusable(b"parsec", "which this build cannot compute"))?;
                frame.write_payload(&answer)
            }
            _ => Err(frame.malformed("data of an authentication plugin")),
        }
    }

    /// Our challenge, then the signature of both by the key that the password and the salt
    /// give; `None` if the salt is not one.
    fn parsec(&self, data: &[u8]) -> Option<Result<Vec<u8>, ErrorStack>> {
        let mut c = Cursor::new(data);
        let (algorithm, factor) = (c.u8()?, c.u8()?);
        let salt = c.take(PARSEC_SALT_BYTES)?;
        let known = algorithm == b'P' && factor <= PARSEC_FACTOR_MAX && c.is_empty();
        if !known || self.nonce.len() != PARSEC_NONCE_BYTES {
            return None;
        }
        Some(sign_parsec(self.password(), &self.nonce, factor, salt))
    }
}

fn xor<const N: usize>(mut left: [u8; N], right: [u8; N]) -> [u8; N] {
    for (byte, mask) in left.iter_mut().zip(right) {
        *byte ^= mask;
    }
    left
}

/// `SHA1(password) XOR SHA1(nonce, SHA1(SHA1(password)))`.
fn answer_native(password: &[u8], nonce: &[u8]) -> [u8; 20] {
    let once = sha1(password);
    let mut mask = Sha1::new();
    mask.update(nonce);
    mask.update(&sha1(&once));
    xor(once, mask.finish())
}

/// `SHA256(password) XOR SHA256(SHA256(SHA256(password)), nonce)`.
fn answer_caching_sha2(password: &[u8], nonce: &[u8]) -> [u8; 32] {
    let once = sha256(password);
    let mut mask = Sha256::new();
    mask.update(&sha256(&once));
    mask.update(nonce);
    xor(once, mask.finish())
}

/// Signature of RFC 8032, section 5.1.6, whose secret may have any length here, which is
/// why no ordinary key type fits.
fn sign_ed25519(password: &[u8], message: &[u8]) -> [u8; 64] {
    let hash = sha512(password);
    let (mut secret, mut prefix) = ([0_u8; 32], [0_u8; 32]);
    secret.copy_from_slice(&hash[..32]);
    prefix.copy_from_slice(&hash[32..]);
    let scalar_of = |parts: &[&[u8]]| {
        let mut digest = Sha512::new();
        parts.iter().for_each(|part| digest.update(part));
        Scalar::from_bytes_mod_order_wide(&digest.finish())
    };
    let secret = Scalar::from_bytes_mod_order(clamp_integer(secret));
    let public = EdwardsPoint::mul_base(&secret).compress();
    let once = scalar_of(&[&prefix, message]);
    let point = EdwardsPoint::mul_base(&once).compress();
    let proof = once + scalar_of(&[point.as_bytes(), public.as_bytes(), message]) * secret;
    let mut out = [0_u8; 64];
    out[..32].copy_from_slice(point.as_bytes());
    out[32..].copy_from_slice(proof.as_bytes());
    out
}

fn sign_parsec(password: &str, nonce: &[u8], factor: u8, salt: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let mut seed = [0_u8; 32];
    openssl::pkcs5::pbkdf2_hmac(
        password.as_bytes(),
        salt,
        1024_usize << factor,
        MessageDigest::sha512(),
        &mut seed,
    )?;
    let key = PKey::private_key_from_raw_bytes(&seed, Id::ED25519)?;
    let mut ours = [0_u8; PARSEC_NONCE_BYTES];
    openssl::rand::rand_bytes(&mut ours)?;
    let signature = Signer::new_without_digest(&key)?.sign_oneshot_to_vec(&[nonce, &ours].concat())?;
    Ok([&ours[..], &signature].concat())
}

/// The password with its zero byte, mixed with the challenge and sealed with the server's
/// RSA key.
fn seal(password: &str, nonce: &[u8], pem: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    let mut text = password.as_bytes().to_vec();
    text.push(0);
    for (byte, mask) in text.iter_mut().zip(nonce.iter().cycle()) {
        *byte ^= mask;
    }
    let key = Rsa::public_key_from_pem(pem)?;
    let mut sealed = vec![0; usize::try_from(key.size()).unwrap_or_default()];
    let count = key.public_encrypt(&text, &mut sealed, Padding::PKCS1_OAEP)?;
    sealed.truncate(count);
    Ok(sealed)
}
