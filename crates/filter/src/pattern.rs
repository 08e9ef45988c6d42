//! Patterns of table names.
//!
//! ```text
//! pattern = part "." part
//! part    = { plain character | "*" | "?" | "`" { character | "``" } "`" }
//! ```
//!
//! `*` stands for any run of characters, also none; `?` for exactly one. Inside
//! backticks every character stands for itself, wildcards and dots included, and a
//! backtick is written twice, as in SQL.

use crate::error::{FilterError, Result};

/// Longest pattern in characters: two names of 64 characters, each character quoted.
const PATTERN_CHARS_MAX: usize = 512;

/// How names are compared: as the source server compares them
/// (`lower_case_table_names`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCase {
    /// `Orders` and `orders` are two tables (`lower_case_table_names=0`).
    Sensitive,
    /// `Orders` and `orders` are one table.
    Insensitive,
}

impl NameCase {
    /// The form in which two names are compared.
    pub(crate) fn fold(self, name: &str) -> String {
        match self {
            Self::Sensitive => name.to_owned(),
            Self::Insensitive => name.to_lowercase(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Literal(char),
    One,
    Many,
}

/// Pattern of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamePattern(Vec<Piece>);

impl NamePattern {
    /// Whether it matches every name.
    pub(crate) fn is_all(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|piece| *piece == Piece::Many)
    }

    /// Matches a folded name. Goes back to the last `*` only, so that the time is at
    /// most pattern × name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut p, mut n) = (0, 0);
        // Behind the last `*`, and where its match ends.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match self.0.get(p) {
                Some(Piece::Many) => {
                    p += 1;
                    star = Some((p, n));
                    continue;
                }
                Some(Piece::One) => {
                    p += 1;
                    n += 1;
                    continue;
                }
                Some(Piece::Literal(c)) if name.get(n) == Some(c) => {
                    p += 1;
                    n += 1;
                    continue;
                }
                Some(Piece::Literal(_)) | None => {}
            }
            let Some((after, end)) = star else {
                return false;
            };
            star = Some((after, end + 1));
            p = after;
            n = end + 1;
        }
        self.0.iter().skip(p).all(|piece| *piece == Piece::Many)
    }
}

/// Pattern of a schema and a table name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePattern {
    pub(crate) schema: NamePattern,
    pub(crate) table: NamePattern,
}

impl TablePattern {
    /// # Errors
    /// `FilterError::Pattern` with what is wrong.
    pub(crate) fn parse(text: &str, case: NameCase) -> Result<Self> {
        let bad = |reason| FilterError::Pattern {
            rule: text.chars().take(PATTERN_CHARS_MAX).collect(),
            reason,
        };
        if text.chars().count() > PATTERN_CHARS_MAX {
            return Err(bad("it is longer than 512 characters"));
        }
        let folded = case.fold(text);
        let mut parts = vec![Vec::new()];
        let mut quoted = false;
        let mut chars = folded.chars().peekable();
        while let Some(c) = chars.next() {
            let piece = match (quoted, c) {
                (true, '`') if chars.peek() == Some(&'`') => {
                    chars.next();
                    Piece::Literal('`')
                }
                (_, '`') => {
                    quoted = !quoted;
                    continue;
                }
                (false, '.') => {
                    parts.push(Vec::new());
                    continue;
                }
                (false, '*') => Piece::Many,
                (false, '?') => Piece::One,
                (false, c) if c.is_whitespace() => {
                    return Err(bad("white space must stand inside backticks"));
                }
                (_, c) => Piece::Literal(c),
            };
            if let Some(part) = parts.last_mut() {
                part.push(piece);
            }
        }
        if quoted {
            return Err(bad("a backtick is not closed"));
        }
        let [schema, table] = <[Vec<Piece>; 2]>::try_from(parts)
            .map_err(|_| bad("exactly one dot outside backticks is needed"))?;
        if schema.is_empty() || table.is_empty() {
            return Err(bad("the name on one side of the dot is empty"));
        }
        Ok(Self {
            schema: NamePattern(schema),
            table: NamePattern(table),
        })
    }

    /// Matches two folded names.
    pub(crate) fn matches(&self, schema: &str, table: &str) -> bool {
        self.schema.matches(schema) && self.table.matches(table)
    }
}
