//! Private database servers and a broker on loopback, for tests, recordings and benchmarks.
//!
//! A release is unpacked from Debian packages into a cache folder once and runs through its own loader, so the root
//! file system is never touched. Data folders are copies of a template that is initialised once per release.

mod apt;
mod cache;
mod install;
mod kafka;
mod server;

pub use apt::install as apt_install;
pub use cache::{cache_dir, copy_folder, free_port, is_root, target_dir, workspace_root};
pub use install::{Install, Kind};
pub use kafka::{FirstNode, Kafka, KafkaOptions, kafka_tool};
pub use server::{ROOT_PASSWORD, Server};
