//! What the two ends share where they are servers: address, password, TLS.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use weir_types::endpoint::MASK;
use weir_types::{ChangefeedId, Secret};

use crate::error::{ConfigError, Result};

/// Port that MySQL and MariaDB listen on by default.
pub const MYSQL_PORT_DEFAULT: u16 = 3306;

/// Least server id that is derived from a changefeed's id: people give small numbers.
pub const SERVER_ID_DERIVED_MIN: u32 = 1 << 31;

/// What stands in a user or host of a URI as it is.
pub(crate) const NAME_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A server: `mysql://user[:password]@host[:port]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlAddress {
    /// User.
    pub user: String,
    /// Password, if it stands in the URI.
    pub password: Option<Secret>,
    /// Name or address, an IPv6 one without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for MysqlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mysql://{}", utf8_percent_encode(&self.user, NAME_ESCAPES))?;
        if self.password.is_some() {
            write!(f, ":{MASK}")?;
        }
        if self.host.contains(':') {
            write!(f, "@[{}]:{}", self.host, self.port)
        } else {
            write!(
                f,
                "@{}:{}",
                utf8_percent_encode(&self.host, NAME_ESCAPES),
                self.port
            )
        }
    }
}

pub(crate) fn decoded(what: &str, text: &str) -> Result<String, String> {
    percent_decode_str(text)
        .decode_utf8()
        .map(|t| t.into_owned())
        .map_err(|_| format!("its {what} is not UTF-8 after percent-decoding"))
}

/// Host and port of an authority.
pub(crate) fn host_and_port(text: &str, port_default: u16) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest
                .split_once(']')
                .ok_or("its IPv6 address has no closing `]`")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("what stands in `[…]` is not an IPv6 address".to_owned());
            }
            match behind {
                "" => (host.to_owned(), None),
                behind => {
                    let port = behind.strip_prefix(':');
                    (
                        host.to_owned(),
                        Some(port.ok_or("behind `]` only `:PORT` may stand")?),
                    )
                }
            }
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address stands in brackets: `[::1]`".to_owned());
            }
            Some((host, port)) => (decoded("host", host)?, Some(port)),
            None => (decoded("host", text)?, None),
        },
    };
    if host.is_empty() {
        return Err("it has no host".to_owned());
    }
    let port = match port {
        None => port_default,
        // A sign would be taken by `parse`.
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err("its port is not between 1 and 65535".to_owned()),
        },
        Some(_) => return Err("its port is not a number".to_owned()),
    };
    Ok((host, port))
}

impl MysqlAddress {
    /// Reads what stands behind `mysql://`. No error shows a part of the text: it may
    /// hold a password.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        if !matches!(behind, "" | "/") {
            return Err(
                "behind the host only `/` may stand (`/`, `?` and `#` in a password are written `%2F`, `%3F` and `%23`)"
                    .to_owned(),
            );
        }
        let (login, server) = authority
            .rsplit_once('@')
            .ok_or("it names no user: `mysql://user@host:port`")?;
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(Secret::new(decoded("password", password)?))),
            None => (login, None),
        };
        if user.is_empty() {
            return Err("it names no user: `mysql://user@host:port`".to_owned());
        }
        let (host, port) = host_and_port(server, MYSQL_PORT_DEFAULT)?;
        Ok(Self {
            user: decoded("user", user)?,
            password,
            host,
            port,
        })
    }
}

/// Where the password of one end comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PasswordKeys<'a> {
    /// `source` or `sink`.
    pub(crate) end: &'static str,
    /// The password in the URI; none if the end has no login at all.
    pub(crate) login: Option<Option<&'a Secret>>,
    pub(crate) env: Option<&'a str>,
    pub(crate) file: Option<&'a PathBuf>,
}

impl PasswordKeys<'_> {
    /// Refuses more than one place, and places that nobody reads: key and reason.
    pub(crate) fn validate(&self) -> Result<(), (String, String)> {
        let key = |name: &str| format!("{}.{name}", self.end);
        let given = [
            (self.env.is_some(), key("password-env")),
            (self.file.is_some(), key("password-file")),
        ];
        let Some((_, first)) = given.iter().find(|(given, _)| *given) else {
            return Ok(());
        };
        let Some(inline) = self.login else {
            let reason = match self.end {
                "sink" => {
                    "only a `mysql://` sink, or a `kafka://` one with a user, has a password".to_owned()
                }
                end => format!("only a `mysql://` {end} has a password"),
            };
            return Err((first.clone(), reason));
        };
        if inline.is_some() {
            let reason = format!("`{}.uri` has a password already", self.end);
            return Err((first.clone(), reason));
        }
        if self.env.is_some() && self.file.is_some() {
            let reason = format!("`{}.password-env` is given already", self.end);
            return Err((key("password-file"), reason));
        }
        if self.env == Some("") {
            return Err((
                key("password-env"),
                "it is the name of an environment variable".to_owned(),
            ));
        }
        Ok(())
    }

    /// The password; none if none is given anywhere.
    ///
    /// # Errors
    /// The variable or the file is not there or not UTF-8.
    pub(crate) fn read(&self) -> Result<Option<Secret>> {
        let failed = |name: &str, reason: String| ConfigError::Password {
            key: format!("{}.{name}", self.end),
            reason,
        };
        if let Some(name) = self.env {
            return match std::env::var(name) {
                Ok(text) => Ok(Some(Secret::new(text))),
                Err(std::env::VarError::NotPresent) => Err(failed(
                    "password-env",
                    format!("the environment variable `{name}` is not set"),
                )),
                Err(std::env::VarError::NotUnicode(_)) => Err(failed(
                    "password-env",
                    format!("the environment variable `{name}` is not UTF-8"),
                )),
            };
        }
        if let Some(path) = self.file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                failed(
                    "password-file",
                    format!("`{}` cannot be read: {error}", path.display()),
                )
            })?;
            // Editors end a file with a line end; passwords do not.
            let line = text.strip_suffix('\n').unwrap_or(&text);
            let line = line.strip_suffix('\r').unwrap_or(line);
            return Ok(Some(Secret::new(line)));
        }
        Ok(self.login.flatten().cloned())
    }
}

/// The server id of a changefeed that names none: FNV-1a (32 bits) over its id, upper
/// half of the range, so that it stays the same over restarts and clear of the small
/// numbers that servers get.
pub fn derived_server_id(id: &ChangefeedId) -> u32 {
    let hash = id.0.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    SERVER_ID_DERIVED_MIN | hash
}
