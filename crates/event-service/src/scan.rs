//! One scan: the next DDL of the span, then the rows before it. Runs on a scan thread;
//! reads the store and nothing else.

use std::fmt;
use std::sync::Arc;

use weir_event_store::{ScanEnd, ScanRequest, StoreReader};
use weir_protocol::collector::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, EventBatch, charge};
use weir_protocol::service::{Member, Span};
use weir_types::{Classified, DdlEvent, DdlKind, DispatcherId, Epoch, ErrorReport, OrderKey, TableName};

use crate::error::{ServiceError, check_slices};
use crate::merge::{Limits, merge};

/// Entries of the DDL history that are read at a time.
const DDL_PAGE: usize = 256;

/// Which DDL the schema span is to see: what the changefeed's filter lets through.
pub type DdlFilter = Arc<dyn Fn(&DdlEvent) -> bool + Send + Sync>;

/// A DDL and its place.
pub type PlacedDdl = (OrderKey, Arc<DdlEvent>);

/// Whether the span takes part in the DDL at `key`. The implicit creation of a table
/// concerns the schema span alone: the table's own stream starts behind it.
pub fn concerns(span: &Span, key: OrderKey, event: &DdlEvent, filter: &DdlFilter) -> bool {
    match span {
        Span::Table(table) => event.kind != DdlKind::ImplicitCreate && event.concerns(table),
        Span::Tables(members) => {
            let takes_part = |member: &Member| member.after < key && event.concerns(&member.table);
            event.kind != DdlKind::ImplicitCreate && members.iter().any(takes_part)
        }
        Span::Schema => event.kind.is_structural() && filter(event),
    }
}

/// The first DDL of the span in `ddls`. An implicit creation has the ordinal before its
/// table's first row event and may share that key with another statement: what it makes
/// is added to that one, so that a key names one event of a span.
pub fn first_concerning<'a>(
    span: &Span,
    ddls: impl Iterator<Item = &'a PlacedDdl>,
    filter: &DdlFilter,
) -> Option<PlacedDdl> {
    let mut found: Option<PlacedDdl> = None;
    for (key, event) in ddls {
        if found.as_ref().is_some_and(|(first, _)| first != key) {
            break;
        }
        if !concerns(span, *key, event, filter) {
            continue;
        }
        found = Some(match found {
            None => (*key, Arc::clone(event)),
            Some((key, first)) => (key, Arc::new(merged(&first, event))),
        });
    }
    found
}

fn merged(first: &DdlEvent, second: &DdlEvent) -> DdlEvent {
    let (base, added) = if first.kind == DdlKind::ImplicitCreate {
        (second, first)
    } else {
        (first, second)
    };
    let mut event = base.clone();
    for table in &added.makes {
        if !event.makes.contains(table) {
            event.makes.push(table.clone());
        }
    }
    event
}

/// What is known of the DDL in the range of a scan.
#[derive(Clone, Debug)]
pub enum DdlAhead {
    /// Nothing: the history behind this key is to be read.
    Unread(OrderKey),
    /// No DDL of the span up to the end of the scan.
    Clear,
    /// This one is the first.
    At(PlacedDdl),
}

/// One scan of one stream.
#[derive(Clone, Debug)]
pub struct ScanJob {
    /// The stream.
    pub dispatcher: DispatcherId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// What it reads.
    pub span: Span,
    /// Start, exclusive.
    pub after: OrderKey,
    /// End, inclusive.
    pub upto: OrderKey,
    /// The barrier that ends the scan earlier.
    pub ddl: DdlAhead,
    /// Credit.
    pub bytes_max: u64,
    /// What the next row event takes, bytes, if an earlier scan found it larger than a
    /// batch and the credit allows it; else 0.
    pub needs: u64,
    /// The next row event goes through the reserved lane, by itself.
    pub lane: bool,
}

/// What a scan found.
#[derive(Clone)]
pub struct ScanDone {
    /// The stream.
    pub dispatcher: DispatcherId,
    /// Its incarnation when the scan began.
    pub epoch: Epoch,
    /// Start of the scan, exclusive.
    pub after: OrderKey,
    /// No DDL of the span in `(after, clear_upto]` but `ddl`.
    pub clear_upto: OrderKey,
    /// The DDL that the scan stopped before.
    pub ddl: Option<PlacedDdl>,
    /// The rows.
    pub batch: Option<Arc<EventBatch>>,
    /// The table of the row event that was too large, if one was.
    pub large: Option<TableName>,
    /// Where it stopped, or why it failed.
    pub end: Result<ScanEnd, ErrorReport>,
}

impl fmt::Debug for ScanDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanDone")
            .field("dispatcher", &self.dispatcher)
            .field("epoch", &self.epoch)
            .field("batch", &self.batch)
            .field("ddl", &self.ddl)
            .field("end", &self.end)
            .finish()
    }
}

impl ScanJob {
    /// Reads the store.
    pub fn run(self, store: &dyn StoreReader, filter: &DdlFilter) -> ScanDone {
        let mut done = ScanDone {
            dispatcher: self.dispatcher,
            epoch: self.epoch,
            after: self.after,
            clear_upto: self.upto,
            ddl: None,
            batch: None,
            large: None,
            end: Ok(ScanEnd::Exhausted),
        };
        match self.read(store, filter, &mut done) {
            Ok(end) => done.end = Ok(end),
            Err(report) => {
                done.batch = None;
                done.end = Err(report);
            }
        }
        done
    }

    fn read(
        &self,
        store: &dyn StoreReader,
        filter: &DdlFilter,
        done: &mut ScanDone,
    ) -> Result<ScanEnd, ErrorReport> {
        done.ddl = match &self.ddl {
            DdlAhead::Clear => None,
            DdlAhead::At(ddl) => Some(ddl.clone()),
            DdlAhead::Unread(after) => {
                next_ddl(store, &self.span, *after, self.upto, filter).map_err(|e| report(&e))?
            }
        };
        let upto = match &done.ddl {
            Some((key, _)) => key.before(),
            None => self.upto,
        };
        match &self.span {
            Span::Schema => Ok(ScanEnd::Exhausted),
            _ if upto <= self.after => Ok(ScanEnd::Exhausted),
            Span::Tables(_) => {
                let limits = self.limits(upto);
                let merged = merge(store, self.span.behind(self.after), limits)?;
                done.batch = into_batch(merged.slices, self.lane);
                done.large = merged.large;
                Ok(merged.end)
            }
            Span::Table(table) => {
                let outcome = store
                    .scan(&self.request(table.clone(), upto))
                    .map_err(|e| report(&e))?;
                check_slices(table, &outcome.slices, self.after, upto).map_err(|e| report(&e))?;
                done.batch = into_batch(outcome.slices, self.lane);
                done.large = matches!(outcome.end, ScanEnd::TooLarge { .. }).then(|| table.clone());
                if done.batch.is_none() && outcome.end == ScanEnd::More {
                    return Err(report(&ServiceError::StoreContract {
                        table: table.clone(),
                        what: "a scan returned nothing and asked to be repeated",
                    }));
                }
                Ok(outcome.end)
            }
        }
    }

    fn request(&self, table: TableName, upto: OrderKey) -> ScanRequest {
        let limits = self.limits(upto);
        ScanRequest {
            table,
            after: self.after,
            upto: limits.upto,
            bytes_max: limits.bytes_max,
            events_max: limits.events_max,
            lane: limits.lane,
        }
    }

    fn limits(&self, upto: OrderKey) -> Limits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // A row event larger than a batch passes by itself if the credit allows it.
        let batch = BATCH_BYTES_MAX.max(size(self.needs));
        Limits {
            upto,
            // In the lane the row event passes by itself, whatever the credit is.
            bytes_max: if self.lane {
                0
            } else {
                size(self.bytes_max).min(batch)
            },
            events_max: if self.lane { 1 } else { BATCH_EVENTS_MAX },
            lane: self.lane,
        }
    }
}

fn report<E: Classified>(error: &E) -> ErrorReport {
    ErrorReport::new(error)
}

/// The first DDL of the span in `(after, upto]`.
fn next_ddl(
    store: &dyn StoreReader,
    span: &Span,
    mut after: OrderKey,
    upto: OrderKey,
    filter: &DdlFilter,
) -> Result<Option<PlacedDdl>, weir_event_store::error::StoreError> {
    loop {
        let page = store.ddls(after, upto, DDL_PAGE)?.ddls;
        let Some(last) = page.last().map(|(key, _)| *key) else {
            return Ok(None);
        };
        let full = page.len() >= DDL_PAGE;
        // The page's border may cut events that share its last key.
        let cut = if full {
            store.ddls(last.before(), last, 0)?.ddls
        } else {
            Vec::new()
        };
        let whole = page.iter().filter(|(key, _)| !full || *key != last).chain(&cut);
        let found = first_concerning(span, whole, filter);
        if found.is_some() || !full {
            return Ok(found);
        }
        after = last;
    }
}

fn into_batch(slices: Vec<weir_types::BlockSlice>, lane: bool) -> Option<Arc<EventBatch>> {
    let (first, last) = (slices.first()?.first, slices.last()?.last);
    let events = slices.iter().map(|slice| slice.events as usize).sum();
    let bytes = charge(&slices);
    Some(Arc::new(EventBatch {
        slices,
        events,
        bytes,
        first,
        last,
        lane,
    }))
}

#[cfg(test)]
mod tests {
    use weir_types::{CommitTs, TableName};

    use super::*;

    fn ddl(kind: DdlKind, table: &str) -> Arc<DdlEvent> {
        let name = TableName::new("s", table);
        Arc::new(DdlEvent {
            kind,
            schema: Arc::from(""),
            session: Arc::default(),
            sql: Arc::from(""),
            writes: vec![name.clone()],
            makes: vec![name],
            reads: Vec::new(),
            commit_time_ms: 0,
        })
    }

    #[test]
    fn an_implicit_creation_joins_the_statement_whose_key_it_has() {
        let key = OrderKey::new(CommitTs(5), 1);
        let later = OrderKey::new(CommitTs(6), 1);
        let filter: DdlFilter = Arc::new(|event| event.writes.iter().all(|t| &*t.table != "unwanted"));
        let page = [
            (key, ddl(DdlKind::ImplicitCreate, "unwanted")),
            (key, ddl(DdlKind::ImplicitCreate, "a")),
            (key, ddl(DdlKind::CreateTable, "b")),
            (later, ddl(DdlKind::CreateTable, "c")),
        ];
        let (at, event) = first_concerning(&Span::Schema, page.iter(), &filter).unwrap();
        assert_eq!((at, event.kind), (key, DdlKind::CreateTable));
        let makes: Vec<_> = event.makes.iter().map(|table| &*table.table).collect();
        assert_eq!(makes, ["b", "a"]);
        // A table's own stream starts behind its implicit creation.
        let span = Span::Table(TableName::new("s", "a"));
        assert!(first_concerning(&span, page.iter(), &filter).is_none());
        let span = Span::Table(TableName::new("s", "c"));
        assert_eq!(
            first_concerning(&span, page.iter(), &filter).map(|(key, _)| key),
            Some(later)
        );
    }
}
