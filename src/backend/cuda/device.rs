//! A CUDA device: what it is, and its kernels.

use super::error::Doing;
use super::{CudaError, FoundImage, KernelArch, KernelCache, KernelSource, Library, find_image};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
    ValidAsZeroBits, result, sys,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What a device is, read without making a context on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceFacts {
    pub ordinal: usize,
    pub name: String,
    pub arch: String,
    pub multiprocessors: usize,
    pub memory_bytes: u64,
    pub l2_bytes: u64,
    /// Shared memory that a block may ask for.
    pub block_shared_bytes: usize,
    /// The CUDA version that the driver speaks, e.g. `13.0`.
    pub driver_cuda: String,
}

impl DeviceFacts {
    fn read(ordinal: usize) -> Result<DeviceFacts, CudaError> {
        let doing = || format!("reading facts of device {ordinal}");
        let device = result::device::get(ordinal as i32).doing(doing())?;
        let attribute = |which: Attribute| -> Result<usize, CudaError> {
            // SAFETY: the handle comes from the driver.
            let value = unsafe { result::device::get_attribute(device, which) }.doing(doing())?;
            Ok(usize::try_from(value).unwrap_or(0))
        };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let mut version = 0;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { sys::cuDriverGetVersion(&mut version) };
        status.result().doing(doing())?;
        Ok(DeviceFacts {
            ordinal,
            name: result::device::get_name(device).doing(doing())?,
            arch: KernelArch::of_device(major as u32, minor as u32).to_string(),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            // SAFETY: the handle comes from the driver.
            memory_bytes: unsafe { result::device::total_mem(device) }.doing(doing())? as u64,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64,
            block_shared_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            driver_cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
        })
    }
}

/// The devices of this machine, in the driver's order. None where there is no driver or the driver
/// has no device to offer.
///
/// # Errors
/// The driver is there and refuses to answer.
pub fn devices() -> Result<Vec<DeviceFacts>, CudaError> {
    if Library::Driver.locate().is_none() {
        return Ok(Vec::new());
    }
    match result::init() {
        Ok(()) => {}
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(Vec::new()),
        Err(error) => return Err(error).doing("starting the CUDA driver"),
    }
    let count = result::device::get_count().doing("counting devices")?;
    (0..usize::try_from(count).unwrap_or(0)).map(DeviceFacts::read).collect()
}

/// An open device: context, stream, loaded kernels.
pub struct Device {
    facts: DeviceFacts,
    arch: KernelArch,
    stream: Arc<CudaStream>,
    cache: KernelCache,
    loaded: Mutex<BTreeMap<&'static str, Loaded>>,
}

#[derive(Clone)]
struct Loaded {
    module: Arc<CudaModule>,
    found: Arc<FoundImage>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// No driver, no such device, or the driver refuses a context.
    pub fn open(ordinal: usize) -> Result<Device, CudaError> {
        Library::Driver.require()?;
        let all = devices()?;
        let count = all.len();
        let facts = all.into_iter().nth(ordinal).ok_or(CudaError::NoDevice { ordinal, count })?;
        let context = CudaContext::new(ordinal).doing(format!("opening device {ordinal}"))?;
        // SAFETY: everything of this device is used on its one stream, in order, so that no event
        // is needed between uses.
        unsafe { context.disable_event_tracking() };
        let (major, minor) = context.compute_capability().doing("reading the capability")?;
        let stream = context.new_stream().doing("making a stream")?;
        Ok(Device {
            arch: KernelArch::of_device(major as u32, minor as u32),
            facts,
            stream,
            cache: KernelCache::of_user(),
            loaded: Mutex::default(),
        })
    }

    /// What the device is.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// The architecture that its kernels are compiled for.
    pub fn arch(&self) -> KernelArch {
        self.arch
    }

    /// The stream that all work of the device goes to.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Images loaded so far.
    pub fn images(&self) -> Vec<Arc<FoundImage>> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.values().map(|l| l.found.clone()).collect()
    }

    /// A kernel of a source, compiled or taken from the cache on first use.
    ///
    /// # Errors
    /// No image can be had, or the source has no such kernel on this architecture.
    pub fn kernel(&self, source: &'static str, entry: &str) -> Result<CudaFunction, CudaError> {
        let loaded = self.load(source)?;
        let no_entry =
            || CudaError::NoEntry { kernel: source, entry: entry.into(), arch: self.arch };
        if !loaded.found.image.kernels.iter().any(|k| k.name == entry) {
            return Err(no_entry());
        }
        loaded.module.load_function(entry).map_err(|_| no_entry())
    }

    /// Loads sources, those that must be compiled side by side.
    ///
    /// # Errors
    /// As [`Device::kernel`], of the first source that has no image.
    pub fn preload(&self, names: &[&'static str]) -> Result<(), CudaError> {
        let sources =
            names.iter().map(|name| self.source(name)).collect::<Result<Vec<_>, CudaError>>()?;
        let images: Vec<Result<FoundImage, CudaError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = sources
                .iter()
                .map(|source| scope.spawn(|| find_image(source, self.arch, &self.cache)))
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        for (name, image) in names.iter().zip(images) {
            let mut all = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            if !all.contains_key(name) {
                all.insert(name, self.module(name, image?)?);
            }
        }
        Ok(())
    }

    fn source(&self, name: &'static str) -> Result<&'static KernelSource, CudaError> {
        KernelSource::find(name).ok_or_else(|| CudaError::NoEntry {
            kernel: name,
            entry: "any".into(),
            arch: self.arch,
        })
    }

    fn load(&self, name: &'static str) -> Result<Loaded, CudaError> {
        let mut all = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = all.get(name) {
            return Ok(loaded.clone());
        }
        let found = find_image(self.source(name)?, self.arch, &self.cache)?;
        let loaded = self.module(name, found)?;
        all.insert(name, loaded.clone());
        Ok(loaded)
    }

    fn module(&self, name: &'static str, found: FoundImage) -> Result<Loaded, CudaError> {
        let binary = cudarc::nvrtc::Ptx::from_binary(found.image.cubin.clone());
        let module = self
            .stream
            .context()
            .load_module(binary)
            .doing(format!("loading the image of `{name}`"))?;
        Ok(Loaded { module, found: Arc::new(found) })
    }

    /// Device memory of `len` zero elements.
    ///
    /// # Errors
    /// The device has not enough memory.
    pub fn zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        len: usize,
    ) -> Result<CudaSlice<T>, CudaError> {
        let bytes = len * size_of::<T>();
        self.stream.alloc_zeros(len).doing(format!("allocating {bytes} bytes"))
    }

    /// A copy of host data on the device.
    ///
    /// # Errors
    /// The device has not enough memory.
    pub fn upload<T: DeviceRepr>(&self, data: &[T]) -> Result<CudaSlice<T>, CudaError> {
        self.stream.clone_htod(data).doing(format!("uploading {} bytes", size_of_val(data)))
    }

    /// A copy of device data on the host, once all earlier work is done.
    ///
    /// # Errors
    /// Earlier work failed.
    pub fn download<T: DeviceRepr>(&self, data: &CudaSlice<T>) -> Result<Vec<T>, CudaError> {
        let host = self.stream.clone_dtoh(data).doing("downloading results")?;
        self.synchronize()?;
        Ok(host)
    }

    /// Device memory that nobody holds.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn free_bytes(&self) -> Result<u64, CudaError> {
        let context = self.stream.context();
        context.bind_to_thread().doing("binding the context")?;
        let (free, _) = context.mem_get_info().doing("asking for free memory")?;
        Ok(free as u64)
    }

    /// Device memory that this process holds (all of it is allocated in stream order), once all
    /// work of the device is done.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn held_bytes(&self) -> Result<u64, CudaError> {
        let context = self.stream.context();
        context.bind_to_thread().doing("binding the context")?;
        context.synchronize().doing("waiting for the device")?;
        let mut pool = std::ptr::null_mut();
        let mut used = 0u64;
        // SAFETY: the device is the context's; both results outlive the calls and have the types
        // that the driver writes.
        let status = unsafe {
            sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result().and_then(|()| {
                sys::cuMemPoolGetAttribute(
                    pool,
                    sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                    std::ptr::from_mut(&mut used).cast(),
                )
                .result()
            })
        };
        status.doing("asking for the memory held")?;
        Ok(used)
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// Some of it failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.stream.synchronize().doing("waiting for the device")
    }

    /// The address of device memory, for launches on the device's stream.
    pub fn address<T>(&self, memory: &CudaSlice<T>) -> u64 {
        memory.device_ptr(&self.stream).0
    }
}
