//! Which actor lives on which thread.

use actix::{Actor, Addr, Arbiter, Context};

/// An arbiter (one thread with its own runtime) that is stopped when it is dropped.
#[derive(Debug)]
pub struct NamedArbiter {
    name: &'static str,
    arbiter: Arbiter,
}

impl NamedArbiter {
    /// Starts the thread. Must be called inside an actix system.
    pub fn start(name: &'static str) -> Self {
        Self {
            name,
            arbiter: Arbiter::new(),
        }
    }

    /// What the thread is for.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Starts an actor on this thread.
    pub fn place<A>(&self, build: impl FnOnce(&mut Context<A>) -> A + Send + 'static) -> Addr<A>
    where
        A: Actor<Context = Context<A>> + Send,
    {
        A::start_in_arbiter(&self.arbiter.handle(), build)
    }

    /// Runs `work` on this thread and gives its result; none if the thread has ended.
    /// For starting what starts its own actors.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (send, receive) = tokio::sync::oneshot::channel();
        let posted = self.arbiter.spawn_fn(move || {
            // A receiver that is gone means that nobody wants the result any more.
            let _unwanted = send.send(work());
        });
        if posted { receive.await.ok() } else { None }
    }
}

impl Drop for NamedArbiter {
    fn drop(&mut self) {
        self.arbiter.stop();
    }
}
