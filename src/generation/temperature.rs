//! The sampling temperature.

use std::fmt;
use std::str::FromStr;

/// A temperature T: 0 is greedy, T > 0 samples from softmax(logits / T). Never negative, never
/// infinite, never NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Temperature(f64);

/// Why a temperature was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemperatureError {
    #[error("temperature `{0}` is not a number; expected 0 (greedy) or a positive number like 0.7")]
    NotANumber(String),
    #[error("temperature `{0}` is not finite; expected 0 (greedy) or a positive number like 0.7")]
    NotFinite(String),
    #[error("temperature `{0}` is negative; expected 0 (greedy) or a positive number like 0.7")]
    Negative(String),
    #[error(
        "temperature `{0}` is not zero but too small for FP64 (below 4.9e-324); write 0 for greedy"
    )]
    Underflow(String),
}

impl Temperature {
    /// Greedy choice: no randomness.
    pub const GREEDY: Temperature = Temperature(0.0);
    /// The model's own distribution: the default.
    pub const ONE: Temperature = Temperature(1.0);

    /// A temperature from a number; −0 is greedy.
    ///
    /// # Errors
    /// [`TemperatureError`] for NaN, infinities and negative numbers.
    pub fn new(value: f64) -> Result<Temperature, TemperatureError> {
        if !value.is_finite() {
            Err(TemperatureError::NotFinite(value.to_string()))
        } else if value < 0.0 {
            Err(TemperatureError::Negative(value.to_string()))
        } else {
            // −0 compares equal to 0; the sum makes it +0, so that it also prints as 0.
            Ok(Temperature(value + 0.0))
        }
    }

    /// T itself.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Whether T = 0.
    pub fn is_greedy(self) -> bool {
        self.0 == 0.0
    }
}

impl Default for Temperature {
    fn default() -> Temperature {
        Temperature::ONE
    }
}

impl FromStr for Temperature {
    type Err = TemperatureError;

    /// Decimal text, rounded to FP64 once. Text that is not zero but would round to zero is
    /// refused: it asks for sampling, and greedy choice is not a limit to fall into silently.
    fn from_str(text: &str) -> Result<Temperature, TemperatureError> {
        let value: f64 = text.parse().map_err(|_| TemperatureError::NotANumber(text.into()))?;
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        if value.is_nan() || value.is_infinite() {
            Err(TemperatureError::NotFinite(text.into()))
        } else if value == 0.0 && mantissa.contains(|c: char| matches!(c, '1'..='9')) {
            Err(TemperatureError::Underflow(text.into()))
        } else if value < 0.0 {
            Err(TemperatureError::Negative(text.into()))
        } else {
            Temperature::new(value)
        }
    }
}

impl fmt::Display for Temperature {
    /// The shortest decimal that reads back as the same FP64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0.0 && !(1e-4..1e15).contains(&self.0) {
            write!(f, "{:e}", self.0)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_values() {
        let accepted: [(&str, f64); 9] = [
            ("0", 0.0),
            ("-0", 0.0),
            ("-0.0e5", 0.0),
            ("1", 1.0),
            ("0.7", 0.7),
            ("1e-5", 1e-5),
            ("1e-45", 1e-45),
            ("4.9e-324", 4.9e-324),
            ("1.7e308", 1.7e308),
        ];
        for (text, value) in accepted {
            let parsed: Temperature = text.parse().unwrap();
            assert_eq!(parsed.value().to_bits(), value.to_bits(), "{text}");
            assert_eq!(parsed.is_greedy(), value == 0.0, "{text}");
            assert_eq!(parsed.to_string().parse::<Temperature>().unwrap(), parsed, "{text}");
        }
        assert_eq!(Temperature::new(-0.0).unwrap().to_string(), "0");
    }

    #[test]
    fn refused_values_say_why() {
        let reason = |text: &str| text.parse::<Temperature>().unwrap_err().to_string();
        for text in ["inf", "-inf", "NaN", "1e999", "-1e999"] {
            assert!(reason(text).contains("is not finite"), "{text}: {}", reason(text));
        }
        for text in ["-1", "-0.5", "-1e-300"] {
            assert!(reason(text).contains("is negative"), "{text}: {}", reason(text));
        }
        for text in ["1e-400", "0.1e-330", "-1e-400", "2e-324"] {
            assert!(reason(text).contains("too small for FP64"), "{text}: {}", reason(text));
        }
        for text in ["", "warm", "0,7", "1 ", "0x1"] {
            assert!(reason(text).contains("is not a number"), "{text}: {}", reason(text));
        }
        assert!(Temperature::new(f64::NAN).is_err() && Temperature::new(-1.0).is_err());
    }
}
