//! A writer of binlog files in the format of MySQL, for shapes too large to check in.
//!
//! The start of the file is a recorded server's; the events follow the MySQL source documentation, "Replication
//! protocol: binlog events" (`page_protocol_replication_binlog_event`). A table has the columns `id BIGINT` (primary
//! key) and `v LONGBLOB`.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::recording::Recording;

const QUERY: u8 = 2;
const STOP: u8 = 3;
const XID: u8 = 16;
const TABLE_MAP: u8 = 19;
const WRITE_ROWS_V2: u8 = 30;
const GTID: u8 = 33;
const HEADER_BYTES: usize = 19;
const CHECKSUM_BYTES: usize = 4;
const SERVER_ID: u32 = 4201;
/// 2026-11-30 in seconds since the Unix epoch.
const TIMESTAMP: u32 = 1_796_000_000;
const STATEMENT_END: u16 = 1;
/// Column types of the two columns, and the length bytes of the second one.
const COLUMNS: [u8; 2] = [8, 252];
const BLOB_LENGTH_BYTES: u8 = 4;
const BINARY_COLLATION: u8 = 63;

/// Writes one file.
pub struct BinlogWriter {
    out: BufWriter<File>,
    position: u64,
    transactions: u64,
    body: Vec<u8>,
}

impl BinlogWriter {
    /// Begins a file with the format description and the empty set of earlier transactions.
    ///
    /// # Errors
    /// When the file cannot be written, or the recording that the start is taken from is not there.
    pub fn create(path: &Path) -> Result<Self> {
        let recorded = std::fs::read(Recording::open("quickstart")?.folder.join("binlog.000001"))?;
        let mut end = 4;
        for _ in 0..2 {
            let length = recorded
                .get(end + 9..end + 13)
                .context("the recording is too short")?;
            end += u32::from_le_bytes(length.try_into()?) as usize;
        }
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        out.write_all(recorded.get(..end).context("the recording is too short")?)?;
        Ok(Self {
            out,
            position: end as u64,
            transactions: 0,
            body: Vec::new(),
        })
    }

    /// Leaves a hole up to an offset, so that the events behind it lie there without the file being that large.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn skip_to(&mut self, offset: u64) -> Result<()> {
        self.out.seek(SeekFrom::Start(offset))?;
        self.position = offset;
        Ok(())
    }

    fn event(&mut self, kind: u8) -> Result<()> {
        let length = HEADER_BYTES + self.body.len() + CHECKSUM_BYTES;
        self.position += length as u64;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(TIMESTAMP.to_le_bytes());
        header.push(kind);
        header.extend(SERVER_ID.to_le_bytes());
        header.extend(u32::try_from(length)?.to_le_bytes());
        // The field is 32 bits wide and wraps.
        header.extend(((self.position & 0xffff_ffff) as u32).to_le_bytes());
        header.extend(0_u16.to_le_bytes());
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&header);
        checksum.update(&self.body);
        self.out.write_all(&header)?;
        self.out.write_all(&self.body)?;
        self.out.write_all(&checksum.finalize().to_le_bytes())?;
        self.body.clear();
        Ok(())
    }

    /// GTID and BEGIN.
    ///
    /// # Errors
    /// When writing fails.
    pub fn begin(&mut self) -> Result<()> {
        self.transactions += 1;
        self.body.push(0);
        self.body.extend([0x42; 16]);
        self.body.extend(self.transactions.to_le_bytes());
        self.body.push(2);
        self.body.extend((self.transactions - 1).to_le_bytes());
        self.body.extend(self.transactions.to_le_bytes());
        let micros = u64::from(TIMESTAMP) * 1_000_000 + self.transactions;
        self.body.extend(&micros.to_le_bytes()[..7]);
        self.event(GTID)?;
        self.body.extend(7_u32.to_le_bytes());
        self.body.extend(0_u32.to_le_bytes());
        self.body.push(0);
        self.body.extend(0_u16.to_le_bytes());
        self.body.extend(0_u16.to_le_bytes());
        self.body.extend(b"\0BEGIN");
        self.event(QUERY)
    }

    /// Inserted rows of `schema.table`: a table map, then one row event.
    ///
    /// # Errors
    /// When writing fails.
    pub fn insert<'a>(
        &mut self,
        table_id: u32,
        schema: &str,
        table: &str,
        rows: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> Result<()> {
        self.table_map(table_id, schema, table)?;
        self.body.extend(&u64::from(table_id).to_le_bytes()[..6]);
        self.body.extend(STATEMENT_END.to_le_bytes());
        self.body.extend(2_u16.to_le_bytes());
        self.body.extend([2, 0b11]);
        for (id, value) in rows {
            self.body.push(0);
            self.body.extend(id.to_le_bytes());
            self.body.extend(u32::try_from(value.len())?.to_le_bytes());
            self.body.extend(value);
        }
        self.event(WRITE_ROWS_V2)
    }

    fn table_map(&mut self, table_id: u32, schema: &str, table: &str) -> Result<()> {
        self.body.extend(&u64::from(table_id).to_le_bytes()[..6]);
        self.body.extend(1_u16.to_le_bytes());
        for name in [schema, table] {
            self.body.push(u8::try_from(name.len())?);
            self.body.extend(name.as_bytes());
            self.body.push(0);
        }
        self.body.push(2);
        self.body.extend(COLUMNS);
        self.body.extend([1, BLOB_LENGTH_BYTES]);
        // Nullable: the second one.
        self.body.push(0b10);
        // Signedness, default collation, names, primary key.
        self.body.extend([
            1,
            1,
            0,
            2,
            1,
            BINARY_COLLATION,
            4,
            5,
            2,
            b'i',
            b'd',
            1,
            b'v',
            8,
            1,
            0,
        ]);
        self.event(TABLE_MAP)
    }

    /// XID: the transaction is committed.
    ///
    /// # Errors
    /// When writing fails.
    pub fn commit(&mut self) -> Result<()> {
        self.body.extend(self.transactions.to_le_bytes());
        self.event(XID)
    }

    /// STOP: a clean end.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<()> {
        self.event(STOP)?;
        self.out.flush()?;
        Ok(())
    }
}
