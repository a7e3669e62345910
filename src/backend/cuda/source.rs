//! The kernel sources, embedded in the binary.

use super::wgmma;
use crate::units::Digest;
use std::sync::OnceLock;

/// The header that every source starts from.
const COMMON: &str = include_str!("../../../kernels/common.cuh");
/// What follows it: transcendentals, elements, the step.
const MATH: &str = include_str!("../../../kernels/math.cuh");

/// One file of `kernels/`.
#[derive(Debug)]
pub struct KernelSource {
    /// The file's name without extension; a region's name where it holds a region.
    pub name: &'static str,
    text: &'static str,
    composed: OnceLock<String>,
    digest: OnceLock<Digest>,
}

const fn source(name: &'static str, text: &'static str) -> KernelSource {
    KernelSource { name, text, composed: OnceLock::new(), digest: OnceLock::new() }
}

static SOURCES: [KernelSource; 14] = [
    source("attention_core", include_str!("../../../kernels/attention_core.cu")),
    source("elementwise", include_str!("../../../kernels/elementwise.cu")),
    source("gdn_chunk", include_str!("../../../kernels/gdn_chunk.cu")),
    source("gdn_core", include_str!("../../../kernels/gdn_core.cu")),
    source("gdn_gated_norm", include_str!("../../../kernels/gdn_gated_norm.cu")),
    source("gdn_inputs", include_str!("../../../kernels/gdn_inputs.cu")),
    source("gemm", include_str!("../../../kernels/gemm.cu")),
    source("greedy", include_str!("../../../kernels/greedy.cu")),
    source("memory_probe", include_str!("../../../kernels/memory_probe.cu")),
    source("rms_norm", include_str!("../../../kernels/rms_norm.cu")),
    source("rope", include_str!("../../../kernels/rope.cu")),
    source("sampler", include_str!("../../../kernels/sampler.cu")),
    source("synthetic", include_str!("../../../kernels/synthetic.cu")),
    source("tensor_core_probe", include_str!("../../../kernels/tensor_core_probe.cu")),
];

impl KernelSource {
    /// Every source, by name.
    pub fn all() -> &'static [KernelSource] {
        &SOURCES
    }

    /// The source of this name.
    pub fn find(name: &str) -> Option<&'static KernelSource> {
        SOURCES.iter().find(|s| s.name == name)
    }

    /// The file's own text.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// What the compiler is given: header, generated wrappers, file.
    pub fn composed(&self) -> &str {
        self.composed.get_or_init(|| {
            let name = self.name;
            format!(
                "#line 1 \"common.cuh\"\n{COMMON}\n#line 1 \"math.cuh\"\n{MATH}\n#line 1 \"wgmma (generated)\"\n{}\n\
                 #line 1 \"{name}.cu\"\n{}",
                wgmma::wrappers(),
                self.text
            )
        })
    }

    /// SHA-256 of what the compiler is given.
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of(self.composed().as_bytes()))
    }

    /// A field of the file's header comment, e.g. `Purpose`, on one line.
    pub fn header(&self, field: &str) -> Option<String> {
        let mut lines = self.text.lines().take_while(|l| l.starts_with("//"));
        let marker = format!("// {field}:");
        let first = lines.by_ref().find_map(|l| l.strip_prefix(&marker))?.trim().to_owned();
        let rest = lines.map_while(|l| l.strip_prefix("//             ")).map(str::trim);
        Some(rest.fold(first, |text, line| text + " " + line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_the_header_of_the_house() {
        for source in KernelSource::all() {
            for field in [
                "Purpose",
                "Grid",
                "Shapes",
                "Accumulator",
                "Order",
                "Invariance",
                "Reference",
                "Gate",
            ] {
                assert!(source.header(field).is_some(), "{}: no `{field}:`", source.name);
            }
            assert!(source.text.starts_with(&format!("// {}.cu: ", source.name)));
            let included =
                source.composed().lines().any(|l| l.trim_start().starts_with("#include"));
            assert!(!included, "{}: kernels include nothing", source.name);
        }
    }

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(stem) = name.strip_suffix(".cu") {
                assert!(KernelSource::find(stem).is_some(), "kernels/{name} is not embedded");
            }
        }
    }

    #[test]
    fn a_header_field_is_read_to_its_end() {
        let purpose = KernelSource::find("gemm").unwrap().header("Purpose").unwrap();
        assert!(purpose.starts_with("the `gemm` region"), "{purpose}");
        assert!(purpose.ends_with("measured against."), "{purpose}");
    }
}
