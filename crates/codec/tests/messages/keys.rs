//! Record keys, changes of keys, keys only.

use serde_json::{Value as Json, json};
use weir_codec::TableEncoder;
use weir_codec::canal::{Image, Presence, RowChange};
use weir_types::{RowKind, TableVersion, Value, WireType};

use crate::types::{UTF8MB4, column, encoder, insert, message, table, update};

fn key_table() -> TableVersion {
    let columns = vec![
        column(WireType::VarChar, 80, UTF8MB4),
        column(WireType::Long, 0, 0),
        column(WireType::Float, 4, 0),
    ];
    table(columns, vec![1, 0])
}

fn key(encoder: &mut TableEncoder, change: &RowChange<'_, '_>) -> Option<String> {
    let mut out = b"kept".to_vec();
    let keyed = encoder.write_change_key(&mut out, change).expect("key");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(keyed || text == "kept", "nothing is written without a key");
    keyed.then(|| text["kept".len()..].to_owned())
}

#[test]
fn record_keys() {
    let mut encoder = encoder(&key_table());
    let row = [Value::Bytes(b"x\"y"), Value::Int(7), Value::Null];
    assert_eq!(
        key(&mut encoder, &insert(&row)).as_deref(),
        Some(r#"["7","x\"y"]"#)
    );
    let delete = RowChange {
        kind: RowKind::Delete,
        after: None,
        ..update(&row, &[])
    };
    assert_eq!(key(&mut encoder, &delete).as_deref(), Some(r#"["7","x\"y"]"#));
    let mut without = crate::types::encoder(&table(vec![column(WireType::Long, 0, 0)], vec![]));
    assert_eq!(key(&mut without, &insert(&[Value::Int(1)])), None);
    let part = Image {
        values: &row,
        present: Presence::Bitmap(&[0b101]),
    };
    let mut out = Vec::new();
    assert!(!encoder.write_key(&mut out, &part).expect("key"));
    assert!(out.is_empty());
}

#[test]
fn changes_of_keys() {
    let mut encoder = encoder(&key_table());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let before = [Value::Bytes(b"x"), Value::Int(7), Value::Float(1.0)];
    let other_value = [Value::Bytes(b"x"), Value::Int(7), Value::Float(2.0)];
    let other_key = [Value::Bytes(b"X"), Value::Int(7), Value::Float(1.0)];
    let mut changed =
        |change: &RowChange<'_, '_>| encoder.key_changed(change, &mut old, &mut new).expect("keys");
    assert!(!changed(&update(&before, &before)));
    assert!(!changed(&update(&before, &other_value)));
    assert!(changed(&update(&before, &other_key)));
    assert!(!changed(&insert(&other_key)));
}

#[test]
fn a_part_of_the_key_that_the_image_after_lacks_did_not_change() {
    let mut encoder = encoder(&key_table());
    let before = [Value::Bytes(b"x"), Value::Int(7), Value::Float(1.0)];
    let after = [Value::Bytes(b"y"), Value::Null, Value::Null];
    let minimal = |bits| RowChange {
        after: Some(Image {
            values: &after,
            present: Presence::Bitmap(bits),
        }),
        ..update(&before, &after)
    };
    let (mut old, mut new) = (Vec::new(), Vec::new());
    assert_eq!(
        key(&mut encoder, &minimal(&[0b100])).as_deref(),
        Some(r#"["7","x"]"#)
    );
    assert!(
        !encoder
            .key_changed(&minimal(&[0b100]), &mut old, &mut new)
            .expect("keys")
    );
    assert!(
        encoder
            .key_changed(&minimal(&[0b001]), &mut old, &mut new)
            .expect("keys")
    );
    let begin = RowChange {
        kind: RowKind::Insert,
        ..minimal(&[0b001])
    };
    assert_eq!(key(&mut encoder, &begin).as_deref(), Some(r#"["7","y"]"#));
    let json = message(&mut encoder, &begin);
    assert_eq!(json["data"], json!([{"c0": "y", "c1": "7", "c2": "1"}]));
    assert_eq!((&json["type"], &json["old"]), (&json!("INSERT"), &Json::Null));
}

#[test]
fn keys_only() {
    let mut encoder = encoder(&key_table());
    let before = [Value::Bytes(b"x"), Value::Int(7), Value::Float(1.0)];
    let after = [Value::Bytes(b"x"), Value::Int(7), Value::Null];
    let mut read = |change: &RowChange<'_, '_>| -> Json {
        let mut out = Vec::new();
        encoder.write_keys_only(&mut out, change).expect("message");
        serde_json::from_slice(&out).expect("valid JSON")
    };
    let json = read(&update(&before, &after));
    assert_eq!(json["data"], json!([{"c1": "7", "c0": "x"}]));
    assert_eq!(
        json["old"],
        json!([{}]),
        "an array, as readers expect of an update"
    );
    assert_eq!(
        json["_weir"],
        json!({"key": "066b519535ec000000000007", "row": 2, "keys-only": true})
    );
    assert_eq!(read(&insert(&after))["old"], Json::Null);
}
