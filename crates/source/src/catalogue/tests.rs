use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_binlog::{BareVersion, TableMap};
use weir_types::{Column, DdlKind, Flavor, TableName, WireType};

use super::fit::fit;
use super::*;

fn described(data_type: &str, column_type: &str) -> Described {
    Described {
        name: "c".to_owned(),
        data_type: data_type.to_owned(),
        column_type: column_type.to_owned(),
        nullable: true,
        visible: true,
        ..Described::default()
    }
}

fn text(data_type: &str, octets: u64) -> Described {
    Described {
        octets: Some(octets),
        collation: 45,
        charset: "utf8mb4".to_owned(),
        ..described(data_type, data_type)
    }
}

fn fraction(data_type: &str, digits: u64) -> Described {
    Described {
        fraction_digits: Some(digits),
        ..described(data_type, data_type)
    }
}

fn number(data_type: &str, precision: u64, scale: u64) -> Described {
    Described {
        precision: Some(precision),
        scale: Some(scale),
        ..described(data_type, data_type)
    }
}

/// A column of each type as it is in the binlog and in the catalogue.
fn types() -> Vec<(WireType, u16, Described)> {
    use WireType as W;
    let compressed = |mut column: Described| {
        column.column_type.push_str(" /*M!100301 COMPRESSED*/");
        column
    };
    vec![
        (W::Tiny, 0, described("tinyint", "tinyint")),
        (W::Short, 0, described("smallint", "smallint")),
        (W::Int24, 0, described("mediumint", "mediumint")),
        (W::Long, 0, described("int", "int(11)")),
        (W::LongLong, 0, described("bigint", "bigint")),
        (W::Float, 4, described("float", "float")),
        (W::Double, 8, described("double", "double")),
        (W::NewDecimal, 20 << 8 | 6, number("decimal", 20, 6)),
        (W::Year, 0, described("year", "year")),
        (W::Date, 0, described("date", "date")),
        (W::Time2, 3, fraction("time", 3)),
        (W::Datetime2, 6, fraction("datetime", 6)),
        (W::Timestamp2, 1, fraction("timestamp", 1)),
        (W::VarChar, 80, text("varchar", 80)),
        (W::String, 40, text("char", 40)),
        (W::String, 16, described("uuid", "uuid")),
        (W::String, 4, described("inet4", "inet4")),
        (
            W::Enum,
            1,
            Described {
                charset: "utf8mb4".to_owned(),
                ..described("enum", "enum('a','b')")
            },
        ),
        (
            W::Set,
            2,
            Described {
                charset: "utf8mb4".to_owned(),
                ..described("set", "set('1','2','3','4','5','6','7','8','9')")
            },
        ),
        (W::Bit, 11, number("bit", 11, 0)),
        (W::Blob, 1, text("tinytext", 255)),
        (W::Blob, 2, described("blob", "blob")),
        (W::Blob, 3, text("mediumtext", 16_777_215)),
        (W::Blob, 4, text("longtext", 4_294_967_295)),
        (W::Json, 4, described("json", "json")),
        (W::Geometry, 4, described("polygon", "polygon")),
        (W::Vector, 4, described("vector", "vector(3)")),
        (W::VarCharCompressed, 51, compressed(text("varchar", 50))),
        (W::BlobCompressed, 2, compressed(text("text", 65_535))),
    ]
}

fn bare(wire: WireType, meta: u16) -> BareVersion {
    BareVersion {
        columns: vec![Column {
            name: Arc::from(""),
            wire,
            meta,
            nullable: true,
            unsigned: false,
            collation: 0,
            members: Vec::new(),
            geometry: 0,
            visible: true,
        }],
        has_signedness: false,
        has_collations: false,
        has_list_collations: false,
        has_geometry_types: false,
    }
}

fn tried(bare: &BareVersion, column: &Described) -> Result<Column, String> {
    let found = Description {
        columns: vec![column.clone()],
        ..Description::default()
    };
    let version = fit(&TableName::new("s", "t"), Flavor::Mysql, bare, &found)?;
    version.columns.first().cloned().ok_or_else(String::new)
}

#[test]
fn a_type_fits_itself_and_no_other() {
    let types = types();
    for (at, (wire, meta, _)) in types.iter().enumerate() {
        for (other, (.., column)) in types.iter().enumerate() {
            let fits = tried(&bare(*wire, *meta), column).is_ok();
            assert_eq!(fits, at == other, "{wire:?} {meta} and {column:?}");
        }
        let longer = tried(&bare(*wire, meta + 1), &types[at].2).is_ok();
        let has_length = !matches!(
            wire,
            WireType::Tiny
                | WireType::Short
                | WireType::Int24
                | WireType::Long
                | WireType::LongLong
                | WireType::Float
                | WireType::Double
                | WireType::Year
                | WireType::Date
                | WireType::Json
                | WireType::Geometry
                | WireType::Vector
        );
        assert_eq!(longer, !has_length, "{wire:?}");
    }
}

#[test]
fn what_both_tell_must_agree() {
    let unsigned = described("int", "int(10) unsigned");
    assert!(tried(&bare(WireType::Long, 0), &unsigned).unwrap().unsigned);
    let mut told = bare(WireType::Long, 0);
    told.has_signedness = true;
    assert!(tried(&told, &unsigned).unwrap_err().contains("signed"));
    told.columns[0].unsigned = true;
    assert!(tried(&told, &unsigned).is_ok());
    told.columns[0].nullable = false;
    assert!(tried(&told, &unsigned).unwrap_err().contains("not nullable"));

    let mut told = bare(WireType::VarChar, 80);
    assert_eq!(tried(&told, &text("varchar", 80)).unwrap().collation, 45);
    (told.has_collations, told.columns[0].collation) = (true, 8);
    assert!(
        tried(&told, &text("varchar", 80))
            .unwrap_err()
            .contains("collation 8")
    );

    let mut two = bare(WireType::Long, 0);
    two.columns.push(two.columns[0].clone());
    assert!(
        tried(&two, &unsigned)
            .unwrap_err()
            .contains("2 columns in the binlog and 1")
    );
}

#[test]
fn members_of_other_charsets_are_kept_in_utf8() {
    let list = |charset: &str| Described {
        charset: charset.to_owned(),
        collation: 8,
        ..described("enum", "enum('ä')")
    };
    let column = tried(&bare(WireType::Enum, 1), &list("latin1")).unwrap();
    assert_eq!((&*column.members[0], column.collation), ("ä".as_bytes(), 45));
    assert_eq!(
        tried(&bare(WireType::Enum, 1), &list("utf8mb3"))
            .unwrap()
            .collation,
        8
    );
    assert!(tried(&bare(WireType::Enum, 1), &list("binary")).is_err());
}

/// A server whose only table is described by what is set.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<(Option<Description>, u32)>>);

impl Describe for Server {
    fn describe(&mut self, _: &TableName) -> crate::error::Result<Option<Description>> {
        let mut server = self.0.lock().unwrap();
        server.1 += 1;
        Ok(server.0.clone())
    }

    fn pause(&mut self, _: Duration) {}
}

impl Server {
    fn set(&self, column: &str, offset: u64, changed_ms: u64) {
        let mut described = described("int", "int");
        described.name = column.to_owned();
        self.0.lock().unwrap().0 = Some(Description {
            columns: vec![described],
            primary_key: Vec::new(),
            changed_ms,
            read_at: (Arc::from("b.000002"), offset),
        });
    }

    fn asked(&self) -> u32 {
        self.0.lock().unwrap().1
    }
}

fn at(offset: u64) -> At<'static> {
    At {
        file: "b.000002",
        offset,
        end: offset + 10,
        time_ms: 50_000,
    }
}

fn name() -> TableName {
    TableName::new("s", "T")
}

fn look(catalogue: &mut Catalogue, offset: u64) -> crate::error::Result<Arc<TableVersion>> {
    let map = TableMap {
        table_id: 9,
        flags: 0,
        schema: b"s",
        table: b"T",
        types: &[3],
        metadata: &[],
        nullable: &[1],
        optional: &[],
        shape: b"shape",
    };
    catalogue.version(&name(), &map, Flavor::Mysql, at(offset))
}

fn ddl(catalogue: &mut Catalogue, kind: DdlKind, sql: &str, offset: u64) -> crate::error::Result<bool> {
    // Spelled in another case than the table map has it.
    let tables = [TableName::new("s", "t")];
    let change = Change {
        kind,
        sql: sql.as_bytes(),
        writes: &tables,
        makes: &[],
    };
    catalogue.pass(&change, at(offset))
}

fn started() -> (Server, Catalogue) {
    let server = Server::default();
    let mut catalogue = Catalogue::default();
    catalogue.set(Box::new(server.clone()));
    server.set("a", 1000, 0);
    (server, catalogue)
}

#[test]
fn a_description_holds_to_the_next_ddl_of_its_table() {
    let (server, mut catalogue) = started();
    let column =
        |catalogue: &mut Catalogue, offset| look(catalogue, offset).unwrap().columns[0].name.to_string();
    assert_eq!(column(&mut catalogue, 900), "a");
    assert_eq!(column(&mut catalogue, 950), "a");
    assert_eq!(server.asked(), 1);
    for (kind, sql) in [
        (DdlKind::TruncateTable, "TRUNCATE t"),
        (DdlKind::Index, "CREATE INDEX i ON t (a)"),
        (DdlKind::CreateTable, "CREATE TABLE IF NOT EXISTS t (a INT)"),
    ] {
        assert!(!ddl(&mut catalogue, kind, sql, 1000).unwrap(), "{sql}");
    }
    server.set("b", 2000, 0);
    assert!(
        ddl(
            &mut catalogue,
            DdlKind::AlterTable,
            "ALTER TABLE t RENAME COLUMN a TO b",
            1100
        )
        .unwrap()
    );
    assert_eq!(column(&mut catalogue, 1200), "b");
    assert_eq!(server.asked(), 2);
}

#[test]
fn rows_before_a_ddl_that_had_run_already_are_refused() {
    let (_, mut catalogue) = started();
    look(&mut catalogue, 900).unwrap();
    for (kind, sql) in [
        (DdlKind::AlterTable, "ALTER TABLE t RENAME COLUMN x TO a"),
        (DdlKind::CreateTable, "CREATE OR REPLACE TABLE t (a INT)"),
        (DdlKind::DropTable, "DROP TABLE t"),
    ] {
        look(&mut catalogue, 900).unwrap();
        let error = ddl(&mut catalogue, kind, sql, 990).unwrap_err();
        assert!(
            matches!(error, SourceError::CatalogueAhead { .. }),
            "{sql}: {error}"
        );
    }
    // Nothing was described by it yet.
    assert!(
        !ddl(
            &mut catalogue,
            DdlKind::AlterTable,
            "ALTER TABLE t ADD x INT",
            990
        )
        .unwrap()
    );
}

#[test]
fn a_table_that_was_changed_later_is_refused_at_once() {
    let (server, mut catalogue) = started();
    server.set("a", 1000, 50_000 + CHANGED_SLACK_MS);
    assert!(look(&mut catalogue, 900).is_ok());
    let (server, mut catalogue) = started();
    server.set("a", 1000, 50_001 + CHANGED_SLACK_MS);
    let error = look(&mut catalogue, 900).unwrap_err();
    assert!(matches!(error, SourceError::CatalogueAhead { .. }), "{error}");
}

#[test]
fn what_does_not_fit_is_asked_for_again_and_refused() {
    let (server, mut catalogue) = started();
    server.0.lock().unwrap().0 = None;
    let error = look(&mut catalogue, 900).unwrap_err();
    assert!(matches!(error, SourceError::CatalogueMisfit { .. }), "{error}");
    assert_eq!(server.asked(), ATTEMPTS);
}
