//! Addresses of sources and sinks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use weir_types::Secret;

use crate::kafka::KafkaAddress;
use crate::mysql::MysqlAddress;
use crate::units::HumanDuration;

/// What must not stand in the path of a URI as it is.
const PATH_ESCAPES: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'`');

/// Where changes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceUri {
    /// `binlog-files:///folder?index=bin.index`.
    BinlogFiles {
        /// Folder of the files.
        dir: PathBuf,
        /// Name of the index file in the folder; none takes the files in the order of
        /// their numbers.
        index: Option<String>,
    },
    /// `mysql://user@host:port`, also for MariaDB.
    Mysql(MysqlAddress),
}

/// Where changes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkUri {
    /// `file:///folder`.
    File {
        /// Folder of the output.
        dir: PathBuf,
    },
    /// `blackhole://`; `?delay=10ms` and `?stall=60s` make a slow sink.
    Blackhole {
        /// How long each batch is held before it counts as done.
        delay: Duration,
        /// How long the sink stands still before its first batch.
        stall: Duration,
    },
    /// `mysql://user@host:port`, also for MariaDB.
    Mysql(MysqlAddress),
    /// `kafka://host:port,host:port/`.
    Kafka(KafkaAddress),
}

/// Replaces the password of a URI, so that the text can be shown.
pub fn mask_secrets(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return uri.to_owned();
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // An unescaped `/`, `?` or `#` inside a password would hide its end: look at the
    // whole text for the last `@`.
    let end = if rest[..authority_end].contains('@') {
        authority_end
    } else {
        rest.len()
    };
    let Some(at) = rest[..end].rfind('@') else {
        return uri.to_owned();
    };
    match rest[..at].split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***{}", &rest[at..]),
        None => uri.to_owned(),
    }
}

/// The scheme of a URI, empty if it has none.
pub(crate) fn scheme(uri: &str) -> &str {
    uri.split_once("://").map_or("", |(scheme, _)| scheme)
}

fn decode(text: &str) -> Result<String, String> {
    percent_decode_str(text)
        .decode_utf8()
        .map(|t| t.into_owned())
        .map_err(|_| "it is not UTF-8 after percent-decoding".to_owned())
}

/// A URI cut into path and query pairs, all decoded.
struct Parts {
    path: String,
    query: Vec<(String, String)>,
}

fn parts(uri: &str) -> Result<Parts, String> {
    let (_, rest) = uri.split_once("://").ok_or("it has no `://`")?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(key)?, decode(value)?))
        })
        .collect::<Result<_, String>>()?;
    Ok(Parts {
        path: decode(path)?,
        query,
    })
}

fn folder(path: String) -> Result<PathBuf, String> {
    if path.starts_with('/') {
        Ok(PathBuf::from(path))
    } else {
        Err("the folder must be absolute, with three slashes: `…:///folder`".to_owned())
    }
}

/// Both schemes name a server; which of the two it is, it says itself.
fn server(uri: &str) -> Result<MysqlAddress, String> {
    let (_, rest) = uri.split_once("://").ok_or("it has no `://`")?;
    MysqlAddress::parse(rest)
}

impl SourceUri {
    /// The server, if it is one.
    pub const fn mysql(&self) -> Option<&MysqlAddress> {
        match self {
            Self::Mysql(address) => Some(address),
            Self::BinlogFiles { .. } => None,
        }
    }

    /// Reads a source URI.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub fn parse(uri: &str) -> Result<Self, String> {
        match scheme(uri) {
            "binlog-files" => {}
            "mysql" | "mariadb" => return server(uri).map(Self::Mysql),
            _ => {
                return Err("a source is `mysql://user@host:port` or `binlog-files:///folder`".to_owned());
            }
        }
        let parts = parts(uri)?;
        let mut index = None;
        for (key, value) in parts.query {
            match key.as_str() {
                "index" if value.is_empty() || value.contains('/') => {
                    return Err("`index` is the name of a file in the folder, without path".to_owned());
                }
                "index" => index = Some(value),
                _ => {
                    return Err(format!(
                        "`{key}` is not a parameter of `binlog-files`; `index` is"
                    ));
                }
            }
        }
        Ok(Self::BinlogFiles {
            dir: folder(parts.path)?,
            index,
        })
    }
}

impl SinkUri {
    /// The server, if it is one.
    pub const fn mysql(&self) -> Option<&MysqlAddress> {
        match self {
            Self::Mysql(address) => Some(address),
            Self::File { .. } | Self::Blackhole { .. } | Self::Kafka(_) => None,
        }
    }

    /// The password in the URI; none if the sink has no login.
    pub(crate) const fn login(&self) -> Option<Option<&Secret>> {
        match self {
            Self::Mysql(address) => Some(address.password.as_ref()),
            Self::Kafka(address) if address.user.is_some() => Some(address.password.as_ref()),
            Self::Kafka(_) | Self::File { .. } | Self::Blackhole { .. } => None,
        }
    }

    /// Reads a sink URI.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub fn parse(uri: &str) -> Result<Self, String> {
        match scheme(uri) {
            "file" => {
                let parts = parts(uri)?;
                match parts.query.first() {
                    Some((key, _)) => Err(format!("`{key}` is not a parameter: `file` has none")),
                    None => folder(parts.path).map(|dir| Self::File { dir }),
                }
            }
            "blackhole" => {
                let parts = parts(uri)?;
                if !matches!(parts.path.as_str(), "" | "/") {
                    return Err("`blackhole` has no path".to_owned());
                }
                let (mut delay, mut stall) = (Duration::ZERO, Duration::ZERO);
                for (key, value) in parts.query {
                    let target = match key.as_str() {
                        "delay" => &mut delay,
                        "stall" => &mut stall,
                        _ => {
                            return Err(format!(
                                "`{key}` is not a parameter of `blackhole`; `delay` and `stall` are"
                            ));
                        }
                    };
                    *target = HumanDuration::parse(&value)
                        .ok_or_else(|| format!("`{key}` is a duration such as `10ms`"))?
                        .get();
                }
                Ok(Self::Blackhole { delay, stall })
            }
            "mysql" | "mariadb" => server(uri).map(Self::Mysql),
            "kafka" => {
                let (_, rest) = uri.split_once("://").ok_or("it has no `://`")?;
                KafkaAddress::parse(rest).map(Self::Kafka)
            }
            _ => Err(
                "a sink is `mysql://user@host:port`, `kafka://host:port/`, `file:///folder` or `blackhole://`".to_owned(),
            ),
        }
    }
}

/// The URI of a folder under a scheme. Paths are UTF-8 in changefeed files; other bytes
/// are replaced.
pub fn file_uri(scheme: &str, dir: &Path) -> String {
    let path = dir.to_string_lossy();
    format!("{scheme}://{}", utf8_percent_encode(&path, PATH_ESCAPES))
}

impl fmt::Display for SourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BinlogFiles { dir, index } => {
                f.write_str(&file_uri("binlog-files", dir))?;
                match index {
                    Some(index) => write!(f, "?index={}", utf8_percent_encode(index, PATH_ESCAPES)),
                    None => Ok(()),
                }
            }
            Self::Mysql(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for SinkUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { dir } => f.write_str(&file_uri("file", dir)),
            Self::Mysql(address) => address.fmt(f),
            Self::Kafka(address) => address.fmt(f),
            Self::Blackhole { delay, stall } => {
                f.write_str("blackhole://")?;
                let mut separator = '?';
                for (key, value) in [("delay", *delay), ("stall", *stall)] {
                    if !value.is_zero() {
                        write!(f, "{separator}{key}={}", HumanDuration(value))?;
                        separator = '&';
                    }
                }
                Ok(())
            }
        }
    }
}

impl Serialize for SourceUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for SinkUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SourceUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for SinkUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
