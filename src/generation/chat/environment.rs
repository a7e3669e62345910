//! Jinja as transformers sets it up for chat templates.

use super::date::strftime_now;
use super::python::{JsonStyle, str_of};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Beginning of the error that `raise_exception` raises.
pub(super) const RAISED: &str = "raise_exception: ";

/// Instructions that a template may execute, many times what a conversation of a thousand turns
/// takes. A loop without end stops here.
const FUEL: u64 = 10_000_000;

/// Most spaces that `tojson` puts before each level.
const INDENT_LIMIT: usize = 64;

/// The environment, without a template.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the default delimiters are valid"));
    env.set_debug(true);
    env.set_fuel(Some(FUEL));
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(unknown_method_callback);
    env.set_formatter(|out, _, value| {
        out.write_str(&str_of(value)?)
            .map_err(|e| Error::new(ErrorKind::WriteFailure, "cannot write").with_source(e))
    });
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: Value| str_of(&value));
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
    });
    env.add_function("strftime_now", |format: String| {
        strftime_now(&format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
    });
    env
}

/// transformers' `tojson`: `json.dumps`, keys in their order, no HTML escapes.
fn tojson(value: Value, ensure_ascii: Option<bool>, kwargs: Kwargs) -> Result<String, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")?.filter(|v| !v.is_none()) {
        None => None,
        Some(spaces) => {
            let spaces = usize::try_from(spaces)?;
            if spaces > INDENT_LIMIT {
                let problem = format!(
                    "tojson: expected an `indent` of at most {INDENT_LIMIT}, found {spaces}"
                );
                return Err(Error::new(ErrorKind::InvalidOperation, problem));
            }
            Some(spaces)
        }
    };
    let separators: Option<(String, String)> =
        match kwargs.get::<Option<Value>>("separators")?.filter(|v| !v.is_none()) {
            None => None,
            Some(pair) => {
                let pair: Vec<String> = pair.try_iter()?.map(|v| v.to_string()).collect();
                match <[String; 2]>::try_from(pair) {
                    Ok([item, key]) => Some((item, key)),
                    Err(_) => {
                        let problem = "tojson: expected two `separators`";
                        return Err(Error::new(ErrorKind::InvalidOperation, problem));
                    }
                }
            }
        };
    let item = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) =
        separators.unwrap_or_else(|| (item.to_owned(), ": ".to_owned()));
    let style = JsonStyle {
        indent,
        item_separator,
        key_separator,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.or(ensure_ascii).unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    style.dumps(&value)
}

/// The template with `{% generation %}` blocks, which mark an assistant's text for training, made
/// plain blocks: they print what is inside. Lines stay where they are.
pub(super) fn without_generation_blocks(template: &str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start + 2..].find("%}") else { break };
        let tag = &rest[start..start + length + 4];
        let name = tag[2..tag.len() - 2].trim_matches(['-', '+', ' ', '\t', '\n', '\r']);
        out.push_str(&rest[..start]);
        match name {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length + 4..];
    }
    out + rest
}

/// Whether an error is about something that this Jinja does not have, whatever the messages.
pub(super) fn is_unsupported(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::SyntaxError
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownMethod
            | ErrorKind::UnknownBlock
            | ErrorKind::TemplateNotFound
            | ErrorKind::BadInclude
            | ErrorKind::InvalidDelimiter
    )
}
