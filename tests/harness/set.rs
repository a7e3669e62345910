//! `--set`: which gates a value reaches, and who is blamed for it.

use crate::support::{Project, trials};

/// `--set` keeps all 64 bits of a seed, and takes nothing else for one.
#[test]
fn seeds_of_the_command_line_are_exact() {
    let project = Project::new(&[]);
    let llama = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/llama");
    let gate = format!(
        "gate: soak\nclaim: Memory comes back.\ntrack: resource\nkind: soak\npolicy: [reference]\n\
         model: {}\nduration_ms: 1\nshort_duration_ms: 1\nseed: 1\n\
         resident_growth_at_most_bytes: 1000000000\nlatency_ratio_at_most: 1000\n",
        llama.display()
    );
    std::fs::write(project.path().join("gates/soak.yaml"), gate).unwrap();
    for seed in ["9007199254740993", "18446744073709551615"] {
        let set = format!("seed={seed}");
        let (code, stdout, stderr) =
            project.run(&["gates", "run", "soak/cpu/*", "-q", "--out", seed, "--set", &set]);
        assert_eq!(code, 0, "{stdout}{stderr}");
        let run = std::fs::read_dir(project.path().join(seed)).unwrap().next().unwrap();
        let run = run.unwrap().path();
        for file in ["trials.jsonl", "run.json"] {
            let text = std::fs::read_to_string(run.join(file)).unwrap();
            assert!(text.contains(seed), "{file}: {text}");
        }
        assert_eq!(trials(&run)[0]["evidence"]["seed"].as_u64(), seed.parse().ok());
    }
    for wrong in ["18446744073709551616", "9007199254740993.0", "-1", "1e3", "010", "one"] {
        let set = format!("seed={wrong}");
        let (code, _, stderr) = project.run(&["gates", "run", "soak", "--set", &set]);
        assert_eq!(code, 64, "{wrong}: {stderr}");
        assert!(stderr.contains("--set") && stderr.contains("seed"), "{wrong}: {stderr}");
    }
}

/// A number is one although a file of that name lies in the folder; a key that another gate takes says
/// which.
#[test]
fn values_of_set_are_what_they_look_like() {
    let keys = "behaviour: [pass]\nrequires: { set: [repeat] }";
    let project = Project::new(&[("needs", keys), ("plain", "behaviour: [pass]")]);
    std::fs::write(project.path().join("3"), "a file").unwrap();
    let (code, stdout, stderr) = project.run(&["gates", "run", "needs", "-q", "--set", "repeat=3"]);
    assert!(code == 0 && stdout.contains("3 passed"), "{stdout}{stderr}");
    let (code, _, stderr) = project.run(&["gates", "run", "plain", "--set", "repeet=3"]);
    assert!(code == 64 && stderr.contains("did you mean `repeat`?"), "{stderr}");
    let other = "gate: other\nclaim: A model agrees.\ntrack: reference\nkind: model_reference\n\
                 requires: { set: [model, reference] }\npolicy: [f32]\n\
                 f32: { logits_max_abs: 5e-4, activations_max_relative: 1e-4 }\nbf16_noise: measured\n";
    std::fs::write(project.path().join("gates/other.yaml"), other).unwrap();
    let (code, _, stderr) = project.run(&["gates", "run", "plain", "--set", "model=x"]);
    let told =
        "no gate selected has the key `model` of `--set`; `other` would take it: select that";
    assert!(code == 64 && stderr.contains(told), "{stderr}");
}

/// A gate of placements whose model is given as `model` says.
fn placement(project: &Project, name: &str, model: &str, keys: &str) {
    let text = format!(
        "gate: {name}\nclaim: Ranks have the bits of one device.\ntrack: contract\n\
         kind: placement_equivalence\nrequires: {{ device: cpu }}\npolicy: [f32]\n{model}\
         placements: [{{ pp: 2 }}]\nchecks: [identity]\nprompt_tokens: 3\n{keys}"
    );
    std::fs::write(project.path().join(format!("gates/{name}.yaml")), text).unwrap();
}

fn fixture(name: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures").join(name).display().to_string()
}

/// A value reaches the gates that are selected, whatever others would do with it.
#[test]
fn values_reach_only_the_gates_selected() {
    let project = Project::new(&[("plain", "behaviour: [pass]")]);
    let (llama, qwen3) = (fixture("llama"), fixture("qwen3"));
    placement(&project, "ranks", &format!("model: {{ dir: {llama} }}\n"), "");
    // Another kind of gate that could not use the value, and asks for one of its name.
    let other = "gate: other\nclaim: A model agrees.\ntrack: reference\nkind: model_reference\n\
                 requires: { set: [model] }\npolicy: [f32]\nreference: nowhere.json\n\
                 f32: { logits_max_abs: 5e-4, activations_max_relative: 1e-4 }\nbf16_noise: measured\n";
    std::fs::write(project.path().join("gates/other.yaml"), other).unwrap();
    let run = |model: &str| {
        let set = format!("model={model}");
        project.run(&["gates", "run", "ranks", "-q", "--set", &set])
    };
    for model in [format!("{{ dir: {qwen3} }}"), qwen3.clone()] {
        let (code, stdout, stderr) = run(&model);
        assert!(code == 0 && stdout.contains("1 passed"), "{model}: {stdout}{stderr}");
    }
    let (code, _, stderr) = project.run(&["gates", "run", "ranks", "--set", "policy=fast"]);
    let told = "--set policy: a key of every gate, which `--set` leaves as it is; it gives `checks`, \
                `expect`, `model`, `placements`, `prompt_tokens`; policies and devices are chosen by \
                the names of trials";
    assert!(code == 64 && stderr.contains(told), "{stderr}");
}

/// What a value of `--set` breaks is said of the value, not of a line of the file.
#[test]
fn a_value_is_blamed_by_its_key() {
    let project = Project::new(&[]);
    placement(&project, "ranks", &format!("model: {{ dir: {} }}\n", fixture("llama")), "");
    for (set, why) in [
        ("placements=[{ tp: 3 }]", "`tp3`: `vocab` = "),
        ("placements=[{ tp: 0 }]", "`tp0`: a placement needs at least one device"),
        ("placements=[{ pp: 2 }, { pp: 2 }]", "`pp2` stands twice"),
        ("prompt_tokens=2", "expected at least 3"),
        ("model={ dri: x }", "unknown variant `dri`"),
    ] {
        let (code, _, stderr) = project.run(&["gates", "lint", "ranks", "--set", set]);
        let told = format!("gates/ranks.yaml: --set {}", set.split('=').next().unwrap());
        assert!(code == 64 && stderr.contains(&told) && stderr.contains(why), "{set}: {stderr}");
    }
    // The file's own mistake is the file's, whatever is given.
    let llama = format!("model: {{ dir: {} }}\n", fixture("llama"));
    placement(&project, "wrong", &llama, "exclude: [{ placement: tp9 }]\n");
    let (code, _, stderr) = project.run(&["gates", "lint", "wrong", "--set", "prompt_tokens=4"]);
    assert!(code == 64 && stderr.contains("wrong.yaml:11:"), "{stderr}");
    // A file that is complete only with a value: what is wrong with it is the value.
    placement(&project, "open", "", "");
    std::fs::remove_file(project.path().join("gates/wrong.yaml")).unwrap();
    let (code, _, stderr) = project.run(&["gates", "lint", "open", "--set", "model=[1]"]);
    assert!(code == 64 && stderr.contains("open.yaml: --set model=[1]: "), "{stderr}");
}
