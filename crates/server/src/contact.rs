//! Work that blocks on disks and servers, off the control thread, so that a stop is
//! heard while a server does not answer.

use tokio::sync::{oneshot, watch};
use weir_types::ErrorReport;

use crate::error::ServerError;

/// How blocking work ended.
pub(crate) enum Answer<T> {
    /// It is done.
    Done(T),
    /// The stop came first; what the work finds is dropped.
    Stopped,
}

/// Resolves when the stop is wanted; never if nobody can want it any more.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|wanted| *wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Runs `work` on a thread of its own until it is done or the stop comes.
///
/// # Errors
/// Those of the work; the thread cannot be made, or has panicked.
pub(crate) async fn off_thread<T: Send + 'static>(
    stop: &watch::Receiver<bool>,
    work: impl FnOnce() -> Result<T, ErrorReport> + Send + 'static,
) -> Result<Answer<T>, ErrorReport> {
    let lost = || ErrorReport::new(&ServerError::StageLost { stage: "opening" });
    let (done, answer) = oneshot::channel();
    let spawned = std::thread::Builder::new()
        .name("weir-opening".to_owned())
        .spawn(move || {
            // Nobody listens any more where the stop came first.
            let _unheard = done.send(work());
        });
    if spawned.is_err() {
        return Err(lost());
    }
    let mut stop = stop.clone();
    tokio::select! {
        answer = answer => answer.map_err(|_| lost())?.map(Answer::Done),
        () = stopped(&mut stop) => Ok(Answer::Stopped),
    }
}
