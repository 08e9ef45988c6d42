//! `weir binlog`: looks into binlog files.

pub(crate) mod cat;
mod describe;
pub(crate) mod files;
pub(crate) mod stat;
mod tables;
pub(crate) mod walk;
