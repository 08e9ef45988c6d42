//! Shared helpers of the end-to-end tests: the built command, recordings, output, made-up binlogs, servers with a load.
//!
//! The tests know the command by its interface only (`docs/`): arguments, exit status, files.

pub mod binlog;
pub mod broker;
pub mod certificates;
pub mod client;
pub mod command;
pub mod compare;
pub mod load;
pub mod metrics;
pub mod output;
pub mod pair;
pub mod proxy;
pub mod recording;
pub mod rng;
pub mod servers;
pub mod small_disk;
pub mod topics;

pub use broker::Broker;
pub use certificates::Certificate;
pub use client::Client;
pub use command::{Changefeed, Finished, Running, weir};
pub use load::{Load, Names};
pub use output::Output;
pub use pair::{Pair, caught_up};
pub use proxy::{Fault, Proxy};
pub use recording::Recording;
pub use servers::{End, TestServer, wait_until};
pub use small_disk::SmallDisk;
pub use topics::Topics;
pub use weir_test_servers::Kind;
