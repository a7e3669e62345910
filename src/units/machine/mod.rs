//! The machine this process runs on: processor, memory, operating system.
//!
//! Readings come from `/proc`, `/sys` and the processor itself; one that cannot be had is `None`,
//! which a manifest spells `unavailable`.

mod cpu;
mod facts;
mod memory;
mod process;
mod system;

pub use cpu::Cpu;
pub use facts::Machine;
pub use memory::Memory;
pub use process::{peak_resident_bytes, throttle_events};
pub use system::System;

use facts::read;
