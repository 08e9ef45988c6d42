//! Tables made from messages, and their comparison with a source.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use mysql_async::Value as SqlValue;
use serde_json::Value;

use super::{Message, Place, Topics};
use crate::client::Client;

/// Differences shown.
const SHOWN: usize = 8;
/// Characters of a row or value that are shown.
const SHOWN_CHARS: usize = 200;

impl Topics {
    /// The tables that the messages make, as a consumer knows them: rows by their keys, or as often as they are there.
    ///
    /// # Errors
    /// When a row is taken away that was not there.
    pub fn tables(&self) -> Result<BTreeMap<String, Table>> {
        // Distinct messages in the order of the source, so that DDL falls between the rows.
        let mut ordered: BTreeMap<(Place, String), &Message> = BTreeMap::new();
        for message in &self.messages {
            ordered.insert((message.place(), message.table()), message);
        }
        let mut tables: BTreeMap<String, Table> = BTreeMap::new();
        for message in ordered.values() {
            let table = tables.entry(message.table()).or_default();
            if message.is_ddl() {
                if matches!(message.text("type"), "TRUNCATE" | "ERASE") {
                    *table = Table::default();
                }
                continue;
            }
            let what = || format!("{:?} of {}", message.place(), message.table());
            table.apply(message).with_context(what)?;
        }
        Ok(tables)
    }
}

/// A table made from messages.
#[derive(Debug, Default)]
pub struct Table {
    keyed: BTreeMap<String, Value>,
    counted: BTreeMap<String, (Value, i64)>,
}

impl Table {
    fn apply(&mut self, message: &Message) -> Result<()> {
        let kind = message.text("type");
        let new = message.value["data"][0].clone();
        if let Some(key) = &message.key {
            match kind {
                "DELETE" => drop(self.keyed.remove(key)),
                _ => drop(self.keyed.insert(key.clone(), new)),
            }
            return Ok(());
        }
        let mut old = new.clone();
        for (name, value) in message.value["old"][0].as_object().into_iter().flatten() {
            old[name] = value.clone();
        }
        if kind != "INSERT" {
            let entry = self.counted.entry(old.to_string()).or_insert((old, 0));
            entry.1 -= 1;
        }
        if kind != "DELETE" {
            let entry = self.counted.entry(new.to_string()).or_insert((new, 0));
            entry.1 += 1;
        }
        Ok(())
    }

    /// Sum of a column over all rows.
    pub fn sum(&self, column: &str) -> u64 {
        let value = |row: &Value| {
            row[column]
                .as_str()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        self.keyed.values().map(value).sum()
    }

    /// Rows, as often as they are there.
    fn rows(&self) -> Result<Vec<&Value>> {
        let mut rows: Vec<&Value> = self.keyed.values().collect();
        for (row, count) in self.counted.values() {
            ensure!(
                *count >= 0,
                "a row was taken away {} times too often: {row}",
                -count
            );
            rows.extend((0..*count).map(|_| row));
        }
        Ok(rows)
    }
}

/// Compares tables of a source with those that messages make.
///
/// # Errors
/// Names the differences.
pub fn compare(source: &mut Client, tables: &[String], topics: &Topics) -> Result<()> {
    let made = topics.tables()?;
    let nothing = Table::default();
    let mut found = Vec::new();
    for table in tables {
        let columns = columns(source, table)?;
        let wanted = source_rows(source, table, &columns)?;
        let made = made
            .get(table)
            .unwrap_or(&nothing)
            .rows()
            .with_context(|| table.clone())?;
        let mut got = BTreeMap::new();
        for row in made {
            *got.entry(message_row(row, &columns)?).or_insert(0_i64) += 1;
        }
        let mut missing = Vec::new();
        for (row, count) in &wanted {
            let there = got.remove(row).unwrap_or(0);
            if there != *count {
                missing.push((row, *count, there));
            }
        }
        for (row, count, there) in missing {
            // Beside a row that is the topic's only and begins alike, what differs is enough.
            let begin = row.split(" | ").next().unwrap_or_default();
            let other = got.keys().find(|other| other.split(" | ").next() == Some(begin));
            let parts = |other: &String| -> Vec<String> {
                let pairs = row.split(" | ").zip(other.split(" | ")).zip(&columns);
                let differing = pairs.filter(|((one, other), _)| one != other);
                differing
                    .map(|((one, other), (name, _))| format!("{name}: {} / {}", short(one), short(other)))
                    .collect()
            };
            found.push(format!(
                "{table}: {count} times at the source, {there} in the topic: {} {:?}",
                short(row),
                other.map(parts).unwrap_or_default()
            ));
        }
        found.extend(
            got.iter()
                .map(|(row, count)| format!("{table}: {count} times in the topic only: {}", short(row))),
        );
    }
    ensure!(
        found.is_empty(),
        "{} differences:\n{}",
        found.len(),
        found.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n")
    );
    Ok(())
}

fn short(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

/// Name and type of the columns that are not generated.
fn columns(source: &mut Client, table: &str) -> Result<Vec<(String, String)>> {
    let (schema, name) = table.split_once('.').context("database.table")?;
    let rows = source.text(&format!(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{schema}' AND \
         TABLE_NAME = '{name}' AND IFNULL(GENERATION_EXPRESSION, '') = '' ORDER BY ORDINAL_POSITION"
    ))?;
    let pair = |row: Vec<String>| {
        (
            row.first().cloned().unwrap_or_default(),
            row.get(1).cloned().unwrap_or_default(),
        )
    };
    Ok(rows.into_iter().map(pair).collect())
}

fn source_rows(
    source: &mut Client,
    table: &str,
    columns: &[(String, String)],
) -> Result<BTreeMap<String, i64>> {
    let list: Vec<String> = columns.iter().map(|(name, _)| format!("`{name}`")).collect();
    let mut rows = BTreeMap::new();
    for row in source.rows(&format!("SELECT {} FROM {table}", list.join(", ")))? {
        let texts: Result<Vec<String>> = row
            .iter()
            .zip(columns)
            .map(|(value, (_, kind))| canonical(&source_text(value, kind), kind))
            .collect();
        *rows.entry(texts?.join(" | ")).or_insert(0) += 1;
    }
    Ok(rows)
}

fn message_row(row: &Value, columns: &[(String, String)]) -> Result<String> {
    let mut texts = Vec::new();
    for (name, kind) in columns {
        let text = match row.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => bail!("`{name}` is no text: {other}"),
        };
        texts.push(canonical(&text, kind)?);
    }
    Ok(texts.join(" | "))
}

/// A value of the source as canal-json is documented to print it.
fn source_text(value: &SqlValue, kind: &str) -> Option<String> {
    Some(match value {
        SqlValue::NULL => return None,
        SqlValue::Int(number) => number.to_string(),
        SqlValue::UInt(number) => number.to_string(),
        SqlValue::Float(number) => number.to_string(),
        SqlValue::Double(number) => number.to_string(),
        SqlValue::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            match kind {
                "date" => date,
                _ => format!("{date} {hour:02}:{minute:02}:{second:02}.{micros:06}"),
            }
        }
        SqlValue::Time(negative, days, hours, minutes, seconds, micros) => {
            let sign = if *negative { "-" } else { "" };
            let hours = days * 24 + u32::from(*hours);
            format!("{sign}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}")
        }
        SqlValue::Bytes(bytes) => match kind {
            "bit" => bytes
                .iter()
                .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte))
                .to_string(),
            "binary" | "varbinary" | "blob" | "tinyblob" | "mediumblob" | "longblob" => {
                bytes.iter().map(|byte| char::from(*byte)).collect()
            }
            _ => String::from_utf8_lossy(bytes).into_owned(),
        },
    })
}

/// The same text for the same value, however it is printed.
fn canonical(text: &Option<String>, kind: &str) -> Result<String> {
    let Some(text) = text else {
        return Ok("NULL".to_owned());
    };
    Ok(match kind {
        "float" => format!("{:08x}", text.parse::<f32>()?.to_bits()),
        "double" => format!("{:016x}", text.parse::<f64>()?.to_bits()),
        "json" => serde_json::from_str::<Value>(text)?.to_string(),
        "datetime" | "timestamp" | "time" => match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.clone(),
        },
        _ => format!("{text:?}"),
    })
}
