//! Greeting of the server and our answer (MySQL source documentation, "Protocol::HandshakeV10",
//! "Protocol::HandshakeResponse41").

use weir_types::Flavor;

use crate::capability as cap;
use crate::cursor::{Cursor, put_lenenc, put_lenenc_bytes};

/// The only protocol version there is since 3.21.
const PROTOCOL_VERSION: u8 = 10;
/// Longest packet that we say we take: what the servers have as their largest.
const MAX_PACKET_BYTES: u32 = 1 << 30;
/// `utf8mb4_general_ci`, which every server has.
const COLLATION: u8 = 45;
/// What MariaDB puts before its version, for replicas that know no release above 5.
const MARIADB_PREFIX: &str = "5.5.5-";
/// Part of the challenge that comes first.
const NONCE_FIRST_BYTES: usize = 8;
/// Least length of the second part, its zero byte included.
const NONCE_SECOND_BYTES: usize = 13;

/// First packet of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Version text as sent.
    pub(crate) version: String,
    /// Number of the connection.
    pub(crate) connection_id: u32,
    /// Flags of `capability`.
    pub(crate) capabilities: u32,
    /// Challenge of the plugin, without its zero byte.
    pub(crate) nonce: Vec<u8>,
    /// Name of the plugin; empty if the server knows of no plugins.
    pub(crate) plugin: Vec<u8>,
}

impl Greeting {
    /// Reads the packet; the error says what is wrong.
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, &'static str> {
        let mut c = Cursor::new(payload);
        if c.u8() != Some(PROTOCOL_VERSION) {
            return Err("the greeting is not one of MySQL");
        }
        let greeting = Self::parse_rest(&mut c).ok_or("greeting cut short")?;
        if greeting.capabilities & cap::DEMANDED != cap::DEMANDED {
            return Err("the server is older than 4.1");
        }
        Ok(greeting)
    }

    fn parse_rest(c: &mut Cursor<'_>) -> Option<Self> {
        let version = String::from_utf8_lossy(c.until_nul()?).into_owned();
        let connection_id = c.u32()?;
        let mut nonce = c.take(NONCE_FIRST_BYTES)?.to_vec();
        c.take(1)?;
        let low = c.u16()?;
        // Collation and status.
        c.take(3)?;
        let high = c.u16()?;
        let capabilities = u32::from(low) | u32::from(high) << 16;
        let nonce_bytes = usize::from(c.u8()?);
        c.take(10)?;
        if capabilities & cap::SECURE_CONNECTION != 0 {
            let second = nonce_bytes
                .saturating_sub(NONCE_FIRST_BYTES)
                .max(NONCE_SECOND_BYTES);
            nonce.extend_from_slice(c.take(second)?);
        }
        if nonce.last() == Some(&0) {
            nonce.pop();
        }
        let plugin = if capabilities & cap::PLUGIN_AUTH != 0 {
            // Old releases leave out the zero byte.
            let rest = c.take_all();
            rest.strip_suffix(&[0]).unwrap_or(rest).to_vec()
        } else {
            Vec::new()
        };
        Some(Self {
            version: version
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect(),
            connection_id,
            capabilities,
            nonce,
            plugin,
        })
    }

    /// Family of the server. The version text can be set at will, the flag cannot.
    pub(crate) fn flavor(&self) -> Flavor {
        let says = self.version.to_ascii_lowercase().contains("mariadb");
        if says || self.capabilities & cap::LONG_PASSWORD == 0 {
            Flavor::Mariadb
        } else {
            Flavor::Mysql
        }
    }

    /// Version as the server's users know it.
    pub(crate) fn plain_version(&self) -> &str {
        self.version.strip_prefix(MARIADB_PREFIX).unwrap_or(&self.version)
    }
}

/// First half of both answers: flags, packet size, collation, filler.
fn answer_head(capabilities: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&capabilities.to_le_bytes());
    out.extend_from_slice(&MAX_PACKET_BYTES.to_le_bytes());
    out.push(COLLATION);
    out.extend_from_slice(&[0; 23]);
    out
}

/// Asks for TLS; the handshake of TLS follows at once.
pub(crate) fn tls_request(capabilities: u32) -> Vec<u8> {
    answer_head(capabilities)
}

/// The login. `user` and `plugin` must not hold a zero byte.
pub(crate) fn login_request(capabilities: u32, user: &str, auth: &[u8], plugin: &[u8]) -> Vec<u8> {
    let mut out = answer_head(capabilities);
    out.extend_from_slice(user.as_bytes());
    out.push(0);
    if capabilities & cap::PLUGIN_AUTH_LENENC != 0 {
        put_lenenc_bytes(&mut out, auth);
    } else {
        // Longer answers belong to plugins that only come by a switch.
        let short = auth.get(..usize::from(u8::MAX)).unwrap_or(auth);
        out.push(u8::try_from(short.len()).unwrap_or_default());
        out.extend_from_slice(short);
    }
    if capabilities & cap::PLUGIN_AUTH != 0 {
        out.extend_from_slice(plugin);
        out.push(0);
    }
    if capabilities & cap::CONNECT_ATTRS != 0 {
        let mut attributes = Vec::new();
        for (name, value) in [
            ("program_name", "weir"),
            ("_client_name", "weir"),
            ("_client_version", env!("CARGO_PKG_VERSION")),
        ] {
            put_lenenc_bytes(&mut attributes, name.as_bytes());
            put_lenenc_bytes(&mut attributes, value.as_bytes());
        }
        put_lenenc(&mut out, attributes.len());
        out.extend_from_slice(&attributes);
    }
    out
}
