//! How an actor ended.

use actix::{Message, WeakRecipient};
use weir_types::Generation;

use crate::post::post;

/// Sent once per actor, when it is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct ActorExited {
    /// Stage name, for example `event-store`.
    pub stage: &'static str,
    /// Pipeline that the actor belonged to.
    pub generation: Generation,
    /// Ended on purpose; false after a panic or a lost arbiter.
    pub clean: bool,
}

/// A field of every actor. Dropping it reports the exit; `mark_clean` before a stop on
/// purpose tells it apart from a panic.
#[derive(Debug)]
pub struct ExitGuard {
    stage: &'static str,
    generation: Generation,
    clean: bool,
    report_to: WeakRecipient<ActorExited>,
}

impl ExitGuard {
    /// A guard that reports to `report_to` (weak: the supervisor is not kept alive).
    pub fn new(stage: &'static str, generation: Generation, report_to: WeakRecipient<ActorExited>) -> Self {
        Self {
            stage,
            generation,
            clean: false,
            report_to,
        }
    }

    /// The coming end is on purpose.
    pub fn mark_clean(&mut self) {
        self.clean = true;
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        if let Some(recipient) = self.report_to.upgrade() {
            let clean = self.clean && !std::thread::panicking();
            post(
                &recipient,
                ActorExited {
                    stage: self.stage,
                    generation: self.generation,
                    clean,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use actix::{Actor, Context, Handler};

    use super::*;

    struct Supervisor(Arc<Mutex<Vec<ActorExited>>>);

    impl Actor for Supervisor {
        type Context = Context<Self>;
    }

    impl Handler<ActorExited> for Supervisor {
        type Result = ();
        fn handle(&mut self, exited: ActorExited, _: &mut Self::Context) {
            self.0.lock().unwrap().push(exited);
        }
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    enum Order {
        Quit,
        Panic,
    }

    struct Child(ExitGuard);

    impl Actor for Child {
        type Context = Context<Self>;
    }

    impl Handler<Order> for Child {
        type Result = ();
        fn handle(&mut self, order: Order, ctx: &mut Self::Context) {
            match order {
                Order::Quit => {
                    self.0.mark_clean();
                    actix::ActorContext::stop(ctx);
                }
                Order::Panic => panic!("ordered by the test"),
            }
        }
    }

    #[actix::test]
    async fn reports_clean_exits_and_panics() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let supervisor = Supervisor(Arc::clone(&seen)).start();
        for (order, clean) in [(Order::Quit, true), (Order::Panic, false)] {
            let guard = ExitGuard::new("child", Generation(1), supervisor.downgrade().recipient());
            let child = Child(guard).start();
            assert!(child.send(order).await.is_err() || clean);
            drop(child);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(seen.lock().unwrap().last().map(|e| e.clean), Some(clean));
        }
    }
}
