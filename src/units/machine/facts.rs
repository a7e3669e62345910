//! Everything at once, and how small files of the system are read.

use super::{Cpu, Memory, System};

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
pub(super) fn read(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
