//! Descriptions of every stage's metrics, registered once.

/// Registers the descriptions of all stages.
pub(crate) fn describe_all() {
    weir_source::metrics::describe();

    weir_event_store::metrics::describe();
    weir_event_service::metrics::describe();
    weir_event_collector::metrics::describe();
    weir_dispatcher::metrics::describe();
    weir_changefeed::metrics::describe();
    weir_sink::metrics::describe();
    weir_sink_kafka::metrics::describe();
    weir_sink_mysql::metrics::describe();
}
