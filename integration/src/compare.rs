//! Whether two servers hold the same: tables, columns, indexes, foreign keys and every row.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mysql_async::Value;

use crate::client::Client;

/// Rows shown per table and side.
const SAMPLE: usize = 3;
/// Differences shown in all.
const SHOWN: usize = 12;
/// Longest text of a row that is shown.
const ROW_CHARS: usize = 300;
const RETRY: Duration = Duration::from_millis(500);

/// What is compared.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Databases whose names begin so.
    pub prefix: String,
    /// Both ends are of the same kind, so that types and collations must be spelt alike.
    pub same_kind: bool,
    /// Tables left out, as `database.table`.
    pub without: Vec<String>,
}

type Definitions = BTreeMap<String, Vec<String>>;

/// Compares once.
///
/// # Errors
/// When a server does not answer. Differences are no error: they are in the text, which is empty where there are none.
pub fn differences(source: &mut Client, sink: &mut Client, scope: &Scope) -> Result<String> {
    let mut found = Vec::new();
    let here = definitions(source, scope)?;
    let there = definitions(sink, scope)?;
    for (table, wanted) in &here {
        match there.get(table) {
            None => found.push(format!("`{table}` is missing at the sink")),
            Some(got) => found.extend(lists(table, wanted, got)),
        }
    }
    for table in there.keys().filter(|table| !here.contains_key(*table)) {
        found.push(format!("`{table}` is at the sink only"));
    }
    for table in here.keys().filter(|table| there.contains_key(*table)) {
        let columns = columns_of(&here, table);
        if columns == columns_of(&there, table) {
            let wanted = rows(source, table, &columns)?;
            let got = rows(sink, table, &columns)?;
            found.extend(row_differences(table, &wanted, &got));
        }
    }
    let mut text = String::new();
    for line in found.iter().take(SHOWN) {
        writeln!(text, "{line}")?;
    }
    if found.len() > SHOWN {
        writeln!(text, "… and {} more", found.len() - SHOWN)?;
    }
    Ok(text)
}

/// Compares again and again until nothing differs.
///
/// # Errors
/// When something still differs after `limit`; the message holds the differences.
pub fn equal_within(
    source: &mut Client,
    sink: &mut Client,
    scope: &Scope,
    limit: Duration,
) -> Result<Duration> {
    let start = Instant::now();
    loop {
        // A table may be dropped between the list and the rows; a server that is not there yet may come.
        let text = match differences(source, sink, scope) {
            Ok(text) if text.is_empty() => return Ok(start.elapsed()),
            Ok(text) => text,
            Err(error) => format!("{error:#}\n"),
        };
        if start.elapsed() > limit {
            bail!("after {} s source and sink differ:\n{text}", limit.as_secs());
        }
        std::thread::sleep(RETRY);
    }
}

fn lists(table: &str, wanted: &[String], got: &[String]) -> Vec<String> {
    let missing = wanted.iter().filter(|line| !got.contains(line));
    let extra = got.iter().filter(|line| !wanted.contains(line));
    missing
        .map(|line| format!("`{table}` at the source only: {line}"))
        .chain(extra.map(|line| format!("`{table}` at the sink only: {line}")))
        .collect()
}

fn columns_of(definitions: &Definitions, table: &str) -> Vec<String> {
    definitions
        .get(table)
        .into_iter()
        .flatten()
        .filter_map(|line| Some(line.strip_prefix("column ")?.split('\t').nth(1)?.to_owned()))
        .collect()
}

/// Names compare with LIKE, where `_` stands for any character.
fn matches(column: &str, scope: &Scope) -> String {
    format!(
        "({column} = '{0}' OR {column} LIKE '{1}\\_%')",
        scope.prefix,
        scope.prefix.replace('_', "\\_")
    )
}

fn definitions(client: &mut Client, scope: &Scope) -> Result<Definitions> {
    let mut found = Definitions::new();
    let wanted = matches("TABLE_SCHEMA", scope);
    let tables = client.text(&format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES \
         WHERE {wanted} AND TABLE_TYPE = 'BASE TABLE'"
    ))?;
    for row in tables {
        found.entry(row.concat()).or_default();
    }
    let (kind, collation) = if scope.same_kind {
        ("COLUMN_TYPE", "IFNULL(COLLATION_NAME, '')")
    } else {
        // MariaDB has no JSON type and shows integers with a width.
        ("IF(DATA_TYPE = 'json', 'longtext', DATA_TYPE)", "''")
    };
    let columns = client.text(&format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME), LPAD(ORDINAL_POSITION, 4, '0'), COLUMN_NAME, {kind}, \
         IS_NULLABLE, {collation} FROM information_schema.COLUMNS WHERE {wanted} ORDER BY 1, 2"
    ))?;
    add(&mut found, "column", columns);
    let indexes = client.text(&format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME), INDEX_NAME, SEQ_IN_INDEX, IFNULL(COLUMN_NAME, ''), NON_UNIQUE \
         FROM information_schema.STATISTICS WHERE {wanted} ORDER BY 1, 2, 3"
    ))?;
    add(&mut found, "index", indexes);
    let references = client.text(&format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME), COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME, \
         REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE \
         WHERE {wanted} AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY 1, 2, 3, 4, 5"
    ))?;
    add(&mut found, "reference", references);
    found.retain(|table, _| !scope.without.contains(table));
    Ok(found)
}

fn add(found: &mut Definitions, what: &str, rows: Vec<Vec<String>>) {
    for row in rows {
        if let Some((table, rest)) = row.split_first()
            && let Some(lines) = found.get_mut(table)
        {
            lines.push(format!("{what} {}", rest.join("\t")));
        }
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Every row as text that tells values apart exactly, with how often it is there.
fn rows(client: &mut Client, table: &str, columns: &[String]) -> Result<BTreeMap<String, u64>> {
    let list: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let (schema, name) = table.split_once('.').unwrap_or(("", table));
    let sql = format!(
        "SELECT {} FROM {}.{}",
        list.join(", "),
        quoted(schema),
        quoted(name)
    );
    let mut counted = BTreeMap::new();
    for row in client.rows(&sql)? {
        let texts: Vec<String> = row.iter().map(exact).collect();
        *counted.entry(texts.join(", ")).or_insert(0) += 1;
    }
    Ok(counted)
}

fn exact(value: &Value) -> String {
    match value {
        // Bits, so that -0 and 0 differ and nothing is rounded.
        Value::Float(number) => format!("f{:08x}", number.to_bits()),
        Value::Double(number) => format!("d{:016x}", number.to_bits()),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => bytes.iter().fold(String::from("x"), |mut text, byte| {
                text.push_str(&format!("{byte:02x}"));
                text
            }),
        },
        other => other.as_sql(true),
    }
}

fn row_differences(table: &str, wanted: &BTreeMap<String, u64>, got: &BTreeMap<String, u64>) -> Vec<String> {
    let side = |ours: &BTreeMap<String, u64>, theirs: &BTreeMap<String, u64>, name: &str| {
        let more: Vec<(&String, u64)> = ours
            .iter()
            .filter_map(|(row, &count)| {
                let other = theirs.get(row).copied().unwrap_or(0);
                (count > other).then(|| (row, count - other))
            })
            .collect();
        let total: u64 = more.iter().map(|(_, count)| count).sum();
        let sample: Vec<String> = more
            .iter()
            .take(SAMPLE)
            .map(|(row, count)| {
                let short: String = row.chars().take(ROW_CHARS).collect();
                format!("{count} × ({short})")
            })
            .collect();
        (total > 0).then(|| {
            format!(
                "`{table}`: {total} rows at the {name} only, of {}: {}",
                ours.values().sum::<u64>(),
                sample.join("; ")
            )
        })
    };
    [side(wanted, got, "source"), side(got, wanted, "sink")]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
        rows.iter().map(|&(row, count)| (row.to_owned(), count)).collect()
    }

    #[test]
    fn multiplicity_counts() {
        let found = row_differences(
            "a.t",
            &counted(&[("1", 3), ("2", 1)]),
            &counted(&[("1", 2), ("3", 1)]),
        );
        assert_eq!(found.len(), 2);
        assert!(
            found[0].contains("2 rows at the source only, of 4"),
            "{}",
            found[0]
        );
        assert!(found[1].contains("1 rows at the sink only, of 3"), "{}", found[1]);
    }

    #[test]
    fn values_that_print_alike_differ() {
        assert_ne!(exact(&Value::Double(0.0)), exact(&Value::Double(-0.0)));
        assert_ne!(exact(&Value::Bytes(b"7".to_vec())), exact(&Value::Int(7)));
        assert_ne!(exact(&Value::NULL), exact(&Value::Bytes(b"NULL".to_vec())));
        assert_eq!(exact(&Value::Bytes(vec![0xff, 1])), "xff01");
    }
}
