//! What is learnt of a running generation, and what it means for the run.

use std::time::Duration;

use weir_changefeed::{MaintainerEvent, RunUntil, StopClean};
use weir_source::actor::EndReason;
use weir_types::{Classified, CommitTs, ErrorClass, ErrorReport};

use crate::error::ServerError;
use crate::owner::OwnerEvent;
use crate::pipeline::Pipeline;

/// How long a clean stop waits for the sink. What is not durable then is delivered
/// again by the next start.
const STOP_WITHIN: Duration = Duration::from_secs(20);

fn report(error: &dyn Classified) -> ErrorReport {
    ErrorReport::new(error)
}

/// How a generation ended.
pub(crate) enum Ended {
    Finished {
        error: Option<ErrorReport>,
    },
    Stopped,
    /// Spans are to be formed anew.
    Reform,
    Failed(ErrorReport),
    /// It did not begin: store or sink could not be opened.
    NotOpened(ErrorReport),
}

/// What has been seen of a running generation.
#[derive(Default)]
pub(crate) struct Watched {
    /// A clean stop is under way.
    pub(crate) stopping: bool,
    /// The error that the run ends with, once everything whole was delivered.
    error: Option<ErrorReport>,
}

impl Watched {
    /// Source first, then the store; then everything that was stored is delivered.
    pub(crate) fn stop(&mut self, pipeline: &Pipeline) {
        self.stopping = true;
        pipeline.stop_source();
        weir_actor::post_to(&pipeline.maintainer, StopClean { within: STOP_WITHIN });
    }

    /// Takes a report; the end, if it is one.
    pub(crate) fn take(&mut self, event: OwnerEvent, pipeline: &Pipeline) -> Option<Ended> {
        match event {
            OwnerEvent::SourceEnded(ended) => {
                if let EndReason::Cut(error) = ended.reason {
                    self.error.get_or_insert(error);
                }
                if self.stopping {
                    None
                } else {
                    self.deliver_rest(pipeline)
                }
            }
            OwnerEvent::StageFailed(failed) => self.stage_failed(failed.error, pipeline),
            OwnerEvent::Maintainer(event) => self.maintainer(event),
            // A dispatcher's end is the maintainer's business; a panic in one is not.
            OwnerEvent::Exited(exited) if exited.clean => {
                let lost = exited.stage != "dispatcher" && exited.stage != "source";
                lost.then(|| Ended::Failed(report(&ServerError::StageLost { stage: exited.stage })))
            }
            OwnerEvent::Exited(exited) => Some(Ended::Failed(report(&ServerError::StageLost {
                stage: exited.stage,
            }))),
        }
    }

    /// The source has ended: the run ends when all that the store holds is delivered.
    fn deliver_rest(&mut self, pipeline: &Pipeline) -> Option<Ended> {
        let target = pipeline.resolved();
        if target == CommitTs::ZERO {
            // Nothing was ever stored, so nothing will be delivered.
            return Some(Ended::Finished {
                error: self.error.take(),
            });
        }
        weir_actor::post_to(&pipeline.maintainer, RunUntil { target });
        None
    }

    /// A definite error of the source: what was read before it is whole, and is
    /// delivered before the run ends with the error.
    fn stage_failed(&mut self, error: ErrorReport, pipeline: &Pipeline) -> Option<Ended> {
        let definite = matches!(error.class, ErrorClass::Changefeed | ErrorClass::Table);
        if definite && self.error.is_none() && !self.stopping {
            self.error = Some(error);
            return self.deliver_rest(pipeline);
        }
        Some(Ended::Failed(error))
    }

    fn maintainer(&mut self, event: MaintainerEvent) -> Option<Ended> {
        match event {
            MaintainerEvent::Progress { .. }
            | MaintainerEvent::TableFailed { .. }
            | MaintainerEvent::Blocked(_) => None,
            MaintainerEvent::Failed(error) => Some(Ended::Failed(error)),
            MaintainerEvent::Reform => Some(Ended::Reform),
            MaintainerEvent::CaughtUp { failed } => {
                let first = failed.into_iter().next().map(|(_, error)| error);
                Some(Ended::Finished {
                    error: self.error.take().or(first),
                })
            }
            MaintainerEvent::Stopped { clean } => {
                if !clean {
                    tracing::warn!("the stop's deadline passed: rows that are not durable come again");
                }
                Some(Ended::Stopped)
            }
        }
    }
}
