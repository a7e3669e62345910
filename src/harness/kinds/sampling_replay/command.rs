//! Runs this program with a command line that it should refuse.

use super::check::says;
use std::process::{Command, Stdio};

/// Runs the program and compares exit code and stderr; stdout must stay empty.
pub(super) fn check(
    args: &[String],
    exit: u8,
    stderr: &str,
    stderr_lacks: Option<&str>,
) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let output = Command::new(&program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run {}: {e}", program.display()))?;
    judge(
        output.status.code(),
        &String::from_utf8_lossy(&output.stdout),
        &String::from_utf8_lossy(&output.stderr),
        (exit, stderr, stderr_lacks),
    )
}

/// Decides about a finished run.
pub(super) fn judge(
    code: Option<i32>,
    stdout: &str,
    found: &str,
    (exit, stderr, lacks): (u8, &str, Option<&str>),
) -> Result<String, String> {
    if code != Some(i32::from(exit)) {
        let code = code.map_or("a signal".into(), |c| c.to_string());
        return Err(format!(
            "expected exit code {exit}, found {code}; stderr: `{}`",
            found.trim_end()
        ));
    }
    if !stdout.is_empty() {
        return Err(format!("expected nothing on stdout, found `{}`", stdout.trim_end()));
    }
    if let Some(absent) = lacks.filter(|absent| found.contains(absent)) {
        let found = found.trim_end();
        return Err(format!("expected no word of `{absent}` on stderr, found `{found}`"));
    }
    says("stderr", found, stderr)?;
    Ok(format!("refused with exit code {exit}"))
}
