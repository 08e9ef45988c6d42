//! Errors of the event store.

/// Placeholder until the implementation names its errors.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place is no longer, or not yet, in the store.
    #[error("the store does not hold `{0}`")]
    OutOfRange(String),
}
