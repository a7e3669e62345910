//! What serde cannot see: rules between the keys of a scenario file.

use super::Metric;
use super::plan::points;
use super::spec::{Arm, ArmKind, BASELINE, Block, PrefillUse, ScenarioFile, Turn};
use crate::harness::spec::{Diagnostic, did_you_mean};
use crate::harness::stats::{ALPHA_PER_SIDE, MIN_SERIES_QUADS, signed_rank_bounds};
use std::collections::BTreeSet;

/// Checks a parsed file.
pub(super) fn lint(file: &ScenarioFile) -> Result<(), Diagnostic> {
    names(file)?;
    lists(file)?;
    arms(file)?;
    measure(file)?;
    rules(file)?;
    quality(file)?;
    error_rates(file)
}

fn names(file: &ScenarioFile) -> Result<(), Diagnostic> {
    let spec = &file.spec;
    let expected = "lower-case letters and digits, words joined by `-`, at most 64 characters, and no \
                    device name such as `con`: reports are folders of that name";
    if !is_name(&spec.scenario.value) {
        let message = format!("`{}` is no scenario name", spec.scenario.value);
        return Err(file.at(&spec.scenario, message).expected(expected));
    }
    if spec.question.value.trim().is_empty() {
        return Err(file.at(&spec.question, "the question is blank").expected("a question"));
    }
    let arms = &spec.arms.value;
    if let Some(name) = arms.keys().find(|name| !is_name(name)) {
        return Err(file.at(&spec.arms, format!("`{name}` is no arm name")).expected(expected));
    }
    if !arms.contains_key(BASELINE) {
        let near = did_you_mean(BASELINE, arms.keys().map(String::as_str));
        return Err(file
            .at(&spec.arms, "no arm is called `baseline`, what the others are compared with")
            .help(near));
    }
    if arms.len() < 2 {
        return Err(file.at(&spec.arms, "a comparison needs at least two arms"));
    }
    let engines = arms.values().filter(|arm| arm.kind() == ArmKind::Engine).count();
    if arms[BASELINE].kind() != ArmKind::Engine || engines < 2 {
        return Err(file
            .at(&spec.arms, "the baseline and at least one candidate are builds of this engine")
            .help(Some("arms with `command` or `recorded` are shown and never decide".into())));
    }
    if spec.profiles.is_empty() {
        return Err(Diagnostic::new(&file.path, "`profiles` names no device")
            .expected("a profile for `cpu` or `cuda`"));
    }
    for (name, arm) in arms {
        arm.recipe().map_err(|problem| file.at(&spec.arms, format!("arm `{name}`: {problem}")))?;
    }
    for profile in spec.profiles.values() {
        let model = &profile.model;
        let choices = [&model.value.dir, &model.value.synth].into_iter().flatten().count();
        let message = match (choices, &model.value.or_synth, &model.value.dir) {
            (0, ..) => "the model is neither a folder (`dir`) nor synthetic (`synth`)",
            (2, ..) => "the model has both `dir` and `synth`; a fallback is called `or_synth`",
            (_, Some(_), None) => "`or_synth` is a fallback for `dir`, which is missing",
            _ => continue,
        };
        return Err(file.at(model, message));
    }
    Ok(())
}

/// What is listed is listed once, and expected where it can come about.
fn lists(file: &ScenarioFile) -> Result<(), Diagnostic> {
    let spec = &file.spec;
    let at_key = |key: &str, message: String| {
        let fault = Diagnostic::new(&file.path, message);
        let mut lines = file.text.lines().enumerate();
        match lines.find(|(_, line)| line.trim_start().starts_with(&format!("{key}:"))) {
            Some((at, line)) => {
                let column = line.len() - line.trim_start().len() + 1;
                fault.at(&file.text, at + 1, column, key.len())
            }
            None => fault,
        }
    };
    if let Some(gate) = twice(&spec.gates) {
        return Err(at_key("gates", format!("the gate `{gate}` is listed twice")));
    }
    if let Some(metric) = twice(&spec.measure.metrics) {
        return Err(at_key("metrics", format!("the metric `{metric}` is listed twice")));
    }
    if let Some(device) = spec.expect_decision.keys().find(|d| !spec.profiles.contains_key(d)) {
        let known: Vec<String> = spec.profiles.keys().map(ToString::to_string).collect();
        let message = format!("a decision is expected on {device}, which has no profile");
        return Err(at_key("expect_decision", message)
            .expected(format!("devices with a profile: {}", known.join(", "))));
    }
    for (name, arm) in &spec.arms.value {
        let repeated = [
            ("fusions", twice(&arm.fusions).map(ToString::to_string)),
            ("apart", twice(&arm.apart).map(ToString::to_string)),
            ("roles", twice(&arm.roles).cloned()),
        ];
        for (key, item) in repeated {
            if let Some(item) = item {
                let message = format!("arm `{name}`: `{key}` lists `{item}` twice");
                return Err(file.at(&spec.arms, message));
            }
        }
    }
    Ok(())
}

/// An item that a list has twice.
fn twice<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter().enumerate().find(|(at, item)| list[..*at].contains(item)).map(|(_, item)| item)
}

const SLOWDOWN: &str = "`slowdown_ratio` is a share between 0 and 1, such as 0.02";

/// Keys of an arm that do not go together.
fn arms(file: &ScenarioFile) -> Result<(), Diagnostic> {
    let place = &file.spec.arms;
    for (name, arm) in &place.value {
        let complain = |message: &str| Err(file.at(place, format!("arm `{name}`: {message}")));
        let sources = [arm.build.is_some(), arm.command.is_some(), arm.recorded.is_some()];
        if sources.iter().filter(|s| **s).count() > 1 {
            return complain("`build`, `command` and `recorded` exclude each other");
        }
        if arm.kind() != ArmKind::Engine
            && (arm.policy.is_some()
                || arm.slowdown_ratio.is_some()
                || !arm.fusions.is_empty()
                || !arm.apart.is_empty())
        {
            return complain(
                "`policy`, `fusions` and `slowdown_ratio` are keys of arms of this engine",
            );
        }
        if arm.kind() == ArmKind::Recorded && arm.threads.is_some() {
            return complain("a recorded arm does not run, it has no `threads`");
        }
        if arm.threads.is_some_and(|threads| !(1..=1024).contains(&threads)) {
            return complain("`threads` is a number from 1 to 1024");
        }
        if arm.command.as_ref().is_some_and(|c| c.iter().all(String::is_empty)) {
            return complain("the command is empty; give a program and its arguments");
        }
        if arm.build.as_deref().is_some_and(|b| b.is_empty() || b.starts_with('-')) {
            return complain("`build` is a revision or the path of a binary");
        }
        if let Some(share) = arm.slowdown_ratio {
            if !(share > 0.0 && share < 1.0) {
                return complain(SLOWDOWN);
            }
            if name == BASELINE {
                return complain("a slower baseline would flatter the others");
            }
        }
        if arm.build.is_some() && !file.spec.differs_in.contains(&Block::Build) {
            return Err(file
                .at(place, format!("arm `{name}` is another build, `differs_in` lacks `build`"))
                .help(Some("add `build` to `differs_in`".into())));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let word =
        |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    name.len() <= 64 && name.split('-').all(word) && !is_device(name)
}

/// Names that one operating system keeps for devices, in any folder.
fn is_device(name: &str) -> bool {
    let numbered = |stem: &str| name.strip_prefix(stem).is_some_and(|n| n.len() == 1 && n != "0");
    ["con", "prn", "aux", "nul"].contains(&name) || numbered("com") || numbered("lpt")
}

fn measure(file: &ScenarioFile) -> Result<(), Diagnostic> {
    let spec = &file.spec;
    let workload = &spec.workload;
    if workload.value.prompt_tokens == 0 || workload.value.decode_tokens == 0 {
        return Err(file.at(workload, "a sample needs at least one prompt and one decode token"));
    }
    if points(spec).iter().any(|p| !(1..=64).contains(&p.sequences)) {
        return Err(file.at(workload, "1 to 64 sequences decode side by side"));
    }
    let of_prefill = [Metric::PrefillTokensPerSecond, Metric::TimeToFirstTokenMs];
    if workload.value.prefill == PrefillUse::Once
        && let Some(metric) = spec.measure.metrics.iter().find(|m| of_prefill.contains(m))
    {
        let message = format!("`{metric}` is not measured where the prompt runs once");
        return Err(file.at(workload, message).help(Some("leave out `prefill: once`".into())));
    }
    if spec.measure.turn == Turn::Step {
        let few = points(spec).iter().any(|p| p.decode_tokens < 2);
        if workload.value.prefill != PrefillUse::Once || few {
            let message = "`turn: step` divides a decode of at least two tokens behind a prompt that runs once";
            return Err(file
                .at(workload, message)
                .help(Some("add `prefill: once` to the workload, or leave out `turn`".into())));
        }
    }
    // Where the prompt of other arms runs once, a peer runs it in every sample: decode alone is compared.
    let peers = spec.arms.value.values().any(|arm| arm.kind() == ArmKind::Peer);
    if peers && points(spec).iter().any(|p| p.sequences > 1) {
        return Err(file.at(workload, "live peers run one sequence a sample"));
    }
    if peers && spec.measure.turn == Turn::Step {
        return Err(file.at(workload, "live peers run whole samples: `turn: step` divides them"));
    }
    if let Some(sweep) = &spec.sweep {
        let sweep_of = &sweep.value;
        let axes = [&sweep_of.prompt_tokens, &sweep_of.decode_tokens, &sweep_of.sequences];
        if axes.iter().all(|a| a.is_empty()) {
            return Err(file.at(sweep, "the sweep is empty"));
        }
        let distinct = |a: &Vec<u32>| a.iter().collect::<BTreeSet<_>>().len() == a.len();
        if axes.iter().any(|a| a.contains(&0) || !distinct(a)) {
            return Err(file.at(sweep, "a sweep lists distinct numbers of at least 1"));
        }
    }
    if spec.measure.warmup.value == 0 {
        return Err(file
            .at(&spec.measure.warmup, "a process needs at least one untimed run")
            .help(Some("tokens of timed runs are compared with it".into())));
    }
    looks(&spec.measure.quads.value, spec.measure.launches.value)
        .map_err(|message| file.at(&spec.measure.quads, message))
}

fn quality(file: &ScenarioFile) -> Result<(), Diagnostic> {
    let Some(place) = &file.spec.quality else { return Ok(()) };
    let spec = &place.value;
    if spec.budgets.is_empty() {
        return Err(file.at(place, "quality without a budget decides nothing"));
    }
    if spec.window_tokens < 2 || spec.corpus_tokens < 2 {
        return Err(file.at(place, "a window, and the text, need at least two tokens"));
    }
    let candidates: Vec<&str> =
        file.arms().keys().map(String::as_str).filter(|name| *name != BASELINE).collect();
    match spec.budgets.iter().find_map(|budget| budget.problem(&candidates)) {
        Some(problem) => Err(file.at(place, problem)),
        None => Ok(()),
    }
}

/// Checks looks and launches.
fn looks(quads: &[usize], launches: usize) -> Result<(), String> {
    if quads.windows(2).any(|w| w[1] <= w[0]) {
        return Err("looks must rise, as in `[20, 40, 80]`".into());
    }
    let Some(&first) = quads.first() else { return Err("there is no look".into()) };
    if launches == 0 || !first.is_multiple_of(launches) {
        return Err(format!(
            "the {first} quads of the first look cannot be spread evenly over {launches} launches"
        ));
    }
    if first > 10_000 || quads.last().is_some_and(|l| *l > 10_000) {
        return Err("a look takes at most 10000 quads".into());
    }
    let alpha = ALPHA_PER_SIDE / quads.len() as f64;
    let bounded = |n: &usize| signed_rank_bounds(&vec![0.0; *n], alpha).0.is_finite();
    if !bounded(&first) {
        let least = (1..100).find(bounded).unwrap_or(100);
        return Err(format!(
            "{first} quads cannot bound a ratio at this confidence; the first look needs at least {least}"
        ));
    }
    Ok(())
}

fn rules(file: &ScenarioFile) -> Result<(), Diagnostic> {
    let spec = &file.spec;
    let place = &spec.admit_when;
    if place.value.all.is_empty() {
        return Err(file.at(place, "without a rule nothing can be decided"));
    }
    for rule in &place.value.all {
        let thresholds = [rule.lower_bound_at_least, rule.upper_bound_at_most];
        if thresholds.iter().all(Option::is_none) {
            let message = format!("the rule about `{}` has no threshold", rule.ratio);
            return Err(file
                .at(place, message)
                .expected("`lower_bound_at_least`, `upper_bound_at_most` or both"));
        }
        if let Some(bad) = thresholds.iter().flatten().find(|t| !t.is_finite() || **t <= 0.0) {
            return Err(file.at(place, format!("a ratio is positive and finite, not {bad}")));
        }
        if !spec.measure.metrics.contains(&rule.ratio) {
            let message = format!("`{}` decides but is not measured", rule.ratio);
            return Err(file.at(place, message).help(Some("add it to `measure: metrics`".into())));
        }
        if let Some(arm) = &rule.arm {
            let candidates = || {
                let of_engine = |a: &&Arm| a.kind() == ArmKind::Engine;
                let arms = spec.arms.value.iter().filter(move |(_, a)| of_engine(a));
                arms.map(|(n, _)| n.as_str()).filter(|n| *n != BASELINE)
            };
            if !candidates().any(|c| c == arm) {
                let message = format!("a rule names `{arm}`, which is no candidate");
                return Err(file.at(place, message).help(did_you_mean(arm, candidates())));
            }
        }
        if rule.at.is_some_and(|at| !points(spec).iter().any(|p| at.includes(*p))) {
            let message = format!("no point of the sweep is meant by the rule `{rule}`");
            return Err(file.at(place, message));
        }
    }
    Ok(())
}

fn error_rates(file: &ScenarioFile) -> Result<(), Diagnostic> {
    let Some(place) = &file.spec.error_rates else { return Ok(()) };
    let rates = &place.value;
    if rates.pseudo_runs < 1000 {
        return Err(file.at(place, "error rates need at least 1000 pseudo-runs"));
    }
    if rates.real_runs < 30 || rates.real_runs > 999 {
        return Err(file.at(place, "error rates need 30 to 999 real runs"));
    }
    let least = MIN_SERIES_QUADS.max(rates.quads.last().copied().unwrap_or(0));
    if rates.series_quads < least || rates.series_quads > 10_000 {
        return Err(file.at(place, format!("the series needs {least} to 10000 quads")));
    }
    if !(1..=rates.real_runs).contains(&rates.series_parts)
        || !(rates.series_quads as u64).is_multiple_of(rates.series_parts)
    {
        return Err(file.at(
            place,
            "the series has at most as many parts as there are real runs, each of as many quads",
        ));
    }
    let share = |v: f64| v > 0.0 && v < 1.0;
    if !share(rates.at_most) || !share(rates.missed_at_most) {
        return Err(file.at(place, "`at_most` and `missed_at_most` are shares between 0 and 1"));
    }
    let arms = file.arms();
    let plain = |arm: &Arm| arm.kind() == ArmKind::Engine && arm.build.is_none();
    let same = |a: &Arm, b: &Arm| {
        (a.policy, a.threads, &a.fusions, &a.roles) == (b.policy, b.threads, &b.fusions, &b.roles)
            && a.apart == b.apart
    };
    let mut values = arms.values();
    let first = values.next().filter(|a| plain(a));
    if arms.len() != 2 || !first.zip(values.next()).is_some_and(|(a, b)| plain(b) && same(a, b)) {
        return Err(file
            .at(place, "error rates are established with two arms that are the same")
            .help(Some("give `baseline` and one candidate the same keys".into())));
    }
    if !(rates.slowdown_ratio > 0.0 && rates.slowdown_ratio < 1.0) {
        return Err(file.at(place, SLOWDOWN));
    }
    looks(&rates.quads, rates.launches).map_err(|message| file.at(place, message))
}
