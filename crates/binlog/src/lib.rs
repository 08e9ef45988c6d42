//! MySQL and MariaDB binlog decoder: framing, events, table maps, rows, values; zero-copy and panic-free.

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
