//! The vocabulary of a `tokenizer.json`, read in one pass.

use super::TokenizerError;
use crate::units::caught;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::models::bpe::{BPE, BpeBuilder, Merges, Vocab};
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::{
    DecoderWrapper, Encoding, Model, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    Result, Token, Tokenizer, TokenizerImpl,
};

/// A tokeniser whose vocabulary is shared by its clones.
pub(super) type Parts = TokenizerImpl<
    SharedModel,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// Reads a `tokenizer.json`.
///
/// # Errors
/// A sentence: what the `tokenizers` library says of a file that it refuses, too.
pub(super) fn read(bytes: &[u8]) -> std::result::Result<Parts, String> {
    // A file can make the library panic, too.
    caught(|| {
        Parts::from_bytes(bytes).map_err(|error| match Tokenizer::from_bytes(bytes) {
            Err(known) => known.to_string(),
            Ok(_) => error.to_string(),
        })
    })
    .unwrap_or_else(|panic| Err(library_failed(&panic)))
}

/// Ids of a text by the library.
///
/// # Errors
/// [`TokenizerError::Encode`], also where the library panics on what the file asks for.
pub(super) fn encoding(
    parts: &Parts,
    text: &str,
    surround: bool,
) -> std::result::Result<Encoding, TokenizerError> {
    match caught(|| parts.encode(text, surround)) {
        Ok(encoding) => encoding.map_err(|e| TokenizerError::Encode(e.to_string())),
        Err(panic) => Err(TokenizerError::Encode(library_failed(&panic))),
    }
}

fn library_failed(panic: &str) -> String {
    format!("the `tokenizers` library fails on what tokenizer.json asks for: {panic}")
}

/// A model of the library.
///
/// The library reads a vocabulary into generic values, those into values without the type's name, and
/// those into maps. Byte-pair vocabularies, which are the large ones, go straight into the maps here;
/// every other model is left to the library.
#[derive(Clone, Debug)]
pub(super) struct SharedModel {
    model: Arc<ModelWrapper>,
    /// One more than the largest id of the vocabulary.
    pub(super) ids: usize,
}

impl Model for SharedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        self.model.tokenize(sequence)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.model.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.model.id_to_token(id)
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.model.get_vocab()
    }

    fn get_vocab_size(&self) -> usize {
        self.model.get_vocab_size()
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        self.model.save(folder, prefix)
    }

    fn get_trainer(&self) -> TrainerWrapper {
        self.model.get_trainer()
    }
}

impl<'de> Deserialize<'de> for SharedModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = SharedModel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<SharedModel, A::Error> {
        let mut fields = Map::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            // Writers put the type first.
            if fields.is_empty() && key == "type" && value == "BPE" {
                let (model, ids) = byte_pairs(map)?;
                return Ok(SharedModel { model: Arc::new(ModelWrapper::BPE(model)), ids });
            }
            fields.insert(key, value);
        }
        let model: ModelWrapper =
            serde_json::from_value(Value::Object(fields)).map_err(A::Error::custom)?;
        let ids = count_ids(model.get_vocab().iter()).map_err(A::Error::custom)?;
        Ok(SharedModel { model: Arc::new(model), ids })
    }
}

/// The fields of a byte-pair model behind its type, as the library understands them; and one more
/// than its largest id.
fn byte_pairs<'de, A: MapAccess<'de>>(mut map: A) -> std::result::Result<(BPE, usize), A::Error> {
    let mut builder = BpeBuilder::new();
    let (mut vocab, mut merges) = (None, None);
    while let Some(key) = map.next_key::<String>()? {
        match key.as_str() {
            "vocab" => vocab = Some(map.next_value::<Vocab>()?),
            "merges" => merges = Some(map.next_value::<MergeList>()?),
            "dropout" => builder = set(builder, map.next_value()?, BpeBuilder::dropout),
            "unk_token" => builder = set(builder, map.next_value()?, BpeBuilder::unk_token),
            "continuing_subword_prefix" => {
                builder = set(builder, map.next_value()?, BpeBuilder::continuing_subword_prefix);
            }
            "end_of_word_suffix" => {
                builder = set(builder, map.next_value()?, BpeBuilder::end_of_word_suffix);
            }
            "fuse_unk" => builder = set(builder, map.next_value()?, BpeBuilder::fuse_unk),
            "byte_fallback" => builder = set(builder, map.next_value()?, BpeBuilder::byte_fallback),
            "ignore_merges" => builder = set(builder, map.next_value()?, BpeBuilder::ignore_merges),
            "type" => return Err(A::Error::duplicate_field("type")),
            _ => _ = map.next_value::<IgnoredAny>()?,
        }
    }
    let vocab = vocab.ok_or_else(|| A::Error::missing_field("vocab"))?;
    let MergeList(merges) = merges.ok_or_else(|| A::Error::missing_field("merges"))?;
    let ids = count_ids(vocab.iter()).map_err(A::Error::custom)?;
    let model = builder.vocab_and_merges(vocab, merges).build().map_err(A::Error::custom)?;
    Ok((model, ids))
}

/// One more than the largest id.
///
/// # Errors
/// Two tokens share an id: what it decodes to would be whichever a map gives last.
fn count_ids<'v>(
    vocab: impl Iterator<Item = (&'v String, &'v u32)> + Clone,
) -> std::result::Result<usize, String> {
    let mut ids: Vec<u32> = vocab.clone().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        let mut tokens: Vec<&str> =
            vocab.filter(|(_, id)| **id == pair[0]).map(|(token, _)| token.as_str()).collect();
        tokens.sort_unstable();
        let named: Vec<String> = tokens.iter().take(3).map(|token| format!("`{token}`")).collect();
        return Err(format!(
            "id {} belongs to {} tokens: {}; each token needs an id of its own",
            pair[0],
            tokens.len(),
            named.join(", ")
        ));
    }
    Ok(ids.last().map_or(0, |id| *id as usize + 1))
}

/// Sets what is not `null`.
fn set<T>(
    builder: BpeBuilder,
    value: Option<T>,
    to: impl FnOnce(BpeBuilder, T) -> BpeBuilder,
) -> BpeBuilder {
    match value {
        Some(value) => to(builder, value),
        None => builder,
    }
}

/// Merges in rank order, all as pairs or all as `"left right"`.
struct MergeList(Merges);

/// One merge in either spelling.
enum Merge {
    Pair(String, String),
    Line(Option<(String, String)>),
}

impl<'de> Deserialize<'de> for MergeList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(MergesVisitor)
    }
}

struct MergesVisitor;

impl<'de> Visitor<'de> for MergesVisitor {
    type Value = MergeList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<MergeList, A::Error> {
        let mut merges = Vec::new();
        let (mut pairs, mut lines) = (false, false);
        while let Some(merge) = seq.next_element()? {
            match merge {
                Merge::Pair(left, right) => {
                    pairs = true;
                    merges.push((left, right));
                }
                Merge::Line(merge) => {
                    lines = true;
                    merges.extend(merge);
                }
            }
        }
        if pairs && lines {
            return Err(A::Error::custom("merges in two spellings"));
        }
        Ok(MergeList(merges))
    }
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = Merge;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a merge: two tokens")
    }

    fn visit_str<E: Error>(self, line: &str) -> std::result::Result<Merge, E> {
        if line.starts_with("#version") {
            return Ok(Merge::Line(None));
        }
        match line.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => {
                Ok(Merge::Line(Some((left.into(), right.into()))))
            }
            _ => Err(E::custom(format!("merge `{line}` is not two tokens"))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Merge, A::Error> {
        let mut next =
            |i| seq.next_element()?.ok_or_else(|| A::Error::invalid_length(i, &MergeVisitor));
        let pair = Merge::Pair(next(0)?, next(1)?);
        match seq.next_element::<IgnoredAny>()? {
            None => Ok(pair),
            Some(_) => Err(A::Error::invalid_length(3, &MergeVisitor)),
        }
    }
}
