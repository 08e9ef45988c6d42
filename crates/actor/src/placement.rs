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
}

impl Drop for NamedArbiter {
    fn drop(&mut self) {
        self.arbiter.stop();
    }
}
