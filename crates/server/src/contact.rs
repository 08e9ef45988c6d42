//! Work that blocks on disks and servers, off the control thread, so that a stop is
//! heard while a server does not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use weir_config::Changefeed;
use weir_types::{ErrorClass, ErrorReport};

use crate::ends::{Ends, check_apart};

use crate::error::ServerError;

/// Time between two attempts to reach what may be coming up beside us.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

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

/// What the first words with both ends have told.
pub(crate) struct Contact {
    /// The changefeed with what the source knows better.
    pub(crate) changefeed: Changefeed,
    pub(crate) ends: Arc<Ends>,
    /// Both ends are one server, with the tables routed apart.
    pub(crate) one_server: bool,
}

/// Reaches both ends for the first time; what may pass is tried again until `deadline`.
///
/// # Errors
/// A password is missing; the last transient error; at once what is definite; one server
/// at both ends without the tables being routed apart.
pub(crate) async fn first_contact(
    changefeed: &Changefeed,
    connect_timeout: Duration,
    deadline: Instant,
    stop: &mut watch::Receiver<bool>,
) -> Result<Answer<Contact>, ErrorReport> {
    let ends = Arc::new(Ends::of(changefeed, connect_timeout).map_err(|e| ErrorReport::new(&e))?);
    loop {
        let (ends, changefeed) = (Arc::clone(&ends), changefeed.clone());
        let error = match off_thread(stop, move || meet(ends, changefeed)).await {
            Err(error) => error,
            answer => return answer,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if error.class != ErrorClass::Transient || left.is_zero() {
            return Err(error);
        }
        tracing::warn!(code = error.code, "not ready: {error}; trying again");
        tokio::select! {
            () = tokio::time::sleep(RETRY_INTERVAL.min(left)) => {}
            () = stopped(stop) => return Ok(Answer::Stopped),
        }
    }
}

fn meet(ends: Arc<Ends>, mut changefeed: Changefeed) -> Result<Contact, ErrorReport> {
    let one_server = ends.are_one_server(&changefeed)?;
    ends.learn(&mut changefeed)?;
    if one_server {
        let filter = changefeed.table_filter().map_err(|e| ErrorReport::new(&e))?;
        let router = changefeed.router().map_err(|e| ErrorReport::new(&e))?;
        let tables = ends.wanted_tables(&changefeed, &filter)?;
        check_apart(&tables, &filter, &router).map_err(|e| ErrorReport::new(&e))?;
    }
    Ok(Contact {
        changefeed,
        ends,
        one_server,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> Changefeed {
        // Port 1 of this machine: nobody listens there.
        let text = "id = \"c\"\n[source]\nuri = \"mysql://u@127.0.0.1:1\"\n[sink]\nuri = \"blackhole://\"\n";
        Changefeed::parse(text).unwrap()
    }

    #[actix::test]
    async fn work_that_blocks_is_left_behind_at_a_stop() {
        let (stop, stopped) = watch::channel(false);
        let done = off_thread(&stopped, || Ok(7)).await.unwrap();
        assert!(matches!(done, Answer::Done(7)));
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        stop.send_replace(true);
        let left = off_thread(&stopped, move || {
            // Ends when the test does.
            let _released = blocked.recv();
            Ok(())
        });
        assert!(matches!(left.await.unwrap(), Answer::Stopped));
        drop(release);
        let (_keep, never) = watch::channel(false);
        let lost = off_thread::<()>(&never, || panic!("on purpose")).await;
        assert!(lost.is_err_and(|error| error.code == "WEIR-SRV-005"));
    }

    #[actix::test]
    async fn the_first_contact_is_tried_for_a_limited_time() {
        let (stop, mut stopped) = watch::channel(false);
        let limit = Duration::from_millis(1_500);
        let begun = Instant::now();
        let tried = first_contact(&unreachable(), limit, begun + limit, &mut stopped).await;
        let error = tried.err().unwrap();
        assert_eq!((error.code, error.class), ("WEIR-WIR-001", ErrorClass::Transient));
        assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());

        let far = Instant::now() + Duration::from_secs(600);
        let changefeed = unreachable();
        let waiting = first_contact(&changefeed, limit, far, &mut stopped);
        let (answer, ()) = tokio::join!(waiting, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            stop.send_replace(true);
        });
        assert!(matches!(answer, Ok(Answer::Stopped)));
    }

    #[actix::test]
    async fn what_is_definite_is_not_tried_again() {
        let (_keep, mut stop) = watch::channel(false);
        let mut changefeed = unreachable();
        changefeed.source.password_env = Some("WEIR_NO_SUCH_VARIABLE".to_owned());
        let limit = Duration::from_secs(600);
        let refused = first_contact(&changefeed, limit, Instant::now() + limit, &mut stop).await;
        assert!(refused.is_err_and(|error| error.code == "WEIR-CFG-008"));
    }
}
