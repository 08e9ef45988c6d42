//! Trouble at a MySQL sink that bad_input.rs does not have.
