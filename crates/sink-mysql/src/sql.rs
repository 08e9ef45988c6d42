//! Names and literals in the sink's own statements.

use weir_types::TableName;

/// Appends a name in backticks.
pub(crate) fn push_name(out: &mut String, name: &str) {
    out.push('`');
    for character in name.chars() {
        if character == '`' {
            out.push('`');
        }
        out.push(character);
    }
    out.push('`');
}

/// A table's qualified name.
pub(crate) fn qualified(table: &TableName) -> String {
    let mut out = String::with_capacity(table.schema.len() + table.table.len() + 5);
    push_name(&mut out, &table.schema);
    out.push('.');
    push_name(&mut out, &table.table);
    out
}

/// Appends text as a literal of a session with `NAMES utf8mb4` and backslash escapes.
pub(crate) fn push_text(out: &mut String, text: &str) {
    out.push('\'');
    for character in text.chars() {
        match character {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            '\0' => out.push_str("\\0"),
            character => out.push(character),
        }
    }
    out.push('\'');
}

/// Text as a literal.
pub(crate) fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_text(&mut out, text);
    out
}

/// Literals of texts, separated by commas.
pub(crate) fn literals<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for text in texts {
        if !out.is_empty() {
            out.push(',');
        }
        push_text(&mut out, text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted() {
        assert_eq!(qualified(&TableName::new("a`b", "c d")), "`a``b`.`c d`");
        assert_eq!(literals(["it's", "a\\b"]), "'it''s','a\\\\b'");
    }
}
