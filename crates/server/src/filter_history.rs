//! Every filter that a changefeed's store was filled under, and whose store it is.
//!
//! The source stores only what the filter lets through. A table that was excluded once
//! has a gap in the store for ever: letting it through later must not look as if its
//! rows were all there. The history stands in `filters.json` of the data folder; it only
//! grows, and a new entry is durable before the source reads under it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde_json::{Value, json};
use weir_config::Changefeed;
use weir_filter::{NameCase, TableFilter};
use weir_types::TableName;

use crate::error::ServerError;

const FILE: &str = "filters.json";

/// The filters of earlier runs, and of this one.
#[derive(Debug)]
pub(crate) struct FilterHistory {
    filters: Vec<TableFilter>,
}

fn entry(changefeed: &Changefeed) -> Value {
    let case_sensitive = changefeed.name_case() == NameCase::Sensitive;
    json!({ "id": &*changefeed.id.0, "rules": changefeed.filter.rules, "case-sensitive": case_sensitive })
}

fn compile(entry: &Value) -> Option<TableFilter> {
    let case = if entry.get("case-sensitive")?.as_bool()? {
        NameCase::Sensitive
    } else {
        NameCase::Insensitive
    };
    let rules: Option<Vec<&str>> = entry
        .get("rules")?
        .as_array()?
        .iter()
        .map(Value::as_str)
        .collect();
    TableFilter::new(&rules?, case).ok()
}

impl FilterHistory {
    /// Loads the history and adds this run's filter, if it is another than the last one.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not what was written; the folder is another
    /// changefeed's.
    pub(crate) fn load(data_dir: &Path, changefeed: &Changefeed) -> Result<Self, ServerError> {
        let path = data_dir.join(FILE);
        let at = |source| ServerError::DataDir {
            path: path.clone(),
            source,
        };
        let mut entries: Vec<Value> = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| at(e.into()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(at(error)),
        };
        let of_other = |entry: &Value| {
            let id = entry.get("id")?.as_str()?;
            (id != &*changefeed.id.0).then(|| id.to_owned())
        };
        if let Some(found) = entries.iter().find_map(of_other) {
            return Err(ServerError::OtherChangefeed {
                data_dir: data_dir.to_owned(),
                found,
                expected: changefeed.id.to_string(),
            });
        }
        let this = entry(changefeed);
        if entries.last() != Some(&this) {
            entries.push(this);
            write(data_dir, &entries).map_err(at)?;
        }
        let filters: Option<Vec<_>> = entries.iter().map(compile).collect();
        let damaged = || {
            at(std::io::Error::new(
                ErrorKind::InvalidData,
                "it does not hold filters",
            ))
        };
        Ok(Self {
            filters: filters.ok_or_else(damaged)?,
        })
    }

    /// Whether some filter kept the table out of the store.
    pub(crate) fn excluded_once(&self, table: &TableName) -> bool {
        self.filters.iter().any(|filter| !filter.matches(table))
    }
}

/// Replaces the file in one step.
fn write(data_dir: &Path, entries: &[Value]) -> std::io::Result<()> {
    let draft = data_dir.join("filters.json.tmp");
    let mut file = File::create(&draft)?;
    file.write_all(Value::from(entries.to_vec()).to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, data_dir.join(FILE))?;
    File::open(data_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changefeed(rules: &str) -> Changefeed {
        let text = format!(
            "id = \"f\"\n[source]\nuri = \"binlog-files:///b/\"\n[filter]\nrules = [{rules}]\n[sink]\nuri = \"blackhole://\"\n"
        );
        Changefeed::parse(&text).unwrap()
    }

    #[test]
    fn a_table_that_was_excluded_once_stays_known() {
        let dir = tempfile::tempdir().unwrap();
        let load = |rules| FilterHistory::load(dir.path(), &changefeed(rules)).unwrap();
        let (a, b) = (TableName::new("s", "a"), TableName::new("s", "b"));
        assert!(!load("").excluded_once(&a));
        let narrow = load("\"s.*\", \"!s.b\"");
        assert!(!narrow.excluded_once(&a) && narrow.excluded_once(&b));
        let wide = load("");
        assert!(!wide.excluded_once(&a) && wide.excluded_once(&b));
        assert_eq!(load("").filters.len(), 3);
    }

    #[test]
    fn a_folder_has_one_changefeed() {
        let dir = tempfile::tempdir().unwrap();
        let feed = changefeed("");
        FilterHistory::load(dir.path(), &feed).unwrap();
        let mut other = feed.clone();
        other.id = weir_types::ChangefeedId("g".into());
        let error = FilterHistory::load(dir.path(), &other).unwrap_err();
        assert!(matches!(error, ServerError::OtherChangefeed { .. }), "{error}");
        FilterHistory::load(dir.path(), &feed).unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        for bytes in [&b"{"[..], b"[1]", b"[{\"rules\":[\"[\"],\"case-sensitive\":1}]"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(FILE), bytes).unwrap();
            assert!(FilterHistory::load(dir.path(), &changefeed("")).is_err());
        }
    }
}
