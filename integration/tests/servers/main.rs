//! End-to-end tests of the built `weir` command between real servers.
//!
//! The servers are those that the environment names (`cargo xtask services env`), or private ones; tests that kill
//! servers or set them up in their own way always start their own.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod bad_input;
mod compose;
mod crash;
mod crash_in_ddl;
mod end_to_end;
mod harness;
mod kafka;
mod kafka_leader;
mod kafka_settings;
mod kafka_trouble;
mod locked_table;
mod many_tables;
mod memory;
mod minimal_metadata;
mod network;
mod sink_trouble;
mod slow_table;
mod source;
mod there_before;
mod tls;
mod transactions;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests that measure time or load the machine hold it alone; the others share it.
static MACHINE: RwLock<()> = RwLock::new(());

fn shared() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}
