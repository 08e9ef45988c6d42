//! Opens a Kafka sink as the changefeed file describes it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use weir_config::{Changefeed, KafkaAddress};
use weir_filter::Router;
use weir_sink_kafka::KafkaSinkConfig;
use weir_types::{ErrorReport, LineageId};

use crate::blueprint::Blueprint;
use crate::ends::Ends;
use crate::sinks::{OpenedSink, codec_enum, codec_offset};

/// File of the data folder with the partition counts that rows are spread by.
pub(crate) const STATE_FILE: &str = "kafka-topics.json";

/// A cluster keeps no progress: it is the changefeed's own.
pub(crate) fn open(
    blueprint: &Blueprint,
    address: &KafkaAddress,
    lineage: LineageId,
) -> Result<OpenedSink, ErrorReport> {
    let mut config = config(
        &blueprint.changefeed,
        address,
        &blueprint.ends,
        &blueprint.router,
        lineage,
        &blueprint.store_dir.with_file_name(STATE_FILE),
    );
    let (_, client_queue) = blueprint.memory.with_client_queue();
    config.queue_bytes = usize::try_from(client_queue).unwrap_or(usize::MAX);
    config.filter = Some(Arc::clone(&blueprint.filter));
    let prepared = weir_sink_kafka::prepare(config, Arc::clone(&blueprint.counters));
    Ok(OpenedSink {
        prepared: prepared.map_err(|e| ErrorReport::new(&e))?,
        progress: HashMap::new(),
        components: Vec::new(),
    })
}

/// `state_file`: where the partition counts are kept.
pub(crate) fn config(
    changefeed: &Changefeed,
    address: &KafkaAddress,
    ends: &Ends,
    router: &Arc<Router>,
    lineage: LineageId,
    state_file: &Path,
) -> KafkaSinkConfig {
    let kafka = &changefeed.sink.kafka;
    let mut config = KafkaSinkConfig::new(
        changefeed.id.clone(),
        lineage,
        address.bootstrap(),
        state_file.to_owned(),
    );
    config.tls.clone_from(&changefeed.sink.tls);
    config.sasl = address.user.as_ref().map(|user| weir_sink_kafka::Sasl {
        mechanism: match kafka.sasl_mechanism {
            weir_config::SaslMechanism::Plain => weir_sink_kafka::SaslMechanism::Plain,
            weir_config::SaslMechanism::ScramSha256 => weir_sink_kafka::SaslMechanism::ScramSha256,
            weir_config::SaslMechanism::ScramSha512 => weir_sink_kafka::SaslMechanism::ScramSha512,
        },
        user: user.clone(),
        password: ends
            .sink_password()
            .cloned()
            .unwrap_or_else(|| weir_types::Secret::new("")),
    });
    config.topic.clone_from(&kafka.topic);
    config.ddl_topic.clone_from(&kafka.ddl_topic);
    config.partition = match kafka.partition {
        weir_config::PartitionBy::Key => weir_sink_kafka::PartitionBy::Key,
        weir_config::PartitionBy::Table => weir_sink_kafka::PartitionBy::Table,
        weir_config::PartitionBy::Transaction => weir_sink_kafka::PartitionBy::Transaction,
    };
    config.partition_count_change = match kafka.partition_count_change {
        weir_config::PartitionCountChange::Refuse => weir_sink_kafka::PartitionCountChange::Refuse,
        weir_config::PartitionCountChange::Flush => weir_sink_kafka::PartitionCountChange::Flush,
    };
    config.create_topics = kafka.create_topics.then(|| weir_sink_kafka::CreateTopics {
        partitions: kafka.partitions.get(),
        replication_factor: kafka.replication_factor.map(std::num::NonZeroU16::get),
    });
    config.message_too_large = match kafka.message_too_large {
        weir_config::MessageTooLarge::Error => weir_sink_kafka::MessageTooLarge::Error,
        weir_config::MessageTooLarge::SkipAndLog => weir_sink_kafka::MessageTooLarge::SkipAndLog,
        weir_config::MessageTooLarge::KeysOnly => weir_sink_kafka::MessageTooLarge::KeysOnly,
    };
    config.librdkafka.clone_from(&kafka.librdkafka);
    config.canal.enum_as = codec_enum(kafka.enum_as);
    config.canal.time_zone = codec_offset(kafka.time_zone);
    config.router = Arc::clone(router);
    config.request_timeout = ends.connect_timeout();
    config
}
