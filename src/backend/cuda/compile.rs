//! From a kernel source to a device image, with the run-time compiler.

use super::library::{Library, nvrtc_version};
use super::resources::{KernelResources, parse_log};
use super::{CudaError, KernelArch, KernelSource};
use cudarc::nvrtc::{result, sys};
use std::ffi::CString;

/// How arithmetic is compiled; part of an image's identity.
///
/// Contraction is off: a product and a sum are two roundings unless a kernel asks for a fused one,
/// so that bits do not depend on what a compiler version chooses to fuse.
pub const NUMERIC_OPTIONS: [&str; 4] =
    ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// Every option of a compilation, in order.
pub(super) fn options(arch: KernelArch) -> Vec<String> {
    let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
    options.extend(NUMERIC_OPTIONS.map(String::from));
    options.push("--ptxas-options=-v".to_owned());
    // NVRTC keeps images of its own beside a driver (12.9 and later); one that it finds there comes without
    // the report that resources are read from.
    options.push("--no-cache".to_owned());
    options
}

/// A compiled source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The device image (an ELF file for exactly one architecture).
    pub cubin: Vec<u8>,
    /// The kernels in it and what they use, by name.
    pub kernels: Vec<KernelResources>,
}

/// Compiles a source for an architecture; needs the compiler, no GPU.
///
/// # Errors
/// The compiler is missing, or the source is not valid for the architecture.
pub fn compile(source: &KernelSource, arch: KernelArch) -> Result<Image, CudaError> {
    nvrtc_version()?;
    let failed = |log: String| CudaError::Compile { kernel: source.name, arch, log };
    let text = CString::new(source.composed()).map_err(|e| failed(e.to_string()))?;
    let name = CString::new(format!("{}.cu", source.name)).map_err(|e| failed(e.to_string()))?;
    let program = Program(
        result::create_program(&text, Some(&name)).map_err(|e| failed(format!("{:?}", e.0)))?,
    );
    // SAFETY: the program is alive until the end of this function.
    let compiled = unsafe { result::compile_program(program.0, &options(arch)) };
    let log = program.log();
    compiled.map_err(|e| failed(format!("{:?}\n{log}", e.0)))?;
    let cubin = program.cubin().map_err(|e| failed(format!("{:?}", e.0)))?;
    let kernels = parse_log(&log);
    if kernels.is_empty() {
        return Err(failed(format!("the compiler's report names no kernel:\n{log}")));
    }
    Ok(Image { cubin, kernels })
}

/// Where the compiler was found and which it is, for people.
///
/// # Errors
/// The compiler is missing.
pub fn compiler() -> Result<String, CudaError> {
    let origin = Library::Nvrtc.require()?;
    let version = nvrtc_version()?;
    Ok(match origin {
        super::Origin::Loader => format!("NVRTC {version}"),
        super::Origin::File(path) => format!("NVRTC {version} ({})", path.display()),
    })
}

/// Owns a program of the compiler.
struct Program(sys::nvrtcProgram);

impl Program {
    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, result::NvrtcError> {
        let mut size = 0;
        // SAFETY: the program is alive and was compiled; the buffer has the size it asks for.
        unsafe {
            sys::nvrtcGetCUBINSize(self.0, &mut size).result()?;
            let mut cubin = vec![0u8; size];
            sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()).result()?;
            Ok(cubin)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
