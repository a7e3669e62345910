//! Ids of a rendered conversation.

use super::model::encoding;
use super::{TextTokenizer, TokenizerError};
use crate::generation::chat::Rendered;

/// A control token that the template wrote.
struct Found {
    id: u32,
    /// Where the text before it ends and the text behind it starts.
    before: usize,
    behind: usize,
}

impl TextTokenizer {
    /// The ids of a rendered conversation. Nothing is put around it: a template writes its own BOS.
    ///
    /// Control tokens that the template wrote are those tokens; spellings that came from messages
    /// stay text. Where no message spells one, this is the encoding of the whole text with control
    /// tokens read as themselves. Otherwise the text is cut at the template's control tokens and
    /// each part is encoded as plain text, which is how tokenisers treat them too.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`], or [`TokenizerError::ControlTokenInText`] if plain text yields
    /// a control token.
    pub fn encode_chat(&self, rendered: &Rendered) -> Result<Vec<u32>, TokenizerError> {
        let text = rendered.text.as_str();
        if rendered.guards.is_empty() {
            let encoding = encoding(self.parsing(), text, false)?;
            return Ok(encoding.get_ids().to_vec());
        }
        let mut ids = Vec::new();
        let mut from = 0;
        let plain = |part: &str, ids: &mut Vec<u32>| {
            let encoding = encoding(&self.literal, part, false)?;
            for id in encoding.get_ids() {
                if let Some(control) = self.control.get(id) {
                    let token = control.text.clone();
                    return Err(TokenizerError::ControlTokenInText { id: *id, token });
                }
            }
            ids.extend(encoding.get_ids());
            Ok(())
        };
        while let Some(found) = self.next_control(rendered, from) {
            plain(&text[from..found.before.max(from)], &mut ids)?;
            ids.push(found.id);
            from = found.behind;
        }
        plain(&text[from..], &mut ids)?;
        Ok(ids)
    }

    /// The first control token from byte `from` on that the template wrote; the longest of those
    /// that start there.
    fn next_control(&self, rendered: &Rendered, from: usize) -> Option<Found> {
        let text = rendered.text.as_str();
        let first = self.control.iter().filter_map(|(id, control)| {
            let mut search = from;
            loop {
                let start = search + text[search..].find(control.text.as_str())?;
                let end = start + control.text.len();
                if rendered.is_template_text(start, end) {
                    return Some((start, std::cmp::Reverse(end), *id, control));
                }
                search = start + text[start..].chars().next().map_or(1, char::len_utf8);
            }
        });
        let (start, std::cmp::Reverse(end), id, control) =
            first.min_by_key(|(start, end, id, _)| (*start, *end, *id))?;
        let before = match control.takes_left {
            true => text[..start].trim_end().len(),
            false => start,
        };
        let behind = match control.takes_right {
            true => text.len() - text[end..].trim_start().len(),
            false => end,
        };
        Some(Found { id, before, behind })
    }
}
