//! libtest-mimic as the front: the same names, filters and output for `cargo test` and for
//! `assay gates run`.

use super::Session;
use super::printing::printed;
use crate::harness::kind::Verdict;
use crate::harness::plan::{Plan, Trial};
use libtest_mimic::{Arguments, Completion, Failed};
use std::io;
use std::sync::{Arc, OnceLock};

/// Shows a run as a list of tests, in the order of the plan, and returns when every trial has ended.
/// `start` is called with the trials that the filters of `arguments` select, unless they are only
/// listed. What the list could not be printed for comes back beside: the trials do not end with it.
///
/// # Errors
/// Those of `start`.
pub fn front<E>(
    arguments: &Arguments,
    plan: &Plan,
    start: impl FnOnce(&dyn Fn(&Trial) -> bool) -> Result<Arc<Session>, E>,
) -> Result<io::Result<()>, E> {
    let session: Arc<OnceLock<Arc<Session>>> = Arc::default();
    let trials: Vec<libtest_mimic::Trial> = plan
        .trials
        .iter()
        .enumerate()
        .map(|(at, trial)| {
            let session = session.clone();
            libtest_mimic::Trial::ignorable_test(&trial.name, move || {
                let Some(session) = session.get() else {
                    return Err(Failed::from("the run did not start"));
                };
                match session.wait(at) {
                    Ok(record) => completion(record.verdict, record.message),
                    Err(reason) => Ok(Completion::ignored_with(reason)),
                }
            })
        })
        .collect();
    if !arguments.list {
        let shown: std::collections::BTreeSet<String> = trials
            .iter()
            .filter(|t| !arguments.is_filtered_out(t))
            .map(|t| t.name().to_owned())
            .collect();
        let started = start(&|trial| shown.contains(&trial.name))?;
        // Set once, here; the trials run below.
        let _ = session.set(started);
    }
    // One waiting thread: results are shown in the order of the plan, whatever order they come in.
    let arguments = Arguments { test_threads: Some(1), ..arguments.clone() };
    // The verdicts come from the records; the conclusion is for display only.
    let shown = printed(move || drop(libtest_mimic::run(&arguments, trials)));
    if let Some(session) = session.get() {
        for at in 0..plan.trials.len() {
            let _ = session.wait(at);
        }
    }
    Ok(shown)
}

fn completion(verdict: Verdict, message: String) -> Result<Completion, Failed> {
    match verdict {
        Verdict::Pass => Ok(Completion::Completed),
        // Never shown as passed: libtest knows no third result but "ignored", with a reason.
        Verdict::Measured => Ok(Completion::ignored_with(format!("measured: {message}"))),
        Verdict::Skip => Ok(Completion::ignored_with(message)),
        Verdict::Fail => Err(Failed::from(message)),
        Verdict::Error => Err(Failed::from(format!("error: {message}"))),
    }
}
