//! MySQL and MariaDB binlog decoder: framing, events, table maps, rows, values; zero-copy
//! and panic-free on any bytes.
//!
//! Layers, each usable without the one above:
//!
//! * [`BinlogFile`] cuts a file into events ([`RawEvent`]); [`Decoder`] does the same for
//!   events that come over the replication protocol. Both check the checksum.
//! * [`Event::decode`] reads a body; texts and row bodies stay borrowed.
//! * [`PayloadReader`] gives the inner events of a compressed MySQL transaction as a
//!   stream; [`inflate_rows`] and [`inflate_query`] do MariaDB's compressed events.
//! * [`TableMapCache`] turns table maps into `Arc<TableVersion>`; a repeated one costs a
//!   comparison. It needs `binlog_row_metadata=FULL`.
//! * [`RowPlan`] is compiled once per table version and reads row bodies, of the binlog or
//!   of a `weir_types::Block`, into reused [`RowImages`].
//!
//! Not supported, and an error that says so: `COMPRESSED` columns of MariaDB, JSON
//! differences (`binlog_row_value_options=PARTIAL_JSON`; a value that did not change is
//! read), encrypted files, releases before
//! MySQL 5.6. MariaDB's temporal columns with fractions under
//! `mysql56_temporal_format=OFF` cannot be read from a binlog alone: the table map does
//! not say how many digits there are, and such rows come out of step.
//!
//! ```
//! use std::sync::Arc;
//! use weir_binlog::{BinlogFile, Event, FileOptions, PayloadReader, RowImages, RowPlan, Rows, Step, TableMapCache};
//! use weir_types::{Flavor, TableVersion, Value};
//!
//! /// Visits every value of a file; a real caller keeps one plan per table version.
//! fn visit(rows: &Rows<'_>, version: &TableVersion, sum: &mut usize) -> Result<(), weir_binlog::BinlogError> {
//!     let plan = RowPlan::new(version)?;
//!     let mut images = RowImages::default();
//!     let mut reader = plan.rows(rows.kind, rows.block_flags(), rows.body)?;
//!     while reader.next(&mut images)? {
//!         *sum += images.before.iter().chain(&images.after).filter(|v| **v != Value::Null).count();
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), weir_binlog::BinlogError> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mysql97-compressed.bin");
//! let options = FileOptions::default();
//! let mut file = BinlogFile::open(path, options)?;
//! let mut tables = TableMapCache::new(Flavor::Mysql);
//! let mut current: Option<Arc<TableVersion>> = None;
//! let mut values = 0;
//! while let Step::Event(event) = file.next()? {
//!     match event.decode()? {
//!         Event::TransactionPayload(payload) => {
//!             let mut inner = PayloadReader::new(&payload, options.max_event_bytes)?;
//!             while let Some(raw) = inner.next()? {
//!                 match raw.decode(event.format)? {
//!                     Event::TableMap(map) => current = Some(tables.get(&map)?),
//!                     Event::Rows(rows) => {
//!                         if let Some(version) = &current {
//!                             visit(&rows, version, &mut values)?;
//!                         }
//!                     }
//!                     _ => {}
//!                 }
//!             }
//!         }
//!         Event::Gtid(gtid) => drop(gtid.gtid()),
//!         _ => {} // a source matches every kind
//!     }
//! }
//! assert!(values > 100);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::unreachable
    )
)]

pub mod cache;
pub mod compress;
mod cursor;
pub mod decoder;
pub mod error;
pub mod event;
pub mod event_type;
pub mod file;
pub mod format;
pub mod gtid;
pub mod header;
pub mod index;
pub mod json;
mod json_node;
mod json_scalar;
pub mod query;
pub mod raw;
pub mod rows;
pub mod table_map;
mod version;
pub mod xa;

pub use cache::TableMapCache;
pub use compress::{PayloadCompression, PayloadReader, TransactionPayload, inflate_query, inflate_rows};
pub use decoder::Decoder;
pub use error::BinlogError;
pub use event::{Event, Rows};
pub use event_type::EventType;
pub use file::{BinlogFile, FileEvent, FileOptions, Step};
pub use format::{ChecksumAlgorithm, FormatDescription};
pub use gtid::{GtidEvent, MariadbGtid};
pub use header::EventHeader;
pub use index::FileIndex;
pub use query::Query;
pub use raw::{EventBytes, RawEvent};
pub use rows::{ColumnSet, RowImages, RowPlan, RowReader, write_decimal};
pub use table_map::TableMap;
pub use version::BareVersion;
