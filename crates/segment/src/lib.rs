//! Append-only segment files: framed, checksummed, compressed blocks with group commit and recovery.
