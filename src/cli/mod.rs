//! The `assay` command line.

/// Runs the command line of this process.
pub fn main() -> std::process::ExitCode {
    crate::units::Exit::Usage.into()
}
