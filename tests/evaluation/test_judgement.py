"""Where each fault begins, to the last digit, and what is said of it: verdicts made by hand, so no flow is needed."""

from dataclasses import replace
from math import sqrt
from typing import Any

import pytest

from rectangular_flows.evaluation.judgement import astray, faults, loses_much, off_data, torn, unbent, worse_than_pca
from rectangular_flows.evaluation.verdict import Density, Kept, Numerics, Samples, Shape, Verdict

COLUMNS = {"a": 0.9, "b": 0.2, "c": 0.7, "d": 0.1, "e": 0.95}
GOOD = Verdict(
    latent_dim=2,
    ambient_dim=5,
    train=1000,
    held_out=1400,
    kept=Kept(0.97, 0.01, 0.95, 0.6, 0.02, 1.1, COLUMNS, 4),
    samples=Samples(400, 0.0123, 0.0111, 0.0234, 0.55, 0.5, 0.56, 0.01),
    density=Density(1.25, 0.05, 0.8, 0.2, 0.02, 1.5),
    shape=Shape(1, 1, 0.001, 0.0, 0.0, 0.01, 1000, 2.0, 4.0),
    numerics=Numerics(1e-7, 2e-6, 0.0, 3.25, 5.5, "float32"),
)
CHART = "The density in all columns (log_density_ambient, samples with scatter) depends on it less"


def changed(v=GOOD, **parts):
    """With other values in its parts, or other facts."""
    new = {
        name: replace(getattr(v, name), **value) if isinstance(value, dict) else value for name, value in parts.items()
    }
    return replace(v, **new)


def first(**parts):
    found = faults(changed(**parts))
    return (found[0].name, found[0].what, found[0].advice) if found else None


def edge(share):
    """A share of 1,000 samples that exceeds what is allowed by three standard errors."""
    low, high = share, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if middle - 3 * sqrt(middle * (1 - middle) / 1000) > share else (middle, high)
    return high


def test_nothing_is_wrong_with_a_good_one():
    assert faults(GOOD) == []
    assert faults(replace(GOOD, kept=None)) == []


@pytest.mark.parametrize(
    ("holds", "just", "not_quite"),
    [
        # 1 − share − 3 · 0.01 > 0.10
        (loses_much, {"kept": {"share": 0.8699}}, {"kept": {"share": 0.8701}}),
        # ratio − 3 · 0.02 > 1.25
        (worse_than_pca, {"kept": {"against_pca": 1.3101}}, {"kept": {"against_pca": 1.3099}}),
        (off_data, {"shape": {"between": edge(0.02) + 1e-6}}, {"shape": {"between": edge(0.02) - 1e-6}}),
        (
            off_data,
            {"shape": {"between": edge(0.3) + 1e-6, "floor": 0.3}},
            {"shape": {"between": edge(0.3) - 1e-6, "floor": 0.3}},
        ),
        (torn, {"shape": {"torn": edge(0.05) + 1e-6}}, {"shape": {"torn": edge(0.05) - 1e-6}}),
        (torn, {"shape": {"sample_pieces": 2}}, {"shape": {"sample_pieces": 2, "pieces": 2}}),
        (
            unbent,
            {"kept": {"share": 0.5}, "shape": {"dimension": 2.74}},
            {"kept": {"share": 0.5}, "shape": {"dimension": 2.76}},  # 2 + 0.75
        ),
        (
            unbent,
            {"kept": {"share": 0.5}, "shape": {"dimension": 2.69, "dimension_gaussian": 3.0}},
            {"kept": {"share": 0.5}, "shape": {"dimension": 2.71, "dimension_gaussian": 3.0}},  # 0.9 · 3
        ),
        (unbent, {"kept": {"share": 0.5}}, {"kept": {"share": 0.5, "against_pca": 1.32}}),
        (unbent, {"kept": {"share": 0.5}}, {"kept": {"share": 0.88}}),
        # (1 − share − 0.01) · 0.5 > 1.5 · planes, and 1 − share − 0.01 > planes + 0.0025
        (
            astray,
            {"kept": {"share": 0.9599}, "shape": {"planes": 0.01, "planes_of_noise": 0.5}},
            {"kept": {"share": 0.9601}, "shape": {"planes": 0.01, "planes_of_noise": 0.5}},
        ),
        (
            astray,
            {"kept": {"share": 0.9864}, "shape": {"planes": 1e-3, "planes_of_noise": 1.0}},
            {"kept": {"share": 0.9866}, "shape": {"planes": 1e-3, "planes_of_noise": 1.0}},
        ),
        (
            astray,
            {"kept": {"share": 0.9599}, "shape": {"planes": 0.02, "planes_of_noise": 9.0}},
            {"kept": {"share": 0.9601}, "shape": {"planes": 0.02, "planes_of_noise": 9.0}},
        ),
        (
            astray,
            {"kept": {"share": 0.9}, "shape": {"planes": 0.01, "planes_of_noise": 1.0}},
            {"kept": {"share": 0.9}},
        ),  # of older runs, not known
        (
            astray,
            {"kept": {"share": 0.9524}, "shape": {"planes": 0.01}},  # 0.4 in place of what was not measured
            {"kept": {"share": 0.9526}, "shape": {"planes": 0.01}},
        ),
    ],
)
def test_where_it_begins(holds, just, not_quite):
    assert holds(changed(**just))
    assert not holds(changed(**not_quite))
    for part in {*just} & {"kept", "shape"}:
        assert not holds(changed(changed(**just), **{part: None}))


def test_a_manifold_astray():
    what = "the manifold has not found the shape of the data: it loses 6 % of the variance, and planes through "
    what += "neighbouring rows 0.2 %"
    far: dict[str, Any] = {"kept": {"share": 0.94}, "shape": {"planes": 0.002, "planes_of_noise": 0.5}}
    assert first(**far) == ("astray", what, "try --charts 4, or more --layers and --epochs")
    assert first(**far, charts=3)[2].startswith("try --charts 6,")
    assert first(**far, angles=True)[2] == "try more --layers and --epochs"  # angles have one chart
    assert first(**far, latent_dim=5) is None  # as many as there are columns
    assert first(kept={"share": 0.5}, shape=far["shape"])[0] == "undertrained"
    surface: dict[str, Any] = {"kept": {"share": 0.5}, "shape": {**far["shape"], "dimension": 3.9}}
    assert first(**surface)[0] == "dimension"
    assert first(**surface, latent_dim=GOOD.ambient_dim - 1)[0] == "astray"  # no larger dimension would help
    assert [fault.name for fault in faults(changed(**far, train=9))] == ["rows"]  # more charts would not help


def test_the_parts_of_the_data_are_bridged():
    for ambient, more in ((5, ", or --latent-dim 3"), (4, ", or --latent-dim 3"), (3, "")):
        advice = f"one chart cannot separate pieces: try --charts auto{more}. {CHART}"
        shape = {"pieces": 3, "sample_pieces": 1, "between": 0.25}
        what = "the data fall into 3 pieces, and the manifold bridges them: 25 % of its samples lie where there are no data"
        assert first(ambient_dim=ambient, shape=shape) == ("bridged", what, advice)
    what = "the data fall into 3 pieces, and the manifold winds between them: it tears neighbours apart"
    assert first(shape={"pieces": 3, "torn": 0.2})[1] == what


def test_a_loop_is_not_closed():
    loop = "try --latent-space torus:2 or sphere, or --charts 4, or --latent-dim 3"
    advice = f"one chart cannot close a loop or separate pieces: {loop}. {CHART}"
    what = "25 % of the manifold's own samples lie amid the data where there are none"
    expected = ("bridged", what, f"train longer (--epochs); if that does not help, {advice}")
    assert first(shape={"between": 0.25}) == expected
    advice = f"one chart cannot close a loop, or cover a closed surface: {loop}. {CHART}"
    what = "the data are in one piece, and the manifold's samples in 4"
    assert first(shape={"sample_pieces": 4}) == ("torn", what, advice)
    assert first(shape={"torn": 0.2}) == ("torn", "the manifold tears 20 % of neighbouring rows apart", advice)
    assert first(shape={"torn": 0.2}, angles=True)[2] == f"try more --layers and --epochs, or --latent-dim 3. {CHART}"
    assert (
        "4 charts are too few here: try --latent-space torus:2 or sphere, or --charts 8, or"
        in first(shape={"torn": 0.2}, charts=4)[2]
    )


def test_spaces_are_those_of_the_dimension():
    """A circle closes a loop of one dimension; what closes up in three is not offered."""
    for dim, words in ((1, "try --latent-space circle, or --charts 4"), (3, "try --charts 4")):
        assert words in first(latent_dim=dim, shape={"torn": 0.2, "dimension": dim})[2]


def test_a_dimension_too_many_folds_the_manifold():
    """As a plane through a helix does: no closed space helps there."""
    shape = {"between": 0.5, "dimension": 1.1, "dimension_gaussian": 3.0}
    found = first(shape=shape)
    assert found[1].endswith("lie amid the data where there are none, and these have about 1 dimension")
    assert found[2] == "try --latent-dim 1, with more --epochs or --charts 4"
    assert "--latent-dim 1" not in first(shape={**shape, "dimension": 1.6})[2]
    assert "--latent-dim 1" not in first(shape=shape, angles=True)[2]


def test_what_was_stopped_is_not_judged():
    stopped = changed(finished=False)
    assert [fault.name for fault in faults(stopped)] == ["unfinished"]
    assert stopped.sentences.startswith("Not finished: training was stopped before its end")
    assert stopped.sentences.endswith("Continue with rnf fit --resume.")
    assert stopped.good is False
    assert Verdict.from_numbers(stopped.numbers()) == stopped
    assert Verdict.from_numbers({k: v for k, v in GOOD.numbers().items() if k != "finished"}).finished


def test_a_plane_through_curved_data_is_undertrained_and_not_torn():
    what = (
        "the manifold has not found the shape of the data: it keeps 50 % of the variance and PCA 95 %, though the data"
    )
    for dimension, words in ((0.3, "1 dimension"), (1.4, "1 dimension"), (2.4, "2 dimensions")):
        found = first(kept={"share": 0.5, "against_pca": 0.9}, shape={"torn": 0.2, "dimension": dimension})
        advice = "train longer (--epochs), or on more rows, or give a larger --latent-dim"
        assert found == ("undertrained", f"{what} have about {words}", advice)
    assert first(kept={"share": 0.5}, latent_dim=4)[2] == "train longer (--epochs), or on more rows"
    assert first(kept={"share": 0.5, "against_pca": 0.89}, shape={"torn": 0.2})[0] == "torn"
    assert first(kept={"share": 0.5, "against_pca": 0.9}, shape={"torn": 0.2, "pieces": 2})[0] == "bridged"


@pytest.mark.parametrize(("d", "pca_95", "wanted"), [(2, 4, 4), (2, 3, 3), (2, 1, 3), (2, 5, 4), (1, 2, 2), (3, 1, 4)])
def test_too_few_dimensions(d, pca_95, wanted):
    found = first(
        latent_dim=d, kept={"share": 0.5, "pca_95": pca_95}, shape={"dimension": 4.5, "dimension_gaussian": 4.6}
    )
    words = {1: "1 dimension is", 2: "2 dimensions are", 3: "3 dimensions are"}[d]
    what = f"{words} too few: the manifold keeps only 50 % of the variance of held-out rows (least of d, b, c)"
    assert found == ("dimension", what, f"try --latent-dim {wanted}, or auto")


def test_dimensions_of_images_and_of_few_columns():
    shape = {"dimension": 4.5, "dimension_gaussian": 4.6}
    found = first(kind="image", kept={"share": 0.5, "columns": {}}, shape=None, samples=None, density=None)
    what = "2 dimensions are too few: the manifold keeps only 50 % of the variance of held-out rows"
    assert found == ("dimension", what, "give a larger --latent-dim")
    few = {name: COLUMNS[name] for name in "abc"}
    assert first(kept={"share": 0.5, "columns": few}, shape=shape)[1] == what
    assert first(latent_dim=4, kept={"share": 0.5}, shape={"dimension": 6, "dimension_gaussian": 6}) is None


def test_worse_than_pca():
    what = "the squared reconstruction error is 1.6 times that of PCA with as many dimensions"
    advice = "leave --target-error at auto, or give a larger --beta or more --epochs"
    assert first(kept={"against_pca": 1.6, "against_training": 1.5}) == ("worse than PCA", what, advice)
    what += ", and 1.6 times that of training rows: there are too few rows"
    found = first(kept={"against_pca": 1.6, "against_training": 1.6})
    assert found == ("rows", what, "give more rows, or fewer --layers")


def test_samples_far_outside():
    what = "30 % of the manifold's own samples lie far outside of the data"
    assert first(shape={"beyond": 0.3}) == ("wild", what, "train longer (--epochs), or on more rows")
    assert first(shape={"beyond": edge(0.02) - 1e-6}) is None
    assert first(shape={"beyond": edge(0.02) + 1e-6})[0] == "wild"
    assert first(shape={"beyond": 0.3, "floor": 0.3}) is None


@pytest.mark.parametrize(
    ("numbers", "more"),
    [
        # 0.15 above the floor, which is at least 0.5, and three standard errors of 0.01
        ({"classifier": 0.6799, "classifier_mixture": 0.65}, None),
        ({"classifier": 0.6801, "classifier_mixture": 0.65}, "68 % of the time (chance 50 %)"),
        ({"classifier": 0.6801, "classifier_mixture": 0.65, "classifier_floor": 0.4}, "68 % of the time (chance 50 %)"),
        ({"classifier": 0.72, "classifier_mixture": 0.7, "classifier_floor": 0.55}, None),
        ({"classifier": 0.74, "classifier_mixture": 0.7, "classifier_floor": 0.55}, "74 % of the time (chance 55 %)"),
        # 0.05 above the mixture, and as much
        ({"classifier": 0.6399}, None),
        ({"classifier": 0.6401}, "64 % of the time (chance 50 %), and those of a Gaussian mixture 56 %"),
    ],
)
def test_samples_that_are_told_apart(numbers, more):
    found = first(samples=numbers)
    if more is None:
        assert found is None
        return
    what = f"a classifier tells samples from data {more}"
    assert found == ("samples", what, "train longer (--epochs), or on more rows")
    lossy = {"kept": {"share": 0.5}, "samples": numbers}
    advice = [fault.advice for fault in faults(changed(**lossy)) if fault.name == "samples"]
    assert advice == ["a larger --latent-dim leaves less to the scatter"]
    advice = [fault.advice for fault in faults(changed(latent_dim=4, **lossy)) if fault.name == "samples"]
    assert advice == ["train longer (--epochs), or on more rows"]
    few = [
        fault for fault in faults(changed(samples=numbers, density={"train": 9.0})) if fault.what.startswith("a class")
    ]
    assert few == [("rows", f"{what}: there are too few rows", "give more rows")]


def test_less_likely_than_under_a_mixture():
    # mixture − model − 3 · 0.02 > 0.1
    assert first(density={"mixture": 1.4099}) is None
    found = first(density={"mixture": 1.4101})
    what = "a Gaussian mixture gives held-out rows 0.16 nats more than the model"
    assert found == ("density", what, "train longer (--epochs), or on more rows")
    assert first(density={"mixture": 1.5}, rounded=("a",)) is None
    few = faults(changed(density={"mixture": 1.5, "train": 9.0}))[-1]
    what = "a Gaussian mixture gives held-out rows 0.25 nats more than the model: there are too few rows"
    assert few == ("rows", what, "give more rows")


def test_too_few_rows():
    # d (d + 3)/2 = 5 parameters, more than half the number of rows
    assert first(train=10) is None
    what = "9 rows are too few for 2 dimensions: they would not do for one Gaussian"
    assert first(train=9) == ("rows", what, "give more rows, or a smaller --latent-dim")
    assert first(train=9, kind="image") is None
    # train − model − 3 · √2 · 0.05 > 1, where the model is no better than the mixture by three standard errors of 0.02
    density = {"mixture": 1.2}
    assert first(density={**density, "train": 2.25 + 0.15 * sqrt(2) - 1e-4}) is None
    what = "training rows are 1.2 nats likelier than held-out ones: there are too few rows"
    assert first(density={**density, "train": 2.25 + 0.15 * sqrt(2) + 1e-4}) == ("rows", what, "give more rows")
    assert first(density={"mixture": 1.191, "train": 9.0})[0] == "rows"
    assert first(density={"mixture": 1.189, "train": 9.0}) is None
    assert first(density={**density, "train": 9.0}, rounded=("a",)) is None


def test_numbers_that_break_down():
    numbers = {"round_trip_missed": 0.0201, "round_trip_worst": 0.034}
    what = "decoding and encoding again misses 2 % of held-out rows, by up to 0.03"
    assert first(numerics=numbers) == ("round trip", what, "train with --dtype float64")
    assert first(numerics={**numbers, "precision": "float64"})[2] == "train again"
    assert first(numerics={"round_trip_missed": 0.02}) is None
    what = "the manifold has collapsed: its directions differ in extent by a factor of 3e+03"
    for precision, most in (("float32", 1.2e-7**-0.5), ("float64", 2.2e-16**-0.5)):
        assert first(numerics={"condition": 0.999 * most, "precision": precision}) is None
        assert first(numerics={"condition": 1.001 * most, "precision": precision})[0] == "collapsed"
    assert first(numerics={"condition": 3000.0}) == ("collapsed", what, "give a smaller --latent-dim")
    assert first(numerics={"condition": float("nan")})[0] == "collapsed"


def test_the_gravest_comes_first():
    everything = changed(
        latent_dim=3,
        train=5,
        kept={"share": 0.5, "against_pca": 2.0, "against_training": 1.0},
        samples={"classifier": 0.9},
        density={"mixture": 5.0},
        shape={"between": 0.2, "beyond": 0.2},
        numerics={"condition": 1e9},
    )
    order = ["bridged", "dimension", "rows", "worse than PCA", "collapsed", "wild", "samples", "density"]
    assert [fault.name for fault in faults(everything)] == order


# --- in words


def test_a_verdict_in_words():
    assert str(GOOD) == (
        "Verdict, on 1,400 rows that were held out of training (model's units; log-density: the data's):\n"
        "  variance kept                     97.0 % ± 1; PCA with as many dimensions 95.0 %\n"
        "  … least                           d 10.0 %, b 20.0 %, c 70.0 %\n"
        "  samples with scatter: classifier  55.0 % ± 1.0; real against real 50.0 %, Gaussian mixture 56.0 %\n"
        "  … sliced Wasserstein-2, squared   0.0123; real against real 0.0111, Gaussian mixture 0.0234\n"
        "  log-density in all columns        1.25 ± 0.05 nats; Gaussian mixture 0.8, one Gaussian 0.2\n"
        "  pieces                            data 1, manifold 1; 1.0 % of neighbours torn apart\n"
        "  manifold where no data are        0.1 % of its samples (0.1 % amid the data); held-out rows 0.0 %\n"
        "  round trip                        1e-07 (worst 2e-06), relative, float32\n"
        "  singular values, largest / least  3.25 (worst 5.5)\n"
        "Good: the manifold keeps 97.0 % of the variance of held-out rows (PCA 95.0 %), and a classifier tells samples with "
        "scatter from data 55.0 % of the time (real rows 50.0 %, those of a Gaussian mixture 56.0 %)."
    )


def test_notes_of_a_verdict():
    for count, names in ((5, "c0, c1, c2, c3, c4"), (6, "c0, c1, c2, c3, c4 and 1 more")):
        said = str(changed(rounded=tuple(f"c{i}" for i in range(count))))
        assert f"\n  note: {names}: few distinct values, to which samples are rounded before" in said
    note = "note: this model has no density in all columns: train it again for one"
    assert note in str(replace(GOOD, samples=None))
    assert note not in str(replace(GOOD, samples=None, kind="image"))
    assert "note" not in str(GOOD)
    few = replace(GOOD, kept=None, samples=None, shape=None, density=None, numerics=None, held_out=1)
    text = "Not judged: 1 row was held out of training, and it takes 20. Train on more rows, or hold out more of them."
    assert str(few) == text
    assert few.good is None


def test_what_scatters_and_what_is_bridged():
    rest = "; the rest is scatter around it"
    assert rest in changed(latent_dim=4, kept={"share": 0.89}).sentences
    assert rest not in changed(kept={"share": 0.91}).sentences
    bridge = (
        ". A bridge joins the 3 pieces of the data on the manifold, since one chart cannot part them; 0.1 % of its own"
    )
    assert bridge in changed(shape={"pieces": 3, "sample_pieces": 2}).sentences
    for pieces in ({"pieces": 2, "sample_pieces": 2}, {"pieces": 2, "sample_pieces": 0}):
        assert "bridge" not in changed(shape=pieces).sentences


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1.0, "100.0 %"),
        (0.9901, "99.01 %"),
        (0.9899, "99.0 %"),
        (0.9991, "99.910 %"),
        (0.9989, "99.89 %"),
        (0.95, "95.0 %"),
    ],
)
def test_shares_near_one_keep_digits(share, words):
    assert f"keeps {words} of the variance" in changed(kept={"share": share}).sentences


def test_at_most_two_faults_are_told():
    three = changed(shape={"beyond": 0.3}, samples={"classifier": 0.9}, density={"mixture": 5.0})
    assert three.sentences == (
        "Not good: 30 % of the manifold's own samples lie far outside of the data. Train longer (--epochs), or on more rows."
        " Also, a classifier tells samples from data 90 % of the time (chance 50 %), and those of a Gaussian mixture 56 %."
    )
    two = changed(numerics={"condition": 3000.0}, samples={"classifier": 0.9})
    assert two.sentences.endswith("of a Gaussian mixture 56 %: train longer (--epochs), or on more rows.")
    assert not two.good
