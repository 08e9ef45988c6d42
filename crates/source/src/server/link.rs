//! One connection that brings events, and what its loss means.

use std::time::{Duration, Instant};

use weir_types::{Classified, ErrorClass, GtidSet};
use weir_wire::WireError;

use super::alias::Listed;
use super::facts::Facts;
use super::place::Place;
use super::plan::{Here, plan};
use super::refusal::{Refusal, sort};
use super::session::Session;
use super::stream::EventStream;
use super::until::EndOfLog;
use super::{Interrupt, ServerOptions};
use crate::error::{Result, SourceError};

/// How long another server may lack what was read, before it counts as one that never
/// had it.
pub(crate) const BEHIND_MAX: Duration = Duration::from_secs(60);
/// A second replica with our id that connects within this time is no remnant of ours.
const CLASH_WINDOW: Duration = Duration::from_secs(60);
/// How long the server may list another replica's connection that has ended without its
/// notice.
const LISTED_MAX: Duration = Duration::from_secs(10);
/// MariaDB's ER_SLAVE_SAME_ID; MySQL says it with 1236.
const SAME_ID_CODE: u16 = 4052;
/// How often the list is looked at.
const LISTED_POLL: Duration = Duration::from_millis(250);

/// A running dump.
pub(crate) struct Link {
    pub(crate) stream: EventStream,
    /// End of the binlog when it began.
    pub(crate) end: EndOfLog,
    /// The server's clock minus ours, milliseconds.
    pub(crate) clock_ahead_ms: i64,
    /// There was nothing to read behind the place.
    pub(crate) at_end: bool,
    /// Nothing has come yet.
    pub(crate) is_silent: bool,
}

/// Connects and asks for what comes behind a place. `is_first`: no connection of this
/// process was there before. `patience`: how long the first event may take.
///
/// # Errors
/// The connection's; what `Facts::check` and `plan` refuse; `ServerIdInUse`.
pub(crate) fn connect(
    options: &ServerOptions,
    interrupt: &Interrupt,
    here: &Here<'_>,
    is_first: bool,
    patience: Duration,
) -> Result<Link> {
    let mut session = Session::open(&options.endpoint)?;
    interrupt.watch(session.closer()?);
    let facts = session.facts()?;
    facts.check(options.server_id)?;
    let dump = plan(here, &facts)?;
    if is_first {
        check_listed(&mut session, &facts, options, interrupt)?;
    }
    session.register(options, facts.flavor)?;
    let stream = session.dump(options, &facts, &dump, patience)?;
    Ok(Link {
        stream,
        clock_ahead_ms: facts.clock_ahead_ms,
        at_end: *here.identity == facts.identity && *here.place == facts.end,
        is_silent: true,
        end: EndOfLog {
            identity: facts.identity,
            place: facts.end,
            executed: facts.executed,
        },
    })
}

/// Two replicas with one id end each other's connections for ever. Another one that is
/// there first is left alone. Our own from before a crash, or from a process that hangs,
/// may be listed: the server ends it when we ask for the binlog.
fn check_listed(
    session: &mut Session,
    facts: &Facts,
    options: &ServerOptions,
    interrupt: &Interrupt,
) -> Result<()> {
    let begun = Instant::now();
    // Where the list is not shown, the server's own word at a second connection tells.
    loop {
        match session.listed(facts, options)? {
            Listed::Free | Listed::Hidden => return Ok(()),
            Listed::Own => {
                tracing::warn!(
                    server_id = options.server_id,
                    "the server still has a connection of this changefeed, which is taken over"
                );
                return Ok(());
            }
            Listed::Other => {}
        }
        if begun.elapsed() > LISTED_MAX || interrupt.is_stopped() {
            return Err(SourceError::ServerIdInUse {
                server_id: options.server_id,
            });
        }
        interrupt.sleep(LISTED_POLL);
    }
}

/// Connections that another replica with our id ended.
#[derive(Debug, Default)]
pub(crate) struct Clashes {
    last: Option<Instant>,
}

impl Clashes {
    /// Counts one; whether there was another one shortly before.
    pub(crate) fn is_repeated(&mut self, now: Instant) -> bool {
        let before = self.last.replace(now);
        before.is_some_and(|before| now.saturating_duration_since(before) < CLASH_WINDOW)
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Lost {
    /// A further attempt may succeed; with the reason's name for metrics.
    Transient(&'static str, SourceError),
    /// Another replica with our id took our place.
    Kicked(SourceError),
    /// Another server is there that lacks these transactions.
    Behind(String),
    /// No further attempt can succeed.
    Definite(SourceError),
}

impl Lost {
    /// Sorts an error. `place`: where the stream was, `seen`: what was read.
    pub(crate) fn sort(error: SourceError, place: &Place, seen: &GtidSet) -> Self {
        match error {
            SourceError::Wire(WireError::DumpRefused { ref message, .. }) => match sort(message, place, seen)
            {
                Refusal::Kicked => Self::Kicked(error),
                Refusal::Definite(definite) => Self::Definite(definite),
            },
            SourceError::Wire(WireError::Server { error: ref told, .. }) if told.code == SAME_ID_CODE => {
                Self::Kicked(error)
            }
            SourceError::Behind { missing } => Self::Behind(missing),
            error if error.class() == ErrorClass::Transient => Self::Transient(reason(&error), error),
            error => Self::Definite(error),
        }
    }

    /// Name of the reason, for metrics.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Transient(reason, _) => reason,
            Self::Kicked(_) => "server_id",
            Self::Behind(_) => "behind",
            Self::Definite(_) => "definite",
        }
    }

    /// What is worth a line in the log.
    ///
    /// # Errors
    /// What no further attempt can repair.
    pub(crate) fn into_report(self) -> Result<SourceError> {
        match self {
            Self::Transient(_, error) | Self::Kicked(error) => Ok(error),
            Self::Behind(missing) => Ok(SourceError::Behind { missing }),
            Self::Definite(error) => Err(error),
        }
    }
}

fn reason(error: &SourceError) -> &'static str {
    let SourceError::Wire(error) = error else {
        return "other";
    };
    match error {
        WireError::ReadTimeout { .. } => "timeout",
        WireError::Disconnected { .. } => "disconnected",
        WireError::Unreachable { .. } => "unreachable",
        WireError::Busy { .. } => "busy",
        _ => "server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(error: SourceError) -> Lost {
        Lost::sort(error, &Place::new("b.1", 4), &GtidSet::default())
    }

    fn refused(message: &str) -> SourceError {
        SourceError::Wire(WireError::DumpRefused {
            address: "h:1".to_owned(),
            message: message.to_owned(),
        })
    }

    #[test]
    fn a_loss_is_sorted_by_what_can_be_done() {
        let gone = SourceError::Wire(WireError::Disconnected {
            address: "h:1".to_owned(),
            source: None,
        });
        assert_eq!(sorted(gone).reason(), "disconnected");
        let half_open = SourceError::Wire(WireError::ReadTimeout {
            address: "h:1".to_owned(),
            waiting_for: "the next event",
            waited: Duration::from_secs(5),
        });
        assert_eq!(sorted(half_open).reason(), "timeout");
        assert!(matches!(
            sorted(refused(
                "Could not find first log file name in binary log index file"
            )),
            Lost::Definite(SourceError::Purged { .. })
        ));
        assert!(matches!(
            sorted(refused(
                "A slave with the same server_uuid/server_id as this slave has connected"
            )),
            Lost::Kicked(_)
        ));
        let behind = SourceError::Behind {
            missing: "0-1-2".to_owned(),
        };
        assert!(matches!(
            sorted(behind).into_report(),
            Ok(SourceError::Behind { .. })
        ));
        assert!(sorted(SourceError::OtherSource).into_report().is_err());
    }

    #[test]
    fn only_repeated_clashes_count() {
        let mut clashes = Clashes::default();
        let now = Instant::now();
        assert!(!clashes.is_repeated(now));
        assert!(!clashes.is_repeated(now + CLASH_WINDOW));
        assert!(clashes.is_repeated(now + CLASH_WINDOW + Duration::from_secs(1)));
    }
}
