//! Measures (DESIGN §8): what `hive bench NAME` runs, and the rows it reports.
//!
//! A figure is either a fact of the run, equal wherever it is repeated, or a fact of the host.
//! [`Row`]s of the first kind stand in a report's `rows`; those of the second kind only under its
//! `host`, and `rows` then has a row of that name without a value.
//!
//! Reading order: [`engine`] (one program, once, on one engine), [`simulator`] (the measure).
//! Absent: every measure that needs `flash` timing.

pub mod engine;
pub mod simulator;

use serde::Serialize;

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What scripts look for.
    pub name: String,
    /// Unit of the figures.
    pub unit: &'static str,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// The project's own aim.
    pub aim: Option<f64>,
    /// What was measured; none if it was not, or is under `host`.
    pub ours: Option<Figure>,
    /// Whether the aim was met; none without a figure or without an aim.
    pub met: Option<bool>,
}

/// A figure as JSON shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// Something counted.
    Count(u64),
    /// Something measured.
    Measure(f64),
    /// Something to compare as text.
    Text(String),
}

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of `values`; none if there are none, or one is no number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let upper = values[values.len() / 2];
        let lower = values[(values.len() - 1) / 2];
        Some(Spread { median: (lower + upper) / 2.0, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([1.0, f64::INFINITY]), None);
    }
}
