//! MySQL and MariaDB sink.
//!
//! A [`Prepared`] sink has ended the sessions of an earlier run and read the progress at
//! the target; it becomes a `weir_sink::PreparedSink`. Behind the scheduler:
//!
//! * `writer` gathers the row events of a pull and executes them: keyed tables in groups
//!   on several connections (`rounds`), exact ones with their progress in one transaction
//!   (`execute`). `plan` and `rows` make the statements, without I/O.
//! * `pool`, `session` and `connect`: connections, each with the named lock of its slot,
//!   so that no session of an earlier life writes.
//! * `progress`: the schema `weir` at the target. `ddl`: statements that run once, told
//!   by what their tables look like.
//! * `reply` and `attempts`: what an error of the server means, and trying again. `watch`:
//!   answers that never come.

pub mod plan;
pub mod rows;
pub mod target;

mod attempts;
mod backend;
mod catalogue;
mod client;
mod components;
mod config;
mod connect;
mod ddl;
mod error;
mod execute;
pub mod metrics;
mod pool;
mod preflight;
mod prepared;
mod progress;
mod reply;
mod rounds;
mod session;
mod sql;
mod watch;
mod writer;

pub use config::{CONNECT_TIMEOUT_DEFAULT, MysqlSinkConfig, Run, WORKER_COUNT_DEFAULT, WORKER_COUNT_MAX};
pub use connect::ServerInfo;
pub use error::{MysqlSinkError, Result};
pub use preflight::preflight;
pub use prepared::Prepared;
pub use progress::SCHEMA;
pub use reply::{Problem, Retry, ServerReply};
