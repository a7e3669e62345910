//! The rules a checkpoint must obey, each with a stable name and one sentence.
//!
//! The table in `docs/checkpoints.md` is checked against this list by a test.

use std::fmt;

macro_rules! rules {
    ($($(#[$meta:meta])* $variant:ident = $name:literal, $statement:literal;)*) => {
        /// A rule that a file of a checkpoint, or the checkpoint and its descriptor together, must
        /// obey.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $($(#[$meta])* $variant,)*
        }

        impl Rule {
            /// Every rule, in the order in which a reader meets them.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)*];

            /// The stable snake_case name used in messages, gates and documentation.
            pub fn name(self) -> &'static str {
                match self { $(Rule::$variant => $name,)* }
            }

            /// What must hold, as one sentence without a full stop.
            pub fn statement(self) -> &'static str {
                match self { $(Rule::$variant => $statement,)* }
            }
        }
    };
}

rules! {
    /// Opening, reading or mapping failed; the only rule that is an input/output error.
    Readable = "readable", "the file can be opened and mapped";
    RegularFile = "regular_file", "a checkpoint file is a regular file";
    Layout = "layout", "a checkpoint is one model.safetensors, or shards with model.safetensors.index.json";

    LengthPrefix = "length_prefix", "the file starts with the header's length in 8 bytes";
    HeaderMinimum = "header_minimum", "the header has at least the 2 bytes of an empty object";
    HeaderLimit = "header_limit", "the header has at most 100000000 bytes";
    HeaderInFile = "header_in_file", "the header lies inside the file";
    Utf8 = "utf8", "the text is UTF-8";
    Json = "json", "the text is strict JSON";
    JsonDepth = "json_depth", "JSON is nested at most 32 levels deep";
    DuplicateKey = "duplicate_key", "a key appears once in its object";
    Metadata = "metadata", "__metadata__ is an object of strings";
    TensorName = "tensor_name", "a tensor's name is not empty";
    EntryFields = "entry_fields", "an entry has exactly the fields dtype, shape and data_offsets";
    DType = "dtype", "the element type is one that this reader knows";
    WholeNumber = "whole_number", "extents and offsets are whole numbers from 0 to 2^64-1";
    Rank = "rank", "a tensor has at most 8 extents";
    OffsetPair = "offset_pair", "data_offsets is [begin, end] with begin <= end";
    SizeOverflow = "size_overflow", "the tensor's size in bytes is below 2^63";
    ByteCount = "byte_count", "the byte range has exactly shape x element size bytes";
    DataInFile = "data_in_file", "the byte range lies inside the file";
    Alignment = "alignment", "a tensor begins at a multiple of its element size";
    Aliasing = "aliasing", "two tensors never share one byte range";
    Overlap = "overlap", "byte ranges do not overlap";
    Hole = "hole", "byte ranges leave no hole";
    DataEnd = "data_end", "the last byte range ends where the file ends";

    IndexLimit = "index_limit", "the index file has at most 100000000 bytes";
    IndexFields = "index_fields", "the index is an object with weight_map and optionally metadata";
    TotalSize = "total_size", "metadata.total_size is a whole number of bytes";
    ShardName = "shard_name", "a shard is named by a plain file name ending in .safetensors";
    ShardMissing = "shard_missing", "every shard that the index names exists";
    TensorMissing = "tensor_missing", "every tensor of the index is in the shard that it names";
    StrayCopy = "stray_copy", "a tensor lies in one shard only";
    UnlistedTensor = "unlisted_tensor", "every tensor of a shard is listed in the index";
    UnlistedShard = "unlisted_shard", "no further model-*-of-*.safetensors file lies beside the shards";

    SidecarLimit = "sidecar_limit", "weights.manifest.json has at most 100000000 bytes";
    SidecarFields = "sidecar_fields", "weights.manifest.json has the documented fields and no others";
    SidecarFormat = "sidecar_format", "packed weights are in a format that this reader knows";
    SidecarDuplicate = "sidecar_duplicate", "a role of a layer has one entry";
    PackedShape = "packed_shape", "codes and scales have the extents that [N, K] and the group give";
    SidecarDigest = "sidecar_digest", "the digest of packed weights is that of their entries";
    SidecarForeign = "sidecar_foreign", "weights.manifest.json belongs to the files beside it";
    SidecarCoverage = "sidecar_coverage", "every role of every layer has an entry, and projections alone are packed";
    PackedCode = "packed_code", "codes are -7 to 7";
    PackedScale = "packed_scale", "scales are positive, finite and normal";

    RoleMissing = "role_missing", "every tensor that the descriptor needs is present";
    TiedFlag = "tied_flag", "the head is stored exactly when the descriptor does not tie it to the embedding";
    Vocabulary = "vocabulary", "embedding and head have the descriptor's vocabulary as rows";
    HeadDim = "head_dim", "attention weights have the descriptor's heads x head_dim as rows";
    RoleShape = "role_shape", "a tensor has the shape that its role has in the descriptor";
    RowCover = "row_cover", "every row of a stored tensor is used exactly once";
    RoleDType = "role_dtype", "weights are stored as BF16, F16 or F32";
    MixedDType = "mixed_dtype", "the parts of one weight have one element type";
    LayerCount = "layer_count", "no tensor belongs to a layer that the descriptor does not have";
    UnclaimedTensor = "unclaimed_tensor", "every tensor is used by a role or is on the list of ignored ones";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Rule;
    use std::collections::BTreeSet;

    /// The table in the documentation is this list, in this order.
    #[test]
    fn the_documented_table_is_the_list() {
        let page = include_str!("../../docs/checkpoints.md");
        let row = |r: &Rule| format!("| `{}` | {} |\n", r.name(), r.statement());
        let table: String = Rule::ALL.iter().map(row).collect();
        let heading = "| rule | what must hold |\n|---|---|\n";
        assert!(page.contains(&format!("{heading}{table}\n")), "expected the rows\n{table}");
    }

    #[test]
    fn names_are_unique_snake_case() {
        let names: BTreeSet<_> = Rule::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Rule::ALL.len());
        for name in names {
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
        }
    }
}
