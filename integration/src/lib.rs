//! Shared helpers of the end-to-end tests: the built command, recordings, output, made-up binlogs.
//!
//! The tests know the command by its interface only (`docs/`): arguments, exit status, files.

pub mod binlog;
pub mod command;
pub mod output;
pub mod recording;

pub use command::{Changefeed, Finished, Running, weir};
pub use output::Output;
pub use recording::Recording;
