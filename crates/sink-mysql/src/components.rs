//! Tables that foreign keys tie together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use weir_types::TableName;

/// A foreign key at the target: the table that has it, and the table that it references.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ForeignKey {
    pub(crate) child: TableName,
    pub(crate) parent: TableName,
}

/// A name as the target compares it.
pub(crate) fn folded(name: &TableName, fold: bool) -> TableName {
    if fold {
        TableName::new(name.schema.to_lowercase(), name.table.to_lowercase())
    } else {
        name.clone()
    }
}

/// Groups of two or more source tables whose targets are tied by foreign keys, each
/// sorted. `tables`: source and target of all tables that count; keys to other tables
/// tie nothing, since nobody writes those.
pub(crate) fn components(
    tables: &[(TableName, TableName)],
    keys: &[ForeignKey],
    fold: bool,
) -> Vec<Vec<TableName>> {
    let mut at: HashMap<TableName, usize> = HashMap::new();
    for (number, (_, target)) in tables.iter().enumerate() {
        at.insert(folded(target, fold), number);
    }
    let mut leader: Vec<usize> = (0..tables.len()).collect();
    for key in keys {
        let find = |name| at.get(&folded(name, fold)).copied();
        if let (Some(child), Some(parent)) = (find(&key.child), find(&key.parent)) {
            let (child, parent) = (lead(&mut leader, child), lead(&mut leader, parent));
            if let Some(of_child) = leader.get_mut(child) {
                *of_child = parent;
            }
        }
    }
    let mut groups: BTreeMap<usize, BTreeSet<TableName>> = BTreeMap::new();
    for (number, (source, _)) in tables.iter().enumerate() {
        let first = lead(&mut leader, number);
        groups.entry(first).or_default().insert(source.clone());
    }
    let mut tied: Vec<Vec<TableName>> = groups
        .into_values()
        .filter(|group| group.len() > 1)
        .map(|group| group.into_iter().collect())
        .collect();
    tied.sort();
    tied
}

/// The first of a table's group, with shorter ways for the next time.
fn lead(leader: &mut [usize], from: usize) -> usize {
    let mut at = from;
    while let Some(&next) = leader.get(at).filter(|next| **next != at) {
        let skip = leader.get(next).copied().unwrap_or(next);
        if let Some(slot) = leader.get_mut(at) {
            *slot = skip;
        }
        at = skip;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &str) -> TableName {
        TableName::new("s", table)
    }

    fn key(child: &str, parent: &str) -> ForeignKey {
        ForeignKey {
            child: name(child),
            parent: name(parent),
        }
    }

    fn tables(names: &[&str]) -> Vec<(TableName, TableName)> {
        names
            .iter()
            .map(|table| (name(&format!("src_{table}")), name(table)))
            .collect()
    }

    fn shown(groups: &[Vec<TableName>]) -> Vec<String> {
        groups
            .iter()
            .map(|group| {
                group
                    .iter()
                    .map(|name| name.table.to_string())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    #[test]
    fn keys_tie_tables_over_any_number_of_steps() {
        let tables = tables(&["a", "b", "c", "d", "e", "f"]);
        let keys = [
            key("a", "b"),
            key("c", "b"),
            key("e", "d"),
            key("f", "f"),
            key("f", "elsewhere"),
        ];
        let found = components(&tables, &keys, false);
        assert_eq!(shown(&found), ["src_a src_b src_c", "src_d src_e"]);
        assert!(components(&tables, &[key("f", "f")], false).is_empty());
    }

    #[test]
    fn a_target_that_folds_names_ties_them_whatever_their_case() {
        let tables = tables(&["Orders", "lines"]);
        let keys = [key("LINES", "orders")];
        assert_eq!(shown(&components(&tables, &keys, true)), ["src_Orders src_lines"]);
        assert!(components(&tables, &keys, false).is_empty());
    }
}
