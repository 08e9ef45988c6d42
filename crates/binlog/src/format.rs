//! FORMAT_DESCRIPTION_EVENT: who wrote the binlog, and how its events are laid out.

use weir_types::Flavor;

use crate::cursor::Cursor;
use crate::error::BinlogError;
use crate::event_type::EventType;
use crate::header::HEADER_BYTES;

/// Bytes of the server version field.
const VERSION_BYTES: usize = 50;
/// Bytes of a checksum.
pub const CHECKSUM_BYTES: usize = 4;
/// First MySQL release whose description carries a checksum algorithm (5.6.1).
const CHECKSUM_SINCE_MYSQL: (u32, u32, u32) = (5, 6, 1);
/// First MariaDB release whose description carries one (5.3.0).
const CHECKSUM_SINCE_MARIADB: (u32, u32, u32) = (5, 3, 0);
/// Least post-header length of a query event with status variables.
const POST_HEADER_QUERY: u8 = 13;
/// Post-header length of a table map with six-byte table ids.
const POST_HEADER_TABLE_MAP: u8 = 8;
/// Types below this number are MySQL's; a description that lists more is MariaDB's.
const FIRST_MARIADB_TYPE: usize = 160;

/// What stands behind each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumAlgorithm {
    /// Nothing (`binlog_checksum=NONE`).
    None,
    /// CRC-32 of header and body, little-endian.
    Crc32,
}

/// What a FORMAT_DESCRIPTION_EVENT says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatDescription {
    /// Version text of the server.
    pub server_version: String,
    /// Server family.
    pub flavor: Flavor,
    /// Seconds since the Unix epoch when the server started; 0 in files that were not
    /// the first after a start.
    pub created: u32,
    /// Bytes of the post-header by event type; entry 0 is type 1.
    pub post_header_lengths: Vec<u8>,
    /// Checksum behind each event.
    pub checksum: ChecksumAlgorithm,
    /// Whether this event itself carries a checksum: it does, also with
    /// `binlog_checksum=NONE`, where the release knows checksums at all.
    pub own_checksum: bool,
}

impl FormatDescription {
    /// Reads the event behind its header, checksum included if it has one.
    ///
    /// # Errors
    /// `MalformedEvent`; `UnsupportedFormat` for another version than 4 or another
    /// header length than 19.
    pub fn parse(bytes: &[u8]) -> Result<Self, BinlogError> {
        let malformed = || BinlogError::MalformedEvent {
            event: EventType::FormatDescription.name(),
            length: bytes.len(),
        };
        let mut c = Cursor::new(bytes);
        let version = c.u16().ok_or_else(malformed)?;
        if version != 4 {
            return Err(BinlogError::UnsupportedFormat {
                what: "binlog version other than 4",
            });
        }
        let name = c.take(VERSION_BYTES).ok_or_else(malformed)?;
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let server_version = String::from_utf8_lossy(name).into_owned();
        let created = c.u32().ok_or_else(malformed)?;
        if usize::from(c.u8().ok_or_else(malformed)?) != HEADER_BYTES {
            return Err(BinlogError::UnsupportedFormat {
                what: "event header of other than 19 bytes",
            });
        }
        let mariadb = server_version.to_ascii_lowercase().contains("mariadb");
        let mariadb = mariadb || c.len() > FIRST_MARIADB_TYPE + CHECKSUM_BYTES;
        let since = if mariadb {
            CHECKSUM_SINCE_MARIADB
        } else {
            CHECKSUM_SINCE_MYSQL
        };
        let own_checksum = version_triple(&server_version) >= since;
        let (lengths, checksum) = if own_checksum {
            let end = c.len().checked_sub(1 + CHECKSUM_BYTES).ok_or_else(malformed)?;
            let lengths = c.take(end).ok_or_else(malformed)?;
            let checksum = match c.u8().ok_or_else(malformed)? {
                0 => ChecksumAlgorithm::None,
                1 => ChecksumAlgorithm::Crc32,
                _ => {
                    return Err(BinlogError::UnsupportedFormat {
                        what: "checksum algorithm other than none and crc32",
                    });
                }
            };
            (lengths, checksum)
        } else {
            (c.take_rest(), ChecksumAlgorithm::None)
        };
        let format = Self {
            server_version,
            flavor: if mariadb { Flavor::Mariadb } else { Flavor::Mysql },
            created,
            post_header_lengths: lengths.to_vec(),
            checksum,
            own_checksum,
        };
        format.refuse_old_layouts()?;
        Ok(format)
    }

    /// Releases before MySQL 5.1 had shorter table ids and queries without status
    /// variables.
    fn refuse_old_layouts(&self) -> Result<(), BinlogError> {
        let query = self.post_header_length(EventType::Query, POST_HEADER_QUERY);
        let table_map = self.post_header_length(EventType::TableMap, POST_HEADER_TABLE_MAP);
        if query < POST_HEADER_QUERY || table_map < POST_HEADER_TABLE_MAP {
            return Err(BinlogError::UnsupportedFormat {
                what: "post-header of a release before MySQL 5.1",
            });
        }
        Ok(())
    }

    /// Post-header length of a type; `default` where the server did not list it.
    pub fn post_header_length(&self, event_type: EventType, default: u8) -> u8 {
        usize::from(event_type.number())
            .checked_sub(1)
            .and_then(|at| self.post_header_lengths.get(at))
            .copied()
            .unwrap_or(default)
    }

    /// Bytes of checksum behind an event of this type.
    pub fn checksum_bytes(&self, is_format_description: bool) -> usize {
        let has = if is_format_description {
            self.own_checksum
        } else {
            self.checksum == ChecksumAlgorithm::Crc32
        };
        if has { CHECKSUM_BYTES } else { 0 }
    }
}

/// Major, minor and patch number of a version text; missing ones are 0.
fn version_triple(text: &str) -> (u32, u32, u32) {
    let mut numbers = text.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part.get(..digits).and_then(|d| d.parse().ok()).unwrap_or(0)
    });
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(version_triple("9.7.4-2"), (9, 7, 4));
        assert_eq!(version_triple("10.11.19-MariaDB-0+deb12u1-log"), (10, 11, 19));
        assert_eq!(version_triple("x"), (0, 0, 0));
        assert!(version_triple("5.6.0-m4") < CHECKSUM_SINCE_MYSQL);
    }

    #[test]
    fn releases_before_checksums_have_none() {
        let mut bytes = vec![4, 0];
        let mut name = b"5.5.62-log".to_vec();
        name.resize(VERSION_BYTES, 0);
        bytes.extend(name);
        bytes.extend([0; 4]);
        bytes.push(19);
        bytes.extend([13; 27]);
        let format = FormatDescription::parse(&bytes).unwrap();
        assert!(!format.own_checksum);
        assert_eq!(format.post_header_lengths.len(), 27);
        assert_eq!(format.checksum_bytes(false), 0);
        assert_eq!(format.post_header_length(EventType::Query, 0), 13);
        assert_eq!(format.post_header_length(EventType::GtidTagged, 7), 7);
    }
}
