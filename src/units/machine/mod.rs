//! The machine this process runs on: processor, memory, operating system.
//!
//! Readings come from `/proc`, `/sys` and the processor itself; one that cannot be had is `None`,
//! which a manifest spells `unavailable`.

mod cpu;
mod memory;
mod process;
mod system;

pub use cpu::Cpu;
pub use memory::Memory;
pub use process::{peak_resident_bytes, throttle_events};
pub use system::System;

/// Everything that is known of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub cpu: Cpu,
    pub memory: Memory,
    pub system: System,
}

impl Machine {
    /// Reads the facts of this machine now.
    pub fn probe() -> Machine {
        Machine { cpu: Cpu::probe(), memory: Memory::probe(), system: System::probe() }
    }
}

/// A small file of the system, without white space at its ends; `None` where there is none.
fn read(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
