//! Writes one span.
//!
//! Nothing here waits: a span that has no room, whose topic is not known yet, or whose
//! messages have to arrive before it goes on says so in `ready`, and is woken by what it
//! waits for.

use std::sync::Arc;

use weir_binlog::RowImages;
use weir_codec::TableEncoder;
use weir_protocol::collector::EventBatch;
use weir_protocol::sink::SinkWork;
use weir_sink::contract::{DdlDone, Reached, SpanWriter, WorkerContext};
use weir_sink::{Result as SinkResult, SinkError, SpanTable};
use weir_types::{
    Classified, DdlEvent, DdlKind, DispatcherId, ErrorClass, OrderKey, TableName, TableVersion,
};

use crate::backend::Shared;
use crate::ddl;
use crate::delivery::SpanDelivery;
use crate::error::{KafkaSinkError, Result};
use crate::partition::murmur2;
use crate::rows::{Handed, Room, Sender, TopicUse};

/// The topic of a span, and what it was found out from.
struct Known {
    topic: TopicUse,
    generation: u64,
}

/// The table of a span.
struct Table {
    source: TableName,
    target: TableName,
    target_hash: u32,
    /// Rows up to here have arrived.
    after: OrderKey,
    topic: Arc<str>,
    known: Option<Known>,
    encoder: Option<(Arc<TableVersion>, TableEncoder)>,
}

/// Writer of one span.
pub(crate) struct KafkaSpan {
    shared: Arc<Shared>,
    dispatcher: DispatcherId,
    /// None for a span of DDL only.
    table: Option<Table>,
    delivery: Arc<SpanDelivery>,
    room: Room,
    /// Last row event that was handed over.
    last: OrderKey,
    durable: OrderKey,
    /// A DDL whose messages are handed over.
    ddl: Option<OrderKey>,
}

impl KafkaSpan {
    pub(crate) fn new(
        shared: Arc<Shared>,
        dispatcher: DispatcherId,
        table: Option<(&SpanTable, Arc<str>)>,
    ) -> Self {
        let table = table.map(|(table, topic)| Table {
            source: table.source.clone(),
            target: table.target.clone(),
            target_hash: murmur2(table.target.to_string().as_bytes()),
            after: table.after,
            topic,
            known: None,
            encoder: None,
        });
        Self {
            delivery: SpanDelivery::new(dispatcher, &shared.ledger),
            shared,
            dispatcher,
            table,
            room: Room::default(),
            last: OrderKey::MIN,
            durable: OrderKey::MIN,
            ddl: None,
        }
    }

    /// Takes over what has arrived.
    fn look(&mut self) -> Result<()> {
        self.shared.metrics.in_flight(self.shared.ledger.bytes());
        match self.delivery.reached() {
            Ok(reached) => self.durable = self.durable.max(reached),
            // What the topic of one table refuses is told when all of the statement is decided.
            Err(error) if self.leaves_out(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether an error is that of one table which is not of this span: a table that is
    /// being made, whose topic gets the statement by the span of the schema.
    fn leaves_out(&self, error: &KafkaSinkError) -> bool {
        self.table.is_none()
            && self.shared.names.ddl_follows_rows()
            && error.class() == ErrorClass::Table
            && !matches!(error, KafkaSinkError::TooLarge { .. })
    }

    fn can_write(&mut self) -> Result<bool> {
        let Some(table) = &mut self.table else {
            return Ok(true);
        };
        let generation = self.shared.cluster.generation();
        if table
            .known
            .as_ref()
            .is_none_or(|known| known.generation != generation)
        {
            let idle = self.delivery.is_empty();
            let Some(topic) = self.shared.topic(&table.topic, self.dispatcher, idle)? else {
                return Ok(false);
            };
            // Spread by another number or sent by another producer, rows could overtake
            // those that are under way.
            let differs = |known: &Known| {
                known.topic.partitions != topic.partitions
                    || known.topic.message_max_bytes != topic.message_max_bytes
            };
            if !idle && table.known.as_ref().is_some_and(differs) {
                return Ok(false);
            }
            table.known = Some(Known { topic, generation });
        }
        Ok(self.delivery.has_room())
    }

    /// Hands over the messages of a DDL once all rows have arrived; true when they have
    /// arrived too.
    fn ddl_arrived(&mut self, key: OrderKey, event: &DdlEvent, worker: &WorkerContext) -> SinkResult<bool> {
        if event.kind == DdlKind::ImplicitCreate {
            return Ok(true);
        }
        if !self.delivery.is_empty() {
            return Ok(false);
        }
        if self.ddl == Some(key) {
            if let Err(error) = self.delivery.reached() {
                // `look` has let it pass. Nothing else is under way.
                self.shared.leave_out(event, &error);
                self.delivery = SpanDelivery::new(self.dispatcher, &self.shared.ledger);
            }
            return Ok(true);
        }
        let mut topics = Vec::new();
        let leaves_out = self.table.is_none() && self.shared.names.ddl_follows_rows();
        for place in ddl::places(&self.shared, event, leaves_out)? {
            // Nothing of this span is under way.
            match self.shared.topic(&place.topic, self.dispatcher, true) {
                Ok(Some(topic)) => topics.push((place, topic)),
                Ok(None) => return Ok(false),
                Err(error) if self.leaves_out(&error) => self.shared.leave_out(event, &error),
                Err(error) => return Err(error.into()),
            }
        }
        let unit = self.delivery.begin(self.last);
        for (place, topic) in &topics {
            let sender = Sender {
                shared: &self.shared,
                worker,
                unit: &unit,
                topic,
                target: &place.target,
                target_hash: 0,
            };
            ddl::send(&sender, key, event)?;
        }
        self.ddl = Some(key);
        unit.seal();
        Ok(self.delivery.is_empty())
    }

    fn encoder<'t>(
        shared: &Shared,
        table: &'t mut Table,
        version: &Arc<TableVersion>,
    ) -> SinkResult<&'t mut TableEncoder> {
        let known = table
            .encoder
            .take()
            .filter(|(known, _)| Arc::ptr_eq(known, version) || known == version);
        let encoder = match known {
            Some(known) => known,
            None if table.source == version.name => {
                (Arc::clone(version), shared.format.table(version, &table.target)?)
            }
            None => {
                return Err(SinkError::WrongTable {
                    expected: table.source.to_string(),
                    found: version.name.to_string(),
                });
            }
        };
        Ok(&mut table.encoder.insert(encoder).1)
    }

    fn send(&mut self, batch: &EventBatch, worker: &WorkerContext) -> SinkResult<Handed> {
        let mut handed = Handed::default();
        let Some(table) = &mut self.table else {
            return Ok(handed);
        };
        // `ready` has found it.
        let Some(topic) = table.known.as_ref().map(|known| known.topic.clone()) else {
            return Err(SinkError::Panicked);
        };
        let unit = self.delivery.begin(batch.last);
        let mut images = RowImages::default();
        let (target, target_hash) = (table.target.clone(), table.target_hash);
        let sender = Sender {
            shared: &self.shared,
            worker,
            unit: &unit,
            topic: &topic,
            target: &target,
            target_hash,
        };
        for slice in &batch.slices {
            let after = table.after;
            let encoder = Self::encoder(&self.shared, table, &slice.block.version)?;
            for event in slice.iter() {
                let event = event?;
                if event.key <= self.last {
                    return Err(SinkError::OutOfOrder {
                        key: event.key,
                        last: self.last,
                    });
                }
                self.last = event.key;
                if event.key > after {
                    sender.event(encoder, &event, &mut images, &mut self.room, &mut handed)?;
                }
            }
        }
        unit.seal();
        Ok(handed)
    }
}

impl SpanWriter for KafkaSpan {
    fn ready(&mut self, work: &SinkWork, worker: &mut WorkerContext) -> SinkResult<bool> {
        self.look()?;
        Ok(match work {
            SinkWork::Rows(_) => self.can_write()?,
            SinkWork::Flush | SinkWork::Close => self.delivery.is_empty(),
            SinkWork::Ddl { key, event } => self.ddl_arrived(*key, event, worker)?,
        })
    }

    fn write(&mut self, batch: &EventBatch, worker: &mut WorkerContext) -> SinkResult<()> {
        let handed = self.send(batch, worker)?;
        self.shared.metrics.in_flight(self.shared.ledger.bytes());
        self.shared.counters.add_rows(handed.counts, handed.bytes);
        worker.count_rows(handed.counts, handed.bytes);
        Ok(())
    }

    fn settle(&mut self, _: &mut WorkerContext) -> SinkResult<()> {
        // The client has its own copy of every message; the ledger counts it.
        Ok(())
    }

    fn flush(&mut self, _: &mut WorkerContext) -> SinkResult<()> {
        // `ready` has waited for everything.
        Ok(self.look()?)
    }

    fn ddl(&mut self, _: OrderKey, event: &DdlEvent, worker: &mut WorkerContext) -> SinkResult<DdlDone> {
        self.look()?;
        if event.kind != DdlKind::ImplicitCreate {
            self.ddl = None;
            self.shared.counters.add_ddl();
            worker.count_ddl();
        }
        Ok(DdlDone::default())
    }

    fn tick(&mut self, _: &mut WorkerContext) -> SinkResult<()> {
        Ok(self.look()?)
    }

    fn reached(&mut self) -> Reached {
        Reached {
            durable: self.durable,
            needs_commit: false,
        }
    }

    fn due(&self) -> Option<u64> {
        None
    }
}

impl Drop for KafkaSpan {
    fn drop(&mut self) {
        if let Some(table) = &self.table {
            self.shared.leave(&table.target);
        }
    }
}
