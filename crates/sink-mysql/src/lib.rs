//! MySQL and MariaDB sink.

pub mod target;
