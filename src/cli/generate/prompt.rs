//! From the prompt's flags to token ids.

use super::args::PromptArgs;
use crate::cli::{Console, Failure, OrExit};
use crate::generation::{ControlTokens, TextTokenizer, TokenizerError};
use crate::units::Exit;
use std::io::Read;
use std::path::Path;

/// The prompt as it was given.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

impl PromptArgs {
    /// Reads the prompt.
    ///
    /// # Errors
    /// 64 for malformed ids or a file that is not UTF-8, 74 for one that cannot be read.
    pub(super) fn read(&self) -> Result<Prompt, Failure> {
        let source = &self.source;
        if let Some(ids) = &source.prompt_ids {
            return parse_ids(ids).map(Prompt::Ids).map_err(Failure::usage);
        }
        match (&source.prompt_file, &source.prompt) {
            (Some(path), _) => read_text(path).map(Prompt::Text),
            (None, Some(text)) => Ok(Prompt::Text(text.clone())),
            (None, None) => {
                Err(Failure::usage("no prompt; give -p TEXT, --prompt-file or --prompt-ids"))
            }
        }
    }

    /// The ids of the prompt.
    ///
    /// # Errors
    /// 64 if the text cannot be tokenised, or an id is outside the vocabulary.
    pub(super) fn ids(
        &self,
        prompt: Prompt,
        tokenizer: Option<&TextTokenizer>,
        vocab: usize,
        console: &Console,
    ) -> Result<Vec<u32>, Failure> {
        let ids = match (prompt, tokenizer) {
            (Prompt::Ids(ids), _) => ids,
            (Prompt::Text(text), Some(tokenizer)) => {
                let control = self.control_tokens();
                if control == ControlTokens::AsText {
                    note_spelt_control_tokens(tokenizer, &text, console);
                }
                tokenizer.encode(&text, control).or_exit(Exit::Usage)?
            }
            (Prompt::Text(_), None) => {
                return Err(Failure::usage("a text prompt needs the model's tokenizer.json"));
            }
        };
        match ids.iter().position(|id| *id as usize >= vocab) {
            Some(at) => Err(Failure::usage(format!(
                "prompt token {at} is id {}, the model's vocabulary has {vocab} ids",
                ids[at]
            ))),
            None => Ok(ids),
        }
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
    let separators = |c: char| c == ',' || c.is_whitespace();
    text.split(separators)
        .filter(|part| !part.is_empty())
        .enumerate()
        .map(|(at, part)| {
            let digits = part.bytes().all(|b| b.is_ascii_digit());
            part.parse().ok().filter(|_| digits).ok_or_else(|| {
                format!("--prompt-ids: item {at} is `{part}`; expected a token id such as 198")
            })
        })
        .collect()
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let named = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| "stdin".to_owned())
    } else {
        std::fs::read(path).map(|read| {
            bytes = read;
            path.display().to_string()
        })
    };
    let named = named.or_exit_with(Exit::Io, || format!("cannot read {}", path.display()))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::usage(format!("{named}: the prompt is not UTF-8 text (byte {at})"))
    })
}

/// Opens the tokeniser of a model folder; `None` if there is none and the prompt does not need it.
///
/// # Errors
/// 64 for a file that is refused, 74 for one that cannot be read.
pub(super) fn open_tokenizer(
    folder: &Path,
    prompt: &Prompt,
) -> Result<Option<TextTokenizer>, Failure> {
    match TextTokenizer::open(&folder.join("tokenizer.json")) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(TokenizerError::Read { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound
                && matches!(prompt, Prompt::Ids(_)) =>
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
        for (text, item) in [("1,x", "item 1 is `x`"), ("-1", "item 0 is `-1`"), ("+1", "`+1`")] {
            assert!(parse_ids(text).unwrap_err().contains(item));
        }
        assert!(parse_ids("4294967296").is_err(), "beyond 32 bits");
    }
}
