//! Posting without waiting.

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message, Recipient};

/// Posts a message whose room was granted before (credit, an in-flight window, or a
/// bounded number of outstanding signals). A closed mailbox means that the pipeline is
/// going down: the message is dropped, and what it stood for is found again from the
/// checkpoint.
#[allow(clippy::disallowed_methods)]
pub fn post<M>(recipient: &Recipient<M>, message: M)
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    recipient.do_send(message);
}

/// As [`post`], for the address of a known actor.
#[allow(clippy::disallowed_methods)]
pub fn post_to<A, M>(address: &Addr<A>, message: M)
where
    A: Actor + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    A::Context: ToEnvelope<A, M>,
{
    address.do_send(message);
}

/// A kept handle to the next stage: cloned once, at wiring time, never per message.
#[derive(Clone)]
pub struct Outlet<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    recipient: Recipient<M>,
}

impl<M> Outlet<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    /// Keeps the handle.
    pub fn new(recipient: Recipient<M>) -> Self {
        Self { recipient }
    }

    /// Posts; see [`post`].
    pub fn push(&self, message: M) {
        post(&self.recipient, message);
    }

    /// Whether the receiver is still there.
    pub fn is_connected(&self) -> bool {
        self.recipient.connected()
    }
}
