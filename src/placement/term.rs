//! Shape terms as layouts: which rows of an axis belong to a part of a dimension.

use super::PlacementError;
use crate::descriptor::Descriptor;
use crate::units::mutant;
use std::ops::Range;

/// How a dimension may be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// In whole heads, evenly.
    Heads,
    /// In whole heads, or one head to several ranks where ranks outnumber heads.
    SharedHeads,
    /// In elements, evenly.
    Elements,
    /// In whole experts, evenly.
    Experts,
}

/// Dimensions that are divided, and how. Everything else is the same on every rank.
pub(super) const DIVIDED: [(&str, Division); 9] = [
    ("query_heads", Division::Heads),
    ("kv_heads", Division::SharedHeads),
    ("gdn_value_heads", Division::Heads),
    ("gdn_key_heads", Division::SharedHeads),
    ("intermediate", Division::Elements),
    ("vocab", Division::Elements),
    ("mla_heads", Division::Heads),
    ("moe_experts", Division::Experts),
    ("shared_intermediate", Division::Elements),
];

/// Rows or columns of a logical weight: ascending ranges that do not touch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AxisSlice {
    pub ranges: Vec<Range<usize>>,
    /// The extent that the ranges are part of.
    pub of: usize,
}

impl AxisSlice {
    /// All of an axis.
    pub fn whole(extent: usize) -> AxisSlice {
        AxisSlice { ranges: std::iter::once(0..extent).collect(), of: extent }
    }

    /// Elements of the slice.
    #[expect(clippy::len_without_is_empty, reason = "a slice of a weight is never empty")]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(Range::len).sum()
    }

    /// Whether it is all of the axis.
    pub fn is_whole(&self) -> bool {
        self.len() == self.of
    }

    /// Elements that it has in common with another slice of the same axis.
    pub(super) fn in_common(&self, other: &AxisSlice) -> usize {
        let common = |a: &Range<usize>, b: &Range<usize>| {
            a.end.min(b.end).saturating_sub(a.start.max(b.start))
        };
        self.ranges.iter().flat_map(|a| other.ranges.iter().map(move |b| common(a, b))).sum()
    }

    /// The elements of a slice of units, `unit` each (a head of `unit` dimensions).
    pub fn of_units(&self, unit: usize) -> AxisSlice {
        AxisSlice {
            ranges: self.ranges.iter().map(|r| r.start * unit..r.end * unit).collect(),
            of: self.of * unit,
        }
    }

    fn push(&mut self, range: Range<usize>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }
}

/// One product of a term with one divided dimension: `outer` blocks, each of `count` parts of `inner`
/// rows. The order of the factors is the layout: `2*gdn_key_heads*gdn_key_dim` is two blocks of heads,
/// `query_heads*2*head_dim` is heads of two parts, and so are neighbours that begin with the same heads:
/// `mla_heads*mla_nope_dim+mla_heads*mla_rope_dim` is heads of `[nope | rope]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Product {
    outer: usize,
    divided: Option<(&'static str, Division)>,
    count: usize,
    inner: usize,
}

impl Product {
    /// Whether `next` is a further part of the same heads.
    fn is_head_of(&self, next: &Product) -> bool {
        self.divided.is_some() && self.divided == next.divided && self.outer == 1 && next.outer == 1
    }
}

/// A term of a validated descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    products: Vec<Product>,
}

impl Term {
    /// Reads a term; validation made sure that it evaluates.
    pub(super) fn read(d: &Descriptor, text: &str) -> Term {
        let value = |factors: &[&str]| {
            factors.iter().map(|f| d.evaluate(f).unwrap_or(1)).product::<usize>()
        };
        let products = text.split('+').map(|product| {
            let factors: Vec<&str> = product.split('*').collect();
            let at = factors.iter().position(|f| DIVIDED.iter().any(|(name, _)| name == f));
            match at {
                Some(at) => Product {
                    outer: value(&factors[..at]),
                    divided: DIVIDED.into_iter().find(|(name, _)| *name == factors[at]),
                    count: value(&factors[at..=at]),
                    inner: value(&factors[at + 1..]),
                },
                None => Product { outer: 1, divided: None, count: value(&factors), inner: 1 },
            }
        });
        let mut merged: Vec<Product> = Vec::new();
        for product in products {
            match merged.last_mut() {
                Some(last) if last.is_head_of(&product) => last.inner += product.inner,
                _ => merged.push(product),
            }
        }
        Term { products: merged }
    }

    /// The dimensions that may be divided, in order.
    pub(super) fn divisible(&self) -> impl Iterator<Item = (&'static str, Division)> {
        self.products.iter().filter_map(|p| p.divided)
    }

    /// Whether every product has a dimension that can be divided so.
    pub(super) fn is_divisible(&self, wanted: impl Fn(Division) -> bool) -> bool {
        self.products.iter().all(|p| p.divided.is_some_and(|(_, division)| wanted(division)))
    }

    /// The dimension of which `ranks` ranks share heads and how many share one, and whether the term
    /// has rows that they do not share.
    pub(super) fn shared(&self, ranks: usize) -> Option<(&'static str, usize, bool)> {
        let shared = |p: &Product| match p.divided {
            Some((name, Division::SharedHeads)) if p.count < ranks => Some((name, ranks / p.count)),
            _ => None,
        };
        let (dimension, each) = self.products.iter().find_map(shared)?;
        Some((dimension, each, self.products.iter().any(|p| shared(p).is_none())))
    }

    /// The rows of rank `index` of `ranks`.
    ///
    /// # Errors
    /// A dimension that does not divide.
    pub(super) fn slice(&self, index: usize, ranks: usize) -> Result<AxisSlice, PlacementError> {
        let mut slice = AxisSlice { ranges: Vec::new(), of: 0 };
        for product in &self.products {
            let part = match product.divided {
                Some((name, division)) => part(name, division, product.count, index, ranks)?,
                None => 0..product.count,
            };
            for _ in 0..product.outer {
                let start = slice.of;
                slice.push(start + part.start * product.inner..start + part.end * product.inner);
                slice.of += product.count * product.inner;
            }
        }
        Ok(slice)
    }
}

/// The part of a dimension that a rank has.
fn part(
    dimension: &'static str,
    division: Division,
    count: usize,
    index: usize,
    ranks: usize,
) -> Result<Range<usize>, PlacementError> {
    if count.is_multiple_of(ranks) {
        let size = count / ranks;
        return Ok(index * size..(index + 1) * size);
    }
    let remedy = match division {
        Division::SharedHeads if ranks.is_multiple_of(count) => {
            let head = index / (ranks / count);
            let head = if mutant!("shared_head_of_next_rank") { (head + 1) % count } else { head };
            return Ok(head..head + 1);
        }
        Division::SharedHeads => {
            "; a head can be shared only where the ranks are a multiple of the heads"
        }
        Division::Heads => "; heads stay whole",
        Division::Elements => "",
        Division::Experts => "; experts stay whole",
    };
    Err(PlacementError::Indivisible { dimension, count, ranks, remedy: remedy.to_owned() })
}
