//! `strftime_now`: the date in templates that state it.

use crate::units::utc_now;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Now, in UTC, by a format of Python's `strftime`.
///
/// # Errors
/// The first directive that is not known.
pub(super) fn strftime_now(format: &str) -> Result<String, String> {
    strftime(format, &utc_now())
}

/// An instant (RFC 3339, UTC) by a format: `%Y %m %d %H %M %S %y %j %B %b %A %a %p %I %-d %-m %%`.
fn strftime(format: &str, instant: &str) -> Result<String, String> {
    let number = |range: std::ops::Range<usize>| instant[range].parse::<usize>().unwrap_or(0);
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
    let month_name = MONTHS[(month + 11) % 12];
    let day_name = DAYS[weekday(year, month, day)];
    let hour_12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = match chars.next() {
            Some('-') => chars.next().map_or("-".to_owned(), |c| format!("-{c}")),
            Some(c) => c.to_string(),
            None => String::new(),
        };
        out += &match directive.as_str() {
            "Y" => format!("{year:04}"),
            "y" => format!("{:02}", year % 100),
            "m" => format!("{month:02}"),
            "-m" => month.to_string(),
            "d" => format!("{day:02}"),
            "-d" => day.to_string(),
            "H" => format!("{hour:02}"),
            "I" => format!("{hour_12:02}"),
            "M" => format!("{minute:02}"),
            "S" => format!("{second:02}"),
            "p" => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            "B" => month_name.to_owned(),
            "b" => month_name[..3].to_owned(),
            "A" => day_name.to_owned(),
            "a" => day_name[..3].to_owned(),
            "j" => format!("{:03}", day_of_year(year, month, day)),
            "%" => "%".to_owned(),
            other => return Err(format!("strftime_now: `%{other}` is not implemented")),
        };
    }
    Ok(out)
}

/// 0 for Sunday, by Sakamoto's method.
fn weekday(year: usize, month: usize, day: usize) -> usize {
    const SHIFT: [usize; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
    let year = if month < 3 { year - 1 } else { year };
    (year + year / 4 - year / 100 + year / 400 + SHIFT[(month + 11) % 12] + day) % 7
}

fn day_of_year(year: usize, month: usize, day: usize) -> usize {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, 28 + usize::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    lengths[..(month + 11) % 12].iter().sum::<usize>() + day
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn formats_as_python_does() {
        let at = |format: &str| strftime(format, "2024-07-04T15:08:09Z").unwrap();
        assert_eq!(at("%d %b %Y"), "04 Jul 2024");
        assert_eq!(
            at("%A, %B %-d, %Y at %I:%M %p (%y-%j) %%"),
            "Thursday, July 4, 2024 at 03:08 PM (24-186) %"
        );
        assert_eq!(strftime("%a", "2000-01-01T00:00:00Z").unwrap(), "Sat");
        assert!(strftime("%Q", "2000-01-01T00:00:00Z").unwrap_err().contains("`%Q`"));
    }
}
