//! How a dispatcher comes to be: its actor first, then its span at the sink, then its
//! stream. In this order every message finds its receiver.

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, Addr};
use weir_actor::post_to;
use weir_changefeed::{DispatcherFactory, DispatcherHandles, Maintainer};
use weir_dispatcher::{Dispatcher, Links, MaintainerLinks, TableLabels};
use weir_event_collector::EventCollector;
use weir_filter::{Router, TableFilter};
use weir_protocol::dispatcher::AddDispatcher;
use weir_protocol::service::Span;
use weir_sink::{OpenSpan, SinkActor, SpanRecipients, SpanTable};
use weir_types::{DispatcherId, ErrorReport, OrderKey, TableName};

use crate::ends::check_apart;
use crate::error::ServerError;
use crate::filter_history::FilterHistory;
use crate::pipeline::Exits;

/// What dispatchers are wired with.
pub(crate) struct FactoryParts {
    pub(crate) sink: Addr<SinkActor>,
    pub(crate) collector: Addr<EventCollector>,
    pub(crate) router: Arc<Router>,
    pub(crate) history: Arc<FilterHistory>,
    /// Both ends are one server: what it lets through must not be a target.
    pub(crate) one_server: Option<Arc<TableFilter>>,
    pub(crate) labels: TableLabels,
    pub(crate) exits: Exits,
}

fn maintainer_links(maintainer: &Addr<Maintainer>) -> MaintainerLinks {
    MaintainerLinks {
        heartbeat: maintainer.clone().recipient(),
        reached: maintainer.clone().recipient(),
        written: maintainer.clone().recipient(),
        register: maintainer.clone().recipient(),
        flushed: maintainer.clone().recipient(),
        failed: maintainer.clone().recipient(),
    }
}

impl FactoryParts {
    /// The factory that the maintainer calls, on the flow thread.
    pub(crate) fn into_factory(self) -> DispatcherFactory {
        // Target → source: two tables with rows at one target would mix their rows.
        let mut targets: HashMap<TableName, TableName> = HashMap::new();
        Box::new(move |id, span, after, maintainer| {
            let tables = self.span_tables(&span, after, &mut targets)?;
            let links = Links {
                sink: self.sink.clone().recipient(),
                resume: self.collector.clone().recipient(),
                released: self.collector.clone().recipient(),
                maintainer: maintainer_links(maintainer),
            };
            let exit = self.exits.guard("dispatcher");
            let dispatcher = Dispatcher::new(id, span.clone(), after, links, &self.labels, exit).start();
            self.open_span(id, tables, &dispatcher);
            let deliver_to = dispatcher.clone().recipient();
            post_to(
                &self.collector,
                AddDispatcher {
                    dispatcher: id,
                    span,
                    after,
                    deliver_to,
                },
            );
            Ok(DispatcherHandles {
                barrier: dispatcher.clone().recipient(),
                flush: dispatcher.clone().recipient(),
                end: dispatcher.recipient(),
            })
        })
    }

    fn span_tables(
        &self,
        span: &Span,
        after: OrderKey,
        targets: &mut HashMap<TableName, TableName>,
    ) -> Result<Vec<SpanTable>, ErrorReport> {
        span.behind(after)
            .map(|(source, after)| self.span_table(source, after, targets))
            .collect()
    }

    fn span_table(
        &self,
        source: &TableName,
        after: OrderKey,
        targets: &mut HashMap<TableName, TableName>,
    ) -> Result<SpanTable, ErrorReport> {
        if self.history.excluded_once(source) {
            let table = source.clone();
            return Err(ErrorReport::new(&ServerError::ExcludedOnce { table }));
        }
        let target = self.router.route(source);
        if let Some(filter) = &self.one_server {
            let tables = std::slice::from_ref(source);
            check_apart(tables, filter, &self.router).map_err(|e| ErrorReport::new(&e))?;
        }
        let first = targets.entry(target.clone()).or_insert_with(|| source.clone());
        if first != source {
            return Err(ErrorReport::new(&ServerError::RouteCollision {
                target,
                first: first.clone(),
                second: source.clone(),
            }));
        }
        Ok(SpanTable {
            source: source.clone(),
            target,
            after,
        })
    }

    fn open_span(&self, dispatcher: DispatcherId, tables: Vec<SpanTable>, actor: &Addr<Dispatcher>) {
        let replies = SpanRecipients {
            durable: actor.clone().recipient(),
            ddl_written: actor.clone().recipient(),
            failed: actor.clone().recipient(),
        };
        post_to(
            &self.sink,
            OpenSpan {
                dispatcher,
                tables,
                replies: Arc::new(replies),
            },
        );
    }
}
