"""Every reason of `why_not`, each by a real program, and checked another way where it can be."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from nautile.errors import InputError, LimitError, NautileError
from nautile.extract.pool import Pool
from nautile.extract.selection import in_order
from nautile.inspector.why_not import CODES, Answer
from nautile.inspector.why_not.forcing import cheapest
from nautile.inspector.why_not.inquiry import Inquiry

from .questions import (
    ATTENTION,
    CHAIN,
    DECAYED,
    GATED,
    LINEAR,
    NORMED,
    POINTWISE,
    RATIOS,
    TWICE,
    WEIGHTS,
    ask,
    result,
    worker,
)

STABLE = "sum[s](exp(m[h,t,s] - max[s](m[h,t,s])))"


def code(answer: Answer) -> str:
    """The reason's code, of an answer that is whole: JSON, and text with the sentence in it."""
    plain = json.loads(json.dumps(answer.as_dict()))
    assert plain["reason"]["code"] in CODES
    assert answer.reason.text in answer.as_text()
    assert (plain["forced"] is None) == (answer.forced is None)
    return answer.reason.code


def brute(pool: Pool, wanted: int, most: int = 4) -> float:
    """The least cost of a set of columns in which `wanted` runs and makes something that the roots
    need, by trying all sets."""
    best = float("inf")
    numbers = range(len(pool.columns))
    for size in range(1, most + 1):
        for chosen in itertools.combinations(numbers, size):
            if wanted not in chosen or in_order(pool.columns, chosen) is None:
                continue
            made = frozenset().union(*(pool.columns[k].makes for k in chosen))
            rest = [k for k in chosen if k != wanted]
            without = frozenset().union(*(pool.columns[k].makes for k in rest))
            needed = set(pool.roots).union(*(pool.columns[k].needs for k in chosen))
            if needed <= made and not needed <= without:
                best = min(best, sum(pool.columns[k].cost for k in chosen))
    return best


# ---- what is chosen, and what is dearer ----------------------------------------------------------


def test_the_candidate_that_runs_and_what_it_computes_are_chosen() -> None:
    choice = result(ATTENTION).plan.choice
    assert code(ask(ATTENTION, str(choice.taken.columns[0]))) == "chosen"
    assert code(ask(ATTENTION, "x[h,t,s]")) == "chosen"
    assert code(ask(ATTENTION, "kernel O")) == "chosen"
    assert code(ask(ATTENTION, "one kernel for O")) == "chosen"
    assert code(ask(ATTENTION, "O")) == "chosen"
    running = "exp(m[h,t,s] - running[s](max[s](m[h,t,s])))"
    assert code(ask(ATTENTION, running)) == "chosen"


def test_a_candidate_forces_the_cheapest_program_with_it() -> None:
    plan = result(ATTENTION).plan
    pool = plan.choice.pool
    others = [k for k in range(len(pool.columns)) if k not in plan.choice.taken.columns]
    assert others
    for k in others[:3]:
        answer = ask(ATTENTION, f"candidate {k}")
        assert code(answer) in ("dearer", "tied")
        assert answer.forced.seconds == pytest.approx(brute(pool, k), rel=0.02)
        assert answer.forced.forced == k
        assert answer.forced.slower_by == pytest.approx(answer.forced.seconds / plan.seconds - 1)


def test_what_is_forced_is_of_use() -> None:
    """Every fourth candidate of a pool: a kernel whose result nobody reads would be cheaper."""
    found = result(GATED)
    pool = found.plan.choice.pool
    for k in range(0, len(pool.columns), 4):
        forced = cheapest(Inquiry(found, worker()), pool, [[k]])
        assert forced.seconds == pytest.approx(brute(pool, k, 3), rel=0.02), k


def test_a_value_that_is_forced_is_read() -> None:
    """Made and left alone it would cost a launch; read, it costs twenty times the program."""
    long = LINEAR.replace("H=4, T=2048, S=2048", "H=32, T=8192, S=8192")
    answer = ask(long, "x[h,t,s]")
    assert answer.forced.slower_by > 3
    assert "sum[s](x[h, t, s] * V[h, s, e])" in answer.forced.brief


def test_a_tensor_that_is_not_stored_is_stored_and_read_in_the_forced_program() -> None:
    answer = ask(ATTENTION, "p")
    assert code(answer) == "dearer"
    first, last = answer.forced.kernels[0], answer.forced.kernels[-1]
    (stored,) = (o.buffer for o in first.outputs)
    assert stored.shape == (2, 256, 256)
    assert stored.name in answer.forced.brief.splitlines()[-1].split(" = ")[1]
    assert [o.buffer.name for o in last.outputs] == ["O"]
    assert answer.reason.evidence["slower_by"] > 0


def test_several_tensors_are_all_stored() -> None:
    answer = ask(ATTENTION, "stored m, p")
    shapes = [o.buffer.shape for k in answer.forced.kernels for o in k.outputs]
    assert shapes.count((2, 256, 256)) == 2


def test_a_runner_up_answers_for_its_kernels() -> None:
    plan = result(ATTENTION).plan
    (seconds, kernels), *_ = plan.runners_up
    own = {k.name for k in plan.kernels}
    name = next(k.name for k in kernels if k.name not in own)
    answer = ask(ATTENTION, f"kernel {name}")
    assert code(answer) in ("dearer", "tied")
    assert answer.forced.seconds == pytest.approx(seconds)


def test_another_form_is_dominated_by_a_named_candidate() -> None:
    large = ATTENTION.replace("H=2, T=256, S=256", "H=32, T=4096, S=4096")
    answer = ask(large, STABLE)
    assert code(answer) == "dominated"
    pool = result(large).plan.choice.pool
    better = pool.candidates[answer.reason.evidence["candidate"]][1]
    assert better.seconds == answer.reason.evidence["its_seconds"]
    assert better.seconds < answer.reason.evidence["seconds"]
    assert better.makes >= answer.forced.candidate.makes
    assert better.needs <= answer.forced.candidate.needs


def test_what_the_model_cannot_tell_apart_is_tied() -> None:
    answer = ask(GATED, "stored gate")  # two launches, as fast within the model's noise
    assert code(answer) == "tied"
    assert abs(answer.forced.slower_by) <= 0.03
    assert len(answer.forced.kernels) > len(result(GATED).plan.kernels)


def test_a_form_that_the_beam_left_out_tells_its_rank() -> None:
    answer = ask(LINEAR, "x[h,t,s]")
    assert code(answer) == "beam"
    evidence = answer.reason.evidence
    assert 1 <= evidence["rank"] <= evidence["forms"]
    assert evidence["width"] == 8
    assert "sum[s](x[h, t, s] * V[h, s, e])" in answer.forced.brief


# ---- what no kernel can be -----------------------------------------------------------------------


def test_a_kernel_that_fits_no_block_tells_the_limit_and_the_figure() -> None:
    answer = ask(NORMED, "one kernel")
    assert code(answer) == "infeasible"
    evidence = answer.reason.evidence
    rows = 2 * 16 * 2304 * 2  # two tensors' rows of bf16, which stay
    assert evidence["limit"] == "shared memory"
    assert evidence["most"] == 101_376 < rows < evidence["needed"]
    shorter = NORMED.replace("C=2304", "C=1024")
    assert code(ask(shorter, "one kernel")) != "infeasible"


def test_a_mixture_that_no_kernel_holds() -> None:
    asked = "one kernel for sum[s](exp(X[t,s] - max[s](X[t,s])) * V[s,e])"
    assert code(ask(WEIGHTS, asked)) == "form"


def test_an_open_running_value_cannot_be_stored() -> None:
    assert code(ask(ATTENTION, "stored exp(m[h,t,s] - running[s](max[s](m[h,t,s])))")) == "open"


def test_truth_values_are_not_stored() -> None:
    assert code(ask(ATTENTION, "stored s <= t")) == "unstorable"


def test_what_no_result_reads_is_unreachable() -> None:
    assert code(ask(POINTWISE, "stored unused")) == "unreachable"


def test_regions_cut_a_program() -> None:
    answer = ask(TWICE, "one kernel")
    assert code(answer) == "cut"
    assert answer.reason.evidence["stored"] == ["y"]
    assert code(ask(TWICE, "y")) == "chosen"
    assert "region" in ask(TWICE, "y").reason.evidence


def test_inputs_and_numbers_are_no_work() -> None:
    assert code(ask(ATTENTION, "Q")) == "input"
    assert code(ask(ATTENTION, "Q[h,t,d]")) == "input"
    assert code(ask(ATTENTION, "2.0")) == "input"


# ---- what the e-graph does not hold --------------------------------------------------------------


def test_a_term_that_is_equal_but_not_made() -> None:
    answer = ask(ATTENTION, "O[h,t,e] + 0.0")
    assert code(answer) == "absent"
    assert answer.reason.evidence["equal"] == {
        "to": "O", "by": "saturation", "rules": ["add_zero"]
    }  # fmt: skip


def test_a_term_that_no_rule_proves_equal_has_the_values_of_one() -> None:
    answer = ask(POINTWISE, "2.0 * sin(X[n,c]) * cos(X[n,c])")
    assert code(answer) == "absent"
    assert answer.reason.evidence["values"]["value"] == "a"
    assert answer.reason.evidence["values"]["difference"] < 1e-12


@pytest.mark.slow
def test_a_term_that_a_rule_leads_away_from() -> None:
    answer = ask(WEIGHTS, "exp(X[t,s]) / exp(max[s](X[t,s]))")
    assert code(answer) == "absent"
    assert answer.reason.evidence["equal"]["rules"] == ["exp_div"]
    assert "away from it alone: exp(a) / exp(b) >> exp(a - b)" in answer.reason.text
    assert "fails its certificate" in answer.reason.text  # large inputs: it overflows


def test_a_term_that_is_equal_to_nothing_is_refuted_by_values() -> None:
    answer = ask(POINTWISE, "a[n,c] + 1.0")
    assert code(answer) == "unequal"
    values = answer.reason.evidence["values"]
    assert values["value"] == "a"
    assert values["asked"] == pytest.approx(values["there"] + 1.0, abs=1e-12)
    assert set(values["at"]) == {"n", "c"}
    assert 0 <= values["at"]["n"] < 512


def test_the_premise_that_fails_first_is_told() -> None:
    answer = ask(RATIOS, "sum[s](X[t,s]) / Z[t,s]")
    premise = answer.reason.evidence["premise"]
    assert premise["rule"] == "div_in_sum"
    (failure,) = premise["failures"]
    assert failure["condition"] == "j not in b"
    assert "Z[t, s] depends on" in failure["reason"]
    assert "j not in b" in answer.reason.text


@pytest.mark.slow
def test_a_higher_class_makes_a_term_by_a_named_rule() -> None:
    question = "sum[s](exp(m[h,t,s]) * V[h,s,e])"
    answer = ask(ATTENTION, question)
    assert code(answer) == "numerics"
    assert answer.reason.evidence["rules"] == ["unshift_ratio"]
    assert code(ask(ATTENTION, question, numerics="fast")) not in ("absent", "numerics")


@pytest.mark.slow
def test_a_pack_that_is_loaded_by_name_makes_a_term() -> None:
    question = "sum[d](Q[h,t,d] * (K[h,s,d] * 0.125))"
    answer = ask(ATTENTION, question)
    assert code(answer) == "pack"
    (rule,) = answer.reason.evidence["rules"]
    assert rule == "sum_scale_out"
    assert code(ask(ATTENTION, question, rules=("identities",))) not in ("absent", "pack")


def test_a_rounding_of_the_questions_own() -> None:
    answer = ask(ATTENTION, "sum[s](bf16(p[h,t,s]) * V[h,s,e])")
    assert code(answer) == "rounding"
    assert "exact" not in answer.reason.text


@pytest.mark.slow
def test_the_rounding_contract_widens_operands() -> None:
    answer = ask(DECAYED, "sum[c](Q[i,c] * sum[j](K[j,c] * D[j,l]))")
    assert code(answer) == "rounding"
    chosen = result(DECAYED).plan.seconds
    assert answer.reason.evidence["narrow_seconds"] < chosen < answer.forced.seconds


# ---- faults of the forced program ----------------------------------------------------------------


def test_an_unsound_rule_that_was_accepted_fails_the_certificate(tmp_path: Path) -> None:
    pack = tmp_path / "mine.nau"
    pack.write_text("with real:\n    wrong = tanh(a) >> sin(cos(a))\n")
    own = {"rules": (str(pack),), "accept": ("wrong",)}
    answer = ask(POINTWISE, "sin(cos(a[n,c]))", **own)
    assert code(answer) == "certificate"
    assert "meaning of y" in answer.reason.text
    assert "wrong" in {r for k in answer.forced.kernels for r in k.rules}


def test_a_program_that_does_not_lower() -> None:
    answer = ask(CHAIN, "one kernel")
    assert code(answer) == "lowering"
    assert "read inside its own pass" in answer.reason.text
    assert len(answer.forced.kernels) == 1


def test_a_program_that_the_compiler_refuses() -> None:
    answer = ask(ATTENTION, "1", compile=True, architectures=("sm_75",))
    assert code(answer) == "compile"
    assert "needs sm_80" in answer.reason.text
    assert answer.forced.slower_by > 0


# ---- rules ---------------------------------------------------------------------------------------


def test_rules_that_matched_that_did_not_and_that_are_not_allowed() -> None:
    assert code(ask(ATTENTION, "go_online")) == "chosen"
    assert code(ask(POINTWISE, "rule go_online")) == "unmatched"
    assert code(ask(ATTENTION, "rule self_div")) == "numerics"
    assert code(ask(ATTENTION, "identities:exp_double")) == "pack"
    answer = ask(ATTENTION, "rule mul_comm")
    assert code(answer) in ("matched", "chosen")
    assert answer.reason.evidence["closest"]["matches"] > 0


# ---- names, and questions that are none ----------------------------------------------------------


@pytest.mark.slow
def test_answers_do_not_depend_on_names() -> None:
    renamed = ATTENTION
    for old, new in (("[h,", "[u,"), (",t,", ",v,"), (",t]", ",v]"), ("<= t", "<= v")):
        renamed = renamed.replace(old, new)
    renamed = renamed.replace("attend", "zz").replace("Q", "A0").replace("p[", "w[")
    for question in (STABLE, "stored p", "one kernel"):
        other = question.replace("[h,t", "[u,v").replace("stored p", "stored w")
        mine, theirs = ask(ATTENTION, question), ask(renamed, other)
        assert code(mine) == code(theirs)
        assert (mine.forced is None) == (theirs.forced is None)
        if mine.forced is not None:
            assert theirs.forced.seconds == pytest.approx(mine.forced.seconds)


@pytest.mark.parametrize(
    ("question", "wanted", "message"),
    [
        ("", "unknown-question", "ask for"),
        ("Oo", "unknown-question", "Did you mean"),
        ("99999", "unknown-question", "numbered from 0"),
        ("kernel nothing", "unknown-question", "nothing here is named"),
        ("rule go_onlin", "unknown-question", "go_online"),
        ("stored zz", "unknown-question", "nothing here is named"),
        ("xx[h,t,s] + 1.0", "unknown-name", "xx"),
        ("x[h,t]", "wrong-rank", "3 dimensions"),
        ("sum[s](x[h,t,s]", "syntax", "never closed"),
        ("x[h,t,s] and 1.0", "wrong-type", "truth values"),
        ("sum[q](1.0)", "no-range", "no range"),
        ("import os", "not-a-term", "one expression"),
        ("online[s](1.0)", "wrong-arguments", "repair"),
        ("running[s](x[h,t,s])", "wrong-arguments", "one reduction"),
        ("attend(Q, K, V)", "unknown-name", "attend"),
        ("x[h,t,99999]", "out-of-range", "256 positions"),
        ("__import__('os').system('true')", "unsupported", ""),
    ],
)
def test_questions_that_cannot_be_understood(question: str, wanted: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(ATTENTION, question)
    assert caught.value.code == wanted
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "question",
    ["x[h,t,s]" + " + x[h,t,s]" * 3000, "(" * 300 + "1.0" + ")" * 300, "-" * 5000 + "1.0",
     "1" * 30_000, "stored " + "a" * 25_000, "\0", "x[h,t,s]\udc80"],
)  # fmt: skip
def test_hostile_questions_give_clean_errors(question: str) -> None:
    with pytest.raises((LimitError, InputError)):
        ask(ATTENTION, question)


def test_a_program_that_was_not_chosen_is_refused() -> None:
    from nautile import lang
    from nautile.inspector.why_not import why_not
    from nautile.stages import Optimization, Options

    (program,) = lang.parse(POINTWISE)
    with pytest.raises(NautileError) as caught:
        why_not(Optimization(program, Options()), "y")
    assert caught.value.code == "not-chosen"
