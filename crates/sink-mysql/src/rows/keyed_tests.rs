use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use weir_types::{OrderKey, RowKind, TableVersion, WireType};

use super::*;
use crate::plan::Mode;
use crate::rows::testing::{self as t, Ints};
use crate::target::TargetTable;

const LIMITS: Limits = Limits {
    groups: 4,
    packet_max: 64 << 20,
};

/// `id` INT PRIMARY KEY, `u` INT, `v` INT.
fn version() -> Arc<TableVersion> {
    let column = |name| t::column(name, WireType::Long, 0);
    t::version(vec![column("id"), column("u"), column("v")])
}

fn table(unique: bool) -> TargetTable {
    let column = |name| t::at_target(name, "int");
    let mut keys = vec![t::key(&[0], true)];
    if unique {
        keys.push(t::key(&[1], false));
    }
    t::target(vec![column("id"), column("u"), column("v")], keys)
}

fn plan(unique: bool) -> Arc<TablePlan> {
    let plan = TablePlan::new(&version(), &table(unique)).unwrap();
    assert_eq!(plan.mode(), Mode::Keyed);
    Arc::new(plan)
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Insert(Ints),
    Update(Ints, Ints),
    Delete(Ints),
}

impl Change {
    fn event(&self) -> (RowKind, u8, Vec<u8>) {
        let (kind, images) = match self {
            Self::Insert(row) => (RowKind::Insert, vec![row]),
            Self::Update(old, new) => (RowKind::Update, vec![old, new]),
            Self::Delete(row) => (RowKind::Delete, vec![row]),
        };
        (kind, 0, t::body(kind, &images))
    }
}

fn pull(plan: &Arc<TablePlan>, changes: &[Change]) -> Pull {
    let events: Vec<_> = changes.iter().map(Change::event).collect();
    let mut pull = Pull::default();
    if !events.is_empty() {
        pull.push(t::slice(&version(), 10, &events), plan, OrderKey::MIN);
    }
    pull
}

fn groups(plan: &Arc<TablePlan>, changes: &[Change], replay: bool) -> Vec<Group> {
    let pull = pull(plan, changes);
    let Some(mut work) = KeyedWork::gather(&pull, 0).unwrap() else {
        return Vec::new();
    };
    work.group_bytes_min = 1;
    work.groups(LIMITS, replay).unwrap()
}

fn sql(groups: &[Group]) -> Vec<String> {
    let all = groups.iter().flat_map(|group| &group.statements);
    all.map(|s| String::from_utf8(s.sql.clone()).unwrap()).collect()
}

fn row(id: i32, u: i32, v: i32) -> Ints {
    vec![Some(id), Some(u), Some(v)]
}

/// A table with unique keys that understands the statements above.
#[derive(Clone, Debug, Default, PartialEq)]
struct Simulated {
    rows: BTreeMap<i32, Ints>,
    unique: bool,
}

impl Simulated {
    /// Keys of the rows that hold a unique value of this one.
    fn meets(&self, row: &Ints) -> Vec<i32> {
        let same =
            |other: &&Ints| other[0] == row[0] || (self.unique && row[1].is_some() && other[1] == row[1]);
        self.rows.values().filter(same).map(|r| r[0].unwrap()).collect()
    }

    fn run(&mut self, sql: &str) {
        let list = |text: &str| -> Ints {
            text.split(',')
                .map(|v| (v != "NULL").then(|| v.parse().unwrap()))
                .collect()
        };
        if let Some(rest) = sql.strip_prefix("DELETE FROM `d`.`t` WHERE `id` IN (") {
            for id in list(rest.strip_suffix(')').unwrap()) {
                self.rows.remove(&id.unwrap());
            }
            return;
        }
        let (verb, rest) = sql.split_once(" INTO `d`.`t` (`id`,`u`,`v`) VALUES (").unwrap();
        let (rows, behind) = rest.rsplit_once(')').unwrap();
        let (rows, upsert) = match rest.split_once(") ON DUPLICATE KEY UPDATE ") {
            Some((rows, _)) => (rows, true),
            None => (rows, false),
        };
        assert!(upsert || behind.is_empty(), "{sql}");
        for row in rows.split("),(") {
            let row = list(row);
            let met = self.meets(&row);
            match verb {
                "REPLACE" => met.iter().for_each(|id| {
                    self.rows.remove(id);
                }),
                // The server updates the first row that it meets.
                "INSERT" if upsert => {
                    assert!(met.is_empty() || met == [row[0].unwrap()], "{sql}: {self:?}");
                }
                "INSERT" => assert!(met.is_empty(), "duplicate in {sql}: {self:?}"),
                _ => panic!("{sql}"),
            }
            self.rows.insert(row[0].unwrap(), row);
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Delete(row) => {
                self.rows.remove(&row[0].unwrap());
            }
            Change::Insert(row) => {
                self.rows.insert(row[0].unwrap(), row.clone());
            }
            Change::Update(old, new) => {
                self.rows.remove(&old[0].unwrap());
                self.rows.insert(new[0].unwrap(), new.clone());
            }
        }
    }
}

#[test]
fn changes_of_one_key_are_one_write() {
    let plan = plan(false);
    let changes = [
        Change::Update(row(1, 1, 1), row(1, 1, 2)),
        Change::Insert(row(2, 2, 2)),
        Change::Update(row(1, 1, 2), row(1, 5, 3)),
        Change::Insert(row(3, 3, 3)),
        Change::Delete(row(3, 3, 3)),
        Change::Update(row(4, 4, 4), row(5, 4, 4)),
        Change::Delete(row(6, 6, 6)),
    ];
    let odku = "ON DUPLICATE KEY UPDATE `id`=VALUES(`id`),`u`=VALUES(`u`),`v`=VALUES(`v`)";
    let mut work = KeyedWork::gather(&pull(&plan, &changes), 0)
        .map(Option::unwrap)
        .map(|w| w.counts());
    assert_eq!(
        work.as_mut().unwrap(),
        &RowCounts {
            inserts: 2,
            updates: 3,
            deletes: 2
        }
    );
    let pull = pull(&plan, &changes);
    let mut work = KeyedWork::gather(&pull, 0).unwrap().unwrap();
    let groups = work.groups(LIMITS, false).unwrap();
    assert_eq!(
        sql(&groups),
        [
            "DELETE FROM `d`.`t` WHERE `id` IN (4,6)".to_owned(),
            format!("INSERT INTO `d`.`t` (`id`,`u`,`v`) VALUES (1,5,3) {odku}"),
            "INSERT INTO `d`.`t` (`id`,`u`,`v`) VALUES (2,2,2),(5,4,4)".to_owned(),
        ]
    );
    assert_eq!(
        groups[0].bytes,
        sql(&groups).iter().map(String::len).sum::<usize>()
    );
    let again = work.groups(LIMITS, true).unwrap();
    assert_eq!(
        sql(&again),
        [
            "DELETE FROM `d`.`t` WHERE `id` IN (3,4,6)".to_owned(),
            format!("INSERT INTO `d`.`t` (`id`,`u`,`v`) VALUES (1,5,3),(2,2,2),(5,4,4) {odku}"),
        ]
    );
}

#[test]
fn unique_values_that_change_places_are_deleted_first() {
    let plan = plan(true);
    let changes = [
        Change::Update(row(1, 1, 0), row(1, 3, 0)),
        Change::Update(row(2, 2, 0), row(2, 1, 0)),
        Change::Update(row(1, 3, 0), row(1, 2, 0)),
        Change::Update(row(9, 9, 0), row(9, 9, 1)),
    ];
    let groups = groups(&plan, &changes, false);
    assert_eq!(groups.len(), 2, "{groups:?}");
    assert_eq!(
        sql(&groups[..1]),
        [
            "DELETE FROM `d`.`t` WHERE `id` IN (1,2)",
            "INSERT INTO `d`.`t` (`id`,`u`,`v`) VALUES (1,2,0),(2,1,0)"
        ]
    );
    let again = super::tests::groups(&plan, &changes, true);
    assert_eq!(
        sql(&again[..1]),
        ["REPLACE INTO `d`.`t` (`id`,`u`,`v`) VALUES (1,2,0),(2,1,0)"]
    );
}

#[test]
fn equal_values_of_two_keys_are_no_conflict() {
    let plan = plan(true);
    let changes = [
        Change::Insert(row(1, 2, 0)),
        Change::Insert(row(2, 1, 0)),
        Change::Insert(row(3, 4, 0)),
    ];
    assert_eq!(groups(&plan, &changes, false).len(), 3);
}

#[test]
fn rows_up_to_a_key_are_left_out() {
    let plan = plan(false);
    let events: Vec<_> = (1..4).map(|id| Change::Insert(row(id, 0, 0)).event()).collect();
    let slice = t::slice(&version(), 10, &events);
    let mut pull = Pull::default();
    pull.push(slice.clone(), &plan, slice.last);
    assert!(pull.is_empty());
    pull.push(slice.clone(), &plan, slice.first);
    let mut work = KeyedWork::gather(&pull, 0).unwrap().unwrap();
    let written = work.groups(LIMITS, false).unwrap();
    assert_eq!(
        sql(&written),
        ["INSERT INTO `d`.`t` (`id`,`u`,`v`) VALUES (2,0,0),(3,0,0)"]
    );
    assert_eq!((pull.first(), pull.last()), (slice.first, slice.last));
}

#[test]
fn statements_are_bounded() {
    let plan = plan(false);
    let changes: Vec<_> = (0..2500).map(|id| Change::Insert(row(id, id, id))).collect();
    let pull = pull(&plan, &changes);
    let mut work = KeyedWork::gather(&pull, 0).unwrap().unwrap();
    let one = Limits { groups: 1, ..LIMITS };
    let rows = |groups: &[Group]| -> Vec<u32> {
        groups
            .iter()
            .flat_map(|g| &g.statements)
            .map(|s| s.rows)
            .collect()
    };
    assert_eq!(rows(&work.groups(one, false).unwrap()), [1000, 1000, 500]);
    let small = Limits {
        groups: 1,
        packet_max: 100,
    };
    let groups = work.groups(small, false).unwrap();
    assert!(groups[0].statements.iter().all(|s| s.sql.len() <= 100));
    assert_eq!(rows(&groups).iter().sum::<u32>(), 2500);
    let tiny = Limits {
        groups: 1,
        packet_max: 40,
    };
    assert!(matches!(
        work.groups(tiny, false),
        Err(RowsError::TooLarge { .. })
    ));
}

#[test]
fn a_row_without_all_columns_is_refused() {
    let plan = plan(false);
    let mut body = t::body(RowKind::Insert, &[&row(1, 2, 3)]);
    body[1] = 0b011;
    let mut pull = Pull::default();
    pull.push(
        t::slice(&version(), 1, &[(RowKind::Insert, 0, body)]),
        &plan,
        OrderKey::MIN,
    );
    assert!(matches!(
        KeyedWork::gather(&pull, 0),
        Err(RowsError::PartialImage { .. })
    ));
}

/// Random steps become a history that a table with both keys accepts.
fn history(steps: &[(u8, i32, i32, i32)], unique: bool) -> Vec<Change> {
    let mut state = Simulated {
        unique,
        ..Simulated::default()
    };
    let mut changes = Vec::new();
    for &(step, id, u, v) in steps {
        let new = vec![Some(id), (u > 0).then_some(u), Some(v)];
        let at = state
            .rows
            .values()
            .nth(usize::from(step / 4) % state.rows.len().max(1))
            .cloned();
        let change = match (step % 4, at) {
            (0, _) | (_, None) => Change::Insert(new),
            (1, Some(old)) => Change::Delete(old),
            // The key stays.
            (2, Some(old)) => {
                let new = vec![old[0], new[1], new[2]];
                Change::Update(old, new)
            }
            (_, Some(old)) => Change::Update(old, new),
        };
        let mut next = state.clone();
        if let Change::Delete(old) | Change::Update(old, _) = &change {
            next.rows.remove(&old[0].unwrap());
        }
        let legal = match &change {
            Change::Insert(new) | Change::Update(_, new) => next.meets(new).is_empty(),
            Change::Delete(_) => true,
        };
        if legal {
            state.change(&change);
            changes.push(change);
        }
    }
    changes
}

fn steps() -> impl Strategy<Value = Vec<(u8, i32, i32, i32)>> {
    proptest::collection::vec((any::<u8>(), 0..8_i32, 0..6_i32, 0..3_i32), 1..60)
}

fn state_after(changes: &[Change], unique: bool) -> Simulated {
    let mut state = Simulated {
        unique,
        ..Simulated::default()
    };
    changes.iter().for_each(|change| state.change(change));
    state
}

/// Runs groups interleaved, statement by statement, in an order that `choice` gives.
fn run_interleaved(table: &mut Simulated, groups: &[Group], mut choice: u64) {
    let mut rest: Vec<_> = groups.iter().map(|g| g.statements.iter()).collect();
    while !rest.is_empty() {
        let at = usize::try_from(choice % rest.len() as u64).unwrap();
        choice = choice.rotate_right(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        match rest[at].next() {
            Some(statement) => table.run(std::str::from_utf8(&statement.sql).unwrap()),
            None => drop(rest.swap_remove(at)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn groups_in_any_order_give_the_last_state(
        steps in steps(), unique: bool, choice: u64, cut in 0..60_usize,
    ) {
        let changes = history(&steps, unique);
        let plan = plan(unique);
        let cut = cut.min(changes.len());
        let mut table = state_after(&changes[..cut], unique);
        run_interleaved(&mut table, &groups(&plan, &changes[cut..], false), choice);
        prop_assert_eq!(table, state_after(&changes, unique));
    }

    /// The target has seen some prefix of each group of keys that go together; the window
    /// is replayed from any earlier place, in pulls of any size.
    #[test]
    fn a_replay_over_a_later_state_ends_where_the_window_ends(
        steps in steps(), unique: bool, choice: u64,
        from in 0..60_usize, seen in 0..60_usize, pull_size in 1..20_usize, partial in 0..16_usize,
    ) {
        let changes = history(&steps, unique);
        let plan = plan(unique);
        let seen = seen.min(changes.len());
        let from = from.min(seen);
        let mut table = state_after(&changes[..seen], unique);
        // Some groups of the next pull were committed before the crash, others not.
        let next = (seen + pull_size).min(changes.len());
        let started = groups(&plan, &changes[seen..next], false);
        let committed: Vec<_> = started.into_iter().enumerate()
            .filter(|(at, _)| partial >> (at % 4) & 1 == 1).map(|(_, g)| g).collect();
        run_interleaved(&mut table, &committed, choice);
        for pull in changes[from..].chunks(pull_size) {
            run_interleaved(&mut table, &groups(&plan, pull, true), choice);
        }
        prop_assert_eq!(table, state_after(&changes, unique));
    }
}
