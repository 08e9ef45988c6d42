//! Global transaction identifiers of MySQL (tags included) and MariaDB, and sets of them.
//!
//! Sources: MySQL manual "GTID Format and Storage" (tags since 8.3); MariaDB
//! knowledge base "Global Transaction ID".

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest tag that MySQL accepts.
pub const TAG_LENGTH_MAX: usize = 32;

/// Source of MySQL GTIDs: server uuid and tag (empty for none).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GtidSource {
    /// Server uuid.
    pub uuid: [u8; 16],
    /// Tag in lower case, empty for none.
    pub tag: Arc<str>,
}

impl fmt::Debug for GtidSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for GtidSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.uuid.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        if !self.tag.is_empty() {
            write!(f, ":{}", self.tag)?;
        }
        Ok(())
    }
}

/// Identifier of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Gtid {
    /// `uuid[:tag]:number`.
    Mysql {
        /// Server uuid and tag.
        source: GtidSource,
        /// Number, from 1.
        number: u64,
    },
    /// `domain-server-sequence`.
    Mariadb {
        /// Replication domain.
        domain: u32,
        /// Server id of the origin.
        server: u32,
        /// Sequence number within the domain.
        sequence: u64,
    },
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mysql { source, number } => write!(f, "{source}:{number}"),
            Self::Mariadb {
                domain,
                server,
                sequence,
            } => write!(f, "{domain}-{server}-{sequence}"),
        }
    }
}

/// Sorted, disjoint, non-touching closed ranges of transaction numbers.
type Ranges = Vec<(u64, u64)>;

/// Progress as a set of transactions. MySQL: ranges per source. MariaDB: the last
/// transaction per (domain, server); a domain's later servers continue its sequence.
///
/// Serialised as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GtidSet {
    mysql: BTreeMap<GtidSource, Ranges>,
    /// domain → (server, sequence) of the last transaction.
    mariadb: BTreeMap<u32, (u32, u64)>,
}

/// Why a text is not a GTID set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a GTID set")]
pub struct GtidParseError(pub String);

impl GtidSet {
    /// Holds nothing.
    pub fn is_empty(&self) -> bool {
        self.mysql.is_empty() && self.mariadb.is_empty()
    }

    /// The MySQL part: closed ranges of numbers per source, sources and ranges ascending.
    pub fn mysql_ranges(&self) -> impl Iterator<Item = (&GtidSource, &[(u64, u64)])> {
        self.mysql
            .iter()
            .map(|(source, ranges)| (source, ranges.as_slice()))
    }

    /// Whether there is a MariaDB part.
    pub fn has_mariadb(&self) -> bool {
        !self.mariadb.is_empty()
    }

    /// Adds one transaction.
    pub fn insert(&mut self, gtid: &Gtid) {
        match gtid {
            Gtid::Mysql { source, number } => self.insert_range(source, *number, *number),
            Gtid::Mariadb {
                domain,
                server,
                sequence,
            } => {
                self.mariadb.insert(*domain, (*server, *sequence));
            }
        }
    }

    /// Adds the closed range `first..=last` of a MySQL source; empty if `first > last`.
    pub fn insert_range(&mut self, source: &GtidSource, first: u64, last: u64) {
        if first > last {
            return;
        }
        if !self.mysql.contains_key(source) {
            self.mysql.insert(source.clone(), vec![(first, last)]);
            return;
        }
        let Some(ranges) = self.mysql.get_mut(source) else {
            return;
        };
        // The first range that touches or follows the new one.
        let from = ranges.partition_point(|&(_, end)| end.saturating_add(1) < first);
        let to = ranges.partition_point(|&(start, _)| start <= last.saturating_add(1));
        if from >= to {
            ranges.insert(from, (first, last));
            return;
        }
        let start = ranges[from].0.min(first);
        let end = ranges[to - 1].1.max(last);
        ranges.splice(from..to, [(start, end)]);
    }

    /// Whether the transaction is in the set. MariaDB: whether its domain has reached
    /// its sequence number.
    pub fn contains(&self, gtid: &Gtid) -> bool {
        match gtid {
            Gtid::Mysql { source, number } => self.mysql.get(source).is_some_and(|ranges| {
                let at = ranges.partition_point(|&(_, end)| end < *number);
                ranges.get(at).is_some_and(|&(start, _)| start <= *number)
            }),
            Gtid::Mariadb { domain, sequence, .. } => self
                .mariadb
                .get(domain)
                .is_some_and(|&(_, last)| last >= *sequence),
        }
    }

    /// Adds all of `other`. MariaDB: per domain the later sequence.
    pub fn union(&mut self, other: &Self) {
        for (source, ranges) in &other.mysql {
            for &(first, last) in ranges {
                self.insert_range(source, first, last);
            }
        }
        for (&domain, &(server, sequence)) in &other.mariadb {
            let entry = self.mariadb.entry(domain).or_insert((server, sequence));
            if sequence > entry.1 {
                *entry = (server, sequence);
            }
        }
    }

    /// What both hold. MariaDB: per domain the earlier sequence.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (source, ranges) in &self.mysql {
            let Some(theirs) = other.mysql.get(source) else {
                continue;
            };
            for &(a, b) in ranges {
                for &(c, d) in theirs {
                    out.insert_range(source, a.max(c), b.min(d));
                }
            }
        }
        for (&domain, &mine) in &self.mariadb {
            if let Some(&theirs) = other.mariadb.get(&domain) {
                out.mariadb
                    .insert(domain, if mine.1 <= theirs.1 { mine } else { theirs });
            }
        }
        out
    }

    /// What this set holds and `other` does not. MariaDB: the domains in which this set
    /// has come further.
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (source, ranges) in &self.mysql {
            let theirs = other.mysql.get(source).map_or(&[][..], Vec::as_slice);
            for &(first, last) in ranges {
                let mut from = first;
                for &(start, end) in theirs.iter().filter(|(s, e)| *s <= last && *e >= first) {
                    out.insert_range(source, from, start.saturating_sub(1));
                    from = from.max(end.saturating_add(1));
                }
                out.insert_range(source, from, last);
            }
        }
        for (&domain, &mine) in &self.mariadb {
            if other.mariadb.get(&domain).is_none_or(|theirs| theirs.1 < mine.1) {
                out.mariadb.insert(domain, mine);
            }
        }
        out
    }

    /// Whether every transaction of `other` is in this set.
    pub fn contains_all(&self, other: &Self) -> bool {
        let both = self.intersection(other);
        both.mysql == other.mysql
            && other
                .mariadb
                .iter()
                .all(|(d, o)| self.mariadb.get(d).is_some_and(|m| m.1 >= o.1))
    }

    /// Reads `uuid[:tag]:a-b[:c…][:tag:…],…` or `domain-server-sequence,…`; white space
    /// is ignored.
    ///
    /// # Errors
    /// The part that is not understood.
    pub fn parse(text: &str) -> Result<Self, GtidParseError> {
        let mut out = Self::default();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if part.contains(':') {
                out.parse_mysql(part)?;
            } else {
                let bad = || GtidParseError(part.to_owned());
                let mut numbers = part.split('-');
                let mut next = || numbers.next().and_then(|n| n.parse::<u64>().ok());
                let (domain, server, sequence) = (next(), next(), next());
                if numbers.next().is_some() {
                    return Err(bad());
                }
                let domain = domain.and_then(|d| u32::try_from(d).ok()).ok_or_else(bad)?;
                let server = server.and_then(|s| u32::try_from(s).ok()).ok_or_else(bad)?;
                out.mariadb.insert(domain, (server, sequence.ok_or_else(bad)?));
            }
        }
        Ok(out)
    }

    fn parse_mysql(&mut self, part: &str) -> Result<(), GtidParseError> {
        let bad = || GtidParseError(part.to_owned());
        let mut fields = part.split(':').map(str::trim);
        let uuid = fields.next().and_then(parse_uuid).ok_or_else(bad)?;
        let mut source = GtidSource {
            uuid,
            tag: Arc::from(""),
        };
        let mut ranges = 0_usize;
        for field in fields {
            if field.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                if field.len() > TAG_LENGTH_MAX
                    || !field.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                {
                    return Err(bad());
                }
                source.tag = Arc::from(field.to_ascii_lowercase());
                continue;
            }
            let (first, last) = field.split_once('-').unwrap_or((field, field));
            let first: u64 = first.trim().parse().map_err(|_| bad())?;
            let last: u64 = last.trim().parse().map_err(|_| bad())?;
            if first == 0 || last < first {
                return Err(bad());
            }
            self.insert_range(&source, first, last);
            ranges += 1;
        }
        if ranges == 0 { Err(bad()) } else { Ok(()) }
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let mut out = [0_u8; 16];
    let mut digits = text.bytes().filter(|b| *b != b'-');
    for byte in &mut out {
        let high = char::from(digits.next()?).to_digit(16)?;
        let low = char::from(digits.next()?).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    digits.next().is_none().then_some(out)
}

impl From<GtidSet> for String {
    fn from(set: GtidSet) -> Self {
        set.to_string()
    }
}

impl TryFrom<String> for GtidSet {
    type Error = GtidParseError;

    fn try_from(text: String) -> Result<Self, GtidParseError> {
        Self::parse(&text)
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (source, ranges) in &self.mysql {
            write!(f, "{separator}{source}")?;
            for &(first, last) in ranges {
                if first == last {
                    write!(f, ":{first}")?;
                } else {
                    write!(f, ":{first}-{last}")?;
                }
            }
            separator = ",";
        }
        for (domain, (server, sequence)) in &self.mariadb {
            write!(f, "{separator}{domain}-{server}-{sequence}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(text).unwrap()
    }

    #[test]
    fn ranges_merge_when_they_touch() {
        let a = set(&format!("{UUID}:1-3:5:4:8-9"));
        assert_eq!(a.to_string(), format!("{UUID}:1-5:8-9"));
    }

    #[test]
    fn tags_are_sources_of_their_own() {
        let a = set(&format!("{UUID}:1-3:Tag_a:1-2:7"));
        assert_eq!(a.to_string(), format!("{UUID}:1-3,{UUID}:tag_a:1-2:7"));
        assert_eq!(set(&a.to_string()), a);
    }

    #[test]
    fn mariadb_keeps_the_last_per_domain() {
        let mut a = set("0-1-5,7-2-9");
        a.insert(&Gtid::Mariadb {
            domain: 0,
            server: 3,
            sequence: 6,
        });
        assert_eq!(a.to_string(), "0-3-6,7-2-9");
        assert!(a.contains(&Gtid::Mariadb {
            domain: 0,
            server: 1,
            sequence: 5
        }));
    }

    #[test]
    fn a_difference_of_domains_is_where_the_sequence_is_higher() {
        let ours = set("0-1-5,7-2-9,8-1-1").difference(&set("0-2-5,7-2-8"));
        assert_eq!(ours.to_string(), "7-2-9,8-1-1");
    }

    #[test]
    fn bad_texts_are_refused() {
        for bad in [
            "x",
            "1-2",
            "1-2-3-4",
            UUID,
            &format!("{UUID}:0"),
            &format!("{UUID}:5-4"),
            "zz:1",
        ] {
            assert!(GtidSet::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_numbers(
            a in prop::collection::vec((1_u64..60, 0_u64..6), 0..12),
            b in prop::collection::vec((1_u64..60, 0_u64..6), 0..12),
        ) {
            let source = GtidSource { uuid: [7; 16], tag: Arc::from("") };
            let build = |ranges: &[(u64, u64)]| {
                let mut set = GtidSet::default();
                let mut model = std::collections::BTreeSet::new();
                for &(first, more) in ranges {
                    set.insert_range(&source, first, first + more);
                    model.extend(first..=first + more);
                }
                (set, model)
            };
            let (sa, ma) = build(&a);
            let (sb, mb) = build(&b);
            let both = sa.intersection(&sb);
            let ours = sa.difference(&sb);
            let mut either = sa.clone();
            either.union(&sb);
            for number in 0..70 {
                let gtid = Gtid::Mysql { source: source.clone(), number };
                prop_assert_eq!(sa.contains(&gtid), ma.contains(&number));
                prop_assert_eq!(both.contains(&gtid), ma.contains(&number) && mb.contains(&number));
                prop_assert_eq!(ours.contains(&gtid), ma.contains(&number) && !mb.contains(&number));
                prop_assert_eq!(either.contains(&gtid), ma.contains(&number) || mb.contains(&number));
            }
            prop_assert_eq!(sa.contains_all(&sb), mb.is_subset(&ma));
            prop_assert_eq!(GtidSet::parse(&either.to_string()).unwrap(), either);
        }
    }
}
