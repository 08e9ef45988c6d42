//! The newest part of the DDL history, so that a resting stream learns of a DDL without
//! a scan.

use std::collections::VecDeque;

use weir_types::OrderKey;

use crate::scan::{DdlFilter, PlacedDdl, first_concerning};
use crate::stream::Stream;

/// DDL that are remembered; streams further behind read the history.
pub const RECENT_DDLS_MAX: usize = 1_024;

/// Every DDL in `(from, upto]`.
#[derive(Debug)]
pub(crate) struct RecentDdls {
    from: OrderKey,
    ddls: VecDeque<PlacedDdl>,
}

impl RecentDdls {
    pub(crate) const fn new(from: OrderKey) -> Self {
        Self {
            from,
            ddls: VecDeque::new(),
        }
    }

    /// The history goes on, ascending, and is complete up to `upto`.
    pub(crate) fn extend(&mut self, ddls: Vec<PlacedDdl>, upto: OrderKey) {
        if ddls.len() > RECENT_DDLS_MAX {
            *self = Self::new(upto);
            return;
        }
        self.ddls.extend(ddls);
        while self.ddls.len() > RECENT_DDLS_MAX {
            if let Some((key, _)) = self.ddls.pop_front() {
                self.from = key;
            }
        }
        // Events of one key are kept or dropped together.
        while self.ddls.front().is_some_and(|(key, _)| *key <= self.from) {
            self.ddls.pop_front();
        }
    }

    /// Looks for the stream's next DDL up to `upto`, the end of what is remembered, if
    /// the stream has come near enough.
    pub(crate) fn refresh(&self, stream: &mut Stream, upto: OrderKey, filter: &DdlFilter) {
        if stream.ddl.is_some() || stream.clear_upto >= upto || stream.clear_upto < self.from {
            return;
        }
        let start = self.ddls.partition_point(|(key, _)| *key <= stream.clear_upto);
        stream.ddl = first_concerning(&stream.span, self.ddls.range(start..), filter);
        stream.clear_upto = stream.ddl.as_ref().map_or(upto, |(key, _)| *key);
    }
}
