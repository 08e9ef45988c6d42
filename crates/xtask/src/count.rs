//! Expected counts of a recording, taken from what the server's own `mysqlbinlog -vv` prints.
//!
//! Nothing here reads binlog bytes: the counts must not depend on the decoder that they are used to test.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use weir_test_servers::Install;

/// Rows of one table by kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Rows {
    pub(crate) insert: u64,
    pub(crate) update: u64,
    pub(crate) delete: u64,
}

impl Rows {
    fn add(&mut self, other: Self) {
        self.insert += other.insert;
        self.update += other.update;
        self.delete += other.delete;
    }
}

type TableRows = BTreeMap<String, Rows>;

/// What a set of binlog files holds, after rollbacks.
#[derive(Default, Debug)]
pub(crate) struct Summary {
    /// Committed groups with at least one row.
    pub(crate) transactions: u64,
    /// DDL statements on tables and databases.
    pub(crate) ddl: u64,
    /// DDL statements on views, which hold no rows.
    pub(crate) views: u64,
    /// Committed rows by `schema.table`.
    pub(crate) tables: TableRows,
    /// XA groups rolled back after their rows were written to the binlog.
    pub(crate) xa_rollbacks: u64,
}

/// Reader of `mysqlbinlog -vv` text.
#[derive(Default, Debug)]
struct Parser {
    summary: Summary,
    open: TableRows,
    prepared: HashMap<String, TableRows>,
    /// The event whose text is being read is a QUERY.
    in_query: bool,
}

impl Parser {
    fn line(&mut self, line: &str) {
        if let Some(row) = line.strip_prefix("### ") {
            self.row(row);
        } else if line.starts_with('#') {
            if line.contains(" end_log_pos ") {
                self.header(line);
            }
        } else if self.in_query && !line.is_empty() && !line.starts_with("/*!") {
            self.statement(line);
        }
    }

    fn header(&mut self, line: &str) {
        self.in_query = line.contains("\tQuery\t")
            || line.contains("\tQuery_compressed\t")
            || line.contains("\tXA_prepare")
            || line.contains("\tXID = "); // MariaDB's XA_PREPARE
        // The header of a DDL's QUERY names its Xid too.
        if !self.in_query && line.contains("\tXid = ") {
            self.commit();
        }
    }

    fn row(&mut self, row: &str) {
        let (kind, name) = if let Some(name) = row.strip_prefix("INSERT INTO ") {
            (
                Rows {
                    insert: 1,
                    ..Rows::default()
                },
                name,
            )
        } else if let Some(name) = row.strip_prefix("UPDATE ") {
            (
                Rows {
                    update: 1,
                    ..Rows::default()
                },
                name,
            )
        } else if let Some(name) = row.strip_prefix("DELETE FROM ") {
            (
                Rows {
                    delete: 1,
                    ..Rows::default()
                },
                name,
            )
        } else {
            return;
        };
        let name = name.trim_end().replace("`.`", ".");
        self.open
            .entry(name.trim_matches('`').to_owned())
            .or_default()
            .add(kind);
    }

    fn statement(&mut self, line: &str) {
        let text = line.trim_end().trim_end_matches("/*!*/;").trim_end();
        let mut words = text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty());
        let first = words.next().unwrap_or("").to_ascii_uppercase();
        match first.as_str() {
            "SET" | "USE" | "DELIMITER" | "BEGIN" | "START" => return,
            "COMMIT" => self.commit(),
            "ROLLBACK" => self.open.clear(),
            "CREATE" | "ALTER" | "DROP" | "RENAME" | "TRUNCATE" => {
                if words.find_map(is_view).unwrap_or(false) {
                    self.summary.views += 1;
                } else {
                    self.summary.ddl += 1;
                }
            }
            "XA" => self.xa(text, &words.next().unwrap_or("").to_ascii_uppercase()),
            _ => {}
        }
        // What follows belongs to the same statement.
        self.in_query = matches!(first.as_str(), "XA");
    }

    fn xa(&mut self, text: &str, verb: &str) {
        let id = text.split_whitespace().nth(2).unwrap_or("").to_owned();
        match verb {
            "PREPARE" => {
                let rows = std::mem::take(&mut self.open);
                self.prepared.insert(id, rows);
            }
            "COMMIT" => {
                if let Some(rows) = self.prepared.remove(&id) {
                    self.open = rows;
                }
                self.commit();
            }
            "ROLLBACK" => {
                if self.prepared.remove(&id).is_some() {
                    self.summary.xa_rollbacks += 1;
                }
                self.open.clear();
            }
            _ => {}
        }
    }

    fn commit(&mut self) {
        if self.open.is_empty() {
            return;
        }
        self.summary.transactions += 1;
        for (table, rows) in std::mem::take(&mut self.open) {
            self.summary.tables.entry(table).or_default().add(rows);
        }
    }
}

/// Whether a DDL word names its object, and then whether that is a view.
fn is_view(word: &str) -> Option<bool> {
    match word.to_ascii_uppercase().as_str() {
        "VIEW" => Some(true),
        "TABLE" | "DATABASE" | "SCHEMA" | "INDEX" => Some(false),
        _ => None,
    }
}

/// Counts what `files` hold, read in the order given.
///
/// # Errors
/// When the printer fails, or the files end inside a transaction.
pub(crate) fn summarise(install: &Install, files: &[PathBuf]) -> Result<Summary> {
    let mut command = install.binlog_printer();
    command
        .args(["--no-defaults", "-vv", "--base64-output=DECODE-ROWS"])
        .args(files);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("run mysqlbinlog")?;
    let stdout = child.stdout.take().context("mysqlbinlog's output")?;
    let mut parser = Parser::default();
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        parser.line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("mysqlbinlog failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    if !parser.open.is_empty() {
        bail!("the files end inside a transaction");
    }
    Ok(parser.summary)
}

/// Writes `expected.json` beside the files of a recording.
pub(crate) fn write_expected(
    folder: &Path,
    server: &str,
    files: &[PathBuf],
    summary: &Summary,
) -> Result<()> {
    let mut total = Rows::default();
    let mut tables = serde_json::Map::new();
    for (name, rows) in &summary.tables {
        total.add(*rows);
        tables.insert(
            name.clone(),
            json!({"insert": rows.insert, "update": rows.update, "delete": rows.delete}),
        );
    }
    let mut names = Vec::new();
    for file in files {
        let bytes = std::fs::metadata(file)?.len();
        names.push(json!({"name": file.file_name().unwrap_or_default().to_string_lossy(), "bytes": bytes}));
    }
    let value: Value = json!({
        "server": server,
        "counted-by": "mysqlbinlog -vv",
        "files": names,
        "transactions": summary.transactions,
        "ddl": summary.ddl,
        "view-ddl": summary.views,
        "xa-rollbacks": summary.xa_rollbacks,
        "rows": total.insert + total.update + total.delete,
        "inserts": total.insert,
        "updates": total.update,
        "deletes": total.delete,
        "tables": tables,
    });
    std::fs::write(
        folder.join("expected.json"),
        format!("{}\n", serde_json::to_string_pretty(&value)?),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Summary {
        let mut parser = Parser::default();
        text.lines().for_each(|line| parser.line(line));
        assert!(parser.open.is_empty());
        parser.summary
    }

    #[test]
    fn rows_count_when_their_transaction_commits() {
        let summary = parse(
            "#261130 end_log_pos 1 CRC32 0x1 \tQuery\tthread_id=1\nSET TIMESTAMP=1/*!*/;\nBEGIN\n/*!*/;\n\
             #261130 end_log_pos 2 CRC32 0x1 \tWrite_rows: table id 1\n### INSERT INTO `a`.`b`\n### SET\n###   @1='x'\n\
             ### UPDATE `a`.`b`\n### DELETE FROM `a`.`c`\n#261130 end_log_pos 3 CRC32 0x1 \tXid = 3\nCOMMIT/*!*/;\n",
        );
        assert_eq!(summary.transactions, 1);
        assert_eq!(
            summary.tables["a.b"],
            Rows {
                insert: 1,
                update: 1,
                delete: 0
            }
        );
        assert_eq!(
            summary.tables["a.c"],
            Rows {
                insert: 0,
                update: 0,
                delete: 1
            }
        );
    }

    #[test]
    fn a_prepared_group_counts_at_its_commit_only() {
        let prepare = |id: &str| {
            format!(
                "#1 end_log_pos 1 \tWrite_rows: table id 1\n### INSERT INTO `a`.`b`\n\
                 #1 end_log_pos 1 \tXA_prepare\nXA PREPARE X'{id}',X'',1\n/*!*/;\n"
            )
        };
        let decide =
            |verb: &str, id: &str| format!("#1 end_log_pos 1 \tQuery\tx\nXA {verb} X'{id}',X'',1\n/*!*/;\n");
        let summary = parse(
            &[
                prepare("01"),
                prepare("02"),
                decide("ROLLBACK", "01"),
                decide("COMMIT", "02"),
            ]
            .concat(),
        );
        assert_eq!(summary.tables["a.b"].insert, 1);
        assert_eq!((summary.transactions, summary.xa_rollbacks), (1, 1));
    }

    #[test]
    fn ddl_counts_once_for_each_statement() {
        let summary = parse(
            "#1 end_log_pos 1 \tQuery\tx\nuse `a`/*!*/;\nSET TIMESTAMP=1/*!*/;\nCREATE TABLE t (\n  a INT,\n  \
             DROP INT\n)\n/*!*/;\n#1 end_log_pos 2 \tQuery\tx\nDROP TABLE `t` /* generated by server */\n/*!*/;\n",
        );
        assert_eq!((summary.ddl, summary.views), (2, 0));
        let view = "#1 end_log_pos 1 \tQuery\tx\nCREATE ALGORITHM=UNDEFINED DEFINER=`root`@`localhost` VIEW `v` AS \
                    select 1 from `table`\n/*!*/;\n#1 end_log_pos 2 \tQuery\tx\nDROP VIEW v\n/*!*/;\n";
        let summary = parse(view);
        assert_eq!((summary.ddl, summary.views), (0, 2));
    }
}
