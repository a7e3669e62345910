//! Processor, memory, operating system.

use super::{Finding, State};
use crate::units::{Cpu, Machine, Memory, UNAVAILABLE};

/// Findings about the host.
pub(super) fn findings(machine: &Machine, kernels: &str) -> Vec<Finding> {
    vec![
        processor(&machine.cpu),
        cores(&machine.cpu),
        instructions(&machine.cpu, kernels),
        clock(&machine.cpu),
        memory(&machine.memory),
        system(machine),
    ]
}

fn processor(cpu: &Cpu) -> Finding {
    match &cpu.model {
        Some(model) => Finding::ok("processor", format!("{model}, {}", cpu.architecture)),
        None => Finding::new("processor", State::Unavailable, format!("its model; architecture {}", cpu.architecture))
            .costs("strict comparisons of captures from this machine are refused: a fact they compare is not established")
            .remedy("compare with --across machines, which shows this half of provenance instead"),
    }
}

fn cores(cpu: &Cpu) -> Finding {
    let counted = |n: Option<usize>, what: &str| {
        n.map_or(format!("{what}s: {UNAVAILABLE}"), |n| plural(n, what))
    };
    let found = format!(
        "{}, {}, {} usable here",
        counted(cpu.physical_cores, "core"),
        counted(cpu.logical_processors, "logical processor"),
        cpu.usable_processors
    );
    match cpu.logical_processors {
        Some(all) if cpu.usable_processors < all => Finding::new("cores", State::Limited, found)
            .costs("work runs on the processors that affinity and quota leave to this process")
            .remedy("widen the container's CPU quota or the affinity mask (taskset) for speed"),
        _ if cpu.usable_processors == 1 => Finding::new("cores", State::Limited, found)
            .costs("nothing runs in parallel; timed runs share the one processor with the system"),
        _ => Finding::ok("cores", found),
    }
}

fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn instructions(cpu: &Cpu, kernels: &str) -> Finding {
    let sets = match cpu.instruction_sets.is_empty() {
        true => "none that kernels use".to_owned(),
        false => cpu.instruction_sets.join(" "),
    };
    let found = format!("{sets}; kernels use {kernels}");
    match kernels {
        "portable" => Finding::new("instructions", State::Limited, found)
            .costs("kernels process 4 lanes at a time instead of 8 or 16; the bits are the same"),
        _ => Finding::ok("instructions", found),
    }
}

fn clock(cpu: &Cpu) -> Finding {
    let now = cpu.clock_mhz.map_or(format!("now {UNAVAILABLE}"), |c| format!("now {c:.0} MHz"));
    match &cpu.governor {
        Some(governor) if governor == "performance" => {
            Finding::ok("clock", format!("{now}, governor {governor}"))
        }
        Some(governor) => Finding::new("clock", State::Limited, format!("{now}, governor {governor}"))
            .costs("the clock follows the load, so that the first samples of a timed run are slower")
            .remedy("cpupower frequency-set --governor performance, for timed runs"),
        None => Finding::new("clock", State::Unavailable, format!("{now}; its governor"))
            .costs("a throttled clock cannot be told from slow code by its setting; timed runs rely on their own bandwidth readings"),
    }
}

fn memory(memory: &Memory) -> Finding {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64);
    let Some(usable) = memory.usable_bytes() else {
        return Finding::new("memory", State::Unavailable, "its size")
            .costs("whether a model fits is known only when it is loaded");
    };
    let available = memory.available_bytes.map_or(UNAVAILABLE.to_owned(), gib);
    // Two bytes a parameter; a tenth is left for caches, activations and the system.
    let largest = usable as f64 * 0.9 / 2.0 / 1e9;
    let fits = format!("weights of about {largest:.1} billion parameters fit in BF16");
    match (memory.limit_bytes, memory.total_bytes) {
        (Some(limit), total) => {
            let total = total.map_or(UNAVAILABLE.to_owned(), gib);
            let found = format!(
                "{} of {total} allowed by the container, {available} free; {fits}",
                gib(limit)
            );
            Finding::new("memory", State::Limited, found)
                .costs("a larger model ends this process instead of failing to load")
                .remedy("raise the container's memory limit")
        }
        (None, _) => Finding::ok("memory", format!("{}, {available} free; {fits}", gib(usable))),
    }
}

fn system(machine: &Machine) -> Finding {
    let system = &machine.system;
    let name = system.name.as_deref().unwrap_or(system.family);
    let kernel = system.kernel.as_deref().unwrap_or(UNAVAILABLE);
    Finding::ok("system", format!("{name}, {} kernel {kernel}", system.family))
}
