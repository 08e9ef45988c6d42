//! A sink that has reached its cluster, but does not run.

use std::sync::{Arc, Mutex};

use weir_codec::CanalJson;
use weir_sink::{PreparedSink, SinkCounters};

use crate::backend::{KafkaBackend, Shared};
use crate::client::{Away, Cluster, Producers};
use crate::config::KafkaSinkConfig;
use crate::delivery::Ledger;
use crate::error::Result;
use crate::metrics::KafkaMetrics;
use crate::names::Names;
use crate::topics::TopicBook;

/// Reaches the cluster and makes the sink. `counters` may be those of an earlier
/// generation of the same run.
///
/// # Errors
/// No broker answers, the login is refused, a setting is wrong, or the file of partition
/// counts cannot be read.
pub fn prepare(config: KafkaSinkConfig, counters: Arc<SinkCounters>) -> Result<PreparedSink> {
    let metrics = Arc::new(KafkaMetrics::new(&config.changefeed.to_string()));
    let ledger = Ledger::new(config.queue_bytes);
    let away: Away = {
        let counters = Arc::clone(&counters);
        Arc::new(move |is_away| counters.set_away(is_away))
    };
    let cluster = Cluster::connect(&config)?;
    let (changefeed, workers) = (config.changefeed.to_string(), config.workers);
    let shared = Arc::new(Shared {
        format: CanalJson::new(config.canal),
        names: Names::new(&config)?,
        producers: Producers::new(&config, away, Arc::clone(&metrics)),
        book: TopicBook::open(&config.state_file, config.partition_count_change)?,
        told: Mutex::new(0),
        cluster,
        ledger,
        metrics,
        counters: Arc::clone(&counters),
        config,
    });
    let backend = Box::new(KafkaBackend { shared });
    Ok(PreparedSink::from_backend(backend, changefeed, workers, counters))
}
