//! cuBLASLt products: BF16 in and out, FP32 accumulation, a plan made once per shape.

use super::gemm::Product;
use super::{CudaError, Device, Library};
use cudarc::cublaslt::{result, sys};
use cudarc::driver::CudaSlice;
use std::ffi::c_void;
use std::sync::Arc;

const WORKSPACE_BYTES: usize = 64 << 20;

/// A handle of the library with its workspace.
#[derive(Debug)]
pub struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: CudaSlice<u8>,
}

fn failed(doing: &'static str) -> impl Fn(result::CublasError) -> CudaError {
    move |error| CudaError::Blas { doing, code: format!("{:?}", error.0) }
}

impl Blas {
    /// Opens the library on a device.
    ///
    /// # Errors
    /// The library is missing or refuses.
    pub fn open(device: &Device) -> Result<Arc<Blas>, CudaError> {
        Library::CublasLt.require()?;
        let workspace = device.zeros(WORKSPACE_BYTES)?;
        let handle = result::create_handle().map_err(failed("creating a handle"))?;
        Ok(Arc::new(Blas { handle, workspace }))
    }

    /// The library's version, e.g. `13.1.0`.
    pub fn version() -> Result<String, CudaError> {
        Library::CublasLt.require()?;
        // SAFETY: the library is present; the call has no arguments.
        let version = unsafe { sys::cublasLtGetVersion() };
        Ok(format!("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100))
    }

    /// Plans products of this shape with the algorithm that the library thinks best.
    ///
    /// # Errors
    /// The library knows none.
    pub fn plan(self: &Arc<Blas>, m: usize, n: usize, k: usize) -> Result<BlasPlan, CudaError> {
        let layout = |rows: usize, cols: usize| {
            result::create_matrix_layout(
                sys::cudaDataType::CUDA_R_16BF,
                rows as u64,
                cols as u64,
                rows as i64,
            )
            .map_err(failed("describing a matrix"))
        };
        // Column-major, as the library sees it: Yᵀ (m × n) = (k × m)ᵀ · (k × n).
        let desc = result::create_matmul_desc(
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cudaDataType::CUDA_R_32F,
        )
        .map_err(failed("describing a product"))?;
        // `CUBLAS_OP_T`; these bindings leave the enumeration out.
        let transpose: i32 = 1;
        // SAFETY: the attribute is an operation, and the value outlives the call.
        unsafe {
            result::set_matmul_desc_attribute(
                desc,
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                std::ptr::from_ref(&transpose).cast(),
                size_of_val(&transpose),
            )
        }
        .map_err(failed("transposing the weights"))?;
        let (a, b, d) = (layout(k, m)?, layout(k, n)?, layout(m, n)?);
        let preference = result::create_matmul_pref().map_err(failed("making a preference"))?;
        // SAFETY: the attribute is a size, and the value outlives the call; the handles are alive.
        let chosen = unsafe {
            result::set_matmul_pref_attribute(
                preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                std::ptr::from_ref(&WORKSPACE_BYTES).cast(),
                size_of::<usize>(),
            )
            .and_then(|()| {
                result::get_matmul_algo_heuristic(self.handle, desc, a, b, d, d, preference)
            })
        };
        // SAFETY: created above, not used again.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        let chosen = chosen.map_err(failed("choosing an algorithm"))?;
        Ok(BlasPlan { blas: Arc::clone(self), desc, a, b, d, chosen })
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: created once; plans share the handle and are gone.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// A product's description and algorithm.
pub struct BlasPlan {
    blas: Arc<Blas>,
    desc: sys::cublasLtMatmulDesc_t,
    a: sys::cublasLtMatrixLayout_t,
    b: sys::cublasLtMatrixLayout_t,
    d: sys::cublasLtMatrixLayout_t,
    chosen: sys::cublasLtMatmulHeuristicResult_t,
}

// SAFETY: the library allows handles and descriptions to be used from any thread, one at a time; a
// plan is reached through a lock or owned by one thread.
unsafe impl Send for BlasPlan {}
// SAFETY: as above: the shared handle is used by one thread at a time.
unsafe impl Send for Blas {}
// SAFETY: as above; nothing is changed through a shared reference but device memory in stream order.
unsafe impl Sync for Blas {}

impl std::fmt::Debug for BlasPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlasPlan").field("algorithm", &self.algorithm()).finish_non_exhaustive()
    }
}

impl BlasPlan {
    /// The library's own words for the algorithm it chose, as hexadecimal digits.
    pub fn algorithm(&self) -> String {
        self.chosen.algo.data.iter().map(|word| format!("{word:016x}")).collect()
    }

    /// Puts the product into the device's stream.
    ///
    /// # Safety
    /// The shape is the planned one; the addresses are device memory of its sizes.
    ///
    /// # Errors
    /// The library refuses.
    pub unsafe fn run(&self, device: &Device, p: &Product) -> Result<(), CudaError> {
        let (alpha, beta) = (1.0f32, 0.0f32);
        // SAFETY: handles and workspace are alive; the caller answers for the addresses.
        unsafe {
            result::matmul(
                self.blas.handle,
                self.desc,
                std::ptr::from_ref(&alpha).cast(),
                std::ptr::from_ref(&beta).cast(),
                p.weights as *const c_void,
                self.a,
                p.input as *const c_void,
                self.b,
                p.output as *const c_void,
                self.d,
                p.output as *mut c_void,
                self.d,
                &self.chosen.algo,
                device.address(&self.blas.workspace) as *mut c_void,
                WORKSPACE_BYTES,
                device.stream().cu_stream().cast(),
            )
        }
        .map_err(failed("running a product"))
    }
}

impl Drop for BlasPlan {
    fn drop(&mut self) {
        // SAFETY: each was created once and is not used again.
        unsafe {
            let _ = result::destroy_matmul_desc(self.desc);
            for layout in [self.a, self.b, self.d] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}
