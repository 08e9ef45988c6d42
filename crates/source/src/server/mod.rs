//! The source that reads from a server, as one of its replicas.
//!
//! * [`resolve_start`]: where a new store begins, as GTID set and file:offset.
//! * [`ServerReader`]: the stream of events into the assembler, over as many connections
//!   as it takes.
//! * [`server_preflight`]: what `weir check` asks of the server.
//!
//! The place to go on from is a GTID set (MySQL with `gtid_mode=ON`, MariaDB always), else
//! file and offset, which count only at the server that they were read from. A
//! connection that ends inside a transaction is followed by one that begins before it.

mod alias;
mod backoff;
mod catalogue;
mod facts;
mod intake;
mod interrupt;
mod link;
mod place;
mod plan;
mod preflight;
mod reader;
mod refusal;
#[cfg(test)]
mod replay_tests;
mod scan;
mod session;
mod start;
mod stream;
mod until;

use std::time::Duration;

use weir_types::SourcePosition;
use weir_wire::Endpoint;

pub use backoff::{PATIENCE_MAX, RETRY_MAX, RETRY_MIN};
pub use interrupt::Interrupt;
pub use preflight::server_preflight;
pub use reader::ServerReader;
pub use session::{ServerIdentity, identify};
pub use start::resolve_start;

pub use crate::files::{StartAt, StopAt};

/// How often an idle server shows that it is there.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// Shortest silence after which a connection counts as half-open.
pub const SILENCE_MIN: Duration = Duration::from_secs(5);
/// Heartbeats that may be missing.
pub const HEARTBEATS_MISSING: u32 = 3;

/// Which server, and how it is read.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address and account. `connect_timeout` is also how long the first connection is
    /// tried for.
    pub endpoint: Endpoint,
    /// Id of the changefeed: by it we know our own connection from before a crash.
    pub changefeed: String,
    /// Our id among the replicas of the server.
    pub server_id: u32,
    /// Where to start while there is no saved position.
    pub start: StartAt,
    /// Where to end; none follows the server for ever.
    pub stop: Option<StopAt>,
    /// Saved position of the store.
    pub resume: Option<SourcePosition>,
    /// Largest event, bytes.
    pub event_bytes_max: u64,
    /// How often an idle server is to send a heartbeat.
    pub heartbeat: Duration,
}

impl ServerOptions {
    /// Silence after which the connection counts as half-open.
    pub(crate) fn silence(&self) -> Duration {
        (self.heartbeat * HEARTBEATS_MISSING).max(SILENCE_MIN)
    }
}
