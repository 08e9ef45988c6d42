//! From text to a changefeed, with errors that name the place.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::changefeed::Changefeed;
use crate::error::{ConfigError, Place, Result};
use crate::keys::{KEYS, OPEN_TABLE, REQUIRED, UNSUPPORTED, is_open, is_table, nearest};
use crate::librdkafka::is_secret;
use crate::uri::mask_secrets;

/// Longest part of a value that an error shows, characters.
const VALUE_SHOWN_MAX: usize = 80;

/// A key or value of the file.
struct Node {
    /// Dotted path, array elements with their number.
    path: String,
    /// The same without numbers.
    plain: String,
    /// Bytes of the key; those of the value for an array element.
    key: Range<usize>,
    /// Bytes of the value.
    value: Range<usize>,
    /// Whether the value is a table or an array of tables.
    container: bool,
}

/// Lists everything in the file, parents before their children.
fn walk(table: &DeTable<'_>, path: &str, plain: &str, out: &mut Vec<Node>) {
    for (key, value) in table.iter() {
        let join = |head: &str| match head {
            "" => key.get_ref().to_string(),
            head => format!("{head}.{}", key.get_ref()),
        };
        walk_value(value, join(path), join(plain), key.span(), out);
    }
}

fn walk_value(
    value: &Spanned<DeValue<'_>>,
    path: String,
    plain: String,
    key: Range<usize>,
    out: &mut Vec<Node>,
) {
    let inner = value.get_ref();
    out.push(Node {
        path: path.clone(),
        plain: plain.clone(),
        key,
        value: value.span(),
        container: inner.is_table()
            || inner
                .as_array()
                .is_some_and(|a| a.iter().any(|v| v.get_ref().is_table())),
    });
    match inner {
        DeValue::Table(table) => walk(table, &path, &plain, out),
        DeValue::Array(array) => {
            for (number, element) in array.iter().enumerate() {
                let span = element.span();
                walk_value(element, format!("{path}[{number}]"), plain.clone(), span, out);
            }
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => {}
    }
}

/// Line and column of a byte offset.
fn place(text: &str, offset: usize) -> Place {
    let head = text.get(..offset).unwrap_or(text);
    let line_start = head.rfind('\n').map_or(0, |at| at + 1);
    Place {
        line: head.matches('\n').count() + 1,
        column: head.get(line_start..).map_or(0, |line| line.chars().count()) + 1,
    }
}

/// The value as written, short and without secrets.
fn shown(text: &str, node: &Node) -> String {
    let hidden = match node.plain.strip_prefix(OPEN_TABLE) {
        Some(property) => property.is_empty() || is_secret(property),
        None => node.plain.contains("password") || node.plain.contains("secret"),
    };
    if hidden {
        return "`***`".to_owned();
    }
    let raw = text.get(node.value.clone()).unwrap_or("");
    let first_line = raw.lines().next().unwrap_or("");
    let mut short: String = mask_secrets(first_line).chars().take(VALUE_SHOWN_MAX).collect();
    if short.len() < raw.len() && mask_secrets(raw) != short {
        short.push('…');
    }
    format!("`{short}`")
}

fn value_error(text: &str, nodes: &[Node], path: &str, reason: String) -> ConfigError {
    // The value itself, or the nearest table around it that the file has.
    let mut wanted = path;
    loop {
        if let Some(node) = nodes.iter().find(|node| node.path == wanted) {
            return ConfigError::Value {
                key: path.to_owned(),
                value: if wanted == path && !node.container {
                    shown(text, node)
                } else if node.container {
                    "not usable".to_owned()
                } else {
                    "left out".to_owned()
                },
                place: place(text, node.value.start),
                reason,
            };
        }
        match wanted.rsplit_once(['.', '[']) {
            Some((parent, _)) => wanted = parent,
            None => {
                return ConfigError::Value {
                    key: path.to_owned(),
                    value: "left at its default".to_owned(),
                    place: Place { line: 1, column: 1 },
                    reason,
                };
            }
        }
    }
}

/// The innermost node around an error of the deserializer.
fn node_at<'a>(nodes: &'a [Node], span: &Range<usize>) -> Option<&'a Node> {
    nodes
        .iter()
        .filter(|node| node.value.start <= span.start && span.end <= node.value.end)
        .min_by_key(|node| node.value.len())
}

/// One line of the parser's message.
fn reason_of(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(", ")
}

fn check_keys(text: &str, nodes: &[Node]) -> Result<()> {
    for node in nodes {
        if UNSUPPORTED.contains(&node.plain.as_str()) {
            return Err(ConfigError::Unsupported {
                what: node.path.clone(),
                place: place(text, node.key.start),
            });
        }
        if !KEYS.contains(&node.plain.as_str()) && !is_table(&node.plain) && !is_open(&node.plain) {
            return Err(ConfigError::UnknownKey {
                key: node.path.clone(),
                place: place(text, node.key.start),
                nearest: nearest(&node.plain),
            });
        }
    }
    for key in REQUIRED {
        if !nodes.iter().any(|node| node.plain == key) {
            return Err(ConfigError::MissingKey { key: key.to_owned() });
        }
    }
    for route in nodes
        .iter()
        .filter(|n| n.plain == "route" && n.path.ends_with(']'))
    {
        let key = format!("{}.match", route.path);
        if !nodes.iter().any(|node| node.path == key) {
            return Err(ConfigError::MissingKey { key });
        }
    }
    Ok(())
}

impl Changefeed {
    /// Reads and checks the text of a changefeed file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str) -> Result<Self> {
        let syntax = |error: toml::de::Error| ConfigError::Syntax {
            place: place(text, error.span().map_or(0, |span| span.start)),
            reason: reason_of(&error),
        };
        let document = DeTable::parse(text).map_err(syntax)?;
        let mut nodes = Vec::new();
        walk(document.get_ref(), "", "", &mut nodes);
        check_keys(text, &nodes)?;
        let mut changefeed: Self = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            match node_at(&nodes, &span) {
                Some(node) => value_error(text, &nodes, &node.path, reason_of(&error)),
                None => syntax(error),
            }
        })?;
        changefeed.resolve();
        changefeed
            .validate()
            .map_err(|(path, reason)| value_error(text, &nodes, &path, reason))?;
        Ok(changefeed)
    }

    /// Reads and checks a changefeed file.
    ///
    /// # Errors
    /// The file cannot be read, or its text is not a changefeed.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text)
    }
}
