//! Medians and quartiles.

use serde::{Deserialize, Serialize};

/// The middle of some numbers, and where the middle half of them begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lower_quartile: f64,
    pub(crate) upper_quartile: f64,
}

impl Spread {
    /// Returns the spread of some numbers; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: at(&values, 0.5)?,
            lower_quartile: at(&values, 0.25)?,
            upper_quartile: at(&values, 0.75)?,
        })
    }
}

/// Returns the number below which a part of sorted numbers lies, interpolated between the two next
/// to it.
fn at(sorted: &[f64], part: f64) -> Option<f64> {
    let position = part * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (
        sorted.get(position.floor() as usize)?,
        sorted.get(position.ceil() as usize)?,
    );
    Some(below + (above - below) * position.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Option<(f64, f64, f64)> {
        Spread::of(values.iter().copied()).map(|s| (s.lower_quartile, s.median, s.upper_quartile))
    }

    #[test]
    fn order_of_numbers_does_not_matter() {
        assert_eq!(spread(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some((2.0, 3.0, 4.0)));
    }

    #[test]
    fn interpolates_between_two_numbers() {
        assert_eq!(spread(&[1.0, 2.0]), Some((1.25, 1.5, 1.75)));
        assert_eq!(spread(&[7.0]), Some((7.0, 7.0, 7.0)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ignores_outlier() {
        assert_eq!(spread(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some((2.0, 3.0, 4.0)));
    }
}
