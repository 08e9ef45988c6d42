//! All keys of the changefeed file.

/// Dotted paths of all keys that this build knows, `[[route]]` without its number. A
/// test holds the list equal to the structs, and another to `docs/configuration.md`.
pub const KEYS: [&str; 49] = [
    "id",
    "source.uri",
    "source.password-env",
    "source.password-file",
    "source.start",
    "source.server-id",
    "source.heartbeat-interval",
    "source.tls.mode",
    "source.tls.ca",
    "source.tls.cert",
    "source.tls.key",
    "source.max-event-size",
    "source.follow.poll-interval",
    "filter.rules",
    "filter.case-sensitive",
    "route.match",
    "route.target-schema",
    "route.target-table",
    "sink.uri",
    "sink.password-env",
    "sink.password-file",
    "sink.tls.mode",
    "sink.tls.ca",
    "sink.tls.cert",
    "sink.tls.key",
    "sink.mysql.worker-count",
    "sink.kafka.protocol",
    "sink.kafka.topic",
    "sink.kafka.ddl-topic",
    "sink.kafka.partition",
    "sink.kafka.partition-count-change",
    "sink.kafka.create-topics",
    "sink.kafka.partitions",
    "sink.kafka.replication-factor",
    "sink.kafka.message-too-large",
    "sink.kafka.enum-as",
    "sink.kafka.time-zone",
    "sink.kafka.sasl-mechanism",
    "sink.kafka.librdkafka",
    "sink.file.rotate-size",
    "sink.file.rotate-age",
    "sink.file.enum-as",
    "sink.file.time-zone",
    "flow-control.memory-quota",
    "flow-control.max-row-size",
    "store.disk-quota",
    "store.segment-size",
    "metrics.listen",
    // A route may stand as an array of inline tables too.
    "route",
];

/// Keys without a default.
pub(crate) const REQUIRED: [&str; 3] = ["id", "source.uri", "sink.uri"];

/// Keys and tables that belong to sources and sinks which this build does not have. They
/// get an answer of their own rather than "unknown".
pub(crate) const UNSUPPORTED: [&str; 1] = ["redo"];

/// A table whose keys are those of a library.
pub(crate) const OPEN_TABLE: &str = "sink.kafka.librdkafka";

/// Least likeness (Jaro-Winkler, 0 to 1) of a key that is offered.
const LIKENESS_MIN: f64 = 0.75;

/// Whether a dotted path stands in a table that takes any key.
pub(crate) fn is_open(path: &str) -> bool {
    path.strip_prefix(OPEN_TABLE)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a dotted path is a table that holds known keys.
pub(crate) fn is_table(path: &str) -> bool {
    KEYS.iter()
        .any(|key| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The known key or table that looks most like an unknown path: by the whole path, or by
/// the last name where that one stands under the wrong table.
pub(crate) fn nearest(path: &str) -> Option<String> {
    let mut candidates: Vec<&str> = Vec::new();
    for key in KEYS {
        candidates.push(key);
        let dots = key.match_indices('.').map(|(at, _)| &key[..at]);
        candidates.extend(dots);
    }
    let wanted = path.replace('_', "-").to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let whole = strsim::jaro_winkler(&wanted, candidate);
        // A little less, so that the right table wins between equals.
        let name = 0.99 * strsim::jaro_winkler(last(&wanted), last(candidate));
        let same_parent = wanted.rsplit_once('.').map(|p| p.0) == candidate.rsplit_once('.').map(|p| p.0);
        let likeness = if same_parent {
            name + 0.01
        } else {
            (0.9 * whole).max(0.95 * name)
        };
        if likeness >= LIKENESS_MIN && best.is_none_or(|(top, _)| likeness > top) {
            best = Some((likeness, candidate));
        }
    }
    best.map(|(_, key)| key.to_owned())
}
