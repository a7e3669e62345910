//! Generates the wrappers of Hopper's warpgroup matrix instruction.
//!
//! An accumulator of a 64×N tile is N / 2 registers a thread, all of them operands of one
//! instruction: lists too long to write and check by hand.

use std::fmt::Write as _;

/// The N tiles that kernels use.
const N_TILES: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// CUDA C++ text: `Wgmma<N>::run(d, a, b, accumulate)` with A in shared memory (a descriptor) or
/// in registers, B in shared memory, both K-major BF16, d FP32; `run_transposed` with A in
/// registers takes a B whose rows are K.
pub(super) fn wrappers() -> String {
    let mut text = String::from("#if HAS_WGMMA\ntemplate <int N> struct Wgmma;\n");
    for n in N_TILES {
        let registers = n / 2;
        let _ = writeln!(text, "template <> struct Wgmma<{n}> {{");
        for (a_in_registers, b_transposed) in [(false, false), (true, false), (true, true)] {
            wrapper(&mut text, n, registers, a_in_registers, b_transposed);
        }
        text.push_str("};\n");
    }
    text.push_str("#endif\n");
    text
}

fn wrapper(
    text: &mut String,
    n: usize,
    registers: usize,
    a_in_registers: bool,
    b_transposed: bool,
) {
    let list = |from: usize, count: usize| -> String {
        (from..from + count).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ")
    };
    let outputs: Vec<String> = (0..registers).map(|i| format!("\"+f\"(d[{i}])")).collect();
    let name = if b_transposed { "run_transposed" } else { "run" };
    let (parameter, a_operand, a_inputs, a_count, transposes) = if a_in_registers {
        let inputs = (0..4).map(|i| format!("\"r\"(a[{i}])")).collect::<Vec<_>>().join(", ");
        let transposes = if b_transposed { "1" } else { "0" };
        ("const u32 (&a)[4]", format!("{{{}}}", list(registers, 4)), inputs, 4, transposes)
    } else {
        ("u64 a", list(registers, 1), "\"l\"(a)".to_owned(), 1, "0, 0")
    };
    let b = registers + a_count;
    let _ = writeln!(
        text,
        "    static DEVICE void {name}(float (&d)[{registers}], {parameter}, u64 b, u32 accumulate) {{\n\
         \x20       asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{}, 0;\\n\"\n\
         \x20           \"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{}}}, {a_operand}, \
         %{b}, p, 1, 1, {transposes};\\n}}\\n\"\n\
         \x20           : {} : {a_inputs}, \"l\"(b), \"r\"(accumulate));\n    }}",
        b + 1,
        list(0, registers),
        outputs.join(", "),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_numbered_without_gaps() {
        let text = wrappers();
        assert_eq!(text.matches("static DEVICE void run").count(), 3 * N_TILES.len());
        // m64n8: four accumulators %0…%3, descriptors %4 and %5, the predicate's source %6.
        assert!(text.contains("{%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;"), "{text}");
        assert!(text.contains("{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 0;"));
        assert!(text.contains("{%4, %5, %6, %7}, %8, p, 1, 1, 1;"));
    }
}
