//! The product of axes, in declared order.

use crate::harness::kind::Case;
use std::fmt::Display;

/// A value of a matrix axis, as it is spelt in trial names.
pub trait AxisValue {
    /// `64`, `24x4` for a list, `bf16`.
    fn axis_text(&self) -> String;
}

macro_rules! axis_by_display {
    ($($t:ty),*) => {$(
        impl AxisValue for $t {
            fn axis_text(&self) -> String { self.to_string() }
        }
    )*};
}
axis_by_display!(bool, u8, u16, u32, u64, usize, i32, i64, f32, f64, str, String);
axis_by_display!(crate::backend::Region, crate::tensor::DType);

impl<T: Display, const N: usize> AxisValue for [T; N] {
    fn axis_text(&self) -> String {
        self.iter().map(T::to_string).collect::<Vec<_>>().join("x")
    }
}

impl<T: AxisValue + ?Sized> AxisValue for &T {
    fn axis_text(&self) -> String {
        (*self).axis_text()
    }
}

/// Builds the cases of a matrix.
///
/// ```
/// use assay::harness::Matrix;
/// let cases = Matrix::new().axis("heads", &[[4, 2]]).axis("tokens", &[1, 63]).cases(["decode"]);
/// assert_eq!(cases.len(), 2);
/// assert_eq!(cases[1].axes[1], ("tokens".to_owned(), "63".to_owned()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    axes: Vec<(String, Vec<String>)>,
}

impl Matrix {
    /// A matrix without axes: one cell per case.
    pub fn new() -> Matrix {
        Matrix::default()
    }

    /// Adds an axis; the last one added varies fastest.
    pub fn axis<T: AxisValue>(mut self, name: &str, values: &[T]) -> Matrix {
        self.axes.push((name.to_owned(), values.iter().map(T::axis_text).collect()));
        self
    }

    /// The product with these cases. They vary fastest, so that trials of the same shape follow
    /// each other and can share what they cache.
    pub fn cases<C: AxisValue>(&self, cases: impl IntoIterator<Item = C>) -> Vec<Case> {
        let names: Vec<String> = cases.into_iter().map(|case| case.axis_text()).collect();
        self.rows()
            .into_iter()
            .flat_map(|axes| {
                names.iter().map(move |name| Case { case: Some(name.clone()), axes: axes.clone() })
            })
            .collect()
    }

    /// The product alone, without named cases.
    pub fn unnamed(&self) -> Vec<Case> {
        self.rows().into_iter().map(|axes| Case { case: None, axes }).collect()
    }

    fn rows(&self) -> Vec<Vec<(String, String)>> {
        let mut rows = vec![Vec::new()];
        for (name, values) in &self.axes {
            rows = rows
                .into_iter()
                .flat_map(|row| {
                    values.iter().map(move |value| {
                        let mut row = row.clone();
                        row.push((name.clone(), value.clone()));
                        row
                    })
                })
                .collect();
        }
        rows
    }
}
