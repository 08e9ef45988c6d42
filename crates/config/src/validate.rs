//! Checks that go beyond one value's form.

use weir_filter::{Router, TableFilter};
use weir_types::TlsMode;

use crate::changefeed::Changefeed;
use crate::memory::MEMORY_QUOTA_MIN;
use crate::units::{ByteSize, HumanDuration};
use crate::uri::SinkUri;

/// Longest changefeed id in characters: it is part of names of folders, locks and
/// metrics.
pub const ID_LENGTH_MAX: usize = 64;

/// Smallest segment: two commit groups of the usual size.
pub const SEGMENT_SIZE_MIN: ByteSize = ByteSize::mib(2);

/// Largest segment: addresses inside a segment are 32 bits wide.
const SEGMENT_SIZE_MAX: ByteSize = ByteSize::gib(2);

/// Fewest segments in the disk quota: the one being written, one being coalesced, and
/// two that can be freed.
const SEGMENTS_MIN: u64 = 4;

/// Least `max-row-size`: below it ordinary rows with a few text columns would fail.
const ROW_SIZE_MIN: ByteSize = ByteSize::mib(1);

/// Least `max-event-size`: the largest event that servers make of small rows with
/// default settings is 8 KiB; 1 MiB leaves room for statements.
const EVENT_SIZE_MIN: ByteSize = ByteSize::mib(1);

/// Least `rotate-size`: smaller files would cost more in names than in rows.
const ROTATE_SIZE_MIN: ByteSize = ByteSize(4096);

/// Least time between two looks at a file, or between two files.
const INTERVAL_MIN: HumanDuration = HumanDuration::millis(1);

/// Least and largest time between heartbeats: a missing one is noticed after a few.
const HEARTBEAT_MIN: HumanDuration = HumanDuration::millis(100);
/// See `HEARTBEAT_MIN`.
const HEARTBEAT_MAX: HumanDuration = HumanDuration::seconds(60);

/// Most connections that write at the same time: MySQL's default `max_connections` is
/// 151.
pub const WORKER_COUNT_MAX: u16 = 128;

/// Checks a changefeed id.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if id.is_empty() || id.len() > ID_LENGTH_MAX || !id.chars().all(good) {
        return Err(format!(
            "an id has 1 to {ID_LENGTH_MAX} characters out of letters, digits, `_` and `-`"
        ));
    }
    Ok(())
}

/// A value that does not go with the others: dotted path (with the number of a route or
/// a rule) and reason.
pub(crate) type Finding = (String, String);

fn at_least<T: PartialOrd + std::fmt::Display>(path: &str, value: T, least: T) -> Result<(), Finding> {
    if value < least {
        return Err((path.to_owned(), format!("it must be at least {least}")));
    }
    Ok(())
}

/// A certificate is of no use without its key, nor the other way round.
fn validate_tls(end: &str, tls: &weir_types::TlsOptions) -> Result<(), Finding> {
    let (given, missing) = match (&tls.cert, &tls.key) {
        (Some(_), None) => ("cert", "key"),
        (None, Some(_)) => ("key", "cert"),
        _ => return Ok(()),
    };
    Err((
        format!("{end}.tls.{given}"),
        format!("`{end}.tls.{missing}` is missing beside it"),
    ))
}

impl Changefeed {
    /// The first value that does not go with the others.
    pub(crate) fn validate(&self) -> Result<(), Finding> {
        at_least(
            "source.max-event-size",
            self.source.max_event_size,
            EVENT_SIZE_MIN,
        )?;
        at_least(
            "source.follow.poll-interval",
            self.source.follow.poll_interval,
            INTERVAL_MIN,
        )?;
        self.validate_source_server()?;
        self.validate_sink_server()?;
        self.validate_names()?;
        at_least(
            "sink.file.rotate-size",
            self.sink.file.rotate_size,
            ROTATE_SIZE_MIN,
        )?;
        at_least("sink.file.rotate-age", self.sink.file.rotate_age, INTERVAL_MIN)?;
        at_least(
            "flow-control.memory-quota",
            self.flow_control.memory_quota,
            MEMORY_QUOTA_MIN,
        )?;
        at_least(
            "flow-control.max-row-size",
            self.flow_control.max_row_size,
            ROW_SIZE_MIN,
        )?;
        if self.flow_control.max_row_size > self.source.max_event_size {
            let reason = format!(
                "it is more than `source.max-event-size` ({}), in which a row arrives",
                self.source.max_event_size
            );
            return Err(("flow-control.max-row-size".to_owned(), reason));
        }
        at_least("store.segment-size", self.store.segment_size, SEGMENT_SIZE_MIN)?;
        if self.store.segment_size > SEGMENT_SIZE_MAX {
            let reason = format!("it must be at most {SEGMENT_SIZE_MAX}");
            return Err(("store.segment-size".to_owned(), reason));
        }
        let least = ByteSize(self.store.segment_size.bytes().saturating_mul(SEGMENTS_MIN));
        if self.store.disk_quota < least {
            let reason = format!("it must hold {SEGMENTS_MIN} segments of `store.segment-size`, {least}");
            return Err(("store.disk-quota".to_owned(), reason));
        }
        Ok(())
    }

    fn validate_source_server(&self) -> Result<(), Finding> {
        self.source_password_keys().validate()?;
        if self.source.server_id.is_some() && self.source.uri.mysql().is_none() {
            let reason = "only a `mysql://` source has replicas".to_owned();
            return Err(("source.server-id".to_owned(), reason));
        }
        let path = "source.heartbeat-interval";
        at_least(path, self.source.heartbeat_interval, HEARTBEAT_MIN)?;
        if self.source.heartbeat_interval > HEARTBEAT_MAX {
            return Err((path.to_owned(), format!("it must be at most {HEARTBEAT_MAX}")));
        }
        validate_tls("source", &self.source.tls)
    }

    fn validate_sink_server(&self) -> Result<(), Finding> {
        self.sink_password_keys().validate()?;
        let workers = self.sink.mysql.worker_count;
        if workers == 0 || workers > WORKER_COUNT_MAX {
            let reason = format!("it must be 1 to {WORKER_COUNT_MAX}");
            return Err(("sink.mysql.worker-count".to_owned(), reason));
        }
        let kafka = self.sink.kafka.validate();
        kafka.map_err(|(key, reason)| (format!("sink.kafka.{key}"), reason))?;
        validate_tls("sink", &self.sink.tls)?;
        self.validate_kafka()
    }

    /// What a broker needs besides `[sink.kafka]` itself.
    fn validate_kafka(&self) -> Result<(), Finding> {
        let SinkUri::Kafka(address) = &self.sink.uri else {
            return Ok(());
        };
        let (keys, tls) = (self.sink_password_keys(), &self.sink.tls);
        if address.user.is_some() && address.password.is_none() && keys.env.is_none() && keys.file.is_none() {
            let reason =
                "its user has no password: add `sink.password-env` or `sink.password-file`".to_owned();
            return Err(("sink.uri".to_owned(), reason));
        }
        let files = [(&tls.ca, "ca"), (&tls.cert, "cert")];
        let given = files.iter().find(|(path, _)| path.is_some());
        match given {
            // Encryption that is expected, and missing.
            Some((_, name)) if tls.mode == TlsMode::Preferred => Err((
                format!("sink.tls.{name}"),
                "to Kafka, `preferred` is clear text: set `sink.tls.mode` to `verify-identity`, `verify-ca` or `required`"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    fn validate_names(&self) -> Result<(), Finding> {
        self.table_filter().map_err(|error| {
            // The rule itself, where one is at fault.
            let alone = |rule: &String| {
                let pattern = rule.trim_start_matches('!');
                TableFilter::new(&[pattern], self.name_case()).is_err()
            };
            let path = match self.filter.rules.iter().position(alone) {
                Some(number) => format!("filter.rules[{number}]"),
                None => "filter.rules".to_owned(),
            };
            (path, error.to_string())
        })?;
        for (number, route) in self.routes.iter().enumerate() {
            Router::new(&[route.rule()], self.name_case())
                .map_err(|error| (format!("route[{number}]"), error.to_string()))?;
        }
        Ok(())
    }
}
