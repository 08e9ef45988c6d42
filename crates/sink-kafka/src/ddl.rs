//! DDL as messages: on partition 0 of each topic that the statement concerns, without a
//! key, behind all rows of its tables.

use std::sync::Arc;

use weir_sink::Result as SinkResult;
use weir_types::{DdlEvent, OrderKey, TableName};

use crate::backend::Shared;
use crate::config::MessageTooLarge;
use crate::error::{KafkaSinkError, Result};
use crate::rows::Sender;

/// Where a DDL is written to.
pub(crate) struct Place {
    pub(crate) topic: Arc<str>,
    /// The table that the message names: the first one of the topic.
    pub(crate) target: TableName,
}

/// Topics of a DDL, each once. `leaves_out`: an error of one topic leaves the statement out of it.
pub(crate) fn places(shared: &Shared, event: &DdlEvent, leaves_out: bool) -> Result<Vec<Place>> {
    let router = &shared.config.router;
    let mut places: Vec<Place> = Vec::new();
    for name in event.writes.iter().filter(|name| shared.wants(name)) {
        let target = if name.table.is_empty() {
            let schema = router.route_schema(&name.schema);
            TableName::new(schema.map_or_else(|| Arc::clone(&name.schema), Arc::from), "")
        } else {
            router.route(name)
        };
        let topic = match shared.names.ddl_topic(&target) {
            Ok(Some(topic)) => topic,
            Ok(None) => continue,
            Err(error) if leaves_out => {
                shared.leave_out(event, &error);
                continue;
            }
            Err(error) => return Err(error),
        };
        if places.iter().all(|place| place.topic != topic) {
            places.push(Place { topic, target });
        }
    }
    Ok(places)
}

/// Hands over the message of a DDL.
pub(crate) fn send(sender: &Sender<'_>, key: OrderKey, event: &DdlEvent) -> SinkResult<()> {
    let mut value = Vec::new();
    sender
        .shared
        .format
        .ddl_message(&mut value, key, event, sender.target)?;
    let limit = sender.limit();
    if value.len() > limit {
        // A statement has no key that could be sent without it.
        let error = KafkaSinkError::TooLarge {
            table: sender.target.clone(),
            topic: sender.topic.name.to_string(),
            place: format!("{key}, a DDL,"),
            bytes: value.len(),
            limit,
        };
        if sender.shared.config.message_too_large == MessageTooLarge::Error {
            return Err(error.into());
        }
        sender.shared.metrics.too_large(false);
        sender.shared.tell_too_large(&error, false);
        return Ok(());
    }
    Ok(sender.send(0, None, &value)?)
}
