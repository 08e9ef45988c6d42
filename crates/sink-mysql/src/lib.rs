//! MySQL and MariaDB sink.

pub mod plan;
pub mod rows;
pub mod target;
