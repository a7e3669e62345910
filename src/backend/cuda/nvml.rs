//! NVML, the management library of NVIDIA's driver, found at run time.

use super::{Library, Origin};
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

const FILE: &str = "libnvidia-ml.so.1";

const SUCCESS: Status = 0;
const CLOCK_SM: c_uint = 1;
const CLOCK_MEMORY: c_uint = 2;
const TEMPERATURE_GPU: c_uint = 0;

type Status = c_int;
type Handle = *mut c_void;

// The types of NVML's functions. They write to what is borrowed here; handles come from NVML.
type Init = extern "C" fn() -> Status;
type Words = extern "C" fn(Status) -> *const c_char;
type Find = extern "C" fn(*const c_char, &mut Handle) -> Status;
type Number = extern "C" fn(Handle, &mut c_uint) -> Status;
type NumberOf = extern "C" fn(Handle, c_uint, &mut c_uint) -> Status;
type WideNumber = extern "C" fn(Handle, &mut c_ulonglong) -> Status;
type TwoNumbers = extern "C" fn(Handle, &mut c_uint, &mut c_uint) -> Status;

/// The library, started.
#[derive(Debug)]
struct Nvml {
    library: libloading::Library,
}

impl Nvml {
    /// The library, started once per process and never unloaded.
    fn get() -> Result<&'static Nvml, String> {
        static STARTED: OnceLock<Result<Nvml, String>> = OnceLock::new();
        STARTED.get_or_init(Nvml::start).as_ref().map_err(String::clone)
    }

    fn start() -> Result<Nvml, String> {
        let beside = match Library::Driver.locate() {
            Some(Origin::File(driver)) => driver.with_file_name(FILE),
            _ => PathBuf::new(),
        };
        let file = if beside.is_file() { beside } else { PathBuf::from(FILE) };
        // SAFETY: loading one of NVIDIA's libraries runs its initialisers only.
        let library = unsafe { libloading::Library::new(file) }.map_err(|error| {
            let cause = error.source().map_or_else(|| error.to_string(), |c| c.to_string());
            format!("NVML cannot be loaded: {cause}")
        })?;
        let nvml = Nvml { library };
        let name = c"nvmlInit_v2";
        // SAFETY: the function has this type.
        let init: Init = unsafe { nvml.function(name) }?;
        nvml.check(name, init())?;
        Ok(nvml)
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` is a pointer to a function of the type that the named one has.
    unsafe fn function<F: Copy + 'static>(&self, name: &CStr) -> Result<F, String> {
        // SAFETY: the caller vouches for the type; a started library is never unloaded.
        let found = unsafe { self.library.get::<F>(name) };
        found.map(|f| *f).map_err(|_| format!("this driver has no {}", name.to_string_lossy()))
    }

    fn check(&self, name: &CStr, status: Status) -> Result<(), String> {
        match status {
            SUCCESS => Ok(()),
            _ => Err(format!("{}: {}", name.to_string_lossy(), self.words(status))),
        }
    }

    /// NVML's own words for a status.
    fn words(&self, status: Status) -> String {
        // SAFETY: the function has this type.
        let words = unsafe { self.function::<Words>(c"nvmlErrorString") };
        let text = words.map_or(std::ptr::null(), |words| words(status));
        if text.is_null() {
            return format!("error {status}");
        }
        // SAFETY: NVML answers with a text that it keeps.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// A device as NVML knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NvmlDevice {
    nvml: &'static Nvml,
    handle: Handle,
}

impl NvmlDevice {
    /// The device at a PCI address.
    ///
    /// # Errors
    /// No NVML, or it does not know or show the device.
    pub(super) fn at(address: &CStr) -> Result<NvmlDevice, String> {
        let nvml = Nvml::get()?;
        let name = c"nvmlDeviceGetHandleByPciBusId_v2";
        // SAFETY: the function has this type.
        let find: Find = unsafe { nvml.function(name) }?;
        let mut handle = std::ptr::null_mut();
        nvml.check(name, find(address.as_ptr(), &mut handle))?;
        Ok(NvmlDevice { nvml, handle })
    }

    /// The clock of the multiprocessors.
    pub(super) fn sm_clock_mhz(&self) -> Result<u32, String> {
        self.number_of(c"nvmlDeviceGetClockInfo", CLOCK_SM)
    }

    pub(super) fn memory_clock_mhz(&self) -> Result<u32, String> {
        self.number_of(c"nvmlDeviceGetClockInfo", CLOCK_MEMORY)
    }

    pub(super) fn temperature_c(&self) -> Result<u32, String> {
        self.number_of(c"nvmlDeviceGetTemperature", TEMPERATURE_GPU)
    }

    /// Bits of the reasons why the clocks are what they are.
    pub(super) fn event_reasons(&self) -> Result<u64, String> {
        self.wide_number(c"nvmlDeviceGetCurrentClocksEventReasons")
            .or_else(|_| self.wide_number(c"nvmlDeviceGetCurrentClocksThrottleReasons"))
    }

    /// The power cap.
    pub(super) fn power_limit_mw(&self) -> Result<u32, String> {
        let name = c"nvmlDeviceGetPowerManagementLimit";
        // SAFETY: the function has this type.
        let ask: Number = unsafe { self.nvml.function(name) }?;
        let mut value = 0;
        self.nvml.check(name, ask(self.handle, &mut value))?;
        Ok(value)
    }

    /// What the board took since the driver was loaded.
    pub(super) fn energy_mj(&self) -> Result<u64, String> {
        self.wide_number(c"nvmlDeviceGetTotalEnergyConsumption")
    }

    /// Whether memory corrects its errors.
    pub(super) fn ecc(&self) -> Result<bool, String> {
        let name = c"nvmlDeviceGetEccMode";
        // SAFETY: the function has this type.
        let ask: TwoNumbers = unsafe { self.nvml.function(name) }?;
        let (mut now, mut after_reset) = (0, 0);
        self.nvml.check(name, ask(self.handle, &mut now, &mut after_reset))?;
        Ok(now != 0)
    }

    fn number_of(&self, name: &CStr, which: c_uint) -> Result<u32, String> {
        // SAFETY: clocks and temperatures are asked for with this type.
        let ask: NumberOf = unsafe { self.nvml.function(name) }?;
        let mut value = 0;
        self.nvml.check(name, ask(self.handle, which, &mut value))?;
        Ok(value)
    }

    fn wide_number(&self, name: &CStr) -> Result<u64, String> {
        // SAFETY: reasons and energy are asked for with this type.
        let ask: WideNumber = unsafe { self.nvml.function(name) }?;
        let mut value = 0;
        self.nvml.check(name, ask(self.handle, &mut value))?;
        Ok(value)
    }
}
