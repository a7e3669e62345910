//! GPUs and the libraries that the CUDA backend finds at run time.

use super::{Finding, State};
use crate::backend::cuda::{
    Blas, CudaError, DeviceFacts, KERNEL_ARCHS, KernelCache, Library, Origin, compiler, devices,
};

/// What was found of CUDA on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaFacts {
    /// The driver's devices, or why it does not answer.
    pub devices: Result<Vec<DeviceFacts>, String>,
    pub driver_found: bool,
    /// The run-time compiler and where it is, or the remedy.
    pub compiler: Result<String, String>,
    /// The vendor's matrix library and where it is, or the remedy.
    pub blas: Result<String, String>,
    /// The folder of compiled kernels.
    pub cache: Option<String>,
}

impl CudaFacts {
    /// Looks now; never panics and makes no context on a device.
    pub fn probe() -> CudaFacts {
        let text = |error: CudaError| error.to_string();
        let blas = || -> Result<String, CudaError> {
            let place = match Library::CublasLt.require()? {
                Origin::Loader => String::new(),
                Origin::File(path) => format!(" ({})", path.display()),
            };
            Ok(format!("cuBLASLt {}{place}", Blas::version()?))
        };
        CudaFacts {
            devices: devices().map_err(text),
            driver_found: Library::Driver.locate().is_some(),
            compiler: compiler().map_err(text),
            blas: blas().map_err(text),
            cache: KernelCache::of_user().folder().map(|f| f.display().to_string()),
        }
    }
}

/// Findings about CUDA.
pub(super) fn findings(facts: &CudaFacts) -> Vec<Finding> {
    let mut found = gpus(facts);
    let needed = facts.devices.as_ref().is_ok_and(|d| !d.is_empty());
    found.push(library(
        "nvrtc",
        &facts.compiler,
        needed,
        "kernels that are neither cached nor built in cannot be compiled",
    ));
    found.push(library(
        "cublaslt",
        &facts.blas,
        needed,
        "products cannot be compared with the vendor's",
    ));
    found.push(match &facts.cache {
        Some(folder) => Finding::ok("kernel cache", folder.clone()),
        None => Finding::new(
            "kernel cache",
            State::Missing,
            "no folder: neither HOME nor ASSAY_KERNEL_CACHE is set",
        )
        .costs("kernels are compiled again in every process")
        .remedy("set ASSAY_KERNEL_CACHE to a folder that can be written"),
    });
    found
}

fn gpus(facts: &CudaFacts) -> Vec<Finding> {
    const COSTS: &str =
        "gates that need CUDA are skipped and counted as such; everything runs on the CPU";
    match &facts.devices {
        Err(error) => {
            vec![Finding::new("gpu", State::Unavailable, error.clone()).costs(COSTS).remedy(
                "see what nvidia-smi says; the driver and its kernel module must be of one version",
            )]
        }
        Ok(all) if all.is_empty() => {
            let (found, remedy) = if facts.driver_found {
                (
                    "the CUDA driver has no device",
                    "check that a GPU is visible (CUDA_VISIBLE_DEVICES, container options)",
                )
            } else {
                ("no CUDA driver", Library::Driver.remedy())
            };
            vec![Finding::new("gpu", State::Missing, found).costs(COSTS).remedy(remedy)]
        }
        Ok(all) => all.iter().map(gpu).collect(),
    }
}

fn gpu(device: &DeviceFacts) -> Finding {
    let found = format!(
        "{}: {}, {}, {} GiB, {} multiprocessors, driver CUDA {}",
        device.ordinal,
        device.name,
        device.arch,
        device.memory_bytes >> 30,
        device.multiprocessors,
        device.driver_cuda
    );
    if KERNEL_ARCHS.iter().any(|a| a.to_string() == device.arch) {
        return Finding::ok("gpu", found);
    }
    Finding::new("gpu", State::Limited, found).costs(
        "kernels were never compiled for this architecture in CI; they are compiled on first use",
    )
}

fn library(
    topic: &'static str,
    found: &Result<String, String>,
    needed: bool,
    costs: &str,
) -> Finding {
    match found {
        Ok(text) => Finding::ok(topic, text.clone()),
        // The message names the remedy.
        Err(error) => {
            let costs = if needed {
                costs.to_owned()
            } else {
                format!("nothing without a GPU; with one, {costs}")
            };
            Finding::new(topic, State::Missing, error.clone()).costs(costs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(arch: &str) -> DeviceFacts {
        DeviceFacts {
            ordinal: 0,
            name: "a GPU".into(),
            arch: arch.into(),
            multiprocessors: 132,
            memory_bytes: 150 << 30,
            l2_bytes: 50 << 20,
            block_shared_bytes: 232_448,
            driver_cuda: "13.0".into(),
        }
    }

    fn facts(devices: Result<Vec<DeviceFacts>, String>) -> CudaFacts {
        CudaFacts {
            devices,
            driver_found: true,
            compiler: Err("NVRTC not found; `pip install …`".into()),
            blas: Ok("cuBLASLt 13.1.0".into()),
            cache: Some("/cache".into()),
        }
    }

    #[test]
    fn what_is_missing_costs_something_only_where_it_is_needed() {
        let with = findings(&facts(Ok(vec![device("sm_90a")])));
        assert_eq!((with[0].topic, with[0].state), ("gpu", State::Ok));
        let nvrtc = with.iter().find(|f| f.topic == "nvrtc").unwrap();
        assert!(nvrtc.costs.as_ref().unwrap().starts_with("kernels"), "{nvrtc:?}");
        let without = findings(&facts(Ok(Vec::new())));
        assert_eq!(without[0].state, State::Missing);
        let nvrtc = without.iter().find(|f| f.topic == "nvrtc").unwrap();
        assert!(nvrtc.costs.as_ref().unwrap().starts_with("nothing without"), "{nvrtc:?}");
    }

    #[test]
    fn a_driver_that_does_not_answer_and_an_unknown_architecture_are_told() {
        assert_eq!(findings(&facts(Err("no".into())))[0].state, State::Unavailable);
        assert_eq!(findings(&facts(Ok(vec![device("sm_87")])))[0].state, State::Limited);
    }

    #[test]
    fn probing_never_panics() {
        assert!(findings(&CudaFacts::probe()).len() >= 4);
    }
}
