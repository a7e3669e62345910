//! Rust source text with comments and literals blanked, for rules that look at code alone.

/// `text` with every comment, string and character literal replaced by spaces; line breaks stay,
/// so that line numbers do too.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = skip(&chars, i);
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// The end of the comment or literal that begins at `i`, or `i` if none does.
fn skip(chars: &[char], i: usize) -> usize {
    let at = |k: usize| chars.get(i + k).copied().unwrap_or('\0');
    match (at(0), at(1)) {
        ('/', '/') => (i..chars.len()).find(|k| chars[*k] == '\n').unwrap_or(chars.len()),
        ('/', '*') => block_comment(chars, i),
        ('"', _) => string(chars, i + 1),
        ('\'', '\\') => {
            let from = i + 3;
            (from..chars.len()).find(|k| chars[*k] == '\'').map_or(chars.len(), |k| k + 1)
        }
        // 'x' is a literal, 'x a lifetime.
        ('\'', _) if at(2) == '\'' => i + 3,
        ('r', '"' | '#') if !joins_before(chars, i) => raw_string(chars, i).unwrap_or(i),
        _ => i,
    }
}

fn joins_before(chars: &[char], i: usize) -> bool {
    // `br"…"` begins at its b: the r is then part of the prefix, not of a longer name.
    let name = |c: &char| c.is_alphanumeric() || *c == '_';
    match i.checked_sub(1).map(|k| chars[k]) {
        Some('b' | 'c') => i >= 2 && name(&chars[i - 2]),
        Some(c) => name(&c),
        None => false,
    }
}

fn block_comment(chars: &[char], start: usize) -> usize {
    let (mut depth, mut i) = (0, start);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string(chars: &[char], mut i: usize) -> usize {
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn raw_string(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None; // a raw identifier
    }
    let close = |k: &usize| {
        chars[*k] == '"'
            && chars[k + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    Some((open + 1..chars.len()).find(close).map_or(chars.len(), |k| k + 1 + hashes))
}

/// The identifiers and keywords of `code`, in order.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

#[test]
fn comments_and_literals_are_blanked() {
    let text =
        "a /* b /* c */ d */ e // f\n'g' \"h\\\"i\" r#\"j\"k\"# 'l m \"\n\" '\\'' n br\"o\" p";
    let left: Vec<String> = words(&code_only(text)).map(str::to_owned).collect();
    assert_eq!(left, ["a", "e", "l", "m", "n", "b", "p"]);
    assert_eq!(code_only(text).matches('\n').count(), text.matches('\n').count());
}
