//! Upstream: transaction assembly and the binlog-file source.
