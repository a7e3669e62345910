//! What a terminal may get of texts that come from files.

use std::borrow::Cow;

/// Control characters but line ends and tabs become visible, as do marks that turn the direction of
/// writing: what a file or a model writes must not move the cursor, clear the screen, hide a name or
/// rename the window. Files and pipes get the text unchanged.
///
/// `tones` are the parameters of the colours that this program itself puts into the text, which stay.
pub(super) fn terminal_safe<'t>(text: &'t str, tones: &[&str]) -> Cow<'t, str> {
    if text.chars().all(|c| visible(c) == c) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = match tone_bytes(rest, tones) {
            Some(end) => {
                safe.push_str(&rest[..end]);
                end
            }
            None => {
                safe.push(visible(c));
                c.len_utf8()
            }
        };
        rest = &rest[end..];
    }
    Cow::Owned(safe)
}

/// The bytes of `ESC [ tone m` at the start of the text.
fn tone_bytes(text: &str, tones: &[&str]) -> Option<usize> {
    let (tone, _) = text.strip_prefix("\x1b[")?.split_once('m')?;
    tones.contains(&tone).then_some(tone.len() + 3)
}

fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or(c),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::terminal_safe;

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let safe = |text| terminal_safe(text, &[]).into_owned();
        assert_eq!(safe("a\tb\n"), "a\tb\n");
        assert_eq!(safe("\u{1b}[2J\u{7}\u{7f}\u{9b}\u{202e}\r"), "␛[2J␇␡\u{fffd}\u{fffd}␍");
        assert_eq!(safe("é 你 🙂"), "é 你 🙂");
        assert_eq!(safe("\u{1b}[31mred\u{1b}[0m"), "␛[31mred␛[0m");
    }

    #[test]
    fn the_programs_own_colours_stay_and_others_do_not() {
        let own = "\u{1b}[1;31merror:\u{1b}[0m config.json: `a";
        let text = format!("{own}\u{1b}[8m\u{1b}]0;title\u{7}\u{1b}[`\u{1b}");
        let expected = format!("{own}␛[8m␛]0;title␇␛[`␛");
        assert_eq!(terminal_safe(&text, &["0", "1;31"]), expected);
    }
}
