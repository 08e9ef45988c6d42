//! One changefeed: maintainer, barriers, checkpoint, metadata store.
