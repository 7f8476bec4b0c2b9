//! [`Ranges`]: a set of page numbers as disjoint ranges.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// A set of page numbers, kept as the fewest ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub const fn new() -> Ranges {
        Ranges(BTreeMap::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, page: u64) -> bool {
        self.0.range(..=page).next_back().is_some_and(|(_, end)| page < *end)
    }

    pub fn insert(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        let Range { mut start, mut end } = pages;
        // Swallow every range that overlaps or touches, from the right.
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.0.remove(&s);
        }
        self.0.insert(start, end);
    }

    pub fn insert_all(&mut self, other: &Ranges) {
        for (&start, &end) in &other.0 {
            self.insert(start..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn behaves_as_a_set_of_pages() {
        let mut rng = crate::testing::Rng(7);
        for _ in 0..500 {
            let (mut ranges, mut model) = (Ranges::new(), BTreeSet::new());
            for _ in 0..12 {
                let start = rng.below(40);
                let end = start + rng.below(8);
                ranges.insert(start..end);
                model.extend(start..end);
                for page in 0..50 {
                    assert_eq!(ranges.contains(page), model.contains(&page));
                }
                let runs = model.iter().filter(|p| !model.contains(&(**p + 1))).count();
                assert_eq!(ranges.0.len(), runs, "ranges that touch are one");
            }
        }
    }
}
