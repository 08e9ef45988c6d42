//! The only crate that owns actix conventions: exit reports, placement, guarded sends.
