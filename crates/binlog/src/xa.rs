//! Identifiers of XA transactions.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_types::Xid;

use crate::cursor::Cursor;

/// Longest part of an XA identifier (X/Open XA: 64 bytes each).
const PART_BYTES_MAX: usize = 64;

/// XA_PREPARE_LOG_EVENT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XaPrepare {
    /// Committed at once (`XA COMMIT … ONE PHASE`); otherwise prepared.
    pub one_phase: bool,
    /// The transaction.
    pub xid: Xid,
}

impl XaPrepare {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let mut c = Cursor::new(body);
        let one_phase = c.u8()? != 0;
        let format = c.u32()?;
        let (global, branch) = (c.u32()? as usize, c.u32()? as usize);
        if global > PART_BYTES_MAX || branch > PART_BYTES_MAX {
            return None;
        }
        let (global, branch) = (c.take(global)?, c.take(branch)?);
        Some(Self {
            one_phase,
            xid: xid_text(format, global, branch),
        })
    }
}

/// The text of an XA identifier as both servers write it in XA statements:
/// `X'…',X'…',format`, hexadecimal digits in lower case.
pub fn xid_text(format: u32, global: &[u8], branch: &[u8]) -> Xid {
    let mut text = String::with_capacity(2 * (global.len() + branch.len()) + 18);
    for part in [global, branch] {
        text.push_str("X'");
        for byte in part {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").unwrap_or(());
        }
        text.push_str("',");
    }
    write!(text, "{format}").unwrap_or(());
    Xid(Arc::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_the_servers_do() {
        assert_eq!(&*xid_text(1, b"x1", b"br").0, "X'7831',X'6272',1");
        assert_eq!(&*xid_text(7, b"", b"").0, "X'',X'',7");
    }
}
