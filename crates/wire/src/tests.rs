//! The client against a server that a test plays.

#![allow(clippy::unwrap_used)]

mod arbitrary;
mod dumps;
mod logins;
mod queries;
mod tls;
