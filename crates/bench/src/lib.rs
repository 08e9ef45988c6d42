//! Benchmarks that run both sides.
