//! From the prompt's flags to token ids.

use super::args::PromptArgs;
use crate::cli::{Console, Failure, OrExit};
use crate::generation::chat::{ChatError, ChatTemplate, Conversation};
use crate::generation::{ControlTokens, TextTokenizer, TokenizerError};
use crate::harness::capture::{PromptContent, parse_prompts};
use crate::units::Exit;
use std::io::Read;
use std::path::Path;

/// A prompt as it was given.
#[derive(Debug, PartialEq)]
pub(super) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Chat(Conversation),
}

/// A prompt as the model gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// Of several prompts.
    pub(super) name: Option<String>,
    pub(super) ids: Vec<u32>,
    /// A conversation as its template renders it.
    pub(super) rendered: Option<String>,
}

impl PromptArgs {
    /// Reads the prompts: several with names, or one without.
    ///
    /// # Errors
    /// 64 for malformed files or ids, or a file that is not UTF-8; 74 for one that cannot be read.
    pub(super) fn read(&self) -> Result<Vec<(Option<String>, Prompt)>, Failure> {
        let source = &self.source;
        let one = if let Some(ids) = &source.prompt_ids {
            parse_ids(ids).map(Prompt::Ids).map_err(Failure::usage)?
        } else if let Some(path) = &source.prompt_file {
            Prompt::Text(read_text(path)?)
        } else if let Some(path) = &source.chat {
            Prompt::Chat(Conversation::parse(path, &read_bytes(path)?)?)
        } else if let Some(text) = &source.user {
            Prompt::Chat(Conversation::of_user(self.system.as_deref(), text))
        } else if let Some(path) = &source.prompts {
            let prompts = parse_prompts(path, &read_bytes(path)?)?;
            let named = prompts.into_iter().map(|p| {
                let content = match p.content {
                    PromptContent::Ids(ids) => Prompt::Ids(ids),
                    PromptContent::Text(text) => Prompt::Text(text),
                };
                (Some(p.name), content)
            });
            return Ok(named.collect());
        } else {
            Prompt::Text(source.prompt.clone().unwrap_or_default())
        };
        Ok(vec![(None, one)])
    }

    /// A prompt's ids.
    ///
    /// # Errors
    /// 64 if the text cannot be tokenised, the template refuses the conversation, or an id is
    /// outside the vocabulary.
    pub(super) fn ready(
        &self,
        name: Option<String>,
        prompt: Prompt,
        model: &ModelText<'_>,
        console: &Console,
    ) -> Result<Ready, Failure> {
        let needs = |what: &str| {
            let file = model.folder.join("tokenizer.json");
            Failure::new(Exit::Io, format!("{what} needs {}, which is not there", file.display()))
        };
        let (ids, rendered) = match prompt {
            Prompt::Ids(ids) => (ids, None),
            Prompt::Text(text) => {
                let tokenizer = model.tokenizer.ok_or_else(|| needs("a text prompt"))?;
                let control = self.control_tokens();
                if control == ControlTokens::AsText {
                    note_spelt_control_tokens(tokenizer, &text, console);
                }
                (tokenizer.encode(&text, control).or_exit(Exit::Usage)?, None)
            }
            Prompt::Chat(conversation) => {
                let tokenizer = model.tokenizer.ok_or_else(|| needs("a conversation"))?;
                let template = ChatTemplate::open(model.folder)?;
                let rendered = template.render(&conversation, true, tokenizer.control_tokens())?;
                if rendered.text.is_empty() {
                    return Err(Failure::usage(format!(
                        "{}: the chat template writes nothing for these messages",
                        template.place()
                    )));
                }
                if let Some(spelt) = rendered.spelt_by_messages(tokenizer.control_tokens()) {
                    console.note(&format!("note: {spelt} in the messages is read as text"));
                }
                let ids = tokenizer.encode_chat(&rendered).or_exit(Exit::Usage)?;
                (ids, Some(rendered.text))
            }
        };
        match ids.iter().position(|id| *id as usize >= model.vocab) {
            Some(at) => Err(Failure::usage(format!(
                "prompt token {at} is id {}, the model's vocabulary has {} ids",
                ids[at], model.vocab
            ))),
            None => Ok(Ready { name, ids, rendered }),
        }
    }
}

/// What turns a model's text into ids.
pub(super) struct ModelText<'a> {
    pub(super) folder: &'a Path,
    pub(super) tokenizer: Option<&'a TextTokenizer>,
    pub(super) vocab: usize,
}

impl From<ChatError> for Failure {
    fn from(error: ChatError) -> Failure {
        Failure::new(if error.is_io() { Exit::Io } else { Exit::Usage }, error)
    }
}

fn note_spelt_control_tokens(tokenizer: &TextTokenizer, text: &str, console: &Console) {
    let spelt = tokenizer.control_tokens_spelt_in(text);
    if let Some((first, others)) = spelt.split_first() {
        let others = if others.is_empty() { "" } else { " and others" };
        console.note(&format!(
            "note: {first}{others} in the prompt is read as text; --parse-control-tokens makes it \
             the control token"
        ));
    }
}

/// Decimal ids separated by commas, spaces or line ends.
fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    // Nothing between two commas is a missing id; spaces beside a comma are none.
    let parts = text.split(',').flat_map(|part| match part.trim() {
        "" => vec![""],
        ids => ids.split_whitespace().collect(),
    });
    parts
        .enumerate()
        .map(|(at, part)| {
            let digits = part.bytes().all(|b| b.is_ascii_digit());
            part.parse().ok().filter(|_| digits).ok_or_else(|| {
                format!("--prompt-ids: item {at} is `{part}`; expected a token id such as 198")
            })
        })
        .collect()
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(path).map(|read| bytes = read)
    };
    read.or_exit_with(Exit::Io, || format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

/// The text of a file, for this command and others.
///
/// # Errors
/// 74 for a file that cannot be read, 64 for one that is not UTF-8.
pub(in crate::cli) fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_bytes(path)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let named =
            if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
        Failure::usage(format!("{named}: not UTF-8 text (byte {at})"))
    })
}

/// Opens the tokeniser of a model folder; `None` if there is none and no prompt needs it.
///
/// # Errors
/// 64 for a file that is refused, 74 for one that cannot be read.
pub(super) fn open_tokenizer(
    folder: &Path,
    all_ids: bool,
) -> Result<Option<TextTokenizer>, Failure> {
    match TextTokenizer::open(&folder.join("tokenizer.json")) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(TokenizerError::Read { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound && all_ids =>
        {
            Ok(None)
        }
        Err(error @ TokenizerError::Read { .. }) => Err(Failure::new(Exit::Io, error)),
        Err(error) => Err(Failure::usage(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_strictly() {
        assert_eq!(parse_ids("1, 2,3 4\n"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(parse_ids(""), Ok(vec![]));
        for (text, item) in [
            ("1,x", "item 1 is `x`"),
            ("-1", "item 0 is `-1`"),
            ("+1", "`+1`"),
            ("1,,2", "item 1 is ``"),
            ("1, ,2", "item 1 is ``"),
            ("1,2,", "item 2 is ``"),
            (",", "item 0 is ``"),
        ] {
            assert!(parse_ids(text).unwrap_err().contains(item));
        }
        assert!(parse_ids("4294967296").is_err(), "beyond 32 bits");
    }
}
