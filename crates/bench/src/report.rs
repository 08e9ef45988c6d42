//! What a benchmark prints.

use serde::Serialize;

use crate::pairs::Pairs;

/// One result; the last one printed is the headline.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Benchmark and shape.
    pub name: String,
    /// Ours ÷ other, median of the pairs.
    pub ratio: f64,
    /// Of `ours` and `other`.
    pub unit: String,
    /// Median of our side.
    pub ours: f64,
    /// Median of the other side.
    pub other: f64,
    /// Pairs measured.
    pub rounds: usize,
    /// Quartile distance of the pair ratios.
    pub spread: f64,
    /// The same of other ÷ other.
    pub noise: f64,
    /// Whether a larger ratio is better.
    pub higher_is_better: bool,
    /// How to run it again.
    pub command: String,
    /// Settings of both sides, sizes, checksums.
    pub notes: String,
}

impl Report {
    /// A report of rates, where more is better.
    pub fn rates(name: &str, unit: &str, pairs: &Pairs, command: &str, notes: String) -> Self {
        let (ours, other) = pairs.medians();
        Self {
            name: name.to_owned(),
            ratio: round(pairs.ratio()),
            unit: unit.to_owned(),
            ours: round(ours),
            other: round(other),
            rounds: pairs.ours.len(),
            spread: round(pairs.spread()),
            noise: round(pairs.noise()),
            higher_is_better: true,
            command: command.to_owned(),
            notes,
        }
    }

    /// Prints it: one JSON object, or a line for people.
    pub fn print(&self, json: bool) {
        if json {
            match serde_json::to_string(self) {
                Ok(line) => println!("{line}"),
                Err(error) => eprintln!("the report could not be written: {error}"),
            }
        } else {
            println!(
                "{:<24} {:>7.3} × (±{:.3}, noise {:.3})  ours {:.0}, other {:.0} {}  [{}]",
                self.name, self.ratio, self.spread, self.noise, self.ours, self.other, self.unit, self.notes
            );
        }
    }
}

/// Three decimals: more would pretend a precision that is not there.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
