//! MySQL and MariaDB sink.

pub mod plan;
pub mod rows;
pub mod target;

mod attempts;
mod backend;
mod catalogue;
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
mod session;
mod sql;
mod writer;

pub use config::{
    CONNECT_TIMEOUT_DEFAULT, MysqlSinkConfig, Password, TlsMode, TlsSettings, WORKER_COUNT_DEFAULT,
    WORKER_COUNT_MAX,
};
pub use connect::ServerInfo;
pub use error::{MysqlSinkError, Result};
pub use preflight::{Check, preflight};
pub use prepared::Prepared;
pub use progress::SCHEMA;
pub use reply::{Problem, Retry, ServerReply};
