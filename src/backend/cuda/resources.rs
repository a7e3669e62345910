//! What a compiled kernel uses, as the assembler reports it.

use serde::{Deserialize, Serialize};

/// Registers, memory and warnings of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelResources {
    pub name: String,
    /// Registers of a thread at entry.
    pub registers: u32,
    /// Static shared memory of a block.
    pub shared_bytes: u32,
    /// Local memory of a thread that holds what did not fit into registers.
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    /// The assembler's warnings about lost performance (serialised matrix instructions).
    pub warnings: Vec<String>,
}

/// Reads the report that `--ptxas-options=-v` adds to the compiler's log.
pub(super) fn parse_log(log: &str) -> Vec<KernelResources> {
    let mut kernels: Vec<KernelResources> = Vec::new();
    let mut warnings: Vec<&str> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            kernels.push(KernelResources { name, ..KernelResources::default() });
        } else if line.contains("Potential Performance Loss") {
            warnings.push(line);
        } else if let Some(kernel) = kernels.last_mut() {
            for part in line.split(',') {
                read_part(part.trim(), kernel);
            }
        }
    }
    for kernel in &mut kernels {
        let own = warnings.iter().filter(|w| w.contains(&format!("'{}'", kernel.name)));
        kernel.warnings = own.map(|w| w.trim().to_owned()).collect();
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    kernels
}

fn read_part(part: &str, kernel: &mut KernelResources) {
    let part = part.rsplit(':').next().unwrap_or(part).trim().trim_start_matches("Used ");
    let part = part.trim_start_matches('.').trim();
    let Some((number, what)) = part.split_once(' ') else { return };
    let Ok(number) = number.parse() else { return };
    match what {
        "registers" => kernel.registers = number,
        "bytes smem" => kernel.shared_bytes = number,
        "bytes spill stores" => kernel.spill_store_bytes = number,
        "bytes spill loads" => kernel.spill_load_bytes = number,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'b_kernel' for 'sm_90a'
ptxas         .     96 bytes stack frame, 92 bytes spill stores, 104 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative stack size, 40960 bytes smem
ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized in the function 'a_kernel'
ptxas info    : Compiling entry function 'a_kernel' for 'sm_90a'
ptxas info    : Function properties for a_kernel
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
";
        let kernels = parse_log(log);
        assert_eq!(kernels.len(), 2);
        assert_eq!(kernels[0].name, "a_kernel");
        assert_eq!((kernels[0].registers, kernels[0].warnings.len()), (32, 1));
        let b = &kernels[1];
        assert_eq!(
            (b.registers, b.shared_bytes, b.spill_store_bytes, b.spill_load_bytes),
            (255, 40960, 92, 104)
        );
        assert!(b.warnings.is_empty());
    }
}
