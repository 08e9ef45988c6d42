//! What error 1236 means, by its text: the servers have one number for everything that
//! ends a dump (MySQL "ER_SOURCE_FATAL_ERROR_READING_BINLOG"; MariaDB
//! "ER_MASTER_FATAL_ERROR_READING_BINLOG").

use weir_types::GtidSet;

use super::place::Place;
use crate::error::SourceError;

/// What to do about it.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another replica with our id has connected.
    Kicked,
    /// Cannot be repaired by trying again.
    Definite(SourceError),
}

/// Sorts a message. `place`: from where we read, `seen`: what we had.
pub(crate) fn sort(message: &str, place: &Place, seen: &GtidSet) -> Refusal {
    let says = |part: &str| message.contains(part);
    if says("with the same server_uuid/server_id") {
        return Refusal::Kicked;
    }
    Refusal::Definite(if says("anonymous transaction") {
        SourceError::Setting {
            setting: "gtid_mode",
            expected: "ON_PERMISSIVE while transactions without GTID are read",
            actual: "ON".to_owned(),
        }
    } else if says("purged") || says("too old") {
        SourceError::PurgedGtids {
            missing: missing(message).unwrap_or_else(|| format!("behind {seen}")),
        }
    } else if says("Could not find first log file name") {
        SourceError::Purged {
            file: place.file.to_string(),
        }
    } else if says("position > file size") || says("impossible position") {
        SourceError::BadPosition {
            place: format!("{}:{}", place.file, place.offset),
        }
    } else if says("not in the master's binlog") || says("is missing the GTID") {
        let lost = unknown(message).unwrap_or_else(|| seen.to_string());
        SourceError::TransactionsLost { missing: lost }
    } else if says("more GTIDs than the") {
        SourceError::TransactionsLost {
            missing: format!("behind {seen}"),
        }
    } else {
        SourceError::Refused {
            message: message.to_owned(),
        }
    })
}

/// MySQL: `… and the missing transactions are 'SET'`.
fn missing(message: &str) -> Option<String> {
    let behind = message.split("missing transactions are '").nth(1)?;
    let set: String = behind.chars().take_while(|c| *c != '\'').collect();
    (!set.is_empty()).then_some(set)
}

/// MariaDB: `… GTID 0-1-2, which …` or `… the GTID 0-1-2 requested …`.
fn unknown(message: &str) -> Option<String> {
    let behind = message.split("GTID ").nth(1)?;
    let gtid: String = behind
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '-')
        .collect();
    (gtid.split('-').count() == 3).then_some(gtid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definite(message: &str) -> String {
        let seen = GtidSet::parse("7-1-9").expect("a set");
        match sort(message, &Place::new("b.000001", 4), &seen) {
            Refusal::Definite(error) => error.to_string(),
            Refusal::Kicked => "kicked".to_owned(),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = definite(
            "Cannot replicate because the source purged required binary logs. Replicate the missing \
             transactions from elsewhere, or provision a new replica from backup. The GTID set sent by the \
             replica is 'a:1', and the missing transactions are '3e11fa47-71ca-11e1-9e33-c80aa9429562:2-5'",
        );
        assert!(
            text.contains("`3e11fa47-71ca-11e1-9e33-c80aa9429562:2-5`"),
            "{text}"
        );
        let text = definite(
            "Could not find GTID state requested by slave in any binlog files. Probably the slave state is \
             too old and required binlog files have been purged.",
        );
        assert!(text.contains("behind 7-1-9"), "{text}");
        let text = definite("Could not find first log file name in binary log index file");
        assert!(text.contains("b.000001"), "{text}");
        let text = definite(
            "Error: connecting slave requested to start from GTID 7-1-12, which is not in the master's binlog",
        );
        assert!(text.contains("`7-1-12`"), "{text}");
        let text = definite(
            "The binlog on the master is missing the GTID 7-2-9 requested by the slave (even though a later \
             sequence number does exist), and GTID strict mode is enabled",
        );
        assert!(text.contains("`7-2-9`"), "{text}");
    }

    #[test]
    fn the_rest_is_told_as_it_is() {
        assert_eq!(
            definite(
                "A replica with the same server_uuid/server_id as this replica has connected to the source"
            ),
            "kicked"
        );
        let text =
            definite("Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file ./b.000008");
        assert!(text.contains("ON_PERMISSIVE"), "{text}");
        let text = definite("log event entry exceeded max_allowed_packet");
        assert!(
            text.ends_with("log event entry exceeded max_allowed_packet"),
            "{text}"
        );
    }
}
