//! Durable ordered store of raw changes per table.
