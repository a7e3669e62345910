//! Process exit codes, documented in one place.

/// How a command ended, as the process exit code that scripts read.
///
/// When several gates or scenarios run, the worst one decides, in the order
/// `70, 74, 1, 4, 2, 0` (see [`Exit::worst`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Passed, admitted, or the expected decision.
    Success = 0,
    /// Failed, rejected, or a decision other than the expected one.
    Fail = 1,
    /// Arrays agree but one side has no manifest, so nothing is verified.
    Legacy = 2,
    /// A deliberate difference was shown; never a pass.
    Diagnostic = 3,
    /// Inconclusive or invalid measurement.
    Inconclusive = 4,
    /// Bad command line or bad spec file.
    Usage = 64,
    /// A bug in Assay.
    Internal = 70,
    /// Input or output failed (missing file, full disk).
    Io = 74,
    /// Interrupted; finished records are kept.
    Interrupted = 130,
}

impl Exit {
    /// The order in which one result outranks another when several are combined.
    const SEVERITY: [Exit; 9] = [
        Exit::Interrupted,
        Exit::Internal,
        Exit::Io,
        Exit::Usage,
        Exit::Fail,
        Exit::Inconclusive,
        Exit::Diagnostic,
        Exit::Legacy,
        Exit::Success,
    ];

    /// The worse of two results.
    pub fn worst(self, other: Exit) -> Exit {
        *Self::SEVERITY
            .iter()
            .find(|e| **e == self || **e == other)
            .expect("every exit code has a severity")
    }

    /// The number the process exits with.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn the_worst_result_decides() {
        assert_eq!(Exit::Success.worst(Exit::Legacy), Exit::Legacy);
        assert_eq!(Exit::Inconclusive.worst(Exit::Fail), Exit::Fail);
        assert_eq!(Exit::Io.worst(Exit::Internal), Exit::Internal);
        assert_eq!(Exit::Fail.worst(Exit::Io), Exit::Io);
    }
}
