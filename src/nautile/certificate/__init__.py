"""Certificates: is the chosen program the program that was asked for?

`certify` compares a plan with its source at the real shapes, at sampled places, on inputs that
exist only where they are looked at:

- **structure**: the plan stores every output in its declared type, and reads nothing too early;
- **meaning**: each kernel's terms against the source's in float64, on ordinary and adversarial
  inputs;
- **tile programs**: sampled blocks through the interpreter, accuracy judged against the source's
  own naive evaluation, every element of a block's share written;
- **operand rounding**: which float32 operands the tensor cores round, and whether that is allowed.

`expected` gives the same for a machine with a GPU: sampled positions, float64 values and the naive
evaluation's, from the program's inputs on (judge.py and samples.py are all it needs there).
"""

from nautile.certificate.certify import certify, expected
from nautile.certificate.model import Certificate, Check

__all__ = ["Certificate", "Check", "certify", "expected"]
