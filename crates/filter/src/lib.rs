//! Which tables are replicated and how their names are routed.
//!
//! Rules and routes are compiled once; the caller caches the answer per table, so that
//! nothing here is on the path of a row.

mod error;
mod filter;
mod pattern;
mod router;

pub use error::{FilterError, Result};
pub use filter::{SYSTEM_SCHEMAS, TableFilter, is_system_schema, is_wanted};
pub use pattern::NameCase;
pub use router::{Collision, NameTemplate, RouteRule, Router};

#[cfg(test)]
mod tests;
