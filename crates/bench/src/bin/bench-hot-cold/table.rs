//! What the cells have come to, as a table, as ratios, and against what is required.

use anyhow::Result;
use serde::Serialize;
use weir_bench::Report;

use crate::cell::{Cell, Outcome, Policy, QUOTA_BYTES};

const COMMAND: &str = "cargo xtask bench hot-cold --json";
const MIB: f64 = (1 << 20) as f64;
/// By bytes, slow.
const KINDS: [(bool, bool); 4] = [(true, false), (false, false), (true, true), (false, true)];

/// Least ratio of ours to no window.
const RATIO_MIN: f64 = 0.98;
/// Least part of what the sink can take.
const CAPACITY_MIN: f64 = 0.9;
/// Largest lag of a cold table ÷ the same without the hot one.
const COLD_LAG_MAX: f64 = 2.0;
/// The fence is to be worse than this in one slow cell, or the benchmark proves nothing.
const FENCE_MAX: f64 = 0.5;
/// Most memory.
const PEAK_MAX_BYTES: f64 = QUOTA_BYTES as f64 * 1.2 + 100.0 * MIB;

/// A requirement.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Verdict {
    required: &'static str,
    /// Of the worst cell.
    value: f64,
    limit: f64,
    met: bool,
}

/// One cell for people.
pub(crate) fn line(outcome: &Outcome) -> String {
    let Cell {
        policy,
        by_bytes,
        slow,
        cold_only,
    } = outcome.cell;
    let (hot, cold) = (
        outcome.lags_ms.first().copied().unwrap_or_default(),
        outcome.worst_cold_ms(),
    );
    format!(
        "{:<13} {:<8} {:<7} {:>7.0} rows/s ({:.3} of the sink's), redo {:>7.0}, {:>5.0} scans/s of {:>6.0}, lag hot {} / {} ms, cold {} / {} ms, {} resets, peak {} MiB ({:.2} of the quota), fence {:.1} s",
        format!("{policy:?}"),
        if by_bytes { "by-bytes" } else { "by-count" },
        match (cold_only, slow) {
            (true, _) => "no-hot",
            (false, true) => "slow",
            (false, false) => "healthy",
        },
        outcome.rows_per_s,
        outcome.of_capacity,
        outcome.redo_rows_per_s,
        outcome.scans_per_s,
        outcome.events_per_scan,
        hot.0,
        hot.1,
        cold.0,
        cold.1,
        outcome.resets,
        outcome.peak_bytes >> 20,
        outcome.peak_bytes as f64 / QUOTA_BYTES as f64,
        outcome.fence_ms / 1_000.0,
    )
}

/// Prints the headline, the cells (as JSON only), the ratios, what is required, and the headline again.
pub(crate) fn print(outcomes: &[Outcome], rounds: usize, json: bool) -> Result<()> {
    let ratios = ratios(outcomes, rounds);
    let worst = ratios
        .iter()
        .filter(|(policy, _)| *policy == Policy::PerDispatcher)
        .min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    let headline = worst.map(|(_, report)| Report {
        name: "hot-cold".to_owned(),
        notes: format!("worst cell: {}; {}", report.name, report.notes),
        ..report.clone()
    });
    if json {
        headline.iter().for_each(|one| one.print(true));
        for outcome in outcomes {
            println!("{}", serde_json::to_string(outcome)?);
        }
    }
    for (_, report) in &ratios {
        report.print(json);
    }
    for verdict in verdicts(outcomes, &ratios) {
        if json {
            println!("{}", serde_json::to_string(&verdict)?);
        } else {
            let Verdict {
                required,
                value,
                limit,
                met,
            } = verdict;
            let met = if met { "met" } else { "NOT MET" };
            println!("{required}: {value:.3} (limit {limit:.3}): {met}");
        }
    }
    headline.iter().for_each(|one| one.print(json));
    Ok(())
}

fn of(outcomes: &[Outcome], policy: Policy, (by_bytes, slow): (bool, bool)) -> Vec<&Outcome> {
    let wanted = |outcome: &&Outcome| {
        let cell = outcome.cell;
        !cell.cold_only && (cell.policy, cell.by_bytes, cell.slow) == (policy, by_bytes, slow)
    };
    outcomes.iter().filter(wanted).collect()
}

/// The fence and ours, each ÷ no window, in every cell.
fn ratios(outcomes: &[Outcome], rounds: usize) -> Vec<(Policy, Report)> {
    let rates = |outcomes: &[&Outcome]| -> Vec<f64> { outcomes.iter().map(|one| one.rows_per_s).collect() };
    let mut reports = Vec::new();
    for kind in KINDS {
        let other = of(outcomes, Policy::NoWindow, kind);
        for (policy, prefix) in [(Policy::GlobalFence, "fence/"), (Policy::PerDispatcher, "")] {
            let ours = of(outcomes, policy, kind);
            let pairs: Vec<f64> = rates(&ours)
                .iter()
                .zip(rates(&other))
                .map(|(a, b)| a / b)
                .collect();
            let middle = median(rates(&other));
            let report = Report {
                name: format!("hot-cold/{prefix}{}", name(kind)),
                ratio: median(pairs.clone()),
                unit: "rows/s".to_owned(),
                ours: median(rates(&ours)),
                other: middle,
                rounds,
                spread: spread(&pairs),
                noise: spread(&rates(&other).iter().map(|rate| rate / middle).collect::<Vec<_>>()),
                higher_is_better: true,
                command: COMMAND.to_owned(),
                notes: notes(&ours),
            };
            reports.push((policy, report));
        }
    }
    reports
}

fn name((by_bytes, slow): (bool, bool)) -> String {
    let sink = if slow { "slow" } else { "healthy" };
    format!("{sink}-{}", if by_bytes { "by-bytes" } else { "by-count" })
}

fn verdicts(outcomes: &[Outcome], ratios: &[(Policy, Report)]) -> Vec<Verdict> {
    let ours = |outcome: &&Outcome| !outcome.cell.cold_only && outcome.cell.policy == Policy::PerDispatcher;
    let least = |values: Vec<f64>| values.into_iter().fold(f64::INFINITY, f64::min);
    let most = |values: Vec<f64>| values.into_iter().fold(0.0, f64::max);
    let at_least = |required, value: f64, limit| Verdict {
        required,
        value,
        limit,
        met: value >= limit,
    };
    let at_most = |required, value: f64, limit| Verdict {
        required,
        value,
        limit,
        met: value <= limit,
    };
    let ratio = |policy: Policy, slow_only: bool| {
        let wanted = |(one, report): &&(Policy, Report)| {
            *one == policy && (!slow_only || report.name.contains("slow"))
        };
        least(
            ratios
                .iter()
                .filter(wanted)
                .map(|(_, report)| report.ratio)
                .collect(),
        )
    };
    let capacities = KINDS.map(|kind| {
        let cell = of(outcomes, Policy::PerDispatcher, kind);
        median(cell.iter().map(|one| one.of_capacity).collect())
    });
    let (lag, lag_p99) = cold_lags(outcomes);
    let own = || outcomes.iter().filter(ours);
    vec![
        at_least(
            "per dispatcher / no window, worst cell",
            ratio(Policy::PerDispatcher, false),
            RATIO_MIN,
        ),
        at_least(
            "part of what the sink can take, worst cell",
            least(capacities.to_vec()),
            CAPACITY_MIN,
        ),
        at_most(
            "lag of a cold table / the same alone, median, worst table",
            lag,
            COLD_LAG_MAX,
        ),
        at_most(
            "lag of a cold table / the same alone, p99, worst table",
            lag_p99,
            COLD_LAG_MAX,
        ),
        at_most("resets", own().map(|one| one.resets as f64).sum(), 0.0),
        at_most(
            "peak memory, MiB",
            most(own().map(|one| one.peak_bytes as f64 / MIB).collect()),
            PEAK_MAX_BYTES / MIB,
        ),
        at_most(
            "fence / no window, worst slow cell",
            ratio(Policy::GlobalFence, true),
            FENCE_MAX,
        ),
    ]
}

/// Lag of each cold table beside the hot one ÷ alone, medians over the rounds; the worst table of the worst cell, for the
/// median and the 99th percentile.
fn cold_lags(outcomes: &[Outcome]) -> (f64, f64) {
    let lags = |outcomes: &[&Outcome], table: usize, value: fn(&(u64, u64)) -> u64| {
        let of_table = outcomes.iter().filter_map(|one| one.lags_ms.get(table));
        median(of_table.map(|lag| value(lag) as f64).collect())
    };
    let mut worst = (0.0_f64, 0.0_f64);
    for kind in KINDS {
        let ours = of(outcomes, Policy::PerDispatcher, kind);
        let alone: Vec<&Outcome> = outcomes
            .iter()
            .filter(|one| one.cell.cold_only && one.cell.by_bytes == kind.0)
            .collect();
        let tables = ours.first().map_or(0, |one| one.lags_ms.len());
        for table in 1..tables {
            let part = |value: fn(&(u64, u64)) -> u64| {
                lags(&ours, table, value) / lags(&alone, table, value).max(1.0)
            };
            worst.0 = worst.0.max(part(|lag| lag.0));
            worst.1 = worst.1.max(part(|lag| lag.1));
        }
    }
    worst
}

/// The middle one; of two in the middle their mean.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        at(half)
    } else {
        (at(half.saturating_sub(1)) + at(half)) / 2.0
    }
}

fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    let least = values.iter().copied().fold(f64::MAX, f64::min);
    most - least
}

fn notes(outcomes: &[&Outcome]) -> String {
    let most = |value: fn(&Outcome) -> f64| outcomes.iter().map(|one| value(one)).fold(f64::MIN, f64::max);
    let middle = |value: fn(&Outcome) -> f64| median(outcomes.iter().map(|one| value(one)).collect());
    format!(
        "{:.3} of what the sink can take; {:.0} scans/s of {:.0} events; cold tables' lag {:.0} / {:.0} ms (median, p99; worst \
         table); {:.0} resets; peak {:.0} MiB at a quota of {} MiB; fence {:.1} s",
        middle(|one| one.of_capacity),
        middle(|one| one.scans_per_s),
        middle(|one| one.events_per_scan),
        most(|one| one.worst_cold_ms().0 as f64),
        most(|one| one.worst_cold_ms().1 as f64),
        most(|one| one.resets as f64),
        most(|one| one.peak_bytes as f64) / MIB,
        QUOTA_BYTES >> 20,
        most(|one| one.fence_ms) / 1_000.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(policy: Policy, slow: bool, rows_per_s: f64, cold_ms: u64, cold_only: bool) -> Outcome {
        Outcome {
            cell: Cell {
                policy,
                by_bytes: true,
                slow,
                cold_only,
            },
            rows_per_s,
            of_capacity: rows_per_s / 100.0,
            redo_rows_per_s: 0.0,
            scans_per_s: 1.0,
            events_per_scan: 1.0,
            lags_ms: vec![(9_000, 9_000), (100, 100), (cold_ms, cold_ms)],
            resets: 0,
            peak_bytes: 1 << 20,
            fence_ms: 5_000.0,
            checksum: 0,
        }
    }

    fn met(outcomes: &[Outcome], required: &str) -> bool {
        let verdicts = verdicts(outcomes, &ratios(outcomes, 1));
        verdicts
            .iter()
            .any(|one| one.required.starts_with(required) && one.met)
    }

    fn table(ours: f64, fence: f64, cold_ms: u64) -> Vec<Outcome> {
        let mut outcomes = vec![outcome(Policy::PerDispatcher, false, 100.0, 100, true)];
        for slow in [false, true] {
            outcomes.push(outcome(Policy::PerDispatcher, slow, ours, cold_ms, false));
            outcomes.push(outcome(Policy::NoWindow, slow, 100.0, 100, false));
            outcomes.push(outcome(Policy::GlobalFence, slow, fence, 100, false));
        }
        outcomes
    }

    #[test]
    fn requirements_can_fail() {
        let good = table(99.0, 40.0, 190);
        for required in [
            "per dispatcher",
            "part of",
            "lag of a cold table",
            "resets",
            "peak",
            "fence",
        ] {
            assert!(met(&good, required), "{required}");
        }
        assert!(!met(&table(97.0, 40.0, 190), "per dispatcher"));
        assert!(!met(&table(89.0, 40.0, 190), "part of"));
        assert!(!met(&table(99.0, 51.0, 190), "fence"));
        assert!(!met(&table(99.0, 40.0, 201), "lag of a cold table"));
    }

    #[test]
    fn a_median_of_two_is_their_mean() {
        assert!((median(vec![3.0, 1.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![3.0, 1.0, 9.0]) - 3.0).abs() < 1e-9);
    }
}
