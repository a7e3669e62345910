//! Kernel launches with the attributes that the safe bindings lack: clusters and dependent launch.

use super::error::Doing;
use super::{CudaError, Device};
use cudarc::driver::{CudaFunction, sys};
use std::ffi::c_void;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// Also device addresses.
    U64(u64),
    U32(u32),
    F32(f32),
    /// A structure of 64 bytes, by value.
    Block([u64; 8]),
    /// A structure of 24 bytes, by value.
    Words([u64; 3]),
    TensorMap(sys::CUtensorMap),
    /// A larger structure, by value: where it lies until the launch is in the stream.
    Structure(*const u64),
}

impl Argument {
    fn pointer(&mut self) -> *mut c_void {
        match self {
            Argument::U64(v) => std::ptr::from_mut(v).cast(),
            Argument::U32(v) => std::ptr::from_mut(v).cast(),
            Argument::F32(v) => std::ptr::from_mut(v).cast(),
            Argument::Block(v) => std::ptr::from_mut(v).cast(),
            Argument::Words(v) => std::ptr::from_mut(v).cast(),
            Argument::TensorMap(v) => std::ptr::from_mut(v).cast(),
            Argument::Structure(v) => v.cast_mut().cast(),
        }
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub grid: (u32, u32),
    /// Blocks along z.
    pub depth: u32,
    pub block: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks of a cluster along x; 1 for none.
    pub cluster: u32,
    /// May start before its predecessor in the stream has ended (programmatic dependent launch);
    /// the kernel itself waits for what it needs.
    pub dependent: bool,
}

impl Launch {
    /// A plain launch of `blocks` × `threads`.
    pub fn plain(blocks: u32, threads: u32) -> Launch {
        Launch {
            grid: (blocks, 1),
            depth: 1,
            block: threads,
            shared_bytes: 0,
            cluster: 1,
            dependent: false,
        }
    }

    /// Puts the launch into the device's stream.
    ///
    /// # Safety
    /// The arguments are those of the kernel, in order; every address is device memory of the size
    /// that the kernel uses and lives until the launch is done.
    ///
    /// # Errors
    /// The driver refuses the launch.
    pub unsafe fn run(
        &self,
        device: &Device,
        function: &CudaFunction,
        mut arguments: Vec<Argument>,
    ) -> Result<(), CudaError> {
        if self.shared_bytes > 48 * 1024 {
            use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function
                .set_attribute(
                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    self.shared_bytes as i32,
                )
                .doing(format!("asking for {} bytes of shared memory", self.shared_bytes))?;
        }
        let mut attributes = self.attributes();
        let config = sys::CUlaunchConfig {
            gridDimX: self.grid.0,
            gridDimY: self.grid.1,
            gridDimZ: self.depth,
            blockDimX: self.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: device.stream().cu_stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(Argument::pointer).collect();
        device.stream().context().bind_to_thread().doing("binding the context")?;
        // SAFETY: the configuration and the pointers outlive the call, which copies them; the
        // caller answers for the arguments.
        let status = unsafe {
            sys::cuLaunchKernelEx(
                &config,
                function.cu_function(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        status.result().doing(format!("launching a kernel as {self:?}"))
    }

    fn attributes(&self) -> Vec<sys::CUlaunchAttribute> {
        use sys::CUlaunchAttributeID_enum::{
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION as CLUSTER,
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION as DEPENDENT,
        };
        let attribute = |id| sys::CUlaunchAttribute {
            id,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { pad: [0; 64] },
        };
        let mut list = Vec::new();
        if self.cluster > 1 {
            let mut cluster = attribute(CLUSTER);
            cluster.value.clusterDim =
                sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: self.cluster, y: 1, z: 1 };
            list.push(cluster);
        }
        if self.dependent {
            let mut dependent = attribute(DEPENDENT);
            dependent.value.programmaticStreamSerializationAllowed = 1;
            list.push(dependent);
        }
        list
    }
}

/// A map of a row-major BF16 matrix for boxes of `box_rows` × 64 elements, 128-byte swizzle;
/// elements outside the matrix read as zero.
///
/// # Errors
/// The driver refuses the shape (a row pitch that is no multiple of 16 bytes).
pub fn tensor_map(
    address: u64,
    rows: usize,
    cols: usize,
    box_rows: u32,
) -> Result<sys::CUtensorMap, CudaError> {
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let dims = [cols as u64, rows as u64];
    let strides = [cols as u64 * 2];
    let boxes = [64, box_rows];
    let steps = [1, 1];
    // SAFETY: every array has the rank's length and outlives the call.
    let status = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            sys::CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            address as *mut c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    status.result().doing(format!("mapping a {rows}×{cols} BF16 matrix"))?;
    Ok(map)
}
