"""Why is that not in the chosen program? Kernels, stored tensors, terms and rules (issue: the
inspector). `asking` tells what a question may be, `answers` which reasons there are."""

from .answering import why_not
from .answers import CODES, Answer, Reason

__all__ = ["CODES", "Answer", "Reason", "why_not"]
