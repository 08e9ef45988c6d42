//! Tables and row events for tests.

use std::sync::Arc;

use weir_types::{
    Block, BlockBuilder, BlockSlice, Column, CommitTs, Flavor, OrderKey, RowKind, TableName, TableVersion,
    WireType,
};

use crate::target::{TargetColumn, TargetKey, TargetTable};

/// A source column.
pub(crate) fn column(name: &str, wire: WireType, meta: u16) -> Column {
    Column {
        name: name.into(),
        wire,
        meta,
        nullable: true,
        unsigned: false,
        collation: 0,
        members: Vec::new(),
        geometry: 0,
        visible: true,
    }
}

/// A column of text or bytes.
pub(crate) fn text(name: &str, wire: WireType, meta: u16, collation: u16) -> Column {
    Column {
        collation,
        ..column(name, wire, meta)
    }
}

/// A table at the source.
pub(crate) fn version(columns: Vec<Column>) -> Arc<TableVersion> {
    Arc::new(TableVersion {
        name: TableName::new("s", "t"),
        flavor: Flavor::Mysql,
        columns,
        primary_key: Vec::new(),
    })
}

/// A column at the target.
pub(crate) fn at_target(name: &str, data_type: &str) -> TargetColumn {
    let text = matches!(data_type, "char" | "varchar" | "text" | "enum" | "set");
    TargetColumn {
        name: name.to_owned(),
        data_type: data_type.to_owned(),
        column_type: data_type.to_owned(),
        charset: text.then(|| "utf8mb4".to_owned()),
        collation: text.then(|| "utf8mb4_0900_ai_ci".to_owned()),
        nullable: true,
        generated: false,
        has_default: false,
        auto_increment: false,
    }
}

/// A key at the target.
pub(crate) fn key(columns: &[usize], primary: bool) -> TargetKey {
    TargetKey {
        name: format!("k{columns:?}"),
        columns: columns.to_vec(),
        primary,
        nullable: !primary,
        functional_or_prefix: false,
    }
}

/// A table at the target.
pub(crate) fn target(columns: Vec<TargetColumn>, keys: Vec<TargetKey>) -> TargetTable {
    TargetTable {
        name: TableName::new("d", "t"),
        columns,
        keys,
        foreign: false,
        flavor: Flavor::Mysql,
        transactional: true,
    }
}

/// A row of INT columns.
pub(crate) type Ints = Vec<Option<i32>>;

/// Images of INT rows as a rows event has them: one of each row, or two for an update.
pub(crate) fn body(kind: RowKind, images: &[&Ints]) -> Vec<u8> {
    let columns = images.first().map_or(0, |image| image.len());
    let mut body = vec![u8::try_from(columns).unwrap()];
    let sets = if kind == RowKind::Update { 2 } else { 1 };
    for _ in 0..sets {
        body.push(u8::try_from((1_u16 << columns) - 1).unwrap());
    }
    for image in images {
        let nulls = image.iter().enumerate().filter(|(_, value)| value.is_none());
        body.push(nulls.fold(0, |bits, (at, _)| bits | 1 << at));
        for value in image.iter().flatten() {
            body.extend_from_slice(&value.to_le_bytes());
        }
    }
    body
}

/// A slice of row events, each a transaction of its own; the first has commit-ts
/// `first`.
pub(crate) fn slice(
    version: &Arc<TableVersion>,
    first: u64,
    events: &[(RowKind, u8, Vec<u8>)],
) -> BlockSlice {
    let mut builder = BlockBuilder::new(Arc::clone(version));
    for (at, (kind, flags, body)) in events.iter().enumerate() {
        builder.push(u32::try_from(at).unwrap(), 1, *kind, *flags, body);
    }
    let txns: Vec<_> = (first..).map(CommitTs).take(events.len()).collect();
    let (start, end) = (txns[0], txns[events.len() - 1]);
    BlockSlice::whole(Arc::new(Block {
        version: builder.version,
        txns,
        payload: builder.payload,
        events: builder.events,
        first: OrderKey::new(start, 1),
        last: OrderKey::new(end, 1),
    }))
}
