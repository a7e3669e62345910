//! `assay gates mutate`: can the gates fail?

use super::table::{Table, count, cut};
use super::{Console, Failure};
use crate::cli::{OrExit, Tone};
use crate::harness::mutate::{
    Baseline, MutateError, Mutation, SURVEY_VERSION, Subject, Survey, SurveyKind, SurveyRecord,
    baseline, build, store, survey as one_defect,
};
use crate::harness::records::MachineRecord;
use crate::harness::report::write_report;
use crate::harness::{glob_matches, project_root};
use crate::units::{Exit, MUTANTS, Mutant, utc_now};
use std::path::{Path, PathBuf};

/// Which defects to plant
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay gates mutate                every switch against its region
  assay gates mutate rope_base      one switch
  assay gates mutate --list         the switches and what each breaks
  assay gates mutate --all-gates    every gate against every switch

Builds the feature `mutants` once (cargo is needed), checks that the gates pass with every switch \
off, then runs the gates with one switch on at a time until a trial fails: those tagged with the \
switch's region first, then all. The survey is recorded in results/RUN-ID-mutants with a page that \
`assay report render` can commit. Exit code 1 if a defect survives.")]
pub(super) struct Args {
    /// Names or globs of switches
    #[arg(value_name = "SWITCH")]
    switches: Vec<String>,
    /// List the switches and stop
    #[arg(long)]
    list: bool,
    /// Run every gate instead of those about the switch's region first
    #[arg(long)]
    all_gates: bool,
    /// Use this binary, built with the feature `mutants`, instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where the folder with the record and its page is made
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

/// Runs the survey.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let selected = |mutant: &&Mutant| {
        args.switches.is_empty() || args.switches.iter().any(|s| glob_matches(s, mutant.name))
    };
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(selected).collect();
    if let Some(word) =
        args.switches.iter().find(|s| !MUTANTS.iter().any(|m| glob_matches(s, m.name)))
    {
        let near = crate::units::nearest(word, MUTANTS.iter().map(|m| m.name));
        let hint = match near {
            Some(near) => format!("; did you mean `{near}`?"),
            None => "; `assay gates mutate --list` names them all".to_owned(),
        };
        return Err(Failure::usage(format!("no switch is called `{word}`{hint}")));
    }
    if args.list {
        return list(&mutants, console);
    }
    let root = project_root(&std::env::current_dir()?).ok_or_else(|| {
        Failure::usage("there is no `gates` folder here or above; run inside the project")
    })?;
    let program = match &args.binary {
        Some(program) => program.clone(),
        None => {
            console.note("building with planted defects (feature `mutants`) …");
            build(&root).or_exit(Exit::Io)?
        }
    };
    let subject = Subject { root, program, all_gates: args.all_gates };
    console.note("checking that the gates pass with every switch off …");
    let started = utc_now();
    let baseline = baseline(&subject).map_err(|error| {
        let wrong_binary = matches!(error, MutateError::NoSwitches(_));
        Failure::new(if wrong_binary { Exit::Usage } else { Exit::Fail }, error)
    })?;
    let mut survey = Survey { run: record(started, baseline), mutations: Vec::new() };
    for (i, mutant) in mutants.iter().enumerate() {
        let mutation = one_defect(&subject, mutant).or_exit(Exit::Internal)?;
        let killed_by = mutation.killed_by.as_ref().map_or("survived", |k| k.trial.as_str());
        let line = format!("[{}/{}] {}: {killed_by}", i + 1, mutants.len(), mutant.name);
        console.note(&cut(&line, console.width()));
        survey.mutations.push(mutation);
        store(&survey, &args.out).or_exit(Exit::Io)?;
    }
    survey.run.finished = Some(utc_now());
    let folder = store(&survey, &args.out).or_exit(Exit::Io)?;
    let page = write_report(&folder).or_exit(Exit::Io)?;
    print(&survey, &page, console)?;
    let survived = survey.survivors().count();
    Ok(if survived == 0 { Exit::Success } else { Exit::Fail })
}

fn record(started: String, baseline: Baseline) -> SurveyRecord {
    let stamp = started.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    SurveyRecord {
        schema_version: SURVEY_VERSION,
        kind: SurveyKind::MutationSurvey,
        run_id: format!("{}-mutants", stamp.to_ascii_lowercase()),
        command: crate::cli::command_line(),
        started,
        finished: None,
        build: baseline.build,
        machine: MachineRecord::current(),
        gates: baseline.gates,
        baseline_trials: baseline.trials,
        baseline_ms: baseline.duration_ms,
        switches: MUTANTS.len() as u64,
    }
}

fn list(mutants: &[&Mutant], console: &Console) -> Result<Exit, Failure> {
    if console.json() {
        let rows: Vec<_> = mutants
            .iter()
            .map(
                |m| serde_json::json!({ "switch": m.name, "region": m.region, "defect": m.defect }),
            )
            .collect();
        console.product_json(&rows)?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&["switch", "region", "defect"], &[]);
    for mutant in mutants {
        table.row(vec![mutant.name.into(), mutant.region.into(), mutant.defect.into()]);
    }
    let mut lines = table.lines(console.width());
    lines[0] = console.paint(&lines[0], Tone::Strong);
    console.product(&(lines.join("\n") + "\n"))?;
    Ok(Exit::Success)
}

fn print(survey: &Survey, page: &Path, console: &Console) -> Result<(), Failure> {
    let (killed, of) = (survey.killed(), survey.mutations.len() as u64);
    if console.json() {
        let survivors: Vec<_> = survey.survivors().collect();
        console.product_json(&serde_json::json!({
            "killed": killed, "of": of, "by_region": survey.by_region(),
            "mutants": survey.mutations, "survivors": survivors, "report": page,
        }))?;
        return Ok(());
    }
    let mut table = Table::new(&["switch", "region", "trials", "killed by"], &[2]);
    for row in &survey.mutations {
        table.row(vec![
            row.switch.clone(),
            row.region.clone(),
            row.trials.to_string(),
            row.killed_by.as_ref().map_or_else(|| "SURVIVED".into(), |k| k.trial.clone()),
        ]);
    }
    let mut text = table.lines(console.width()).join("\n");
    text.push_str(&format!("\n\n{killed} of {} killed", count(of, "defect")));
    for mutant in survey.survivors() {
        let Mutation { region, switch, defect, .. } = mutant;
        text.push_str(&format!("\nsurvivor in {region}: {switch} ({defect})"));
    }
    text.push_str(&format!("\nreport: {}\n", page.display()));
    console.product(&text)?;
    Ok(())
}
