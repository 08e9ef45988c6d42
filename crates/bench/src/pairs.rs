//! Interleaved measurement.

use std::time::{Duration, Instant};

/// Shortest single measurement.
pub const MEASUREMENT_MIN: Duration = Duration::from_secs(1);

/// Pairs where a round is short.
pub const ROUNDS: usize = 9;

/// Pairs where a round takes more than [`LONG_ROUND`].
pub const ROUNDS_LONG: usize = 5;

/// From here on fewer pairs are enough.
pub const LONG_ROUND: Duration = Duration::from_secs(20);

/// Which of the two is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Weir.
    Ours,
    /// What it is compared to.
    Other,
}

/// Rates of both sides, pair by pair.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Units per second of our side.
    pub ours: Vec<f64>,
    /// Units per second of the other side.
    pub other: Vec<f64>,
}

/// Measures pairs: `run` returns units per second of one side. The order changes from pair to pair.
///
/// # Errors
/// The first error of `run`.
pub fn measure<E>(mut run: impl FnMut(Side) -> Result<f64, E>) -> Result<Pairs, E> {
    let mut pairs = Pairs::default();
    let mut rounds = ROUNDS;
    let mut round = 0;
    while round < rounds {
        let start = Instant::now();
        let order = if round % 2 == 0 {
            [Side::Ours, Side::Other]
        } else {
            [Side::Other, Side::Ours]
        };
        for side in order {
            let rate = run(side)?;
            match side {
                Side::Ours => pairs.ours.push(rate),
                Side::Other => pairs.other.push(rate),
            }
        }
        if round == 0 && start.elapsed() > LONG_ROUND {
            rounds = ROUNDS_LONG;
        }
        round += 1;
    }
    Ok(pairs)
}

/// Repeats `pass`, which returns the units it worked through, for at least [`MEASUREMENT_MIN`]; units per second.
///
/// # Errors
/// The first error of `pass`.
pub fn rate<E>(mut pass: impl FnMut() -> Result<u64, E>) -> Result<f64, E> {
    let start = Instant::now();
    let mut units = 0;
    loop {
        units += pass()?;
        let elapsed = start.elapsed();
        if elapsed >= MEASUREMENT_MIN {
            return Ok(units as f64 / elapsed.as_secs_f64());
        }
    }
}

impl Pairs {
    /// Median of the pair ratios.
    pub fn ratio(&self) -> f64 {
        quantile(&self.ratios(), 0.5)
    }

    /// Quartile distance of the pair ratios.
    pub fn spread(&self) -> f64 {
        quartile_distance(&self.ratios())
    }

    /// Quartile distance of each measurement of the other side to the one before it.
    pub fn noise(&self) -> f64 {
        let ratios: Vec<f64> = self.other.windows(2).map(|pair| pair[1] / pair[0]).collect();
        quartile_distance(&ratios)
    }

    /// Median rates: ours, other.
    pub fn medians(&self) -> (f64, f64) {
        (quantile(&self.ours, 0.5), quantile(&self.other, 0.5))
    }

    fn ratios(&self) -> Vec<f64> {
        self.ours
            .iter()
            .zip(&self.other)
            .map(|(ours, other)| ours / other)
            .collect()
    }
}

fn quartile_distance(values: &[f64]) -> f64 {
    quantile(values, 0.75) - quantile(values, 0.25)
}

/// Quantile with linear interpolation; 0 without values.
fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = q * last as f64;
    let low = place.floor() as usize;
    let high = place.ceil() as usize;
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_alternate_and_both_are_measured() {
        let mut order = Vec::new();
        let pairs = measure(|side| {
            order.push(side);
            Ok::<_, ()>(if side == Side::Ours { 6.0 } else { 2.0 })
        })
        .unwrap();
        assert_eq!(order[..4], [Side::Ours, Side::Other, Side::Other, Side::Ours]);
        assert_eq!((pairs.ours.len(), pairs.other.len()), (ROUNDS, ROUNDS));
        assert!((pairs.ratio() - 3.0).abs() < 1e-9);
        assert!(pairs.spread().abs() < 1e-9);
    }

    #[test]
    fn quantiles_interpolate() {
        assert!((quantile(&[4.0, 1.0, 2.0, 3.0], 0.5) - 2.5).abs() < 1e-9);
        assert!((quantile(&[1.0], 0.75) - 1.0).abs() < 1e-9);
        assert!(quantile(&[], 0.5).abs() < 1e-9);
    }
}
