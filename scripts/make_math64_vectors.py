"""Writes src/tensor/math64_vectors.txt: FP64 exp and ln, correctly rounded by mpmath.

Needs mpmath (pip install mpmath). Deterministic: the same file every time.
"""

import random
import struct
from pathlib import Path

from mpmath import exp, log, mp, mpf, nstr

mp.dps = 60


def bits(x: float) -> str:
    return f"{struct.unpack('<Q', struct.pack('<d', x))[0]:016x}"


def nearest(value) -> float:
    """The FP64 nearest to an mpmath number, subnormals included.

    mpmath's own conversion rounds to 53 bits first; a decimal string of 50 digits is converted
    with one rounding by Python.
    """
    return float(nstr(value, 50, strip_zeros=False))


def main() -> None:
    rng = random.Random(20240607)
    lines = ["# Written by scripts/make_math64_vectors.py; do not edit."]
    arguments = [-0.0, -5e-324, -1e-300, -1e-17, -1e-9, -0.5, -1.0, -2.0, -10.0, -100.0, -700.0,
                 -708.3, -708.5, -740.0, -744.0, 1.0, 0.5, 88.0, 700.0]
    # Just beside the reduction's switch points, where |r| is largest.
    half_steps = [-(k + 0.5) * 0.6931471805599453 for k in range(0, 40, 3)]
    arguments += half_steps + [x * (1 + 2**-50) for x in half_steps]
    arguments += [-rng.uniform(0, 1) for _ in range(60)]
    arguments += [-rng.uniform(0, 40) for _ in range(60)]
    arguments += [-rng.uniform(40, 745) for _ in range(40)]
    arguments += [-(10 ** rng.uniform(-12, 2)) for _ in range(40)]
    lines += [f"exp {bits(x)} {bits(nearest(exp(mpf(x))))}" for x in arguments]

    arguments = [5e-324, 1e-310, 2.2250738585072014e-308, 1e-300, 0.5, 0.7071067811865475,
                 0.7071067811865476, 1.4142135623730951, 1.414213562373095, 0.9999999999999999,
                 1.0000000000000002, 2.0, 2.718281828459045, 10.0, 151936.0, 1e300,
                 1.7976931348623157e308]
    arguments += [rng.uniform(1, 2) for _ in range(60)]
    arguments += [rng.uniform(0.5, 1) for _ in range(40)]
    arguments += [1 + 10 ** rng.uniform(-15, -1) for _ in range(40)]
    arguments += [10 ** rng.uniform(0, 6) for _ in range(60)]
    arguments += [10 ** rng.uniform(-300, 300) for _ in range(40)]
    lines += [f"ln {bits(x)} {bits(nearest(log(mpf(x))))}" for x in arguments]

    target = Path(__file__).resolve().parent.parent / "src/tensor/math64_vectors.txt"
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
