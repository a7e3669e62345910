//! The header of one safetensors file.
//!
//! Layout: 8 bytes little-endian length N, N bytes of JSON (may end in spaces), data. The JSON maps
//! tensor names to `{dtype, shape, data_offsets}`, offsets counting from the end of the header, and
//! may hold `__metadata__`, an object of strings. Format: the safetensors README.

use super::error::quoted;
use super::json::{JsonError, Reader};
use super::{CheckpointError, Place, Rule};
use crate::tensor::DType;
use crate::units::mutant;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest header the format allows.
pub(super) const HEADER_LIMIT_BYTES: u64 = 100_000_000;
const RANK_LIMIT: usize = 8;

/// Where one tensor lies in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the file.
    pub start_bytes: usize,
    pub size_bytes: usize,
}

impl TensorEntry {
    /// Type and shape as messages spell them, e.g. `BF16 [512, 64]`.
    pub fn describe(&self) -> String {
        format!("{} {:?}", self.dtype, self.shape)
    }
}

/// The tensors of a file by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) tensors: BTreeMap<String, TensorEntry>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// Reads and checks the header of `file`, whose whole content is `bytes`.
///
/// Memory taken is a small multiple of the header's length, which is bounded before anything is
/// allocated.
pub(super) fn parse(file: &Path, bytes: &[u8]) -> Result<Header, CheckpointError> {
    let refuse = |rule, found: String| CheckpointError::new(file, rule, found);
    let total = bytes.len() as u64;
    let Some((prefix, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(refuse(Rule::LengthPrefix, format!("a file of {total} bytes")));
    };
    let length = u64::from_le_bytes(*prefix);
    let found = format!("a header length of {length} bytes");
    if length < 2 {
        return Err(refuse(Rule::HeaderMinimum, found));
    }
    if length > HEADER_LIMIT_BYTES {
        return Err(refuse(Rule::HeaderLimit, found));
    }
    if length > rest.len() as u64 {
        return Err(refuse(Rule::HeaderInFile, format!("{found} in a file of {total} bytes")));
    }
    let (header, data) = rest.split_at(length as usize);
    let text = std::str::from_utf8(header).map_err(|e| {
        refuse(Rule::Utf8, "an invalid byte sequence".into())
            .at(Place::Byte(8 + e.valid_up_to() as u64))
    })?;
    let mut header = read(text, 8 + length as usize).map_err(|e| located(file, e))?;
    check_ranges(file, &mut header, 8 + length as usize, data.len())?;
    Ok(header)
}

fn located(file: &Path, error: JsonError) -> CheckpointError {
    CheckpointError {
        rule: error.rule,
        file: file.to_owned(),
        position: Some(Place::Byte(8 + error.offset as u64)),
        tensor: error.tensor,
        expected: error.expected,
        found: error.found,
        help: None,
    }
}

fn read(text: &str, data_start: usize) -> Result<Header, JsonError> {
    let mut header = Header::default();
    let mut reader = Reader::new(text);
    reader.object(|reader, name, name_at| {
        if name == "__metadata__" {
            return read_metadata(reader, &mut header.metadata);
        }
        if name.is_empty() {
            return Err(reader.error_at(name_at, Rule::TensorName, "an empty name"));
        }
        let entry = read_entry(reader, data_start).map_err(|e| e.in_tensor(&name))?;
        header.tensors.insert(name.into_owned(), entry);
        Ok(())
    })?;
    reader.end()?;
    Ok(header)
}

fn read_metadata(
    reader: &mut Reader<'_>,
    metadata: &mut BTreeMap<String, String>,
) -> Result<(), JsonError> {
    if reader.peek() != Some(b'{') {
        let found = reader.token_name();
        return Err(reader.error(Rule::Metadata, found));
    }
    reader.object(|reader, key, _| {
        if reader.peek() != Some(b'"') {
            let found = format!("{} under {}", reader.token_name(), quoted(&key));
            return Err(reader.error(Rule::Metadata, found));
        }
        metadata.insert(key.into_owned(), reader.string("a string")?.into_owned());
        Ok(())
    })
}

fn read_entry(reader: &mut Reader<'_>, data_start: usize) -> Result<TensorEntry, JsonError> {
    let at = reader.offset();
    let (mut dtype, mut shape, mut offsets) = (None, None, None);
    if reader.peek() != Some(b'{') {
        let found = reader.token_name();
        return Err(reader.error(Rule::EntryFields, found));
    }
    reader.object(|reader, key, key_at| {
        match &*key {
            "dtype" => dtype = Some(read_dtype(reader)?),
            "shape" => shape = Some(read_shape(reader)?),
            "data_offsets" => offsets = Some(read_offsets(reader)?),
            other => {
                let found = format!("the field {}", quoted(other));
                return Err(reader.error_at(key_at, Rule::EntryFields, found));
            }
        }
        Ok(())
    })?;
    let missing = |name: &str| reader.error_at(at, Rule::EntryFields, format!("no {name}"));
    let dtype = dtype.ok_or_else(|| missing("dtype"))?;
    let shape = shape.ok_or_else(|| missing("shape"))?;
    let (begin, end) = offsets.ok_or_else(|| missing("data_offsets"))?;
    let size = size_bytes(dtype, &shape)
        .ok_or_else(|| reader.error_at(at, Rule::SizeOverflow, format!("{dtype} {shape:?}")))?;
    if end - begin != size {
        let found = format!("{} bytes ({begin} to {end})", end - begin);
        let expected = format!("{size} bytes for {dtype} {shape:?}");
        let error = reader.error_at(at, Rule::ByteCount, found);
        return Err(JsonError { expected: Some(expected), ..error });
    }
    // Positions beyond the address space cannot be in a mapped file either.
    let in_file = |value: u64| usize::try_from(value).ok()?.checked_add(data_start);
    match (in_file(begin), in_file(end)) {
        (Some(start_bytes), Some(_)) => Ok(TensorEntry {
            dtype,
            // Every extent of a tensor below 2^63 bytes fits, unless another extent is zero.
            shape: shape.iter().map(|e| usize::try_from(*e).unwrap_or(usize::MAX)).collect(),
            start_bytes,
            size_bytes: size as usize,
        }),
        _ => Err(reader.error_at(at, Rule::DataInFile, format!("data up to byte {end}"))),
    }
}

fn read_dtype(reader: &mut Reader<'_>) -> Result<DType, JsonError> {
    let at = reader.offset();
    if reader.peek() != Some(b'"') {
        let found = reader.token_name();
        return Err(reader.error(Rule::DType, found));
    }
    let name = reader.string("a string")?;
    DType::parse(&name).ok_or_else(|| JsonError {
        expected: Some(DType::ALL.map(|d| d.to_string()).join(", ")),
        ..reader.error_at(at, Rule::DType, quoted(&name))
    })
}

fn read_shape(reader: &mut Reader<'_>) -> Result<Vec<u64>, JsonError> {
    let mut shape = Vec::new();
    reader.array(|reader, index| {
        if index == RANK_LIMIT {
            return Err(reader.error(Rule::Rank, "a longer shape"));
        }
        shape.push(reader.whole()?);
        Ok(())
    })?;
    Ok(shape)
}

fn read_offsets(reader: &mut Reader<'_>) -> Result<(u64, u64), JsonError> {
    let at = reader.offset();
    let mut pair = [0u64; 2];
    let mut count = 0;
    reader.array(|reader, index| {
        let value = reader.whole()?;
        count = index + 1;
        match pair.get_mut(index) {
            Some(slot) => *slot = value,
            None => return Err(reader.error_at(at, Rule::OffsetPair, "more than two numbers")),
        }
        Ok(())
    })?;
    match (count, pair) {
        (2, [begin, end]) if begin <= end => Ok((begin, end)),
        (2, [begin, end]) => {
            Err(reader.error_at(at, Rule::OffsetPair, format!("[{begin}, {end}]")))
        }
        _ => Err(reader.error_at(at, Rule::OffsetPair, format!("{count} numbers"))),
    }
}

/// Bytes of a tensor, or `None` at 2^63 and beyond.
///
/// The product is taken over the extents that are not zero as well, so that a huge shape is not
/// excused by an extent of zero.
fn size_bytes(dtype: DType, shape: &[u64]) -> Option<u64> {
    let magnitude = shape
        .iter()
        .filter(|e| **e != 0)
        .try_fold(dtype.size_bytes() as u64, |product, e| product.checked_mul(*e))?;
    let size = if shape.contains(&0) { 0 } else { magnitude };
    (magnitude < 1 << 63).then_some(size)
}

/// Requires that the byte ranges tile the data section exactly.
fn check_ranges(
    file: &Path,
    header: &mut Header,
    data_start: usize,
    data_bytes: usize,
) -> Result<(), CheckpointError> {
    let refuse =
        |rule, name: &str, found: String| CheckpointError::new(file, rule, found).tensor(name);
    let mut order: Vec<(&str, &TensorEntry)> =
        header.tensors.iter().map(|(n, e)| (n.as_str(), e)).collect();
    // Empty tensors first among those that begin together, so that they do not count as overlaps.
    order.sort_by_key(|(_, e)| (e.start_bytes, e.size_bytes));
    let file_end = data_start + data_bytes;
    let mut end = data_start;
    let mut last: Option<(&str, &TensorEntry)> = None;
    for (name, entry) in order {
        let begin = entry.start_bytes;
        let relative = |at: usize| at - data_start;
        // Ends were checked not to overflow when the entry was read.
        let entry_end = begin + entry.size_bytes;
        if entry_end > file_end {
            let found = format!("data up to byte {} of {data_bytes}", relative(entry_end));
            return Err(refuse(Rule::DataInFile, name, found));
        }
        if !relative(begin).is_multiple_of(entry.dtype.size_bytes()) {
            let found = format!("{} at offset {}", entry.dtype, relative(begin));
            return Err(refuse(Rule::Alignment, name, found));
        }
        if let Some((other, other_entry)) =
            last.filter(|_| begin < end && !mutant!("overlapping_tensors"))
        {
            let same = (other_entry.start_bytes, other_entry.size_bytes)
                == (entry.start_bytes, entry.size_bytes);
            let rule = if same { Rule::Aliasing } else { Rule::Overlap };
            let found = format!(
                "bytes {} to {}, and {} at {} to {}",
                relative(begin),
                relative(entry_end),
                quoted(other),
                relative(other_entry.start_bytes),
                relative(end)
            );
            return Err(refuse(rule, name, found));
        }
        if begin > end && !mutant!("hole_accepted") {
            let found = format!("unused bytes {} to {} before it", relative(end), relative(begin));
            return Err(refuse(Rule::Hole, name, found));
        }
        end = entry_end;
        last = Some((name, entry));
    }
    if end != file_end {
        let found = format!("{} bytes after the last tensor", file_end - end);
        return Err(CheckpointError::new(file, Rule::DataEnd, found));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &str, data_bytes: usize) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(bytes.len() + data_bytes, 0);
        bytes
    }

    fn rule(json: &str, data_bytes: usize) -> Option<Rule> {
        parse(Path::new("f"), &file(json, data_bytes)).err().map(|e| e.rule)
    }

    const A: &str = r#""a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}"#;

    #[test]
    fn a_header_is_read() {
        let json = format!(r#"{{"__metadata__":{{"format":"pt"}},{A}}}   "#);
        let header = parse(Path::new("f"), &file(&json, 12)).unwrap();
        assert_eq!(header.metadata["format"], "pt");
        let entry = &header.tensors["a"];
        assert_eq!(entry.describe(), "BF16 [2, 3]");
        assert_eq!((entry.start_bytes, entry.size_bytes), (8 + json.len(), 12));
    }

    #[test]
    fn ranges_must_tile_the_data() {
        let two = |dtype: &str, shape: &str, range: &str| {
            format!(r#"{{{A},"b":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{range}}}}}"#)
        };
        assert_eq!(rule(&two("U8", "[4]", "[12,16]"), 16), None);
        assert_eq!(rule(&two("BF16", "[2,3]", "[0,12]"), 12), Some(Rule::Aliasing));
        assert_eq!(rule(&two("U8", "[4]", "[11,15]"), 15), Some(Rule::Overlap));
        assert_eq!(rule(&two("U8", "[4]", "[13,17]"), 17), Some(Rule::Hole));
        assert_eq!(rule(&two("F64", "[1]", "[12,20]"), 20), Some(Rule::Alignment));
        assert_eq!(rule(&two("U8", "[4]", "[12,16]"), 15), Some(Rule::DataInFile));
        assert_eq!(rule(&two("U8", "[4]", "[12,16]"), 17), Some(Rule::DataEnd));
        assert_eq!(rule(&two("U8", "[0]", "[12,12]"), 12), None);
        assert_eq!(rule(&two("U8", "[0]", "[4,4]"), 12), Some(Rule::Overlap));
        assert_eq!(rule(&two("U8", "[0]", "[0,0]"), 12), None);
    }

    #[test]
    fn sizes_are_checked_before_use() {
        let one = |shape: &str, range: &str| {
            format!(r#"{{"a":{{"dtype":"F64","shape":{shape},"data_offsets":{range}}}}}"#)
        };
        let huge = u64::MAX;
        assert_eq!(rule(&one("[]", "[0,8]"), 8), None);
        assert_eq!(rule(&one(&format!("[{huge},{huge}]"), "[0,8]"), 8), Some(Rule::SizeOverflow));
        assert_eq!(rule(&one(&format!("[0,{huge}]"), "[0,0]"), 0), Some(Rule::SizeOverflow));
        assert_eq!(rule(&one("[2,2,2,2,2,2,2,2,2]", "[0,8]"), 8), Some(Rule::Rank));
        assert_eq!(rule(&one("[1]", "[0,4]"), 8), Some(Rule::ByteCount));
        let far = format!("[{},{}]", huge - 8, huge);
        assert_eq!(rule(&one("[1]", &far), 8), Some(Rule::DataInFile));
        assert_eq!(rule(&one("[1]", "[8,0]"), 8), Some(Rule::OffsetPair));
    }
}
