use std::sync::Arc;

use proptest::prelude::*;
use weir_segment::fault::{Fault, FaultVolume};

use crate::conformance::{Op, Open, Rng, Subject, run};
use crate::*;

mod actor;
mod crash;
mod cuts;
mod log;

struct Memory;

impl Subject for Memory {
    fn open(&mut self) -> Open {
        let (recovered, writer, reader) = MemoryStore::open(MemoryOptions::default()).unwrap();
        Open {
            recovered,
            writer: Box::new(writer),
            reader,
        }
    }

    fn reopen(&mut self, _seed: u64) -> Option<Open> {
        None
    }
}

/// A log on a faulty volume.
struct Log {
    volume: FaultVolume,
    options: LogOptions,
    /// Begins to count once the store is open.
    fault: Option<(u64, Fault)>,
}

fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 6 << 10,
        memory_bytes: 4 << 10,
        index_bytes: 256 << 10,
        disk_quota: 1 << 30,
        background_seal: false,
        ..LogOptions::default()
    }
}

impl Log {
    fn new(options: LogOptions) -> Self {
        Self {
            volume: FaultVolume::new(),
            options,
            fault: None,
        }
    }
}

fn open_log(volume: &FaultVolume, options: &LogOptions) -> Result<Open, StoreError> {
    let volume: Arc<dyn weir_segment::Volume> = Arc::new(volume.clone());
    let (recovered, writer, reader) = LogStore::open_volume(volume, options.clone())?;
    Ok(Open {
        recovered,
        writer: Box::new(writer),
        reader,
    })
}

impl Subject for Log {
    fn open(&mut self) -> Open {
        let open = open_log(&self.volume, &self.options).unwrap();
        if let Some((at, fault)) = self.fault {
            self.volume.fail(at, fault);
        }
        open
    }

    fn reopen(&mut self, seed: u64) -> Option<Open> {
        let mut rng = Rng::new(seed);
        self.volume = match seed % 3 {
            0 => self.volume.kill(),
            1 => self.volume.crash(&mut || false),
            _ => self.volume.crash(&mut || rng.below(2) == 0),
        };
        Some(open_log(&self.volume, &self.options).expect("a crash leaves a store that opens"))
    }
}

fn op() -> impl Strategy<Value = Op> {
    let rows = 0_u8..8;
    prop_oneof![
        8 => (1_u8..4, rows.clone(), prop_oneof![Just(30_u16), Just(300), Just(4_000)], prop::bool::weighted(0.2))
            .prop_map(|(txns, rows, size, ddl)| Op::Group { txns, rows, size, ddl }),
        4 => (any::<u8>(), 1_u8..8, prop_oneof![Just(30_u16), Just(1_000)])
            .prop_map(|(slot, rows, size)| Op::Fragment { slot, rows, size }),
        1 => any::<u8>().prop_map(|slot| Op::Discard { slot }),
        2 => (any::<u8>(), rows.clone(), any::<u8>()).prop_map(|(slot, rows, abort)| Op::Commit { slot, rows, abort }),
        2 => (any::<u8>(), rows, any::<u8>()).prop_map(|(slot, rows, abort)| Op::Prepare { slot, rows, abort }),
        2 => any::<bool>().prop_map(|commit| Op::EndPrepared { commit }),
        1 => Just(Op::Tick),
        6 => Just(Op::Sync),
        2 => Just(Op::Begin),
        2 => any::<u64>().prop_map(|seed| Op::Gc { seed }),
        1 => Just(Op::Detach),
        1 => any::<u64>().prop_map(|seed| Op::Reopen { seed }),
        2 => any::<u64>().prop_map(|seed| Op::Check { seed }),
    ]
}

/// A fixed run with everything in it, for faults at every place.
fn mixed() -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..8_u8 {
        let size = if round % 3 == 0 { 2_000 } else { 60 };
        ops.push(Op::Group {
            txns: 2,
            rows: 5,
            size,
            ddl: round % 2 == 0,
        });
        ops.push(Op::Fragment {
            slot: round,
            rows: 4,
            size: 500,
        });
        ops.push(Op::Sync);
        ops.push(Op::Group {
            txns: 1,
            rows: 3,
            size: 40,
            ddl: false,
        });
        ops.push(Op::Begin);
        ops.push(Op::Prepare {
            slot: round,
            rows: 2,
            abort: round,
        });
        ops.push(Op::Fragment {
            slot: round + 1,
            rows: 3,
            size: 100,
        });
        ops.push(Op::Commit {
            slot: round + 1,
            rows: 1,
            abort: round + 1,
        });
        ops.push(Op::Sync);
        ops.push(Op::EndPrepared {
            commit: round % 3 > 0,
        });
        ops.push(Op::Tick);
        ops.push(Op::Sync);
        ops.push(Op::Check {
            seed: u64::from(round),
        });
        if round == 5 {
            ops.push(Op::Detach);
        }
        ops.push(Op::Gc {
            seed: u64::from(round),
        });
    }
    ops
}

proptest! {
    #[test]
    fn the_memory_store_conforms(ops in prop::collection::vec(op(), 1..80)) {
        run(&mut Memory, &ops);
    }

    #[test]
    fn the_log_conforms(ops in prop::collection::vec(op(), 1..120)) {
        run(&mut Log::new(small()), &ops);
    }
}

#[test]
fn the_fixed_run_conforms() {
    assert!(run(&mut Memory, &mixed()).0 > 50);
    assert!(run(&mut Log::new(small()), &mixed()).0 > 50);
}

#[test]
fn faults_at_every_write_and_sync_lose_nothing_synced() {
    let counted = {
        let mut log = Log::new(small());
        run(&mut log, &mixed());
        log.volume.operations()
    };
    assert!(counted.0 > 50 && counted.1 > 20);
    for fault in [
        Fault::NoRoom,
        Fault::WriteError,
        Fault::ShortWrite,
        Fault::SyncError,
    ] {
        let places = if fault == Fault::SyncError {
            counted.1
        } else {
            counted.0
        };
        for at in 0..places {
            let mut log = Log::new(small());
            log.fault = Some((at, fault));
            // A power loss in the end shows whether what was acknowledged after the
            // fault is really on disk.
            let mut ops = mixed();
            ops.extend([Op::Sync, Op::Sync, Op::Reopen { seed: 1 }]);
            let (compared, _) = run(&mut log, &ops);
            assert!(compared > 50, "{fault:?} at {at}");
        }
    }
}

#[test]
fn a_fault_while_opening_is_an_error_and_does_no_harm() {
    for fault in [Fault::NoRoom, Fault::WriteError, Fault::SyncError] {
        for at in 0..6 {
            let log = Log::new(small());
            log.volume.fail(at, fault);
            let first = open_log(&log.volume, &log.options);
            let hit = !log.volume.pending();
            assert_eq!(first.is_err(), hit, "{fault:?} at {at}");
            drop(first);
            let mut log = Log {
                volume: log.volume.crash(&mut || true),
                options: small(),
                fault: None,
            };
            if hit {
                run(&mut log, &mixed());
            }
        }
    }
}
