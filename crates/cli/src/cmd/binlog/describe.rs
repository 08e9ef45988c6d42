//! What an event is about, without any value of a row.

use serde_json::{Map, Value, json};
use weir_binlog::{Event, GtidEvent, Query};

/// Longest part of a statement that names what it does, words.
const STATEMENT_WORDS: usize = 2;

/// Details of an event that is no row event: names and values in the order they are
/// shown.
pub(crate) fn details(event: &Event<'_>, with_text: bool) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| drop(out.insert(key.to_owned(), value));
    match event {
        Event::FormatDescription(format) => {
            put("server-version", json!(format.server_version));
            put("checksum", json!(format!("{:?}", format.checksum).to_lowercase()));
        }
        Event::Rotate(rotate) => {
            put("next-file", text(rotate.file));
            put("next-offset", json!(rotate.position));
        }
        Event::PreviousGtids(set) | Event::GtidList(set) => put("gtids", json!(set.to_string())),
        Event::Gtid(gtid) => {
            put("gtid", gtid_text(gtid));
            put("commit-time", commit_time(gtid));
        }
        Event::AnonymousGtid(gtid) => {
            put("gtid", json!("anonymous"));
            put("commit-time", commit_time(gtid));
        }
        Event::MariadbGtid(gtid) => {
            put(
                "gtid",
                json!(format!("{}-{}-{}", gtid.domain, gtid.server, gtid.sequence)),
            );
            if let Some(xid) = &gtid.xid {
                put("xa", json!(&*xid.0));
            }
        }
        Event::Query(query) | Event::QueryCompressed(query) => {
            put("schema", text(query.schema));
            put("statement", json!(statement(query)));
            if with_text {
                put("sql", text(query.sql));
            }
        }
        Event::Xid(number) => put("xid", json!(number)),
        Event::XaPrepare(prepare) => {
            put("xa", json!(&*prepare.xid.0));
            put("one-phase", json!(prepare.one_phase));
        }
        Event::TableMap(map) => {
            put("table", json!(map.display_name()));
            put("columns", json!(map.types.len()));
            put("table-id", json!(map.table_id));
        }
        Event::Rows(rows) | Event::RowsCompressed(rows) => {
            put("table-id", json!(rows.table_id));
            put("statement-end", json!(rows.is_statement_end()));
        }
        Event::RowsQuery(sql) | Event::AnnotateRows(sql) => {
            put("statement", json!(first_words(sql)));
            if with_text {
                put("sql", text(sql));
            }
        }
        Event::TransactionPayload(payload) => {
            put("compressed-bytes", json!(payload.payload.len()));
            put("uncompressed-bytes", json!(payload.uncompressed_bytes));
        }
        Event::Heartbeat(heartbeat) => {
            put("next-file", text(heartbeat.file));
            put("next-offset", json!(heartbeat.position));
        }
        Event::Incident(incident) => put("message", text(incident.message)),
        Event::BinlogCheckpoint(file) => put("oldest-file", text(file)),
        Event::Ignored(reason) => put("ignored", json!(format!("{reason:?}"))),
        Event::UserVar(var) => put("variable", text(var.name)),
        Event::Statement(part) => put("part", json!(format!("{part:?}"))),
        Event::Stop | Event::StartEncryption => {}
    }
    out
}

fn text(bytes: &[u8]) -> Value {
    json!(String::from_utf8_lossy(bytes))
}

fn gtid_text(gtid: &GtidEvent<'_>) -> Value {
    gtid.gtid().map_or(Value::Null, |gtid| json!(gtid.to_string()))
}

fn commit_time(gtid: &GtidEvent<'_>) -> Value {
    match gtid.original_commit_micros / 1_000 {
        0 => Value::Null,
        millis => json!(weir_config::format_rfc3339(millis)),
    }
}

/// The first words of a statement, which say what it does; the rest may hold literals.
pub(crate) fn statement(query: &Query<'_>) -> String {
    first_words(query.sql)
}

fn first_words(sql: &[u8]) -> String {
    // Words are letters only: neither numbers nor anything quoted.
    String::from_utf8_lossy(sql)
        .split_whitespace()
        .take(STATEMENT_WORDS)
        .take_while(|word| word.chars().all(|c| c.is_ascii_alphabetic()))
        .map(str::to_ascii_uppercase)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_show_words_only() {
        for (sql, shown) in [
            ("BEGIN", "BEGIN"),
            ("create table t (a int)", "CREATE TABLE"),
            ("INSERT 5", "INSERT"),
            ("SET 'secret'", "SET"),
            ("/* x */ select", ""),
        ] {
            assert_eq!(first_words(sql.as_bytes()), shown);
        }
    }
}
