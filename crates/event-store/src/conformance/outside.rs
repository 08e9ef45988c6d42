//! What lies outside a table's coverage is refused.

use weir_types::{CommitTs, OrderKey, TableName};

use crate::contract::{Coverage, ScanRequest, StoreReader};
use crate::error::StoreError;

fn range(table: &TableName, after: OrderKey, upto: OrderKey) -> ScanRequest {
    ScanRequest {
        table: table.clone(),
        after,
        upto,
        bytes_max: 1 << 20,
        events_max: 1_000,
        lane: false,
    }
}

/// A range that is not covered is a definite error.
pub(super) fn check_outside(reader: &dyn StoreReader, table: &TableName, held: Coverage) {
    let later = OrderKey::end_of(CommitTs(held.to.commit_ts.0 + 1));
    let mut outside = vec![range(table, held.from, later)];
    if held.from > OrderKey::MIN {
        let before = held.from.before();
        outside.push(range(table, before, held.to));
        assert!(reader.check_start(table, before).is_err());
    }
    for request in outside {
        let error = reader.scan(&request).expect_err("it is not covered");
        assert!(matches!(error, StoreError::NotCovered { .. }), "{error}");
    }
    assert!(reader.check_start(table, held.from).is_ok());
    assert!(reader.check_start(table, later).is_err());
}

/// A detached table: no scan of it succeeds.
pub(super) fn check_ended(reader: &dyn StoreReader, table: &TableName, to: Option<OrderKey>) {
    if let Some(held) = reader.coverage(table) {
        assert!(held.ended && held.from < held.to);
        assert!(to.is_none_or(|to| held.to == to));
        let error = reader.scan(&range(table, held.from, held.to));
        assert!(matches!(error, Err(StoreError::Detached(_))));
    }
    let end = OrderKey::end_of(reader.resolved());
    assert!(matches!(
        reader.check_start(table, end),
        Err(StoreError::Detached(_))
    ));
    assert!(!reader.live_bytes().contains_key(table));
}
