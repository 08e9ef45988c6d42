//! End-to-end tests of the built `weir` command.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod bad_input;
mod corruption;
mod counts;
mod full_disk;
mod inspect;
mod kill;
mod large_files;
mod lost_store;
mod memory;
mod metrics;
mod state;
mod stop;
