//! The order of what arrived, and what came more than once.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Message, Place, Topics};

/// What repeats of messages there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Messages that had come before.
    pub messages: usize,
    /// Bytes of their values.
    pub bytes: usize,
    /// How often a key, or a partition of rows without keys, went back; the most of all.
    pub steps_back: usize,
    /// Longest time from when a message was sent first to when it was sent again, milliseconds.
    pub age_millis: i64,
}

impl Topics {
    /// The same messages with their times counted in time that the sender ran, milliseconds: `runs` are its runs from
    /// start to end, Unix milliseconds, in order. Time when nothing ran makes no repeat older.
    #[must_use]
    pub fn in_running_time(mut self, runs: &[(i64, i64)]) -> Self {
        for message in &mut self.messages {
            message.millis = running_millis(message.millis, runs);
        }
        self
    }

    /// Checks the order of what arrived: all messages of a key are on one partition; the key of a message is that of
    /// its row; the sequence of states of a key goes on without a gap, and goes back only as a replay that ends where
    /// it was.
    ///
    /// # Errors
    /// Names what is out of order.
    pub fn check_order(&self) -> Result<Repeats> {
        let mut homes: HashMap<(&str, &str), i32> = HashMap::new();
        let mut lanes: BTreeMap<(&str, i32, Option<&str>), Vec<State>> = BTreeMap::new();
        for message in self.messages.iter().filter(|message| !message.is_ddl()) {
            if let Some(key) = &message.key {
                let home = homes.entry((&message.topic, key)).or_insert(message.partition);
                ensure!(
                    *home == message.partition,
                    "{key} of {} is on two partitions",
                    message.topic
                );
                check_key(message, key)?;
            }
            let lane = (message.topic.as_str(), message.partition, message.key.as_deref());
            lanes.entry(lane).or_default().push(State {
                place: message.place(),
                bytes: message.value.to_string().len(),
                millis: message.millis,
            });
        }
        let mut repeats = Repeats::default();
        for (lane, states) in &lanes {
            let of_lane = check_lane(states).with_context(|| format!("{lane:?}"))?;
            repeats.messages += of_lane.messages;
            repeats.bytes += of_lane.bytes;
            repeats.steps_back = repeats.steps_back.max(of_lane.steps_back);
            repeats.age_millis = repeats.age_millis.max(of_lane.age_millis);
        }
        Ok(repeats)
    }
}

fn running_millis(at: i64, runs: &[(i64, i64)]) -> i64 {
    runs.iter()
        .map(|(start, end)| at.clamp(*start, *end) - start)
        .sum()
}

fn check_key(message: &Message, key: &str) -> Result<()> {
    let names = message.value["pkNames"]
        .as_array()
        .context("a keyed message names its key")?;
    let row = &message.value["data"][0];
    let expected = names
        .iter()
        .map(|name| row[name.as_str().unwrap_or_default()].clone())
        .collect();
    ensure!(
        Value::Array(expected) == serde_json::from_str::<Value>(key)?,
        "the key {key} is not that of {row}"
    );
    Ok(())
}

/// A message of a lane: of one key, or of the rows without keys on one partition.
struct State {
    place: Place,
    bytes: usize,
    millis: i64,
}

fn check_lane(states: &[State]) -> Result<Repeats> {
    let mut known: Vec<&State> = Vec::new();
    let mut repeats = Repeats::default();
    // Index in `known` of the state that the consumer holds.
    let mut at: Option<usize> = None;
    for state in states {
        let next = at.map_or(0, |at| at + 1);
        if next == known.len() && known.last().is_none_or(|last| last.place < state.place) {
            known.push(state);
            at = Some(next);
            continue;
        }
        let again = match known.get(next) {
            Some(known) if known.place == state.place => next,
            _ => {
                let Some(back) = known.iter().position(|known| known.place == state.place) else {
                    let held = at.and_then(|at| known.get(at)).map(|known| &known.place);
                    bail!("{:?} comes behind {held:?}", state.place);
                };
                ensure!(
                    at.is_some_and(|at| back <= at),
                    "a replay leaves out states before {:?}",
                    state.place
                );
                repeats.steps_back += 1;
                back
            }
        };
        repeats.messages += 1;
        repeats.bytes += state.bytes;
        let first = known.get(again).map_or(state.millis, |known| known.millis);
        repeats.age_millis = repeats.age_millis.max(state.millis - first);
        at = Some(again);
    }
    ensure!(at.is_none_or(|at| at + 1 == known.len()), "a replay ends early");
    Ok(repeats)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(numbers: &[u64]) -> Result<Repeats> {
        let state = |(number, millis): (&u64, i64)| State {
            place: (format!("{number:04}"), 0, 1),
            bytes: 1,
            millis,
        };
        let states: Vec<State> = numbers.iter().zip(0..).map(state).collect();
        check_lane(&states)
    }

    #[test]
    fn time_between_runs_does_not_count() {
        let runs = [(100, 150), (1_000, 1_500)];
        let at = |millis| running_millis(millis, &runs);
        assert_eq!(
            (at(0), at(120), at(500), at(1_100), at(9_000)),
            (0, 20, 50, 150, 550)
        );
    }

    #[test]
    fn replays_are_told_from_disorder() {
        assert_eq!(lane(&[1, 2, 5]).unwrap(), Repeats::default());
        assert_eq!(lane(&[1, 2, 5, 2, 5, 6]).unwrap().messages, 2);
        assert_eq!(lane(&[1, 2, 5, 2, 5, 6]).unwrap().age_millis, 2);
        assert_eq!(lane(&[1, 2, 1, 2, 1, 2, 3]).unwrap().age_millis, 4);
        assert_eq!(lane(&[1, 2, 5, 1, 2, 1, 2, 5]).unwrap().steps_back, 2);
        // Twice the same: sent again at once.
        assert_eq!(lane(&[1, 1, 2]).unwrap().steps_back, 1);
        assert!(lane(&[2, 1]).is_err());
        assert!(lane(&[1, 2, 5, 1]).is_err());
        assert!(lane(&[1, 2, 5, 1, 5]).is_err());
        assert!(lane(&[1, 3, 2, 3]).is_err());
    }
}
