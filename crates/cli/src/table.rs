//! Numbers and tables as text.

use std::time::Duration;

/// A number with thin groups of three digits: `1 234 567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A rate, rounded down; 0 for no time.
pub(crate) fn per_second(count: u64, elapsed: Duration) -> u64 {
    let micros = elapsed.as_micros().max(1);
    u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

/// Lines of cells, padded to the widest of each column; columns named in `right` are
/// flush right. No white space at line ends.
pub(crate) fn render(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            let padding = " ".repeat(width - cell.chars().count());
            if right.contains(&column) {
                line.push_str(&padding);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&padding);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let texts: Vec<String> = [0, 12, 123, 1234, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(texts, ["0", "12", "123", "1 234", "1 234 567"]);
        assert_eq!(per_second(10, Duration::from_millis(500)), 20);
        assert!(per_second(1, Duration::ZERO) > 0);
    }

    #[test]
    fn columns_are_aligned() {
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let text = render(&[row("name", "n"), row("é", "100")], &[1]);
        assert_eq!(text, "name    n\né     100\n");
    }
}
