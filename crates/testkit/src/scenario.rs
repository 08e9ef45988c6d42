//! What a run is made of, chosen by its seed.

use weir_types::TableName;

use crate::history::{BODY_BYTES_MAX, Mix};
use crate::rng::Rng;

/// Delay of a message without faults, milliseconds.
pub const CALM_DELAY_MS: u64 = 1;

/// What the transport does to messages, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Lost, of a hundred.
    pub drop_percent: u64,
    /// Doubled, of a hundred.
    pub double_percent: u64,
    /// Held back for seconds, of a hundred.
    pub late_percent: u64,
    /// Longest usual delay, milliseconds; more than 1 reorders.
    pub delay_ms: u64,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed.
    pub seed: u64,
    /// Transactions.
    pub steps: u64,
    /// Their kinds.
    pub mix: Mix,
    /// The transport.
    pub faults: Faults,
    /// Times at which the service loses its state.
    pub service_restarts: Vec<u64>,
    /// Times at which the changefeed's side is lost and rebuilt from saved progress.
    pub changefeed_restarts: Vec<u64>,
    /// Budget of the collector, bytes.
    pub budget_bytes: u64,
    /// Factor of the sink's delays, milliseconds.
    pub sink_delay: u64,
    /// A table that is slower than others.
    pub slow: Option<(TableName, u64)>,
    /// The sink knows what it has made durable, as one that names files by keys.
    pub exact: bool,
    /// Tables are tied by foreign keys, and the sink notes DDL as their progress.
    pub tied: bool,
    /// The service reads the event store's twin in memory instead of the model.
    pub memory_store: bool,
}

impl Scenario {
    /// A scenario chosen by the seed.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let calm = rng.percent(20);
        let faults = if calm {
            Faults {
                delay_ms: CALM_DELAY_MS,
                ..Faults::default()
            }
        } else {
            Faults {
                drop_percent: rng.below(15),
                double_percent: rng.below(15),
                late_percent: rng.below(3),
                delay_ms: rng.between(1, 20),
            }
        };
        let mut times =
            |most: u64| -> Vec<u64> { (0..rng.below(most + 1)).map(|_| rng.below(4_000)).collect() };
        let (service_restarts, changefeed_restarts) = (times(3), times(3));
        let slow = TableName::new("a", format!("t{}", rng.below(6)));
        let tied = rng.percent(60);
        Self {
            seed,
            steps: rng.between(40, 200),
            mix: Mix {
                ddl_percent: rng.below(25),
                large_percent: rng.below(10),
                body_max: rng.between(1_000, BODY_BYTES_MAX),
                revive: !tied,
            },
            faults,
            service_restarts: if calm { Vec::new() } else { service_restarts },
            changefeed_restarts,
            budget_bytes: rng.between(16, 256) << 10,
            sink_delay: rng.below(60),
            slow: rng.percent(30).then_some((slow, rng.between(2, 40))),
            exact: rng.percent(50),
            tied,
            memory_store: rng.percent(70),
        }
    }
}

/// What a run has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Row events of the history.
    pub rows: usize,
    /// DDL of the history.
    pub ddls: usize,
    /// Rows that became durable again after a restart.
    pub repeated: u64,
    /// Resets, all generations.
    pub resets: u64,
    /// Row events that went through the lane.
    pub lane_rows: u64,
    /// Generations that ended for other spans.
    pub reforms: u64,
    /// Batches with row events of several tables.
    pub mixed: u64,
    /// Simulated time, milliseconds.
    pub ended_ms: u64,
    /// Events simulated.
    pub events: u64,
}
