//! Encoders of row changes and DDL: canal-json.
//!
//! A [`CanalJson`] holds the options; a [`TableEncoder`] is made once per table version
//! and holds everything of a message that does not change from row to row, so that a
//! row costs copies and conversions, not allocations. Values go straight into the
//! writer in bounded pieces: a large value is never held a second time.

pub mod canal;
pub mod charset;
mod error;
mod escape;
mod single_byte;
mod text;

pub use canal::{CanalJson, CanalOptions, EnumAs, RowCounts, TableEncoder};
pub use error::{CodecError, Result};
pub use text::UtcOffset;
