//! JSON for people: what fits on a line stays on it, lists of scalars fill lines.

use serde_json::Value;

/// Longest line, in characters.
const WIDTH: usize = 100;

/// The text of a value, with a final line break.
pub(super) fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, 0, &mut out);
    out.push('\n');
    out
}

/// Appends `value`, whose first line already has `used` characters, indented by `depth`.
fn write(value: &Value, depth: usize, used: usize, out: &mut String) {
    let line = inline(value);
    if depth > 0 && used + line.chars().count() < WIDTH {
        out.push_str(&line);
        return;
    }
    let pad = "  ".repeat(depth + 1);
    let close = "  ".repeat(depth);
    match value {
        Value::Object(members) => {
            out.push_str("{\n");
            for (i, (key, member)) in members.iter().enumerate() {
                let start = format!("{pad}{}: ", Value::from(key.as_str()));
                out.push_str(&start);
                write(member, depth + 1, start.chars().count(), out);
                out.push_str(if i + 1 < members.len() { ",\n" } else { "\n" });
            }
            out.push_str(&close);
            out.push('}');
        }
        Value::Array(items) if items.iter().all(|i| !i.is_object() && !i.is_array()) => {
            out.push('[');
            let mut column = WIDTH;
            for (i, item) in items.iter().enumerate() {
                let text = item.to_string();
                if column + text.chars().count() + 2 > WIDTH {
                    out.push('\n');
                    out.push_str(&pad);
                    column = pad.len();
                } else {
                    out.push(' ');
                    column += 1;
                }
                out.push_str(&text);
                column += text.chars().count();
                if i + 1 < items.len() {
                    out.push(',');
                    column += 1;
                }
            }
            out.push('\n');
            out.push_str(&close);
            out.push(']');
        }
        Value::Array(items) => {
            out.push_str("[\n");
            for (i, item) in items.iter().enumerate() {
                out.push_str(&pad);
                write(item, depth + 1, pad.len(), out);
                out.push_str(if i + 1 < items.len() { ",\n" } else { "\n" });
            }
            out.push_str(&close);
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// The value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members =
                members.iter().map(|(k, v)| format!("{}: {}", Value::from(k.as_str()), inline(v)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}
