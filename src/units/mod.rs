//! Small shared vocabulary: exit codes, canonical JSON, digests, the build stamp, the process
//! environment.

mod build;
mod canonical;
mod caught;
mod clock;
mod count;
mod digest;
mod exit;
mod json;
mod machine;
mod mutant;
mod shell_word;
mod splitmix64;
mod whole_file;

pub use build::{BUILD, Build, UNAVAILABLE, build_digest};
pub use canonical::Canonical;
pub use caught::{caught, is_catching, panic_message};
pub use clock::utc_now;
pub use count::total;
pub use digest::{Digest, Hasher};
pub use exit::Exit;
pub use json::{JsonError, JsonMember, JsonNode, JsonValue, Position, nearest, parse_json};
pub use machine::{Cpu, Machine, Memory, System, peak_resident_bytes, throttle_events};
#[allow(unused_imports, reason = "whether a switch is placed depends on the regions")]
pub(crate) use mutant::mutant;
pub use mutant::{HAS_MUTANTS, MUTANT_VARIABLE, MUTANTS, Mutant, mutant_active, mutant_index};
pub use shell_word::shell_word;
pub use splitmix64::{SplitMix64, unit_from_word};
pub use whole_file::write_whole;
