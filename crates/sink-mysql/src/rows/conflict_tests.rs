use weir_types::Value;

use super::*;
use crate::plan::KeyColumn;

fn key(columns: &[(usize, Equality)]) -> ConflictKey {
    let column = |&(source, equality): &(usize, Equality)| KeyColumn { source, equality };
    ConflictKey {
        columns: columns.iter().map(column).collect(),
    }
}

/// Groups of rows that each hold one image.
fn groups(keys: &[ConflictKey], rows: &[Vec<Value<'_>>]) -> Vec<Vec<u32>> {
    let mut conflicts = Conflicts::new(false, RandomState::new());
    for (entry, row) in (0..).zip(rows) {
        conflicts.add();
        conflicts.hold(entry, keys, row);
    }
    conflicts.spread(&vec![100; rows.len()], rows.len(), 1)
}

fn texts(texts: &[&'static str]) -> Vec<Vec<Value<'static>>> {
    texts
        .iter()
        .map(|text| vec![Value::Bytes(text.as_bytes())])
        .collect()
}

#[test]
fn texts_that_a_collation_may_hold_equal_are_together() {
    let folded = [key(&[(0, Equality::Folded)])];
    assert_eq!(
        groups(&folded, &texts(&["a", "b", "A  ", "a c"])),
        [vec![0, 2], vec![1], vec![3]]
    );
    // Anything may be equal to a text that is not printable ASCII.
    assert_eq!(groups(&folded, &texts(&["a", "b", "á"])), [vec![0, 1, 2]]);
    assert_eq!(groups(&folded, &texts(&["a", "b", "b\u{1}"])), [vec![0, 1, 2]]);
    let exact = [key(&[(0, Equality::Exact)])];
    assert_eq!(groups(&exact, &texts(&["a", "A", "á"])).len(), 3);
    let padded = [key(&[(0, Equality::Padded)])];
    assert_eq!(
        groups(&padded, &texts(&["á", "A", "á  ", "a"])),
        [vec![0, 2], vec![1], vec![3]]
    );
}

#[test]
fn nulls_and_equal_values_of_other_keys_do_not_meet() {
    let keys = [key(&[(0, Equality::Exact)]), key(&[(1, Equality::Exact)])];
    let int = Value::Int;
    let rows = [
        vec![int(1), int(2)],
        vec![int(2), int(1)],
        vec![Value::Null, Value::Null],
        vec![Value::Null, Value::Null],
        vec![int(9), int(1)],
    ];
    assert_eq!(groups(&keys, &rows), [vec![0], vec![1, 4], vec![2], vec![3]]);
    // Parts of a key do not run into each other.
    let pair = [key(&[(0, Equality::Folded), (1, Equality::Folded)])];
    let rows = [
        vec![Value::Bytes(b"a.b"), Value::Bytes(b"c")],
        vec![Value::Bytes(b"a"), Value::Bytes(b".bc")],
    ];
    assert_eq!(groups(&pair, &rows).len(), 2);
}

#[test]
fn both_zeros_are_one_value() {
    let keys = [key(&[(0, Equality::Float)])];
    let rows = [
        vec![Value::Double(0.0)],
        vec![Value::Double(-0.0)],
        vec![Value::Double(1.0)],
    ];
    assert_eq!(groups(&keys, &rows), [vec![0, 1], vec![2]]);
}

#[test]
fn groups_are_of_about_equal_size() {
    let mut conflicts = Conflicts::new(false, RandomState::new());
    (0..100).for_each(|_| conflicts.add());
    let groups = conflicts.spread(&[1000; 100], 4, 1);
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [25; 4]);
    let few = conflicts.spread(&[1000; 100], 4, 60_000);
    assert_eq!(few.len(), 2);
    conflicts.serial = true;
    assert_eq!(conflicts.spread(&[1000; 100], 4, 1).len(), 1);
}
