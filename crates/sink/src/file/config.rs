//! Settings of the file sink.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_codec::CanalOptions;
use weir_filter::Router;
use weir_types::{ChangefeedId, LineageId};

/// Bytes after which a file is finished: large enough that 5 s of a fast table are a
/// few files, small enough to be read whole.
pub const ROTATE_BYTES_DEFAULT: u64 = 64 << 20;
/// Age at which a file is finished, counted from its first row: the longest that rows
/// wait until they can be read and count as progress.
pub const ROTATE_AGE_DEFAULT: Duration = Duration::from_secs(5);
/// Most files that are held open at a time.
pub const OPEN_FILES_MAX: usize = 256;
/// Worker threads: the work is encoding, so that more than cores are of no use.
pub const WORKERS_DEFAULT: usize = 2;

/// Settings of the file sink.
#[derive(Clone, Debug)]
pub struct FileConfig {
    /// Folder of the output; made if it is not there.
    pub dir: PathBuf,
    /// Whose output it is.
    pub changefeed: ChangefeedId,
    /// Which history the order keys belong to.
    pub lineage: LineageId,
    /// The changefeed has written before: its folder is there already.
    pub continued: bool,
    /// Bytes after which a file is finished.
    pub rotate_bytes: u64,
    /// Age at which a file is finished.
    pub rotate_age: Duration,
    /// Options of the format.
    pub canal: CanalOptions,
    /// Names at the target; used for DDL.
    pub router: Arc<Router>,
    /// Worker threads.
    pub workers: usize,
}

impl FileConfig {
    /// Defaults for everything but what has none.
    pub fn new(dir: PathBuf, changefeed: ChangefeedId, lineage: LineageId, router: Arc<Router>) -> Self {
        Self {
            dir,
            changefeed,
            lineage,
            continued: false,
            rotate_bytes: ROTATE_BYTES_DEFAULT,
            rotate_age: ROTATE_AGE_DEFAULT,
            canal: CanalOptions::default(),
            router,
            workers: WORKERS_DEFAULT,
        }
    }
}
