//! Members of ENUM and SET out of the text of a column type.

/// Members of `enum('a','b')` or `set(…)`; none if the text is no such type. Servers write
/// a quote twice, and backslash, line feed, carriage return and zero byte behind a
/// backslash.
pub(super) fn members(column_type: &str) -> Option<Vec<String>> {
    let open = column_type.find('(')?;
    let mut rest = column_type.get(open + 1..)?;
    let mut out = Vec::new();
    loop {
        let (member, behind) = literal(rest)?;
        out.push(member);
        rest = match behind.strip_prefix(',') {
            Some(more) => more,
            // What follows the bracket is of no concern (MariaDB adds comments).
            None => return behind.starts_with(')').then_some(out),
        };
    }
}

/// A literal at the beginning of the text, and what stands behind it.
fn literal(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('\'')?;
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => {
                let behind = text.get(at + 1..)?;
                if !behind.starts_with('\'') {
                    return Some((out, behind));
                }
                chars.next();
                out.push('\'');
            }
            '\\' => out.push(match chars.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                '0' => '\0',
                other => other,
            }),
            other => out.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_the_servers_write_them() {
        let read = |text| members(text).unwrap_or_default();
        assert_eq!(
            read("enum('a','b''c','d\\\\e','f\\nz','ü','','x,y)')"),
            ["a", "b'c", "d\\e", "f\nz", "ü", "", "x,y)"]
        );
        assert_eq!(read("set('x') /* mariadb-5.3 */"), ["x"]);
        for broken in ["enum", "enum(", "enum('a'", "enum('a", "enum('a',)", "enum('a\\"] {
            assert_eq!(members(broken), None, "{broken}");
        }
    }
}
