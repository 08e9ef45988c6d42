//! Names of the output's files.
//!
//! ```text
//! {schema}.{table}.{first}-{last}.ndjson     finished rows
//! {schema}.{table}.{first}.ndjson.tmp        rows being written
//! _ddl.{key}.ndjson                          a DDL
//! ```

use weir_types::{OrderKey, TableName};

/// Ending of a finished file.
pub(super) const FINISHED: &str = ".ndjson";
/// Ending of a file that is being written.
pub(super) const UNFINISHED: &str = ".tmp";
/// Begin of the name of a DDL file.
const DDL: &str = "_ddl.";
/// Most bytes of an encoded schema or table name: two of them and two keys stay below
/// the 255 bytes that file systems allow.
const PART_BYTES_MAX: usize = 90;
/// Bytes of a name that are kept when it is too long; the rest is a hash.
const PART_KEPT_BYTES: usize = 72;

/// FNV-1a, 64 bits (draft-eastlake-fnv). Tells long names apart that begin alike.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Percent-encodes all bytes but ASCII letters, digits, `_`, `-` and `$`; a leading `_`
/// too, since names that begin so are Weir's own.
fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || b"-$".contains(&byte) || (byte == b'_' && at > 0) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    if encoded.len() > PART_BYTES_MAX {
        // `~` is never in a name that was not cut. A cut inside of `%XX` is harmless:
        // names are compared, never decoded.
        encoded.truncate(PART_KEPT_BYTES);
        encoded.push_str(&format!("~{:016x}", hash(name)));
    }
    encoded
}

/// Begin of the names of a table's files, without the point behind it.
pub(super) fn stem(target: &TableName) -> String {
    format!("{}.{}", encode(&target.schema), encode(&target.table))
}

/// Name of a finished file.
pub(super) fn finished(stem: &str, first: OrderKey, last: OrderKey) -> String {
    format!("{stem}.{first}-{last}{FINISHED}")
}

/// Name of a file while it is written.
pub(super) fn unfinished(stem: &str, first: OrderKey) -> String {
    format!("{stem}.{first}{FINISHED}{UNFINISHED}")
}

/// Name of a DDL file.
pub(super) fn ddl(key: OrderKey) -> String {
    format!("{DDL}{key}{FINISHED}")
}

/// What a name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Finished rows.
    Rows {
        /// Begin of the name.
        stem: String,
        /// First key.
        first: OrderKey,
        /// Last key.
        last: OrderKey,
    },
    /// A DDL.
    Ddl(OrderKey),
}

/// Reads a name; none if it is not the sink's.
pub(super) fn parse(name: &str) -> Option<Parsed> {
    let body = name.strip_suffix(FINISHED)?;
    if let Some(key) = body.strip_prefix(DDL) {
        return OrderKey::parse(key).map(Parsed::Ddl);
    }
    let (stem, keys) = body.rsplit_once('.')?;
    let (first, last) = keys.split_once('-')?;
    let (first, last) = (OrderKey::parse(first)?, OrderKey::parse(last)?);
    (first <= last && stem.contains('.')).then(|| Parsed::Rows {
        stem: stem.to_owned(),
        first,
        last,
    })
}

#[cfg(test)]
mod tests {
    use weir_types::CommitTs;

    use super::*;

    fn key(commit_ts: u64) -> OrderKey {
        OrderKey::new(CommitTs(commit_ts), 1)
    }

    #[test]
    fn names_turn_back() {
        let stem = stem(&TableName::new("_ddl", "a.b/c%d é-$_X"));
        assert_eq!(stem, "%5Fddl.a%2Eb%2Fc%25d%20%C3%A9-$_X");
        let name = finished(&stem, key(1), key(2));
        let expected = Parsed::Rows {
            stem,
            first: key(1),
            last: key(2),
        };
        assert_eq!(parse(&name), Some(expected));
        assert_eq!(parse(&ddl(key(3))), Some(Parsed::Ddl(key(3))));
    }

    #[test]
    fn other_names_are_not_ours() {
        let rows = finished("a.b", key(1), key(2));
        let backwards = finished("a.b", key(2), key(1));
        let no_table = finished("a", key(1), key(2));
        for name in [
            "",
            "_weir.json",
            "a.b.ndjson",
            ".ndjson",
            &rows[1..rows.len() - 1],
            &backwards,
            &no_table,
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
        assert_eq!(parse(&unfinished("a.b", key(1))), None);
    }

    #[test]
    fn long_names_stay_apart_and_below_the_limit() {
        let long = "表".repeat(63);
        let (a, b) = (format!("{long}一"), format!("{long}二"));
        let (a, b) = (
            stem(&TableName::new(a.as_str(), b.as_str())),
            stem(&TableName::new(b, a)),
        );
        assert_ne!(a, b);
        assert!(finished(&a, key(1), key(2)).len() + UNFINISHED.len() < 255);
    }
}
