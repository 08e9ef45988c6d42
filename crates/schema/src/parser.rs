//! A cursor over tokens, and names.

use std::ops::Range;

use weir_types::TableName;

use crate::error::SchemaError;
use crate::lexer::{Lexer, Token};
use crate::marks::{Marks, Meaning, NameMark};
use crate::statement::Session;

/// Words of a statement that an error may show.
const WORDS_SHOWN: usize = 3;

pub(crate) type Result<T> = std::result::Result<T, SchemaError>;

/// Reads tokens with one token of look-ahead; clone it to look further.
#[derive(Clone)]
pub(crate) struct Parser<'a> {
    sql: &'a str,
    pub(crate) session: Session<'a>,
    lexer: Lexer<'a>,
    next: Option<Token<'a>>,
    /// Where `next` stands.
    next_span: Range<usize>,
    /// Where the token before `next` ends.
    last_end: usize,
    pub(crate) marks: Marks,
}

/// The first words of a statement, in upper case; nothing that is quoted, and nothing
/// that is a name.
pub(crate) fn first_words(sql: &str, session: &Session<'_>) -> String {
    let mut lexer = Lexer::new(sql, session);
    let mut words = Vec::new();
    while let Ok(Some(Token::Word(word))) = lexer.next() {
        words.push(word.chars().take(16).collect::<String>().to_ascii_uppercase());
        if words.len() == WORDS_SHOWN {
            break;
        }
    }
    words.join(" ")
}

impl<'a> Parser<'a> {
    pub(crate) fn new(sql: &'a str, session: &Session<'a>) -> Result<Self> {
        let mut parser = Self {
            sql,
            session: *session,
            lexer: Lexer::new(sql, session),
            next: None,
            next_span: 0..0,
            last_end: 0,
            marks: Marks::default(),
        };
        parser.advance()?;
        Ok(parser)
    }

    fn words(&self) -> String {
        first_words(self.sql, &self.session)
    }

    pub(crate) fn names_error(&self) -> SchemaError {
        SchemaError::Names { words: self.words() }
    }

    pub(crate) fn unknown_error(&self) -> SchemaError {
        SchemaError::Unknown { words: self.words() }
    }

    pub(crate) fn peek(&self) -> Option<&Token<'a>> {
        self.next.as_ref()
    }

    /// Gives the next token and moves on.
    pub(crate) fn advance(&mut self) -> Result<Option<Token<'a>>> {
        let following = self
            .lexer
            .next()
            .map_err(|_| SchemaError::Text { words: self.words() })?;
        let span = std::mem::replace(&mut self.next_span, self.lexer.span());
        self.last_end = span.end;
        Ok(std::mem::replace(&mut self.next, following))
    }

    pub(crate) fn at(&self, keyword: &str) -> bool {
        self.next.as_ref().is_some_and(|token| token.is(keyword))
    }

    pub(crate) fn at_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.at(keyword))
    }

    pub(crate) fn at_punct(&self, punct: char) -> bool {
        self.next == Some(Token::Punct(punct))
    }

    /// At the end, or at a semicolon.
    pub(crate) fn at_end(&self) -> bool {
        self.next.is_none() || self.at_punct(';')
    }

    /// Moves over the keyword if it is next.
    pub(crate) fn eat(&mut self, keyword: &str) -> Result<bool> {
        let found = self.at(keyword);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(crate) fn eat_any(&mut self, keywords: &[&str]) -> Result<bool> {
        let found = self.at_any(keywords);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(crate) fn eat_punct(&mut self, punct: char) -> Result<bool> {
        let found = self.at_punct(punct);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// `IF EXISTS` or `IF NOT EXISTS`.
    pub(crate) fn eat_if_exists(&mut self) -> Result<()> {
        if self.eat("IF")? {
            self.eat("NOT")?;
            if !self.eat("EXISTS")? {
                return Err(self.names_error());
            }
        }
        Ok(())
    }

    /// One part of a name.
    pub(crate) fn identifier(&mut self) -> Result<String> {
        match self.advance()? {
            Some(Token::Word(word)) => Ok(word.to_owned()),
            Some(Token::Name(name)) if !name.is_empty() => Ok(name.into_owned()),
            _ => Err(self.names_error()),
        }
    }

    /// Where the next token begins, in bytes.
    pub(crate) const fn start(&self) -> usize {
        self.next_span.start
    }

    /// Where the last token that was read ends, in bytes.
    pub(crate) const fn end(&self) -> usize {
        self.last_end
    }

    /// `table`, `schema.table` or `.table`; without schema in the session's.
    pub(crate) fn table(&mut self) -> Result<TableName> {
        self.table_in(self.session.default_schema)
    }

    /// As `table`; without schema in the one that is given.
    pub(crate) fn table_in(&mut self, schema: &str) -> Result<TableName> {
        let start = self.start();
        let (qualified, name) = self.table_parts(schema)?;
        self.marks.names.push(NameMark {
            range: start..self.end(),
            meaning: Meaning::Table {
                name: name.clone(),
                qualified,
            },
        });
        Ok(name)
    }

    fn table_parts(&mut self, schema: &str) -> Result<(bool, TableName)> {
        let leading_dot = self.eat_punct('.')?;
        let first = self.identifier()?;
        if !leading_dot && self.eat_punct('.')? {
            return Ok((true, TableName::new(first, self.identifier()?)));
        }
        if schema.is_empty() {
            return Err(SchemaError::NoSchema { words: self.words() });
        }
        Ok((false, TableName::new(schema, first)))
    }

    /// Name of a schema.
    pub(crate) fn schema(&mut self) -> Result<String> {
        let start = self.start();
        let name = self.identifier()?;
        self.marks.names.push(NameMark {
            range: start..self.end(),
            meaning: Meaning::Schema(name.clone()),
        });
        Ok(name)
    }

    /// Names separated by commas.
    pub(crate) fn tables(&mut self) -> Result<Vec<TableName>> {
        let mut names = vec![self.table()?];
        while self.eat_punct(',')? {
            names.push(self.table()?);
        }
        Ok(names)
    }

    /// Moves to the end, so that an unreadable tail is found.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        self.eat_punct(';')?;
        if self.next.is_some() {
            return Err(self.names_error());
        }
        Ok(())
    }
}
