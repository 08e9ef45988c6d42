//! Benchmarks that run both sides in one process tree and print a ratio.
//!
//! Each program measures in interleaved pairs: ours, the other, the other, ours, and so on, so that a machine
//! that becomes slower during the run takes both sides with it. The ratio is the median of the pair ratios; the
//! spread is their quartile distance; the noise is the quartile distance of the other side's ratios to itself.

pub mod encode;
pub mod files;
pub mod groups;
pub mod hash;
pub mod oltp;
pub mod pairs;
pub mod process;
pub mod report;

pub use pairs::{Pairs, Side, measure};
pub use report::Report;
