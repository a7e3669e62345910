//! A checkpoint's template, and what it makes of a conversation.

use super::environment::{RAISED, environment, is_unsupported, without_generation_blocks};
use super::find::{find_template, special_tokens};
use super::guard::Guard;
use super::{ChatError, Conversation, Rendered};
use crate::units::{JsonNode, JsonValue};
use minijinja::value::Value;
use minijinja::{Environment, Error};
use std::path::Path;

/// Name of the template inside its environment.
const NAME: &str = "chat";

/// Longest rendering.
const RENDERED_LIMIT_BYTES: usize = 64 << 20;

/// The chat template of a checkpoint, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    place: String,
    source: String,
    environment: Environment<'static>,
    special_tokens: Vec<(String, String)>,
}

impl ChatTemplate {
    /// Finds and compiles the template of a model folder.
    ///
    /// # Errors
    /// [`ChatError`]: no template, a file that cannot be read, or a template that is no Jinja or
    /// uses a tag that is not implemented, with its line.
    pub fn open(folder: &Path) -> Result<ChatTemplate, ChatError> {
        let found = find_template(folder)?;
        ChatTemplate::compile(found.place, found.source, special_tokens(folder)?)
    }

    /// Compiles a template from its text. `place` names it in messages, `special_tokens` are
    /// variables such as `bos_token`.
    ///
    /// # Errors
    /// [`ChatError::Unsupported`].
    pub fn compile(
        place: String,
        source: String,
        special_tokens: Vec<(String, String)>,
    ) -> Result<ChatTemplate, ChatError> {
        let mut environment = environment();
        let compiled = without_generation_blocks(&source);
        let added = environment.add_template_owned(NAME, compiled);
        added.map_err(|error| explain(&place, &error))?;
        Ok(ChatTemplate { place, source, environment, special_tokens })
    }

    /// Where the template was found.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Renders a conversation. The variables are those of the conversation, `add_generation_prompt`
    /// (`open_turn`, unless the conversation says otherwise) and the special tokens; `tools` and
    /// `documents` are none unless given.
    ///
    /// `control` are the spellings of the tokeniser's control tokens: where messages contain one,
    /// [`Rendered`] remembers that it is text.
    ///
    /// # Errors
    /// [`ChatError`]: the template raises an exception, fails, or uses what is not implemented.
    pub fn render<'t>(
        &self,
        conversation: &Conversation,
        open_turn: bool,
        control: impl IntoIterator<Item = &'t str>,
    ) -> Result<Rendered, ChatError> {
        let mut texts = vec![self.source.as_str()];
        conversation.variables.iter().for_each(|(_, node)| collect_texts(node, &mut texts));
        let guard = Guard::new(control, &texts).ok_or(ChatError::NoMark)?;
        let open_turn = conversation.opens_turn().unwrap_or(open_turn);
        let mut variables: Vec<(String, Value)> =
            self.special_tokens.iter().map(|(n, t)| (n.clone(), Value::from(t.as_str()))).collect();
        variables.extend(["tools", "documents"].map(|n| (n.to_owned(), Value::from(()))));
        for (name, node) in &conversation.variables {
            variables.retain(|(known, _)| known != name);
            variables.push((name.clone(), value_of(node, &guard)));
        }
        variables.retain(|(name, _)| name != "add_generation_prompt");
        variables.push(("add_generation_prompt".to_owned(), Value::from(open_turn)));
        let context = Value::from_pairs(variables);
        let template =
            self.environment.get_template(NAME).map_err(|error| explain(&self.place, &error))?;
        let marked = template.render(context).map_err(|error| explain(&self.place, &error))?;
        if marked.len() > RENDERED_LIMIT_BYTES {
            let problem = format!("it writes {} bytes", marked.len());
            return Err(ChatError::Failed { place: self.place.clone(), line: 1, problem });
        }
        Ok(guard.unmark(&marked))
    }
}

fn explain(place: &str, error: &Error) -> ChatError {
    // The innermost error says what happened; the outer ones say through which macro.
    let mut inner = error;
    while let Some(source) = std::error::Error::source(inner).and_then(|s| s.downcast_ref()) {
        inner = source;
    }
    let line = inner.line().or_else(|| error.line()).unwrap_or(1);
    let place = place.to_owned();
    let detail = inner.detail().unwrap_or_default();
    if let Some(message) = detail.strip_prefix(RAISED) {
        return ChatError::Refused { place, line, message: message.to_owned() };
    }
    let problem = match detail {
        "" => inner.kind().to_string(),
        detail => format!("{}: {detail}", inner.kind()),
    };
    if is_unsupported(inner) {
        ChatError::Unsupported { place, line, problem }
    } else {
        ChatError::Failed { place, line, problem }
    }
}

fn collect_texts<'n>(node: &'n JsonNode, texts: &mut Vec<&'n str>) {
    match &node.value {
        JsonValue::Text(text) => texts.push(text),
        JsonValue::List(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        JsonValue::Object(members) => members.iter().for_each(|m| {
            texts.push(&m.key);
            collect_texts(&m.node, texts);
        }),
        _ => {}
    }
}

fn value_of(node: &JsonNode, guard: &Guard) -> Value {
    match &node.value {
        JsonValue::Null => Value::from(()),
        JsonValue::Bool(b) => Value::from(*b),
        JsonValue::Number(text) => number_of(text),
        JsonValue::Text(text) => Value::from(guard.protect(text)),
        JsonValue::List(items) => {
            Value::from(items.iter().map(|item| value_of(item, guard)).collect::<Vec<Value>>())
        }
        JsonValue::Object(members) => Value::from_pairs(
            members.iter().map(|m| (guard.protect(&m.key), value_of(&m.node, guard))),
        ),
    }
}

/// Integers stay integers as far as 64 bits reach, as Python's would.
fn number_of(text: &str) -> Value {
    let integer = || text.parse::<i64>().map(Value::from).ok();
    let unsigned = || text.parse::<u64>().map(Value::from).ok();
    let real = || Value::from(text.parse::<f64>().unwrap_or(f64::NAN));
    integer().or_else(unsigned).unwrap_or_else(real)
}
