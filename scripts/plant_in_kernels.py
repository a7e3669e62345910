"""Plants two defects in the kernel sources that an assay binary carries, to show that scripts/sanitize.sh sees them.

    python3 scripts/plant_in_kernels.py target/release/assay /tmp/planted
    ASSAY_KERNEL_CACHE=/tmp/planted-kernels ASSAY=/tmp/planted scripts/sanitize.sh memcheck OUT 'residual-add-reference/cuda/*'
    ASSAY_KERNEL_CACHE=/tmp/planted-kernels ASSAY=/tmp/planted scripts/sanitize.sh racecheck OUT 'rms-norm-reference/cuda/*'

`residual_add` writes rows far outside its buffer; the block sum of `rms_norm` does not wait for its warps. Sources
are compiled at run time, so text of the same length is all that has to change; the cache is another because images
are found by the digest of the sources as built.
"""

import sys


def replace(binary, anchor, old, new):
    assert len(old) == len(new)
    at = binary.index(old, binary.index(anchor))
    assert at - binary.index(anchor) < 900, "the kernel has changed: mend the anchor"
    return binary[:at] + new + binary[at + len(old):]


source, target = sys.argv[1:]
with open(source, "rb") as file:
    binary = file.read()
binary = replace(binary, b"__launch_bounds__(128) residual_add_##NAME", b"(u64)row * ld;       ", b"(u64)row * 99999999; ")
binary = replace(binary, b"DEVICE float block_sum(float x) {\n    __shared__ float part[8];", b"__syncthreads();", b" " * 16)
with open(target, "wb") as file:
    file.write(binary)
