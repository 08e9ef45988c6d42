//! From the SOURCE of a command line to binlog files.

use std::path::{Path, PathBuf};

use weir_binlog::FileIndex;
use weir_config::SourceUri;

use crate::error::CliError;
use crate::outcome::Failure;

/// The files that a file, a folder or a `binlog-files://` URI names, oldest first.
pub(crate) fn resolve(source: &str) -> Result<Vec<PathBuf>, Failure> {
    if source.contains("://") {
        let parsed = SourceUri::parse(source).map_err(|reason| {
            CliError::Usage(format!("`{}`: {reason}", weir_config::mask_secrets(source)))
        })?;
        return match parsed {
            SourceUri::BinlogFiles { dir, index } => of_folder(&dir, index.as_deref()),
            SourceUri::Mysql(address) => Err(CliError::LiveSource(address.to_string()).into()),
        };
    }
    let path = Path::new(source);
    if path.is_dir() {
        return of_folder(path, None);
    }
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    Err(CliError::BinlogSource(source.to_owned()).into())
}

/// The files of a folder, by its index file or by their numbers.
pub(crate) fn of_folder(dir: &Path, index: Option<&str>) -> Result<Vec<PathBuf>, Failure> {
    let found = match index {
        Some(index) => FileIndex::read(dir, index)?,
        None => FileIndex::scan(dir)?,
    };
    Ok(found.names().iter().map(|name| found.path(name)).collect())
}
