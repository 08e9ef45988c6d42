//! Runs the statements of a transaction in as few round trips as it can: several in one
//! text, `BEGIN` and `COMMIT` with them.

use std::time::Instant;

use mysql_async::Error;
use weir_types::TableName;

use crate::attempts::Failure;
use crate::client::Client;
use crate::ddl::error_text;
use crate::error::MysqlSinkError;
use crate::metrics::MysqlMetrics;
use crate::pool::Link;
use crate::reply::{Problem, Retry, Verdict, judge};
use crate::rows::{Expect, Statement};

/// Bytes of SQL that are sent at once, unless one statement is larger.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Bytes that stay free below `max_allowed_packet`.
const PACKET_MARGIN: usize = 1024;

const BEGIN: &[u8] = b"BEGIN";
const COMMIT: &[u8] = b"COMMIT";
const UNCHECKED: &[u8] = b"SET SESSION foreign_key_checks=0";
const CHECKED: &[u8] = b"SET SESSION foreign_key_checks=1";
const UNDO: &str = "ROLLBACK; SET SESSION foreign_key_checks=1";

/// Most bytes of SQL that one statement may have at this target.
pub(crate) const fn packet_max(max_allowed_packet: usize) -> usize {
    max_allowed_packet.saturating_sub(PACKET_MARGIN)
}

/// Several statements as one text.
#[derive(Default)]
struct Text {
    sql: Vec<u8>,
    /// For each answer, the statement that it belongs to; none for BEGIN and the like.
    answers: Vec<Option<usize>>,
}

struct Texts {
    all: Vec<Text>,
    bytes_max: usize,
}

impl Texts {
    fn add(&mut self, sql: &[u8], statement: Option<usize>) {
        let fits = |text: &Text| text.sql.len() + sql.len() < self.bytes_max;
        if !self.all.last().is_some_and(fits) {
            self.all.push(Text::default());
        }
        if let Some(text) = self.all.last_mut() {
            if !text.sql.is_empty() {
                text.sql.push(b';');
            }
            text.sql.extend_from_slice(sql);
            text.answers.push(statement);
        }
    }
}

/// Cuts statements into texts. `wrapped`: between BEGIN and what follows.
fn texts(statements: &[Statement], wrapped: bool, bytes_max: usize) -> Texts {
    let mut texts = Texts {
        all: Vec::new(),
        bytes_max,
    };
    if wrapped {
        texts.add(BEGIN, None);
    }
    let mut unchecked = false;
    for (at, statement) in statements.iter().enumerate() {
        if statement.unchecked != unchecked {
            unchecked = statement.unchecked;
            texts.add(if unchecked { UNCHECKED } else { CHECKED }, None);
        }
        texts.add(&statement.sql, Some(at));
    }
    if unchecked {
        texts.add(CHECKED, None);
    }
    texts
}

/// A transaction to run.
pub(crate) struct Transaction<'a> {
    pub(crate) statements: &'a [Statement],
    /// Target tables that `Statement::table` counts.
    pub(crate) targets: &'a [TableName],
    /// Runs last, before the commit.
    pub(crate) last: Option<&'a str>,
}

impl Transaction<'_> {
    /// Runs and commits it, or undoes it.
    pub(crate) async fn run(
        &self,
        link: &mut Link,
        metrics: &MysqlMetrics,
    ) -> std::result::Result<(), Failure> {
        let started = Instant::now();
        let result = self.try_run(link).await;
        match &result {
            Ok(()) => metrics.committed(self.statements.len(), started.elapsed()),
            Err(failure) if failure.lost() => {}
            Err(_) => undo(&mut link.conn).await?,
        }
        result
    }

    async fn try_run(&self, link: &mut Link) -> std::result::Result<(), Failure> {
        let bytes_max = TEXT_BYTES_MAX.min(packet_max(link.info.max_allowed_packet));
        // One statement is a transaction of its own.
        let wrapped =
            self.last.is_some() || self.statements.len() > 1 || self.statements.iter().any(|s| s.unchecked);
        let mut texts = texts(self.statements, wrapped, bytes_max);
        let end: Vec<&[u8]> = self
            .last
            .map(str::as_bytes)
            .into_iter()
            .chain(wrapped.then_some(COMMIT))
            .collect();
        // What the answers say is looked at before the commit.
        let blind = self.statements.iter().all(|s| s.expect == Expect::Any);
        if blind {
            end.iter().for_each(|sql| texts.add(sql, None));
        }
        for text in &texts.all {
            self.send(link, text).await?;
        }
        if !blind {
            let mut ending = Texts {
                all: Vec::new(),
                bytes_max,
            };
            end.iter().for_each(|sql| ending.add(sql, None));
            for text in &ending.all {
                self.send(link, text).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, link: &mut Link, text: &Text) -> std::result::Result<(), Failure> {
        let mut counts = Vec::with_capacity(text.answers.len());
        match link.conn.counted(&text.sql, &mut counts).await {
            Ok(()) => self.check(text, &counts),
            Err(error) => Err(self.failure(&error, text.answers.get(counts.len()).copied().flatten())),
        }
    }

    fn target(&self, statement: Option<usize>) -> TableName {
        let statement = statement.and_then(|at| self.statements.get(at));
        let target = statement.and_then(|statement| self.targets.get(statement.table));
        target
            .or_else(|| self.targets.first())
            .cloned()
            .unwrap_or_else(|| TableName::new("", ""))
    }

    fn check(&self, text: &Text, counts: &[u64]) -> std::result::Result<(), Failure> {
        for (at, count) in text.answers.iter().zip(counts) {
            let Some(statement) = at.and_then(|at| self.statements.get(at)) else {
                continue;
            };
            match statement.expect {
                Expect::Any => {}
                Expect::Rows(rows) if u64::from(rows) == *count => {}
                Expect::Rows(rows) => {
                    return Err(Failure::Definite(MysqlSinkError::Drifted {
                        table: self.target(*at),
                        expected: u64::from(rows),
                        found: *count,
                    }));
                }
            }
        }
        if counts.len() < text.answers.len() {
            return Err(Failure::Retry(
                Retry::Lost,
                "fewer answers than statements".to_owned(),
            ));
        }
        Ok(())
    }

    fn failure(&self, error: &Error, statement: Option<usize>) -> Failure {
        match judge(error) {
            Verdict::Retry(reason) => Failure::Retry(reason, error_text(error)),
            Verdict::Tls(reason) => Failure::Retry(Retry::Lost, reason),
            Verdict::Definite(problem, reply) => Failure::Definite(MysqlSinkError::Rejected {
                table: self.target(statement),
                problem,
                reply,
            }),
            Verdict::Login(reply) => Failure::Definite(MysqlSinkError::Rejected {
                table: self.target(statement),
                problem: Problem::Other,
                reply,
            }),
        }
    }
}

/// Undoes what is open. The connection is lost if it cannot.
async fn undo(conn: &mut Client) -> std::result::Result<(), Failure> {
    let undone = conn.query_drop(UNDO).await;
    undone.map_err(|error| Failure::Retry(Retry::Lost, error_text(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &str, unchecked: bool) -> Statement {
        Statement {
            sql: sql.as_bytes().to_vec(),
            rows: 1,
            expect: Expect::Any,
            table: 0,
            unchecked,
        }
    }

    fn shown(texts: &Texts) -> Vec<String> {
        let text = |text: &Text| String::from_utf8(text.sql.clone()).unwrap();
        texts.all.iter().map(text).collect()
    }

    #[test]
    fn checks_are_switched_where_they_change_and_always_back() {
        let statements = [statement("A", false), statement("B", true), statement("C", true)];
        let texts = texts(&statements, true, 1000);
        assert_eq!(
            shown(&texts),
            ["BEGIN;A;SET SESSION foreign_key_checks=0;B;C;SET SESSION foreign_key_checks=1"]
        );
        assert_eq!(
            texts.all[0].answers,
            [None, Some(0), None, Some(1), Some(2), None]
        );
    }

    #[test]
    fn texts_are_bounded_and_a_large_statement_stands_alone() {
        let large = "X".repeat(50);
        let statements = [
            statement("A", false),
            statement(&large, false),
            statement("B", false),
        ];
        let texts = texts(&statements, false, 10);
        assert_eq!(shown(&texts), ["A", &large, "B"]);
    }
}
