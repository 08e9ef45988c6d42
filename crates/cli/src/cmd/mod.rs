//! One module per command.

pub(crate) mod binlog;
pub(crate) mod check;
pub(crate) mod quickstart;
pub(crate) mod run;
