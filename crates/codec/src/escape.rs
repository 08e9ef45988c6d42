//! JSON string escapes (RFC 8259 section 7): the quotation mark, the backslash and the
//! control characters; everything else stays as it is.

use std::io::{self, Write};

/// Bytes put together before they go to the writer.
const CHUNK_BYTES: usize = 1024;
/// Room for the longest escape, `\u00xx`.
const ESCAPE_BYTES: usize = 6;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// For each byte: 0 stays, `u` becomes `\u00xx`, others a two-byte escape.
const ESCAPES: [u8; 256] = {
    let mut table = [0_u8; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

fn unicode_escape(byte: u8) -> [u8; ESCAPE_BYTES] {
    let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
    [b'\\', b'u', b'0', b'0', high, low]
}

/// The same byte at each place of a word.
const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Place of the first byte that has an escape.
///
/// Eight bytes at a time: a subtraction sets the high bit of each byte that is smaller than
/// what is subtracted, and perhaps, by its borrow, of bytes above the first such one; the
/// first one, which alone is asked for, is exact.
fn first_escaped(bytes: &[u8]) -> Option<usize> {
    let high = repeated(0x80);
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let control = word.wrapping_sub(repeated(0x20)) & !word;
        let quote = word ^ repeated(b'"');
        let quote = quote.wrapping_sub(repeated(1)) & !quote;
        let backslash = word ^ repeated(b'\\');
        let backslash = backslash.wrapping_sub(repeated(1)) & !backslash;
        let found = (control | quote | backslash) & high;
        if found != 0 {
            return Some(i * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|&byte| ESCAPES[usize::from(byte)] != 0)?;
    Some(words.len() * 8 + at)
}

/// Writes UTF-8 (or ASCII) bytes with escapes, without quotation marks around.
pub(crate) fn write_utf8<W: Write>(out: &mut W, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while let Some(at) = first_escaped(rest) {
        let (run, tail) = rest.split_at(at);
        out.write_all(run)?;
        if let Some((&byte, behind)) = tail.split_first() {
            match ESCAPES[usize::from(byte)] {
                b'u' => out.write_all(&unicode_escape(byte))?,
                escape => out.write_all(&[b'\\', escape])?,
            }
            rest = behind;
        }
    }
    out.write_all(rest)
}

/// Writes each byte as the character of the same number (ISO-8859-1), with escapes.
pub(crate) fn write_latin1<W: Write>(out: &mut W, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_ascii() {
        return write_utf8(out, bytes);
    }
    let mut stack = [0_u8; CHUNK_BYTES];
    let mut used = 0;
    for &byte in bytes {
        if used + ESCAPE_BYTES > CHUNK_BYTES {
            out.write_all(&stack[..used])?;
            used = 0;
        }
        let mut put = |piece: &[u8]| {
            stack[used..used + piece.len()].copy_from_slice(piece);
            used += piece.len();
        };
        match ESCAPES[usize::from(byte)] {
            0 if byte < 0x80 => put(&[byte]),
            0 => put(&[0xc0 | (byte >> 6), 0x80 | (byte & 0x3f)]),
            b'u' => put(&unicode_escape(byte)),
            escape => put(&[b'\\', escape]),
        }
    }
    out.write_all(&stack[..used])
}

/// Writes a JSON string.
pub(crate) fn write_string<W: Write>(out: &mut W, text: &str) -> io::Result<()> {
    out.write_all(b"\"")?;
    write_utf8(out, text.as_bytes())?;
    out.write_all(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(inner: &[u8]) -> String {
        let mut json = vec![b'"'];
        json.extend_from_slice(inner);
        json.push(b'"');
        serde_json::from_slice(&json).expect("valid JSON")
    }

    #[test]
    fn every_byte_survives_as_latin1() {
        let bytes: Vec<u8> = (0..=255_u8).cycle().take(3 * CHUNK_BYTES + 7).collect();
        let mut out = Vec::new();
        write_latin1(&mut out, &bytes).unwrap();
        let back: Vec<u8> = parsed(&out)
            .chars()
            .map(|c| u8::try_from(u32::from(c)).unwrap())
            .collect();
        assert_eq!(back, bytes);
    }

    #[test]
    fn the_first_byte_with_an_escape_is_found_wherever_it_is() {
        let plain: Vec<u8> = (0..=255)
            .filter(|&byte| ESCAPES[usize::from(byte)] == 0)
            .collect();
        assert_eq!(first_escaped(&plain), None);
        assert_eq!(first_escaped(b""), None);
        for escaped in (0..=255).filter(|&byte| ESCAPES[usize::from(byte)] != 0) {
            for at in 0..20 {
                for filler in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xff] {
                    let mut bytes = [filler; 24];
                    bytes[at] = escaped;
                    // One behind it must not hide it.
                    bytes[at + 2] = b'\\';
                    assert_eq!(first_escaped(&bytes), Some(at), "{escaped} in {filler}");
                }
            }
        }
    }

    #[test]
    fn text_survives() {
        let text: String = (0..0x250_u32)
            .filter_map(char::from_u32)
            .chain("中文😀\u{7f}".chars())
            .collect();
        let mut out = Vec::new();
        write_utf8(&mut out, text.as_bytes()).unwrap();
        assert_eq!(parsed(&out), text);
        assert!(out.iter().all(|&byte| byte >= 0x20));
    }
}
