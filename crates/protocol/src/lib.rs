//! Messages between the stages, one file per hop. Data goes down once, in batches; one
//! small signal comes back per hop. `types` is the only crate of ours that this one
//! knows; the actors on both ends know only these messages.

pub mod changefeed;
pub mod collector;
pub mod dispatcher;
pub mod service;
pub mod sink;
pub mod store;
