//! Whole runs over random faults. `WEIR_SIM_SEEDS` runs more seeds, `WEIR_SIM_SEED` one.

#![allow(clippy::unwrap_used)] // helpers of tests

use weir_testkit::history::Mix;
use weir_testkit::{Faults, Scenario, Simulation, Summary};
use weir_types::TableName;

const SEEDS: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64) -> Summary {
    let scenario = Scenario::random(seed);
    match Simulation::new(scenario.clone()).run() {
        Ok(summary) => summary,
        Err(error) => panic!("WEIR_SIM_SEED={seed}: {error}\n{scenario:?}"),
    }
}

#[test]
fn random_faults_lose_nothing_and_double_nothing() {
    if let Some(seed) = number("WEIR_SIM_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let seeds = number("WEIR_SIM_SEEDS").unwrap_or(SEEDS);
    let half = |from: u64| (from..seeds).step_by(2).map(run).collect::<Vec<_>>();
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        all = half(0);
        all.extend(odd.join().unwrap());
    });
    let sum = |of: fn(&Summary) -> u64| all.iter().map(of).sum::<u64>();
    println!(
        "{} runs, {} events, {} rows, {} resets, {} lane rows, {} repeated, {} reforms, {} mixed batches",
        all.len(),
        sum(|s| s.events),
        sum(|s| s.rows as u64),
        sum(|s| s.resets),
        sum(|s| s.lane_rows),
        sum(|s| s.repeated),
        sum(|s| s.reforms),
        sum(|s| s.mixed),
    );
    // The runs are worth something only if what they are about happens in them.
    assert!(sum(|s| s.resets) > seeds);
    assert!(sum(|s| s.lane_rows) > 0);
    assert!(sum(|s| s.repeated) > 0);
    assert!(sum(|s| s.reforms) > seeds / 4);
    assert!(sum(|s| s.mixed) > 0);
}

#[test]
fn a_slow_table_delays_itself_only() {
    for seed in 0..20 {
        let slow = TableName::new("a", "t0");
        let scenario = Scenario {
            mix: Mix {
                ddl_percent: 0,
                large_percent: 0,
                body_max: 300,
                revive: true,
            },
            steps: 400,
            faults: Faults {
                delay_ms: 1,
                ..Faults::default()
            },
            service_restarts: Vec::new(),
            changefeed_restarts: Vec::new(),
            budget_bytes: 24 << 10,
            sink_delay: 20,
            slow: Some((slow.clone(), 500)),
            ..Scenario::random(seed)
        };
        let mut simulation = Simulation::new(scenario);
        simulation.run_until(12_000).unwrap();
        assert_eq!(simulation.lacking(), [slow], "seed {seed}");
        simulation.run().unwrap();
    }
}
