//! The life of a DDL at the target.
//!
//! 1. The progress of its tables says that it is done: nothing to do.
//! 2. It was begun: what its tables looked like then and what they look like now tell
//!    whether it ran ([`fingerprint`]).
//! 3. Otherwise what they look like is written to `weir.ddl_begun`, and with it that
//!    their rows from before are there: those are not written again by a run that ends
//!    up here, whether the DDL has run or not.
//! 4. It runs, in the session of the source ([`settings`]).
//! 5. The progress of its tables is set and the row in `ddl_begun` removed, in one
//!    transaction.
//!
//! Wherever this ends early, the next attempt begins with 1; the session of the attempt
//! before has ended then, since both hold the same named lock. A DDL that the target
//! refuses for good is not begun any more: it starts from 3 after a repair.

pub(crate) mod fingerprint;
mod plan;
pub(crate) mod settings;

use std::time::Duration;

use mysql_async::Error;
use weir_sink::contract::{DdlDone, WorkerContext};
use weir_types::{DdlEvent, DdlKind, OrderKey};

use self::fingerprint::{Fingerprint, Found};
use self::plan::TargetStep;
use self::settings::Setting;
use crate::attempts::{Attempts, Failure};
use crate::backend::Shared;
use crate::catalogue;
use crate::client::Client;
use crate::connect::ServerInfo;
use crate::error::{MysqlSinkError, Result};
use crate::pool::Link;
use crate::progress;
use crate::reply::{Retry, Verdict, judge};
use crate::session::{self, Slot};

/// Sessions that run DDL at the same time, at most.
pub(crate) const DDL_SLOTS: usize = 8;
/// How often is looked whether a DDL still runs.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Wait for one of the sessions that run DDL.
const SLOT_WAIT: Duration = Duration::from_millis(20);

/// Runs a DDL, unless it has run.
pub(crate) fn run(
    shared: &Shared,
    key: OrderKey,
    event: &DdlEvent,
    worker: &WorkerContext,
) -> Result<DdlDone> {
    let steps = plan::steps(shared, event)?;
    if steps.is_empty() {
        return Ok(DdlDone::default());
    }
    let slot = loop {
        if let Some(slot) = shared.ddl_slot() {
            break slot;
        }
        if !worker.pause(SLOT_WAIT, weir_sink::Blocked::Locked) {
            return Err(MysqlSinkError::Stopping);
        }
    };
    let (number, mut link) = slot;
    let mut ran = false;
    for (at, step) in steps.iter().enumerate() {
        let mut attempts = Attempts::new(step.name());
        ran |= loop {
            let attempt = Attempt {
                shared,
                event,
                key,
                at,
                step,
            };
            match shared.block_on(attempt.run(number, &mut link)) {
                Ok(ran) => break ran,
                Err(failure) => attempts.after(failure, shared, worker)?,
            }
        };
        attempts.succeeded(shared);
    }
    if !ran {
        return Ok(DdlDone::default());
    }
    worker.count_ddl();
    shared.counters.add_ddl();
    for step in &steps {
        shared.forget(step.tables().map(|place| &place.target));
        shared.know(
            step.makes
                .iter()
                .map(|place| (place.source.clone(), place.target.clone())),
        );
    }
    let mut attempts = Attempts::new("reading foreign keys".to_owned());
    let reform = loop {
        match shared.block_on(reform(shared, number, &mut link)) {
            Ok(reform) => break reform,
            Err(failure) => attempts.after(failure, shared, worker)?,
        }
    };
    Ok(DdlDone { reform })
}

/// The session's connection, opened if there is none. What took a connection away may
/// have taken this one.
async fn opened<'l>(
    shared: &Shared,
    slot: usize,
    link: &'l mut Option<Link>,
) -> std::result::Result<&'l mut Link, Failure> {
    let losses = shared.pool.losses();
    let open = match link.take().filter(|link| link.losses == losses) {
        Some(link) => link,
        None => {
            let mut opened = Link::open(&shared.connector, Slot::Ddl(slot), &shared.metrics).await?;
            opened.losses = losses;
            opened
        }
    };
    Ok(link.insert(open))
}

/// Drops a connection if it was lost: what it is doing is not known.
fn drop_lost<T>(shared: &Shared, link: &mut Option<Link>, result: &std::result::Result<T, Failure>) {
    if result.as_ref().is_err_and(Failure::lost)
        && let Some(lost) = link.take()
    {
        shared.pool.lose(lost.losses);
    }
}

/// Whether the tables that foreign keys tie together are others than the spans have.
async fn reform(shared: &Shared, slot: usize, link: &mut Option<Link>) -> std::result::Result<bool, Failure> {
    let open = opened(shared, slot, link).await?;
    let needed = shared.needs_reform(open).await.map_err(Failure::of);
    drop_lost(shared, link, &needed);
    needed
}

/// One attempt at one step.
struct Attempt<'a> {
    shared: &'a Shared,
    event: &'a DdlEvent,
    key: OrderKey,
    at: usize,
    step: &'a TargetStep,
}

impl Attempt<'_> {
    /// True if it ran now, or in an attempt before that did not get to note it.
    async fn run(&self, slot: usize, link: &mut Option<Link>) -> std::result::Result<bool, Failure> {
        let open = opened(self.shared, slot, link).await?;
        let result = self.on(open).await;
        drop_lost(self.shared, link, &result);
        result
    }

    async fn on(&self, link: &mut Link) -> std::result::Result<bool, Failure> {
        let config = self.shared.connector.config();
        let conn = &mut link.conn;
        session::set_back(conn, &link.info).await?;
        let mut done = true;
        for place in self.step.changed() {
            done &= progress::read_covering(conn, config, &place.target).await? >= self.key;
        }
        if done {
            return Ok(false);
        }
        let names = || self.step.changed().map(|place| &place.target);
        let begun = progress::read_begun(conn, config, self.key, self.at).await?;
        let now = Fingerprint::take(conn, &link.info, names()).await?;
        match begun {
            Some(before) => {
                let before: Fingerprint = serde_json::from_str(&before).map_err(|error| {
                    Failure::Definite(MysqlSinkError::Progress {
                        table: "ddl_begun",
                        reason: error.to_string(),
                    })
                })?;
                if Fingerprint::found(self.step.kind, &before, &now) == Found::Ran {
                    tracing::info!(ddl = self.step.name(), "a DDL that was begun had run");
                    self.finish(conn).await?;
                    return Ok(true);
                }
            }
            None => {
                if self.step.kind == DdlKind::RenameTable && now.has_twins() {
                    return Err(Failure::Definite(self.step.refused_twins()));
                }
                if self.step.numbers_rows {
                    self.needs_primary_key(conn, &link.info).await?;
                }
                let text = serde_json::to_string(&now).map_err(|error| {
                    Failure::Definite(MysqlSinkError::Progress {
                        table: "ddl_begun",
                        reason: error.to_string(),
                    })
                })?;
                let places: Vec<_> = self.step.there_before().cloned().collect();
                progress::begin(conn, config, self.key, self.at, &text, &places).await?;
            }
        }
        self.execute(link).await?;
        session::set_back(&mut link.conn, &link.info).await?;
        self.finish(&mut link.conn).await?;
        Ok(true)
    }

    async fn finish(&self, conn: &mut Client) -> std::result::Result<(), Failure> {
        let places: Vec<_> = self.step.tables().cloned().collect();
        progress::finish(conn, self.shared.connector.config(), self.key, self.at, &places)
            .await
            .map_err(Failure::of)
    }

    /// The server numbers rows in the order of the primary key; without one, in the order
    /// in which it finds them.
    async fn needs_primary_key(
        &self,
        conn: &mut Client,
        info: &ServerInfo,
    ) -> std::result::Result<(), Failure> {
        for place in &self.step.writes {
            let table = catalogue::table(conn, info, &place.target).await?;
            if !table.keys.iter().any(|key| key.primary) {
                return Err(Failure::Definite(self.step.refused_numbering()));
            }
        }
        Ok(())
    }

    /// Runs the statement in its session.
    async fn execute(&self, link: &mut Link) -> std::result::Result<(), Failure> {
        for setting in settings::settings(self.event, &self.step.schema, &link.info) {
            if let Err(failure) = self.set(&mut link.conn, &setting).await {
                self.give_up(link, &failure).await;
                return Err(failure);
            }
        }
        let ran = link.conn.run(LOOK_EVERY, &self.step.sql).await;
        if let Err(error) = ran {
            let failure = match judge(&error) {
                Verdict::Retry(reason) => Failure::Retry(reason, error_text(&error)),
                Verdict::Tls(_) => Failure::Retry(Retry::Lost, error_text(&error)),
                Verdict::Login(reply) | Verdict::Definite(_, reply) => {
                    Failure::Definite(self.step.refused(reply))
                }
            };
            self.give_up(link, &failure).await;
            return Err(failure);
        }
        Ok(())
    }

    /// A DDL that is refused for good is not begun any more.
    async fn give_up(&self, link: &mut Link, failure: &Failure) {
        if matches!(failure, Failure::Definite(_)) {
            if let Err(error) = session::set_back(&mut link.conn, &link.info).await {
                tracing::warn!(%error, "a refused DDL stays noted as begun");
                return;
            }
            let config = self.shared.connector.config();
            let forgotten = progress::forget_begun(&mut link.conn, config, self.key, self.at).await;
            if let Err(error) = forgotten {
                tracing::warn!(%error, "a refused DDL stays noted as begun");
            }
        }
    }

    async fn set(&self, conn: &mut Client, setting: &Setting) -> std::result::Result<(), Failure> {
        let Err(error) = conn.query_drop(&setting.sql).await else {
            return Ok(());
        };
        let reply = match judge(&error) {
            Verdict::Retry(reason) => return Err(Failure::Retry(reason, error_text(&error))),
            Verdict::Tls(_) => return Err(Failure::Retry(Retry::Lost, error_text(&error))),
            Verdict::Login(reply) | Verdict::Definite(_, reply) => reply,
        };
        if let Some(otherwise) = &setting.otherwise
            && conn.query_drop(otherwise).await.is_ok()
        {
            if self.shared.tells(&setting.what) {
                tracing::warn!(
                    what = setting.what,
                    "the target does not have it; DDL runs with what is nearest"
                );
            }
            return Ok(());
        }
        if let Some(holds) = &setting.holds
            && let Ok(Some(_)) = conn.query_first(holds).await
        {
            return Ok(());
        }
        if setting.quiet {
            return Ok(());
        }
        if setting.optional {
            if self.shared.tells(&setting.what) {
                tracing::warn!(what = setting.what, %reply, "the target does not have it; DDL runs without");
            }
            return Ok(());
        }
        Err(Failure::Definite(self.step.no_session(&setting.what, reply)))
    }
}

pub(crate) fn error_text(error: &Error) -> String {
    match error {
        Error::Server(error) => format!("server error {}", error.code),
        Error::Io(error) => error.to_string(),
        _ => "the connection is gone".to_owned(),
    }
}
