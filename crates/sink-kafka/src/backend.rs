//! What the spans of one sink share.

use std::sync::{Arc, Mutex, PoisonError};

use weir_codec::CanalJson;
use weir_filter::is_wanted;
use weir_sink::contract::{Backend, PullLimits, SpanWaker, SpanWriter, WorkerContext};
use weir_sink::{Result as SinkResult, SinkCounters, SpanTable};
use weir_types::{Classified, DdlEvent, DispatcherId, TableName};

use crate::client::{Cluster, Producers};
use crate::config::KafkaSinkConfig;
use crate::delivery::Ledger;
use crate::error::{KafkaSinkError, Result};
use crate::metrics::KafkaMetrics;
use crate::names::Names;
use crate::rows::TopicUse;
use crate::topics::{Spread, TopicBook};
use crate::writer::KafkaSpan;

/// Messages that were too large of which the log tells each; then only the metric counts.
const TOLD_MAX: usize = 100;

/// What the spans of one sink share.
pub(crate) struct Shared {
    pub(crate) config: KafkaSinkConfig,
    pub(crate) format: CanalJson,
    pub(crate) names: Names,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) counters: Arc<SinkCounters>,
    pub(crate) metrics: Arc<KafkaMetrics>,
    pub(crate) cluster: Cluster,
    pub(crate) book: TopicBook,
    pub(crate) producers: Producers,
    /// How many messages that were too large the log has told of.
    pub(crate) told: Mutex<usize>,
}

impl Shared {
    /// Whether a table, or some table of a schema, is replicated.
    pub(crate) fn wants(&self, name: &TableName) -> bool {
        is_wanted(self.config.filter.as_deref(), name)
    }

    /// How a topic is written to; none if that is not known yet, or if messages of the
    /// span have to arrive before: the span is woken. `idle`: it has none under way.
    ///
    /// # Errors
    /// The topic cannot be written to.
    pub(crate) fn topic(&self, name: &Arc<str>, span: DispatcherId, idle: bool) -> Result<Option<TopicUse>> {
        let Some(info) = self.cluster.known(name) else {
            let ledger = Arc::clone(&self.ledger);
            self.cluster.request(name, Box::new(move || ledger.wake(span)));
            return Ok(None);
        };
        let info = info?;
        let partitions = match self.book.settle(name, info.partitions)? {
            Spread::Same(partitions) => partitions,
            // Whoever is woken by the last arrival comes back.
            Spread::Flush { .. } if !idle => return Ok(None),
            Spread::Flush { found } => {
                self.book.adopt(name, found)?;
                tracing::info!(topic = %name, partitions = found, "rows are spread over another number of partitions from here on");
                found
            }
        };
        Ok(Some(TopicUse {
            name: Arc::clone(name),
            partitions,
            message_max_bytes: info.message_max_bytes,
            producer: self.producers.of(info.message_max_bytes)?,
        }))
    }

    /// Tells of a message that was too large.
    pub(crate) fn tell_too_large(&self, error: &KafkaSinkError, sent: bool) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told += 1;
        if *told > TOLD_MAX {
            return;
        }
        let what = if sent {
            "sent with its key only"
        } else {
            "left out"
        };
        tracing::warn!(code = "WEIR-KFK-011", %error, what, "a message is too large");
        if *told == TOLD_MAX {
            tracing::warn!("further messages that are too large are counted by the metric only");
        }
    }

    /// Tells of a statement that a topic does not get. The rows of its table meet the same
    /// error, which stops that table; the others do not wait for it.
    pub(crate) fn leave_out(&self, event: &DdlEvent, error: &KafkaSinkError) {
        self.metrics.ddl_left_out();
        tracing::warn!(
            code = error.code(),
            %error,
            kind = ?event.kind,
            "a statement is left out of a topic that cannot be written to"
        );
    }

    /// A span has ended.
    pub(crate) fn leave(&self, target: &TableName) {
        self.names.leave(target);
    }
}

/// The Kafka sink behind the scheduler.
pub(crate) struct KafkaBackend {
    pub(crate) shared: Arc<Shared>,
}

impl Backend for KafkaBackend {
    fn pull_limits(&self) -> PullLimits {
        PullLimits::default()
    }

    fn open(&self, dispatcher: DispatcherId, tables: &[SpanTable]) -> SinkResult<Box<dyn SpanWriter>> {
        let table = match tables.first() {
            Some(table) => Some((table, self.shared.names.enter(&table.target)?)),
            None => None,
        };
        Ok(Box::new(KafkaSpan::new(
            Arc::clone(&self.shared),
            dispatcher,
            table,
        )))
    }

    fn commit(&self, _: &mut WorkerContext) -> SinkResult<()> {
        // Messages have arrived or they have not.
        Ok(())
    }

    fn attach(&self, waker: SpanWaker) {
        self.shared.ledger.attach(waker);
    }
}
