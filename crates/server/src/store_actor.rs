//! temporary
use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use weir_actor::{ExitGuard, post, post_to};
use weir_event_store::{StoreWriter, SyncTicket};
use weir_protocol::store::*;
use weir_types::{ChangefeedId, ErrorReport};
#[derive(Message)]
#[rtype(result = "()")]
pub struct AttachOutlets {
    pub persisted: Recipient<Persisted>,
    pub resolved: Recipient<ResolvedAdvanced>,
}
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopStore;
#[derive(Message)]
#[rtype(result = "()")]
struct Commit;
type Job = (
    Box<dyn SyncTicket>,
    u64,
    usize,
    Arc<AttachOutlets>,
    Recipient<StageFailed>,
);
pub struct EventStoreActor {
    writer: Box<dyn StoreWriter>,
    failed: Recipient<StageFailed>,
    exit: ExitGuard,
    out: Option<Arc<AttachOutlets>>,
    seq: u64,
    bytes: usize,
    armed: bool,
    jobs: Option<SyncSender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}
impl EventStoreActor {
    pub fn new(
        _: ChangefeedId,
        writer: Box<dyn StoreWriter>,
        failed: Recipient<StageFailed>,
        exit: ExitGuard,
    ) -> Self {
        let (tx, rx) = sync_channel::<Job>(4);
        let thread = std::thread::spawn(move || {
            for (t, seq, bytes, out, failed) in rx {
                match t.wait() {
                    Ok(s) => {
                        post(&out.resolved, ResolvedAdvanced { resolved: s.resolved });
                        post(&out.persisted, Persisted { seq, bytes });
                    }
                    Err(e) => post(
                        &failed,
                        StageFailed {
                            stage: "event-store",
                            error: ErrorReport::new(&e),
                        },
                    ),
                }
            }
        });
        Self {
            writer,
            failed,
            exit,
            out: None,
            seq: 0,
            bytes: 0,
            armed: false,
            jobs: Some(tx),
            thread: Some(thread),
        }
    }
    fn commit(&mut self) {
        let Some(out) = self.out.clone() else { return };
        match self.writer.commit_group() {
            Ok(Some(t)) => {
                let _ = self.jobs.as_ref().unwrap().send((
                    t,
                    self.seq,
                    std::mem::take(&mut self.bytes),
                    out,
                    self.failed.clone(),
                ));
            }
            Ok(None) => {
                if self.bytes > 0 {
                    post(
                        &out.persisted,
                        Persisted {
                            seq: self.seq,
                            bytes: std::mem::take(&mut self.bytes),
                        },
                    );
                }
            }
            Err(e) => post(
                &self.failed,
                StageFailed {
                    stage: "event-store",
                    error: ErrorReport::new(&e),
                },
            ),
        }
    }
}
impl Actor for EventStoreActor {
    type Context = Context<Self>;
}
impl Handler<AttachOutlets> for EventStoreActor {
    type Result = ();
    fn handle(&mut self, m: AttachOutlets, _: &mut Context<Self>) {
        self.out = Some(Arc::new(m));
    }
}
impl Handler<AppendBatch> for EventStoreActor {
    type Result = ();
    fn handle(&mut self, m: AppendBatch, ctx: &mut Context<Self>) {
        let now = u64::try_from(
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_millis(),
        )
        .unwrap();
        for i in m.inputs {
            if let Err(e) = self.writer.append(i, now) {
                post(
                    &self.failed,
                    StageFailed {
                        stage: "event-store",
                        error: ErrorReport::new(&e.error),
                    },
                );
                return;
            }
        }
        self.seq = m.seq;
        self.bytes += m.bytes;
        if self.bytes > 4 << 20 {
            self.commit();
        } else if !self.armed {
            self.armed = true;
            post_to(&ctx.address(), Commit);
        }
    }
}
impl Handler<Commit> for EventStoreActor {
    type Result = ();
    fn handle(&mut self, _: Commit, _: &mut Context<Self>) {
        self.armed = false;
        self.commit();
    }
}
impl Handler<AdvanceGc> for EventStoreActor {
    type Result = ();
    fn handle(&mut self, m: AdvanceGc, _: &mut Context<Self>) {
        if let Err(e) = self.writer.advance_gc(&m.tables, m.schema) {
            post(
                &self.failed,
                StageFailed {
                    stage: "event-store",
                    error: ErrorReport::new(&e),
                },
            );
        }
    }
}
impl Handler<StopStore> for EventStoreActor {
    type Result = ();
    fn handle(&mut self, _: StopStore, ctx: &mut Context<Self>) {
        self.commit();
        self.jobs = None;
        let _ = self.thread.take().map(|t| t.join());
        let _ = self.writer.close();
        self.exit.mark_clean();
        ctx.stop();
    }
}
