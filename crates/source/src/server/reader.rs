//! Reads a server's binlog into the assembler, over as many connections as it takes. No
//! thread of its own: the caller steps.

use std::time::{Duration, Instant};

use weir_protocol::store::ReadPosition;
use weir_types::{Classified, ErrorReport, SourcePosition};
use weir_wire::WireError;

use super::backoff::{Backoff, patience};
use super::catalogue::ServerCatalogue;
use super::intake::Intake;
use super::link::{BEHIND_MAX, Clashes, Link, Lost, connect};
use super::place::Place;
use super::plan::Here;
use super::session::now_ms;
use super::start::patiently;
use super::stream::Next;
use super::until::{EndOfLog, Reading, is_reached};
use super::{Interrupt, ServerOptions, StopAt, resolve_start};
use crate::assembler::{AssemblerOptions, Counts, TransactionAssembler};
use crate::error::{Result, SourceError};
use crate::files::{End, Handover, Progress, STEP_EVENTS, hand_over};
use crate::metrics::LinkMetrics;

/// How far the time that an idle server tells stays behind its clock, so that
/// transactions that are being committed are not overtaken.
const IDLE_MARGIN_MS: u64 = 500;

/// See the module documentation.
pub struct ServerReader {
    options: ServerOptions,
    interrupt: Interrupt,
    intake: Intake,
    link: Option<Link>,
    /// No connection was there before.
    is_first: bool,
    /// End of the binlog when we first connected, if that is where to end.
    caught_up: Option<EndOfLog>,
    /// Time of the server while it has nothing to send, milliseconds since the Unix epoch.
    idle_ms: Option<u64>,
    is_dry: bool,
    backoff: Backoff,
    pause: Duration,
    /// Connections in a row that brought nothing at all.
    vain: u32,
    clashes: Clashes,
    /// Since when the server at the address lags behind what was read.
    behind_since: Option<Instant>,
    /// Reason of the outage as it was logged.
    told: Option<&'static str>,
    metrics: LinkMetrics,
}

/// What an event led to.
enum Took {
    /// There may be more.
    More,
    /// The server has nothing to send at the moment.
    Idle,
    /// Nothing more is taken.
    Refused,
}

impl ServerReader {
    /// Connects, trying for as long as the endpoint's `connect_timeout` says, and finds
    /// the start. `assembler`: its settings.
    ///
    /// # Errors
    /// The connection's; settings of the server that do not allow replication; a start or
    /// saved position that is not there any more; another server.
    pub fn open(
        options: ServerOptions,
        assembler: AssemblerOptions,
        changefeed: &str,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let start = match &options.resume {
            Some(position) => position.clone(),
            None => resolve_start(&options)?,
        };
        let SourcePosition {
            identity,
            file,
            offset,
            gtids,
        } = start;
        let mut assembler = TransactionAssembler::new(identity, assembler);
        assembler.add_seen(&gtids);
        assembler.begin_file(file, offset)?;
        let catalogue = ServerCatalogue::new(options.endpoint.clone(), interrupt.clone());
        assembler.set_catalogue(Box::new(catalogue));
        let mut reader = Self {
            interrupt,
            intake: Intake::new(assembler),
            link: None,
            is_first: true,
            caught_up: None,
            idle_ms: None,
            is_dry: false,
            backoff: Backoff::new(u64::from(options.server_id)),
            pause: Duration::ZERO,
            vain: 0,
            clashes: Clashes::default(),
            behind_since: None,
            told: None,
            metrics: LinkMetrics::new(changefeed.to_owned()),
            options,
        };
        let limit = reader.options.endpoint.connect_timeout;
        let interrupt = reader.interrupt.clone();
        patiently(limit, &interrupt, || reader.connect())?;
        Ok(reader)
    }

    /// Read position behind the last whole transaction.
    pub fn position(&self) -> ReadPosition {
        self.intake.assembler.position()
    }

    /// What was read so far.
    pub const fn counts(&self) -> Counts {
        self.intake.assembler.counts()
    }

    /// Bytes of events read, and 0: how many there are is not known.
    pub const fn bytes(&self) -> (u64, u64) {
        (self.intake.bytes, 0)
    }

    /// Time at the source, milliseconds since the Unix epoch.
    pub const fn time_ms(&self) -> u64 {
        self.intake.assembler.last_time_ms()
    }

    /// Whether everything that the server has was read.
    pub const fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// How long the caller is to wait before the next step.
    pub const fn pause(&self) -> Duration {
        self.pause
    }

    /// Whether there is a connection.
    pub const fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Tells the store the position, if it moved and the store has not heard of it.
    pub fn tick(&mut self, handover: &mut Handover<'_>) -> bool {
        self.intake.assembler.tick();
        hand_over(&mut self.intake.assembler, 1, handover)
    }

    /// Reads a few events, or waits for one; without a connection, tries to connect.
    ///
    /// # Errors
    /// What cannot be replicated, and what no further attempt can repair. What was whole
    /// before was handed over.
    pub fn step(&mut self, handover: &mut Handover<'_>) -> Result<Progress> {
        self.pause = Duration::ZERO;
        let result = match self.link.is_some() {
            true => self.read_events(handover),
            false => self.connect().map(|()| Progress::More),
        };
        let result = match result {
            Err(error) => self.lost(error),
            going_on => going_on,
        };
        if result.is_err() || self.link.is_none() {
            self.intake.assembler.flush();
            if !hand_over(&mut self.intake.assembler, 1, handover) {
                return Ok(Progress::Ended(End::Refused));
            }
        }
        result
    }

    fn connect(&mut self) -> Result<()> {
        let position = self.intake.assembler.position();
        let place = Place {
            file: position.file,
            offset: position.offset,
        };
        let here = Here {
            identity: &position.identity,
            place: &place,
            seen: self.intake.assembler.seen(),
        };
        let patience = patience(self.options.silence(), self.vain);
        let link = connect(&self.options, &self.interrupt, &here, self.is_first, patience)?;
        if self.is_first && self.options.stop == Some(StopAt::CaughtUp) {
            self.caught_up = Some(link.end.clone());
        }
        if self.is_first && link.at_end {
            let time_ms = now_ms().saturating_add_signed(link.clock_ahead_ms);
            self.intake
                .assembler
                .set_time_ms(time_ms.saturating_sub(IDLE_MARGIN_MS));
        }
        self.is_first = false;
        if link.end.identity != position.identity {
            tracing::warn!(
                host = self.options.endpoint.host,
                "the source is another server than before; it has all transactions that were read"
            );
            self.intake.set_identity(link.end.identity.clone());
        }
        self.behind_since = None;
        self.link = Some(link);
        self.metrics.connected();
        Ok(())
    }

    /// The connection is gone, or none came about: what of it can be repaired is tried
    /// again after a pause.
    fn lost(&mut self, error: SourceError) -> Result<Progress> {
        let link = self.link.take();
        let position = self.intake.assembler.position();
        let place = Place {
            file: position.file,
            offset: position.offset,
        };
        let lost = match Lost::sort(error, &place, self.intake.assembler.seen()) {
            Lost::Kicked(_) if self.clashes.is_repeated(Instant::now()) => {
                Lost::Definite(SourceError::ServerIdInUse {
                    server_id: self.options.server_id,
                })
            }
            Lost::Behind(missing) if self.is_behind_for_good() => {
                Lost::Definite(SourceError::TransactionsLost { missing })
            }
            other => other,
        };
        self.intake.cut();
        (self.idle_ms, self.is_dry) = (None, false);
        let reason = lost.reason();
        if let Some(link) = &link {
            self.metrics.lost(reason);
            if link.is_silent && reason == "timeout" {
                self.vain = self.vain.saturating_add(1);
            }
        }
        if self.interrupt.is_stopped() {
            return Ok(Progress::Ended(End::Refused));
        }
        let error = ErrorReport::new(&lost.into_report()?);
        // Once per outage, and when it turns out to be another one than it seemed.
        if self.told.replace(reason) != Some(reason) {
            tracing::warn!(
                code = error.code(),
                reason,
                %error,
                "no connection to the source; reading goes on behind the last whole transaction"
            );
        }
        self.pause = self.backoff.next();
        Ok(Progress::Dry)
    }

    fn is_behind_for_good(&mut self) -> bool {
        let since = *self.behind_since.get_or_insert_with(Instant::now);
        since.elapsed() > BEHIND_MAX
    }

    fn read_events(&mut self, handover: &mut Handover<'_>) -> Result<Progress> {
        for _ in 0..STEP_EVENTS {
            if self.reached() {
                return Ok(self.end(handover));
            }
            match self.take_event(handover)? {
                Took::More => {}
                Took::Idle => {
                    self.idle();
                    if self.reached() {
                        return Ok(self.end(handover));
                    }
                    if !hand_over(&mut self.intake.assembler, 1, handover) {
                        return Ok(Progress::Ended(End::Refused));
                    }
                    return Ok(Progress::Dry);
                }
                Took::Refused => return Ok(Progress::Ended(End::Refused)),
            }
        }
        Ok(Progress::More)
    }

    /// Whether the end that was asked for lies before the next event.
    fn reached(&mut self) -> bool {
        let Some(stop) = &self.options.stop else {
            return false;
        };
        let position = self.intake.assembler.position();
        let reading = Reading {
            identity: &position.identity,
            file: &position.file,
            offset: position.offset,
            seen: self.intake.assembler.seen(),
            in_transaction: self.intake.assembler.in_transaction(),
            open_ms: self.intake.assembler.open_commit_time_ms(),
            idle_ms: self.idle_ms,
        };
        let is_reached = is_reached(stop, self.caught_up.as_ref(), &reading);
        if is_reached {
            self.intake.assembler.discard_open();
        }
        is_reached
    }

    fn end(&mut self, handover: &mut Handover<'_>) -> Progress {
        self.intake.assembler.tick();
        let taken = hand_over(&mut self.intake.assembler, 1, handover);
        Progress::Ended(if taken { End::Reached } else { End::Refused })
    }

    /// The server showed that it has nothing to send: time and position move.
    fn idle(&mut self) {
        let Some(link) = &self.link else {
            return;
        };
        let time_ms = now_ms().saturating_add_signed(link.clock_ahead_ms);
        self.idle_ms = Some(time_ms);
        if *link.stream.place().file == *self.intake.assembler.position().file {
            self.intake.assembler.pass_to(link.stream.place().offset);
        }
        self.intake
            .assembler
            .tick_at(time_ms.saturating_sub(IDLE_MARGIN_MS));
    }

    fn take_event(&mut self, handover: &mut Handover<'_>) -> Result<Took> {
        let (Some(link), intake) = (&mut self.link, &mut self.intake) else {
            return Ok(Took::Idle);
        };
        let next = link.stream.next(self.options.event_bytes_max)?;
        self.is_dry = matches!(next, Next::Dry | Next::Heartbeat);
        let took = match next {
            Next::File(place) => {
                intake.file(place);
                Took::More
            }
            Next::Format { header, format } => {
                intake.format(&header, format)?;
                Took::More
            }
            Next::Event {
                start,
                end,
                raw,
                format,
            } => {
                if intake.event((start, end), raw, format, handover)? {
                    Took::More
                } else {
                    Took::Refused
                }
            }
            Next::Nothing => Took::More,
            Next::Heartbeat => Took::Idle,
            Next::Dry => {
                intake.assembler.flush();
                if hand_over(&mut intake.assembler, 1, handover) {
                    return Ok(Took::More);
                }
                Took::Refused
            }
            Next::Ended => return Err(self.ended()),
        };
        self.heard();
        Ok(took)
    }

    /// The server ended the stream, because it is being stopped or ends its connections.
    fn ended(&self) -> SourceError {
        SourceError::Wire(WireError::Disconnected {
            address: format!("{}:{}", self.options.endpoint.host, self.options.endpoint.port),
            source: None,
        })
    }

    /// Something came: the connection is a good one.
    fn heard(&mut self) {
        let Some(link) = self.link.as_mut().filter(|link| link.is_silent) else {
            return;
        };
        link.is_silent = false;
        link.stream.set_silence(self.options.silence());
        (self.vain, self.told) = (0, None);
        if self.backoff.attempts() > 0 {
            tracing::info!(
                attempts = self.backoff.attempts(),
                "connected to the source again"
            );
            self.backoff.reset();
        }
    }
}
