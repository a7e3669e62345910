//! Tables and quantities as text.

/// Rows of cells as aligned columns, two spaces apart; columns in `right` are right-aligned.
pub(crate) fn columns(rows: &[Vec<String>], right: &[usize]) -> String {
    let width = |c: usize| {
        rows.iter().filter_map(|row| row.get(c)).map(|t| t.chars().count()).max().unwrap_or(0)
    };
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, text) in row.iter().enumerate() {
            let pad = " ".repeat(width(c) - text.chars().count());
            if c > 0 {
                line.push_str("  ");
            }
            if right.contains(&c) {
                line.push_str(&pad);
                line.push_str(text);
            } else {
                line.push_str(text);
                line.push_str(&pad);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Digits in groups of three: `134,515,008`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 gate`, `2 gates`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Bytes with a binary unit: `256.6 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Text in lines of at most `width` characters, each behind `indent`.
pub(crate) fn wrap(text: &str, indent: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let room = width.saturating_sub(indent.chars().count()).max(20);
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn quantities_read_well() {
        assert_eq!(super::grouped(134_515_008), "134,515,008");
        assert_eq!(super::grouped(0), "0");
        assert_eq!([0, 1, 2].map(|n| super::count(n, "gate")), ["0 gates", "1 gate", "2 gates"]);
        assert_eq!(super::bytes(512), "512 B");
        assert_eq!(super::bytes(269_030_016), "256.6 MiB");
    }
}
