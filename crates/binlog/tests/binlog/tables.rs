//! Table versions, presence of columns, payloads.

use std::sync::Arc;

use weir_binlog::{
    BinlogError, BinlogFile, Event, FileOptions, PayloadReader, RowImages, RowPlan, Step, TableMapCache,
    TransactionPayload,
};
use weir_types::{Flavor, RowKind, TableVersion, Value, WireType};

use crate::walk::{MAX_BYTES, data, walk};

fn version(file: &str, table: &str) -> Arc<TableVersion> {
    let walk = walk(&data(file));
    let found = walk.versions.iter().find(|v| &*v.name.table == table);
    Arc::clone(found.unwrap_or_else(|| panic!("{table}")))
}

/// `name type meta collation` of each column, `u` unsigned, `n` nullable, `h` hidden.
fn shape(version: &TableVersion) -> Vec<String> {
    let line = |c: &weir_types::Column| {
        let flag = |on, letter| if on { letter } else { "" };
        let flags = [
            flag(c.unsigned, "u"),
            flag(c.nullable, "n"),
            flag(!c.visible, "h"),
        ]
        .concat();
        format!("{} {:?} {} {} {flags}", c.name, c.wire, c.meta, c.collation)
    };
    version.columns.iter().map(line).collect()
}

#[test]
fn mysql_columns_with_charsets_between_geometry_and_vector() {
    let version = version("mysql97-plain.bin", "mix");
    assert_eq!(
        shape(&version),
        [
            "id Long 0 0 ",
            "c String 3 8 n",
            "g Geometry 4 0 n",
            "j Json 4 0 n",
            "v Vector 4 0 n",
            "t Blob 2 28 n",
            "b Blob 2 63 n",
            "e Enum 1 8 n",
            "s Set 1 255 n",
            "vc VarChar 18 13 n",
            "y Year 0 0 n",
            "d NewDecimal 1026 0 un",
            "f Float 4 0 un",
            "bi Bit 3 0 n",
            "u LongLong 0 0 un",
        ]
    );
    assert_eq!(version.primary_key, [0]);
    let members: Vec<&[u8]> = version.columns[7].members.iter().map(|m| &**m).collect();
    assert_eq!(members, [&b"\xe9"[..], b"b"]);
    assert_eq!(version.columns[8].members.len(), 2);
}

#[test]
fn mariadb_columns_with_charsets_between_uuid_inet_and_geometry() {
    for file in ["mariadb1011-plain.bin", "mariadb118-plain.bin"] {
        let shape = shape(&version(file, "mix"));
        assert_eq!(
            shape[..9],
            [
                "id Long 0 0 ",
                "u String 16 63 n",
                "c String 3 8 n",
                "i6 String 16 63 n",
                "g Geometry 4 0 n",
                "j Blob 4 46 n",
                "t Blob 2 28 n",
                "i4 String 4 63 n",
                "b Blob 2 63 n",
            ]
        );
        assert_eq!(shape[11], "vc VarChar 18 13 n");
    }
}

#[test]
fn year_has_a_bit_among_the_numbers() {
    for file in ["mysql97-plain.bin", "mariadb1011-plain.bin"] {
        let shape = shape(&version(file, "mix2"));
        assert_eq!(
            shape,
            [
                "id Long 0 0 u",
                "y Year 0 0 n",
                "u Long 0 0 un",
                "t Time2 0 0 n",
                "v Short 0 0 un"
            ]
        );
    }
}

#[test]
fn keys_long_chars_and_hidden_columns() {
    let key = version("mysql97-plain.bin", "pkpre");
    assert_eq!(key.primary_key, [3, 0, 2]);
    assert!(version("mysql97-plain.bin", "nopk").primary_key.is_empty());
    let strings = shape(&version("mysql97-plain.bin", "strs"));
    assert_eq!(strings[2..4], ["c200 String 800 255 n", "c255 String 1020 255 n"]);
    let hidden = version("mysql97-plain.bin", "inv");
    assert_eq!(shape(&hidden)[1], "a Long 0 0 nh");
}

/// The rows of each table's row events, with what `look` takes from them.
fn each_row(file: &str, mut look: impl FnMut(&TableVersion, RowKind, &RowImages<'_>)) {
    let mut file = BinlogFile::open(data(file), FileOptions::default()).unwrap();
    let mut cache = TableMapCache::new(Flavor::Mysql);
    let mut version = None;
    while let Step::Event(event) = file.next().unwrap() {
        match event.decode().unwrap() {
            Event::TableMap(map) => version = Some(cache.get(&map).unwrap()),
            Event::Rows(rows) => {
                let version = version.as_ref().unwrap();
                let plan = RowPlan::new(version).unwrap();
                let mut reader = plan.rows(rows.kind, rows.block_flags(), rows.body).unwrap();
                let mut images = RowImages::default();
                while reader.next(&mut images).unwrap() {
                    look(version, rows.kind, &images);
                }
            }
            _ => {}
        }
    }
    let (hits, misses) = cache.counts();
    assert!(hits > 20 && misses > 10, "{hits} hits, {misses} misses");
}

#[test]
fn a_column_outside_a_minimal_image_is_not_null() {
    let mut seen = (0, 0);
    each_row("mysql97-plain.bin", |version, kind, images| {
        if kind == RowKind::Update && !images.after_columns.is_full() {
            // `UPDATE tmp SET t0 = NULL WHERE id = 1`, `UPDATE strs SET c5 = 'mi' …`
            let table = &*version.name.table;
            if table == "tmp" {
                assert_eq!(images.after(3), Some(&Value::Null));
                assert_eq!(images.after(4), None);
                assert_eq!(images.after[4], Value::Null);
                assert_eq!(images.before(0), Some(&Value::Int(1)));
                assert_eq!((images.before_columns.len(), images.after_columns.len()), (1, 1));
                seen.0 += 1;
            } else if table == "strs" && images.after_columns.len() == 1 {
                assert_eq!(images.after(1), Some(&Value::Bytes(b"mi")));
                seen.1 += 1;
            }
        }
    });
    assert_eq!(seen, (1, 1));
}

#[test]
fn equal_table_maps_give_the_same_version() {
    let walk = walk(&data("mysql97-plain.bin"));
    let many: Vec<_> = walk.versions.iter().filter(|v| &*v.name.table == "js").collect();
    assert!(many.len() > 1 && many.iter().all(|v| Arc::ptr_eq(v, many[0])));
    // ALTER TABLE gives another one.
    let shapes: Vec<_> = walk
        .versions
        .iter()
        .filter(|v| &*v.name.table == "nopk")
        .collect();
    assert_eq!(
        (shapes[0].columns.len(), shapes[shapes.len() - 1].columns.len()),
        (2, 3)
    );
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    for file in ["mariadb1011-oldtime.bin", "mariadb118-oldtime.bin"] {
        let walk = walk(&data(file));
        let [first, second] = &walk.errors[..] else {
            panic!("{:?}", walk.errors);
        };
        // Old temporal types with fractions: the table map does not say how many digits.
        assert!(
            matches!(first, BinlogError::Rows { table, .. } if table == "g.otmp"),
            "{first}"
        );
        assert!(
            matches!(second, BinlogError::UnsupportedType { column, .. } if column == "`c`"),
            "{second}"
        );
    }
}

#[test]
fn images_keep_their_memory_over_bodies() {
    let kept = RowImages {
        after: vec![Value::Int(1); 40],
        ..RowImages::default()
    };
    let (capacity, place) = (kept.after.capacity(), kept.after.as_ptr() as usize);
    let again: RowImages<'_> = kept.recycle();
    assert!(again.after.is_empty());
    assert_eq!(
        (again.after.capacity(), again.after.as_ptr() as usize),
        (capacity, place)
    );
}

/// Events of 19 bytes and a body, as a payload holds them.
fn inner(bodies: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    for body in bodies {
        out.extend([0, 0, 0, 0, 29, 1, 0, 0, 0]);
        out.extend(u32::try_from(19 + body).unwrap().to_le_bytes());
        out.extend([0; 6]);
        out.extend(vec![b'y'; *body]);
    }
    out
}

fn lengths(payload: &TransactionPayload<'_>) -> Result<Vec<usize>, BinlogError> {
    let mut reader = PayloadReader::new(payload, MAX_BYTES)?;
    let mut out = Vec::new();
    while let Some(event) = reader.next()? {
        out.push(event.body().len());
    }
    Ok(out)
}

#[test]
fn payloads_end_where_they_say() {
    let bodies = [3, 0, 3 << 20, 7];
    let plain = inner(&bodies);
    let packed = zstd::encode_all(&plain[..], 3).unwrap();
    let size = Some(plain.len() as u64);
    for (method, bytes) in [(255, &plain), (0, &packed)] {
        let payload = |uncompressed_bytes, payload| TransactionPayload {
            method,
            uncompressed_bytes,
            payload,
        };
        assert_eq!(lengths(&payload(size, bytes)).unwrap(), bodies);
        assert_eq!(lengths(&payload(None, bytes)).unwrap(), bodies);
        let broken = [
            payload(size, &bytes[..bytes.len() - 1]),
            payload(None, &bytes[..bytes.len() - 1]),
            payload(size.map(|s| s - 1), bytes),
            payload(size.map(|s| s + 1), bytes),
            payload(size.map(|s| s - 26), bytes),
        ];
        for (at, payload) in broken.iter().enumerate() {
            let error = lengths(payload).unwrap_err();
            assert!(
                matches!(error, BinlogError::Decompress { .. }),
                "{method} {at}: {error}"
            );
        }
    }
    let mut garbage = packed;
    garbage.extend(b"garbage");
    let payload = TransactionPayload {
        method: 0,
        uncompressed_bytes: size,
        payload: &garbage,
    };
    assert!(lengths(&payload).is_err());
}

#[test]
fn a_small_payload_of_a_huge_event_is_refused() {
    let plain = inner(&[32 << 20]);
    let packed = zstd::encode_all(&plain[..], 3).unwrap();
    let payload = TransactionPayload {
        method: 0,
        uncompressed_bytes: Some(plain.len() as u64),
        payload: &packed,
    };
    assert!(matches!(
        lengths(&payload),
        Err(BinlogError::EventTooLarge { .. })
    ));
    let payload = TransactionPayload { method: 7, ..payload };
    assert!(matches!(
        lengths(&payload),
        Err(BinlogError::UnknownCompression { number: 7 })
    ));
}

#[test]
fn compressed_columns_are_refused_by_the_plan() {
    let mut version = (*version("mysql97-plain.bin", "strs")).clone();
    version.flavor = Flavor::Mariadb;
    version.columns[10].wire = WireType::BlobCompressed;
    let error = RowPlan::new(&version).unwrap_err();
    assert!(error.to_string().contains("`tx` of `g.strs`"), "{error}");
}
