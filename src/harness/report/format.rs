//! Numbers as people read them.

/// A value with about four significant digits and thin groups of thousands.
pub(super) fn value(v: f64) -> String {
    if !v.is_finite() {
        return "—".into();
    }
    let decimals = match v.abs() {
        a if a >= 1000.0 => 0,
        a if a >= 100.0 => 1,
        a if a >= 10.0 => 2,
        _ => 3,
    };
    grouped(&format!("{v:.decimals$}"))
}

/// Groups of three digits, separated by a narrow no-break space.
fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("−", d));
    let mut out = String::from(sign);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A count with groups of thousands.
pub(super) fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// A ratio with three decimals; `∞` bounds as words.
pub(super) fn ratio(log_ratio: f64) -> String {
    if log_ratio.is_finite() { format!("{:.3}", log_ratio.exp()) } else { "no bound".into() }
}

/// A change in percent with its sign.
pub(super) fn change(log_ratio: f64) -> String {
    let percent = 100.0 * log_ratio.exp_m1();
    let decimals = if percent.abs() < 10.0 { 2 } else { 1 };
    format!("{percent:+.decimals$}%").replace('-', "−")
}

/// A share in percent.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let decimals = if percent != 0.0 && percent < 10.0 { 2 } else { 1 };
    format!("{percent:.decimals$}%")
}

/// A p-value.
pub(super) fn p_value(p: f64) -> String {
    if p < 1e-4 { format!("{p:.1e}") } else { format!("{p:.4}") }
}

/// Bytes per second.
pub(super) fn gigabytes_per_second(bytes: f64) -> String {
    format!("{:.2} GB/s", bytes / 1e9)
}

/// Bytes in the unit that suits them.
pub(super) fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut v = n as f64;
    let mut unit = 0;
    while v >= 1024.0 && unit + 1 < units.len() {
        v /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{v:.1} {}", units[unit]) }
}

/// `2031-05-09T14:03:59Z` as `2031-05-09 14:03 UTC`.
pub(super) fn moment(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(11..16)) {
        (Some(day), Some(minute)) => format!("{day} {minute} UTC"),
        _ => rfc3339.to_owned(),
    }
}

/// A duration in words.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        _ => format!("{} min {:02} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// `1 quad`, `2 quads`.
pub(super) fn plural(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count(n)) }
}

/// The value below which this share of the sorted data lies (linear between neighbours).
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(value(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!(value(41.237), "41.24");
        assert_eq!(value(-0.5), "−0.500");
        assert_eq!(value(f64::NAN), "—");
        assert_eq!(change(1.012f64.ln()), "+1.20%");
        assert_eq!(change(0.8f64.ln()), "−20.0%");
        assert_eq!(ratio(f64::INFINITY), "no bound");
        assert_eq!(bytes(270_000_000), "257.5 MiB");
        assert_eq!(moment("2031-05-09T14:03:59Z"), "2031-05-09 14:03 UTC");
        assert_eq!(duration(61_500), "1 min 01 s");
        assert_eq!(plural(1, "quad"), "1 quad");
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[7.0], 0.95), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
