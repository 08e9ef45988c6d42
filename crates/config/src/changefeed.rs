//! The changefeed file and its defaults.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use serde::de;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_filter::{NameCase, RouteRule, Router, TableFilter};
use weir_types::{ChangefeedId, Secret, TlsOptions};

use crate::error;
use crate::kafka::KafkaSink;
use crate::memory::MemoryPlan;
use crate::mysql::{PasswordKeys, derived_server_id};
use crate::start::Start;
use crate::units::{ByteSize, HumanDuration, UtcOffset};
use crate::uri::{SinkUri, SourceUri};
use crate::validate::check_id;

/// `source.max-event-size`: what MySQL itself lets a replica receive
/// (`replica_max_allowed_packet`), so that every event that replicates natively passes.
pub const MAX_EVENT_SIZE_DEFAULT: ByteSize = ByteSize::gib(1);

/// `source.follow.poll-interval`: a fifth of a second is not noticed by people, and five
/// looks at one file's length per second cost nothing.
pub const POLL_INTERVAL_DEFAULT: HumanDuration = HumanDuration::millis(200);

/// `source.heartbeat-interval`: an idle source is as fresh as a busy one to a second, for
/// one packet of 40 bytes a second.
pub const HEARTBEAT_INTERVAL_DEFAULT: HumanDuration = HumanDuration::seconds(1);

/// `sink.mysql.worker-count`: enough to hide the latency of a commit, few enough for
/// MySQL's default `max_connections` of 151.
pub const WORKER_COUNT_DEFAULT: u16 = 16;

/// `sink.file.rotate-size`: large enough that a renamed and synced file is cheap per
/// byte, small enough to be opened by ordinary tools.
pub const ROTATE_SIZE_DEFAULT: ByteSize = ByteSize::mib(64);

/// `sink.file.rotate-age`: a row is durable downstream when its file is finished, so
/// this bounds how much is written again after a crash, and how late a reader is.
pub const ROTATE_AGE_DEFAULT: HumanDuration = HumanDuration::seconds(10);

/// `flow-control.memory-quota`: leaves 160 MiB to queues, enough for a thousand tables
/// to have a batch each, on a machine of 2 GiB.
pub const MEMORY_QUOTA_DEFAULT: ByteSize = ByteSize::mib(512);

/// `flow-control.max-row-size`: MySQL's default `max_allowed_packet` bounds one image of
/// a row by 64 MiB, and an update has two.
pub const MAX_ROW_SIZE_DEFAULT: ByteSize = ByteSize::mib(128);

/// `store.disk-quota`: hours of a busy server's binlog at half its size, and less than
/// the disks of small virtual machines.
pub const DISK_QUOTA_DEFAULT: ByteSize = ByteSize::gib(20);

/// `store.segment-size`: the store frees disk by whole segments; 320 of them in the
/// default quota keep that fine-grained and the number of files small.
pub const SEGMENT_SIZE_DEFAULT: ByteSize = ByteSize::mib(64);

/// `metrics.listen`: this machine only, since metrics name tables; the port is the one
/// that OpenTelemetry reserves for Prometheus exporters.
pub const METRICS_LISTEN_DEFAULT: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 9464));

/// One replication task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Changefeed {
    /// Name; also of the state folder.
    #[serde(deserialize_with = "changefeed_id")]
    pub id: ChangefeedId,
    /// Where changes come from.
    pub source: Source,
    /// Which tables are replicated.
    #[serde(default)]
    pub filter: Filter,
    /// Names at the target; the first that matches wins.
    #[serde(default, rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Where changes go.
    pub sink: Sink,
    /// Bounds of memory.
    #[serde(default)]
    pub flow_control: FlowControl,
    /// The event store.
    #[serde(default)]
    pub store: Store,
    /// The HTTP port of `weir run`.
    #[serde(default)]
    pub metrics: Metrics,
}

/// `[source]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Source {
    /// Address.
    pub uri: SourceUri,
    /// Name of the environment variable that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// File that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Where reading starts while there is no checkpoint. What the file leaves out is
    /// `Latest` for a server and `Earliest` for files; always there behind `parse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Identifier that we are a replica under; left out, it is derived from the id of the
    /// changefeed: see [`Changefeed::server_id`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<NonZeroU32>,
    /// Time between two signs of life of an idle server.
    #[serde(default = "heartbeat_interval_default")]
    pub heartbeat_interval: HumanDuration,
    /// Largest binlog event that is accepted; a larger one is a definite error.
    #[serde(default = "max_event_size_default")]
    pub max_event_size: ByteSize,
    /// How files that grow are followed.
    #[serde(default)]
    pub follow: Follow,
    /// Encryption of the connection to a server.
    #[serde(default)]
    pub tls: TlsOptions,
}

/// `[source.follow]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Follow {
    /// Time between two looks at the end of the last file.
    pub poll_interval: HumanDuration,
}

/// `[filter]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Filter {
    /// Patterns; the last one that matches wins; none lets all tables through.
    pub rules: Vec<String>,
    /// Whether names are compared with case (`lower_case_table_names=0`). Left out, a
    /// server is asked; binlog files do not tell, and are taken as with case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case_sensitive: Option<bool>,
}

/// `[[route]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// Pattern of the tables that it concerns.
    #[serde(rename = "match")]
    pub pattern: String,
    /// Template of the target schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_schema: Option<String>,
    /// Template of the target table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_table: Option<String>,
}

/// `[sink]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sink {
    /// Address.
    pub uri: SinkUri,
    /// Name of the environment variable that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// File that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Settings of a `file://` sink.
    #[serde(default)]
    pub file: FileSink,
    /// Settings of a `mysql://` sink.
    #[serde(default)]
    pub mysql: MysqlSink,
    /// Settings of a `kafka://` sink.
    #[serde(default)]
    pub kafka: KafkaSink,
    /// Encryption of the connections to a server.
    #[serde(default)]
    pub tls: TlsOptions,
}

/// `[sink.mysql]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MysqlSink {
    /// Connections that write at the same time.
    pub worker_count: u16,
}

/// `[sink.file]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FileSink {
    /// Size at which a file is finished, bytes before any compression.
    pub rotate_size: ByteSize,
    /// Age at which a file with rows is finished.
    pub rotate_age: HumanDuration,
    /// How ENUM and SET values are written.
    pub enum_as: EnumAs,
    /// Offset that TIMESTAMP values are written with.
    pub time_zone: UtcOffset,
}

/// How ENUM and SET values are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnumAs {
    /// Names of the members.
    #[default]
    Text,
    /// The number that the server stores: index of an ENUM, bitmap of a SET.
    Index,
}

/// `[flow-control]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FlowControl {
    /// Memory for everything that waits.
    pub memory_quota: ByteSize,
    /// Largest row event with all its images; a larger one is a definite error of its
    /// table.
    pub max_row_size: ByteSize,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Store {
    /// Disk for changes that are not durable downstream yet.
    pub disk_quota: ByteSize,
    /// Size at which a segment is sealed.
    pub segment_size: ByteSize,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Metrics {
    /// Address of the HTTP port; none (written as an empty text) is off.
    #[serde(deserialize_with = "listen", serialize_with = "listen_text")]
    pub listen: Option<SocketAddr>,
}

impl Default for Follow {
    fn default() -> Self {
        Self {
            poll_interval: POLL_INTERVAL_DEFAULT,
        }
    }
}

impl Default for MysqlSink {
    fn default() -> Self {
        Self {
            worker_count: WORKER_COUNT_DEFAULT,
        }
    }
}

impl Default for FileSink {
    fn default() -> Self {
        Self {
            rotate_size: ROTATE_SIZE_DEFAULT,
            rotate_age: ROTATE_AGE_DEFAULT,
            enum_as: EnumAs::default(),
            time_zone: UtcOffset::UTC,
        }
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self {
            memory_quota: MEMORY_QUOTA_DEFAULT,
            max_row_size: MAX_ROW_SIZE_DEFAULT,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            disk_quota: DISK_QUOTA_DEFAULT,
            segment_size: SEGMENT_SIZE_DEFAULT,
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            listen: Some(METRICS_LISTEN_DEFAULT),
        }
    }
}

const fn heartbeat_interval_default() -> HumanDuration {
    HEARTBEAT_INTERVAL_DEFAULT
}

const fn max_event_size_default() -> ByteSize {
    MAX_EVENT_SIZE_DEFAULT
}

fn changefeed_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ChangefeedId, D::Error> {
    let text = String::deserialize(deserializer)?;
    check_id(&text).map_err(de::Error::custom)?;
    Ok(ChangefeedId(Arc::from(text)))
}

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        de::Error::invalid_value(
            de::Unexpected::Str(&text),
            &"an address and port such as \"127.0.0.1:9464\", or \"\" for off",
        )
    })
}

fn listen_text<S: Serializer>(listen: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match listen {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(""),
    }
}

impl Changefeed {
    /// Fills in what is left out and follows from other values.
    pub(crate) fn resolve(&mut self) {
        let files = self.source.uri.mysql().is_none();
        let start = if files { Start::Earliest } else { Start::Latest };
        self.source.start.get_or_insert(start);
        if files {
            // Nobody can be asked.
            self.filter.case_sensitive.get_or_insert(true);
        }
    }

    /// Where reading starts while there is no checkpoint.
    pub fn start(&self) -> &Start {
        self.source.start.as_ref().unwrap_or(&Start::Latest)
    }

    /// Takes note of `lower_case_table_names` of the source server; a value in the file
    /// stays.
    pub fn learn_name_case(&mut self, lower_case_table_names: u8) {
        self.filter
            .case_sensitive
            .get_or_insert(lower_case_table_names == 0);
    }

    /// How names are compared.
    pub const fn name_case(&self) -> NameCase {
        match self.filter.case_sensitive {
            Some(false) => NameCase::Insensitive,
            Some(true) | None => NameCase::Sensitive,
        }
    }

    /// Identifier that we are a replica under.
    pub fn server_id(&self) -> u32 {
        self.source
            .server_id
            .map_or_else(|| derived_server_id(&self.id), NonZeroU32::get)
    }

    pub(crate) const fn source_password_keys(&self) -> PasswordKeys<'_> {
        PasswordKeys {
            end: "source",
            login: match self.source.uri.mysql() {
                Some(address) => Some(address.password.as_ref()),
                None => None,
            },
            env: match &self.source.password_env {
                Some(name) => Some(name.as_str()),
                None => None,
            },
            file: self.source.password_file.as_ref(),
        }
    }

    pub(crate) const fn sink_password_keys(&self) -> PasswordKeys<'_> {
        PasswordKeys {
            end: "sink",
            login: self.sink.uri.login(),
            env: match &self.sink.password_env {
                Some(name) => Some(name.as_str()),
                None => None,
            },
            file: self.sink.password_file.as_ref(),
        }
    }

    /// Reads the password of the source from where the file says.
    ///
    /// # Errors
    /// The variable or file is not there; the key is named, never a value.
    pub fn source_password(&self) -> error::Result<Option<Secret>> {
        self.source_password_keys().read()
    }

    /// Reads the password of the sink from where the file says.
    ///
    /// # Errors
    /// The variable or file is not there; the key is named, never a value.
    pub fn sink_password(&self) -> error::Result<Option<Secret>> {
        self.sink_password_keys().read()
    }

    /// The compiled filter.
    ///
    /// # Errors
    /// A rule that is not understood; `parse` has refused it before.
    pub fn table_filter(&self) -> weir_filter::Result<TableFilter> {
        TableFilter::new(&self.filter.rules, self.name_case())
    }

    /// The compiled routes.
    ///
    /// # Errors
    /// A route that is not understood; `parse` has refused it before.
    pub fn router(&self) -> weir_filter::Result<Router> {
        let rules: Vec<RouteRule> = self.routes.iter().map(Route::rule).collect();
        Router::new(&rules, self.name_case())
    }

    /// How the memory quota is divided. None only for a quota below the least, which
    /// `parse` refuses.
    pub fn memory_plan(&self) -> Option<MemoryPlan> {
        MemoryPlan::from_quota(self.flow_control.memory_quota)
    }
}

impl Route {
    /// The route as the filter crate takes it.
    pub fn rule(&self) -> RouteRule {
        RouteRule {
            pattern: self.pattern.clone(),
            target_schema: self.target_schema.clone(),
            target_table: self.target_table.clone(),
        }
    }
}
