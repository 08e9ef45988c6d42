//! Where a changefeed starts, and where a run ends.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use weir_types::GtidSet;

use crate::error::ConfigError;
use crate::timestamp::{format_rfc3339, parse_rfc3339};

/// First offset of a binlog file that holds an event: behind the magic number.
const FIRST_EVENT_OFFSET: u64 = 4;

/// Where reading starts while there is no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The end of the source at the time of the first start.
    Latest,
    /// The oldest event that the source still has.
    Earliest,
    /// After the transactions of the set.
    Gtid(GtidSet),
    /// An offset in a binlog file.
    File {
        /// Name of the file, without folder.
        name: String,
        /// Offset of the first event to read.
        offset: u64,
    },
    /// The first transaction that was committed at this time or later, in milliseconds
    /// since the Unix epoch.
    Time(u64),
}

impl Start {
    /// Reads a start.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "latest" => return Ok(Self::Latest),
            "earliest" => return Ok(Self::Earliest),
            _ => {}
        }
        match text.split_once(':') {
            Some(("gtid", set)) => match GtidSet::parse(set) {
                Ok(set) if set.is_empty() => Err("the GTID set is empty; use `earliest`".to_owned()),
                Ok(set) => Ok(Self::Gtid(set)),
                Err(error) => Err(error.to_string()),
            },
            Some(("file", rest)) => {
                let (name, offset) = rest
                    .rsplit_once(':')
                    .ok_or("a file is written as `file:NAME:OFFSET`")?;
                let offset: u64 = offset
                    .parse()
                    .map_err(|_| format!("`{offset}` is not an offset"))?;
                if name.is_empty() || name.contains('/') {
                    return Err("NAME is the name of a binlog file, without folder".to_owned());
                }
                if offset < FIRST_EVENT_OFFSET {
                    return Err("the first event of a binlog file is at offset 4".to_owned());
                }
                Ok(Self::File {
                    name: name.to_owned(),
                    offset,
                })
            }
            Some(("time", time)) => parse_rfc3339(time)
                .map(Self::Time)
                .ok_or_else(|| format!("`{time}` is not a time such as `2026-11-30T12:00:00Z`")),
            _ => Err(
                "expected `latest`, `earliest`, `gtid:SET`, `file:NAME:OFFSET` or `time:RFC3339`".to_owned(),
            ),
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Earliest => f.write_str("earliest"),
            Self::Gtid(set) => write!(f, "gtid:{set}"),
            Self::File { name, offset } => write!(f, "file:{name}:{offset}"),
            Self::Time(millis) => write!(f, "time:{}", format_rfc3339(*millis)),
        }
    }
}

impl Serialize for Start {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Where a run ends (`--until`), inclusive. What lies behind it is not waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// Everything that the source had when it was opened.
    CaughtUp,
    /// All transactions of the set.
    Gtid(GtidSet),
    /// The transaction that ends at or contains this offset.
    File {
        /// Name of the file, without folder.
        name: String,
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// The last transaction that was committed at this time or before, in milliseconds
    /// since the Unix epoch.
    Time(u64),
}

impl FromStr for Until {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad = |reason| ConfigError::Argument {
            argument: "--until",
            value: text.to_owned(),
            reason,
        };
        if text == "caught-up" {
            return Ok(Self::CaughtUp);
        }
        match Start::parse(text) {
            Ok(Start::Gtid(set)) => Ok(Self::Gtid(set)),
            Ok(Start::File { name, offset }) => Ok(Self::File { name, offset }),
            Ok(Start::Time(millis)) => Ok(Self::Time(millis)),
            Ok(Start::Latest | Start::Earliest) => Err(bad("it is a start, not an end".to_owned())),
            Err(_) if !text.contains(':') => Err(bad(
                "expected `caught-up`, `gtid:SET`, `file:NAME:OFFSET` or `time:RFC3339`".to_owned(),
            )),
            Err(reason) => Err(bad(reason)),
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CaughtUp => f.write_str("caught-up"),
            Self::Gtid(set) => write!(f, "gtid:{set}"),
            Self::File { name, offset } => write!(f, "file:{name}:{offset}"),
            Self::Time(millis) => write!(f, "time:{}", format_rfc3339(*millis)),
        }
    }
}
