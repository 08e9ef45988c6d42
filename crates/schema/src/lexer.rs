//! Tokens of MySQL and MariaDB statements, one at a time: a statement may be large, and
//! its first words often suffice.
//!
//! Sources: MySQL manual "Schema Object Names", "String Literals", "Comments"; MariaDB
//! knowledge base "Comment Syntax".

use std::borrow::Cow;
use std::ops::Range;

use weir_types::Flavor;

use crate::statement::Session;

/// Digits of a version behind `/*!`.
const VERSION_DIGITS: std::ops::RangeInclusive<usize> = 5..=6;

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A keyword or a name without quotes.
    Word(&'a str),
    /// A quoted name, quotes removed.
    Name(Cow<'a, str>),
    /// A string literal, without its quotes, escapes as written.
    Text(&'a str),
    /// Anything else, one character.
    Punct(char),
}

impl Token<'_> {
    /// Whether it is this keyword (given in upper case).
    pub(crate) fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

/// A comment of which it matters which server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommentMark {
    /// Mark and version in front of a text that is executed.
    Open(Range<usize>),
    /// End of such a text.
    Close(Range<usize>),
    /// A whole comment that only the other server family executes.
    Foreign(Range<usize>),
}

/// The text does not end where a token should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

#[derive(Clone)]
pub(crate) struct Lexer<'a> {
    rest: &'a str,
    /// Bytes of the whole text.
    length: usize,
    /// Where the last token begins.
    start: usize,
    /// Executable comments that are open.
    open_comments: u32,
    mariadb: bool,
    ansi_quotes: bool,
    no_backslash_escapes: bool,
    pub(crate) comments: Vec<CommentMark>,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || c >= '\u{80}'
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(sql: &'a str, session: &Session<'_>) -> Self {
        Self {
            rest: sql,
            length: sql.len(),
            start: 0,
            open_comments: 0,
            mariadb: session.flavor == Flavor::Mariadb,
            ansi_quotes: session.ansi_quotes(),
            no_backslash_escapes: session.no_backslash_escapes(),
            comments: Vec::new(),
        }
    }

    fn cut(&mut self, at: usize) -> &'a str {
        let (head, tail) = self.rest.split_at_checked(at).unwrap_or((self.rest, ""));
        self.rest = tail;
        head
    }

    /// Skips blanks and comments; opens and closes executable comments.
    fn skip(&mut self) -> Result<(), Unreadable> {
        loop {
            self.rest = self
                .rest
                .trim_start_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '\u{b}' | '\0'));
            if self.open_comments > 0 && self.rest.starts_with("*/") {
                self.open_comments -= 1;
                let start = self.offset();
                self.cut(2);
                self.comments.push(CommentMark::Close(start..self.offset()));
            } else if self.rest.starts_with('#') || self.at_dashes() {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.cut(end);
            } else if self.rest.starts_with("/*!") || (self.mariadb && self.rest.starts_with("/*M!")) {
                self.open_executable();
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                let end = comment.find("*/").ok_or(Unreadable)?;
                let start = self.offset();
                self.cut(end + 4);
                if comment.starts_with("M!") {
                    self.comments.push(CommentMark::Foreign(start..self.offset()));
                }
            } else {
                return Ok(());
            }
        }
    }

    /// `--` begins a comment only before a blank, a control character or the end.
    fn at_dashes(&self) -> bool {
        self.rest.strip_prefix("--").is_some_and(|tail| {
            tail.chars()
                .next()
                .is_none_or(|c| c.is_ascii_whitespace() || c.is_ascii_control())
        })
    }

    /// A server runs what stands in such a comment unless its version is higher, and
    /// then it writes a plain comment to its binlog instead.
    fn open_executable(&mut self) {
        let start = self.offset();
        let mark = if self.rest.starts_with("/*M!") { 4 } else { 3 };
        self.cut(mark);
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits >= *VERSION_DIGITS.start() {
            self.cut(digits.min(*VERSION_DIGITS.end()));
        }
        self.open_comments += 1;
        self.comments.push(CommentMark::Open(start..self.offset()));
    }

    /// Where reading goes on, in bytes.
    const fn offset(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Bytes of the last token, quotes included; empty at the end of the text.
    pub(crate) const fn span(&self) -> Range<usize> {
        self.start..self.offset()
    }

    /// The next token; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'a>>, Unreadable> {
        self.skip()?;
        self.start = self.offset();
        let Some(first) = self.rest.chars().next() else {
            return if self.open_comments == 0 {
                Ok(None)
            } else {
                Err(Unreadable)
            };
        };
        let token = match first {
            '`' => Token::Name(self.name('`')?),
            '"' if self.ansi_quotes => Token::Name(self.name('"')?),
            '"' | '\'' => Token::Text(self.text(first)?),
            c if is_word(c) => {
                let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
                Token::Word(self.cut(end))
            }
            c => {
                self.cut(c.len_utf8());
                Token::Punct(c)
            }
        };
        Ok(Some(token))
    }

    /// A quoted name; the quote is doubled inside it.
    fn name(&mut self, quote: char) -> Result<Cow<'a, str>, Unreadable> {
        self.cut(1);
        let mut owned: Option<String> = None;
        loop {
            let end = self.rest.find(quote).ok_or(Unreadable)?;
            let part = self.cut(end);
            self.cut(1);
            if self.rest.starts_with(quote) {
                self.cut(1);
                let name = owned.get_or_insert_default();
                name.push_str(part);
                name.push(quote);
                continue;
            }
            return Ok(match owned {
                Some(mut name) => {
                    name.push_str(part);
                    Cow::Owned(name)
                }
                None => Cow::Borrowed(part),
            });
        }
    }

    /// A string literal: the quote is doubled or escaped inside it.
    fn text(&mut self, quote: char) -> Result<&'a str, Unreadable> {
        self.cut(1);
        let bytes = self.rest.as_bytes();
        let (quote, mut at) = (quote as u8, 0);
        loop {
            let byte = *bytes.get(at).ok_or(Unreadable)?;
            let escapes = byte == b'\\' && !self.no_backslash_escapes;
            if escapes || (byte == quote && bytes.get(at + 1) == Some(&quote)) {
                at += 2;
            } else if byte == quote {
                let body = self.cut(at);
                self.cut(1);
                return Ok(body);
            } else {
                at += 1;
            }
        }
    }
}
