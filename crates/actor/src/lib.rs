//! The conventions on top of actix that every stage follows.
//!
//! * [`exit`]: an actor's end is a value. A guard inside the actor reports how it ended,
//!   also after a panic, which actix itself does not supervise.
//! * [`placement`]: named arbiters; a stage lives on one thread from start to stop.
//! * [`mod@post`]: the only way to put a message into a mailbox without waiting. actix
//!   mailboxes are not bounded by their capacity (every clone of a handle owns a slot),
//!   so what bounds a hop is credit, taken before the message is posted.

pub mod exit;
pub mod placement;
pub mod post;
pub mod total;

pub use exit::{ActorExited, ExitGuard};
pub use placement::NamedArbiter;
pub use post::{Outlet, post, post_to};
pub use total::Total;
