//! Turns rows into messages and hands them over.

use std::sync::Arc;
use std::time::Duration;

use weir_binlog::RowImages;
use weir_codec::canal::RowChange;
use weir_codec::{RowCounts, TableEncoder};
use weir_sink::contract::WorkerContext;
use weir_sink::{Blocked, Result as SinkResult, SinkError};
use weir_types::{OrderKey, RowEvent, RowKind, TableName};

use crate::backend::Shared;
use crate::client::{Producer, Sent};
use crate::config::{MessageTooLarge, PartitionBy};
use crate::delivery::{Unit, message_cost};
use crate::error::{KafkaSinkError, Result};
use crate::partition::{murmur2, spread};

/// What a batch of one message has besides its key and value, bytes: the header of the
/// batch (61) and that of the record.
const RECORD_OVERHEAD: usize = 128;
/// Wait for librdkafka to have room. Its limits are above those of the ledger, so that
/// this is rare.
const FULL_WAIT: Duration = Duration::from_millis(5);

/// A topic, as messages are sent to it.
#[derive(Clone, Debug)]
pub(crate) struct TopicUse {
    pub(crate) name: Arc<str>,
    /// Partitions that rows are spread over.
    pub(crate) partitions: u32,
    /// Largest batch that it takes, bytes.
    pub(crate) message_max_bytes: usize,
    pub(crate) producer: Producer,
}

/// Hands over the messages of one unit.
pub(crate) struct Sender<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) worker: &'a WorkerContext,
    pub(crate) unit: &'a Arc<Unit>,
    pub(crate) topic: &'a TopicUse,
    /// Name at the target.
    pub(crate) target: &'a TableName,
    /// Hash of the name.
    pub(crate) target_hash: u32,
}

/// Room that is used again from row to row.
#[derive(Default)]
pub(crate) struct Room {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What was handed over.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handed {
    pub(crate) counts: RowCounts,
    pub(crate) bytes: u64,
}

impl Sender<'_> {
    /// Sends all rows of an event.
    pub(crate) fn event<'e>(
        &self,
        encoder: &mut TableEncoder,
        event: &RowEvent<'e>,
        images: &mut RowImages<'e>,
        room: &mut Room,
        handed: &mut Handed,
    ) -> SinkResult<()> {
        encoder.for_each_row(event, images, |encoder, change| {
            let bytes = self.row(encoder, change, room)?;
            handed.counts.add(change.kind, 1);
            handed.bytes += bytes as u64;
            Ok::<_, SinkError>(())
        })?;
        Ok(())
    }

    /// Sends a row change: a change of the key as the end of the one and the begin of
    /// the other.
    fn row(
        &self,
        encoder: &mut TableEncoder,
        change: &RowChange<'_, '_>,
        room: &mut Room,
    ) -> SinkResult<usize> {
        if change.kind == RowKind::Update && encoder.key_changed(change, &mut room.key, &mut room.value)? {
            let end = RowChange {
                kind: RowKind::Delete,
                after: None,
                ..*change
            };
            let begin = RowChange {
                // What the new row lacks in a minimal image, the old one has.
                kind: RowKind::Insert,
                ..*change
            };
            return Ok(self.message(encoder, &end, room)? + self.message(encoder, &begin, room)?);
        }
        self.message(encoder, change, room)
    }

    fn message(
        &self,
        encoder: &mut TableEncoder,
        change: &RowChange<'_, '_>,
        room: &mut Room,
    ) -> SinkResult<usize> {
        let Room { key, value } = room;
        key.clear();
        value.clear();
        let keyed = encoder.write_change_key(key, change)?;
        encoder.write_message(value, change)?;
        let limit = self.limit();
        if key.len() + value.len() > limit && !self.too_large(encoder, change, key.len(), value, limit)? {
            return Ok(0);
        }
        let partition = self.partition(change.key, keyed.then_some(key.as_slice()));
        self.send(partition, keyed.then_some(key.as_slice()), value)?;
        Ok(key.len() + value.len())
    }

    /// Most bytes of key and value.
    pub(crate) const fn limit(&self) -> usize {
        self.topic.message_max_bytes.saturating_sub(RECORD_OVERHEAD)
    }

    fn partition(&self, place: OrderKey, key: Option<&[u8]>) -> u32 {
        let hash = match (self.shared.config.partition, key) {
            (PartitionBy::Key, Some(key)) => murmur2(key),
            (PartitionBy::Key, None) | (PartitionBy::Table, _) => self.target_hash,
            (PartitionBy::Transaction, _) => murmur2(&place.commit_ts.0.to_be_bytes()),
        };
        spread(hash, self.topic.partitions)
    }

    /// A message is larger than its topic takes; whether what stands in `value` now is
    /// sent instead.
    fn too_large(
        &self,
        encoder: &mut TableEncoder,
        change: &RowChange<'_, '_>,
        key_bytes: usize,
        value: &mut Vec<u8>,
        limit: usize,
    ) -> SinkResult<bool> {
        let bytes = key_bytes + value.len();
        let error = || KafkaSinkError::TooLarge {
            table: self.target.clone(),
            topic: self.topic.name.to_string(),
            place: format!("{} row {}", change.key, change.row),
            bytes,
            limit,
        };
        let policy = self.shared.config.message_too_large;
        if policy == MessageTooLarge::KeysOnly {
            value.clear();
            encoder.write_keys_only(value, change)?;
        }
        match policy {
            MessageTooLarge::Error => Err(error().into()),
            MessageTooLarge::KeysOnly if key_bytes + value.len() > limit => Err(error().into()),
            MessageTooLarge::KeysOnly | MessageTooLarge::SkipAndLog => {
                let sent = policy == MessageTooLarge::KeysOnly;
                self.shared.metrics.too_large(sent);
                self.shared.tell_too_large(&error(), sent);
                Ok(sent)
            }
        }
    }

    /// Hands a message over; waits while there is no room for it.
    pub(crate) fn send(&self, partition: u32, key: Option<&[u8]>, value: &[u8]) -> Result<()> {
        let cost = message_cost(key.map_or(0, <[u8]>::len), value.len());
        self.unit.add(cost);
        loop {
            let topic = self.topic;
            let sent = topic.producer.send(&topic.name, partition, key, value, self.unit);
            let error = match sent {
                Ok(()) => return Ok(()),
                Err(Sent::Full) if self.worker.pause(FULL_WAIT, Blocked::Unavailable) => continue,
                Err(Sent::Full) => KafkaSinkError::Stopping,
                Err(Sent::Failed(error)) => error,
            };
            self.unit.take_back(cost);
            return Err(error);
        }
    }
}
