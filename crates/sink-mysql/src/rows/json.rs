//! JSON documents as SQL.

use weir_binlog::BinlogError;
use weir_binlog::json::{self, Node, Opaque};

use super::literal::{Fault, binary, escaped, quoted};

/// The type byte of values that JSON has no type for (`JSONB_TYPE_OPAQUE`).
const OPAQUE: u8 = 0x0f;

fn broken(_: BinlogError) -> Fault {
    "it is no JSON document"
}

/// Appends the document as a string literal. `scratch` is empty before and after.
pub(super) fn text(bytes: &[u8], scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), Fault> {
    out.push(b'\'');
    let mut piece = |text: &[u8]| escaped(text, out);
    json::write_text_in_pieces(bytes, scratch, &mut piece).map_err(broken)?;
    out.push(b'\'');
    Ok(())
}

/// Appends the document as a literal, or as an expression if it holds a value that text
/// does not keep. Types that no expression makes (BIT, BLOB beside VARBINARY) stay the
/// text `base64:type…` that the server prints for them.
pub(super) fn document(bytes: &[u8], scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let root = Node::root(bytes).filter(|_| bytes.contains(&OPAQUE));
    match root {
        Some(root) if root.has_opaque().map_err(broken)? => {
            // A JSON column takes no DECIMAL, DATETIME or bytes directly.
            let bare = root.opaque().is_some();
            out.extend_from_slice(if bare { b"JSON_EXTRACT(JSON_ARRAY(" } else { b"" });
            node(&root, scratch, out)?;
            out.extend_from_slice(if bare { b"),'$[0]')" } else { b"" });
            Ok(())
        }
        _ => text(bytes, scratch, out),
    }
}

fn node(value: &Node<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match (value.opaque(), value.elements()) {
        (Some(opaque), _) => return opaque_value(value, opaque, scratch, out),
        (None, Some(elements)) if value.has_opaque().map_err(broken)? => {
            let object = value.is_object();
            out.extend_from_slice(if object { b"JSON_OBJECT(" } else { b"JSON_ARRAY(" });
            for (place, (key, element)) in elements.enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                if object {
                    quoted(key, out);
                    out.push(b',');
                }
                node(&element, scratch, out)?;
            }
            out.push(b')');
        }
        _ => cast(value, "JSON", scratch, out)?,
    }
    Ok(())
}

fn opaque_value(
    value: &Node<'_>,
    opaque: Opaque<'_>,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    match opaque {
        Opaque::Decimal => value.write_text(out).map_err(broken),
        Opaque::Date => cast(value, "DATE", scratch, out),
        Opaque::Time => cast(value, "TIME(6)", scratch, out),
        Opaque::Datetime => cast(value, "DATETIME(6)", scratch, out),
        Opaque::Binary(bytes) => {
            binary(bytes, 0, out);
            Ok(())
        }
        Opaque::Other => cast(value, "JSON", scratch, out),
    }
}

/// Appends `CAST('text' AS type)`; the text of JSON keeps its quotes.
fn cast(value: &Node<'_>, to: &str, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), Fault> {
    scratch.clear();
    value.write_text(scratch).map_err(broken)?;
    let bare = scratch
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""))
        .filter(|_| to != "JSON");
    out.extend_from_slice(b"CAST(");
    quoted(bare.unwrap_or(scratch), out);
    out.extend_from_slice(b" AS ");
    out.extend_from_slice(to.as_bytes());
    out.push(b')');
    scratch.clear();
    Ok(())
}
