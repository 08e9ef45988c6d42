//! Epoch and sequence checks, byte ledger of one changefeed.
