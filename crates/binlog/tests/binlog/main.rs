//! Tests of the decoder against recorded binlogs of real servers (`tests/data`).

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod files;
mod golden;
mod render;
mod robust;
mod tables;
mod walk;
