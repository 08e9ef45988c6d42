//! Per-span order, DDL barriers, checkpoint.
