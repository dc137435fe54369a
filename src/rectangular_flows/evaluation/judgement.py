"""What the numbers of a verdict mean: faults, each with what to do about it.

A fault needs more than chance: every comparison allows for its standard error, and for an amount that does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .verdict import Verdict

SIGMAS = 3.0  # standard errors that chance may explain
LOST = 0.10  # share of the variance that may be lost: twice what --latent-dim auto aims at
NO_BETTER = 0.9  # squared error over that of PCA, above which a manifold is a plane
WORSE = 1.25  # squared error over that of PCA that does not matter
BEYOND_TRAINING = 1.5  # squared error over that of training rows, above which the network knows its rows by heart
OFF = 0.02  # share of samples that may lie where there are no data
TORN = 0.05  # share of neighbours that may be torn apart: a cut through a surface of 1,000 rows takes about 3 %
TOLD_APART = 0.15  # accuracy of a classifier above its floor, at which samples are poor whatever else reaches
BEHIND = 0.05  # accuracy above that for a mixture
BEHIND_NATS = 0.1  # log-density below that of a mixture
BESIDE_PLANES = 1.5  # what the manifold loses over what planes through neighbours would, after allowing for noise
LEAST_OF_NOISE = 0.4  # share of noise that such planes lose, where it was not measured: 0.4 to 1 in large tables
MORE_LOST = 0.05**2  # share of the variance that may be lost beyond that: 5 % of the spread
CURVED = 0.9  # dimensions over those of a Gaussian, below which data are curved
NOISE = 0.75  # dimensions that noise around a manifold may add
BY_HEART = 1.0  # nats by which training rows may be likelier; one Gaussian of p parameters from n rows expects p/n
_EPS = {"float32": 1.2e-7, "float64": 2.2e-16}


class Fault(NamedTuple):
    """What is wrong, by name, in a sentence, and what to do about it."""

    name: str
    what: str
    advice: str


def faults(v: Verdict) -> list[Fault]:
    """All that is wrong, the gravest first; none where there were too few rows to judge."""
    if v.kept is None:
        return []
    if not v.finished:
        what = "training was stopped before its end, and the best weights until then may be those at the start"
        return [Fault("unfinished", what, "continue with rnf fit --resume")]
    found = (rule(v) for rule in _RULES)
    return [fault for fault in found if fault is not None]


def loses_much(v: Verdict) -> bool:
    """Whether more of the variance is lost than may be."""
    return v.kept is not None and 1 - v.kept.share - SIGMAS * v.kept.standard_error > LOST


def worse_than_pca(v: Verdict) -> bool:
    """Whether as many principal components reconstruct held-out rows better."""
    return v.kept is not None and v.kept.against_pca - SIGMAS * v.kept.against_pca_error > WORSE


def off_data(v: Verdict) -> bool:
    """Whether the manifold has a good part of its mass amid the data where there are none."""
    return v.shape is not None and _more(v.shape.between, v.shape.floor, OFF, v.shape.samples)


def torn(v: Verdict) -> bool:
    """Whether neighbours are far apart on the manifold, or it falls into more pieces than the data."""
    return v.shape is not None and (
        _more(v.shape.torn, 0.0, TORN, v.shape.samples) or v.shape.sample_pieces > v.shape.pieces
    )


def unbent(v: Verdict) -> bool:
    """Whether a manifold of this dimension could keep more: this one loses much, though the data have no more dimensions."""
    return (
        v.kept is not None
        and v.shape is not None
        and loses_much(v)
        and v.shape.dimension < v.latent_dim + NOISE
        and v.shape.dimension < CURVED * v.shape.dimension_gaussian
        and not worse_than_pca(v)
    )


def astray(v: Verdict) -> bool:
    """Whether planes through neighbouring rows lie much nearer to the data than the manifold does."""
    if v.kept is None or v.shape is None:
        return False
    # one standard error: few rows far off make it large, and where they are the manifold is astray
    lost, planes = 1 - v.kept.share - v.kept.standard_error, v.shape.planes
    of_noise = v.shape.planes_of_noise if v.shape.planes_of_noise >= 0 else LEAST_OF_NOISE  # older runs do not know it
    of_noise = min(of_noise, 1.0)  # planes through rows nearer than the noise lose less than it
    return lost * of_noise > BESIDE_PLANES * planes and lost > planes + MORE_LOST and v.latent_dim < v.ambient_dim


def _more(share: float, floor: float, allowed: float, count: int) -> bool:
    """Whether a share exceeds its floor by more than chance, and what is allowed."""
    error = (max(share, 1 / count) * (1 - min(share, 1)) / count) ** 0.5
    return share - SIGMAS * error > max(floor, allowed)


def _swamped(v: Verdict) -> Fault | None:
    if not v.swamped:
        return None
    named = ", ".join(f"'{name}'" for name in v.swamped[:3]) + (" and others" if len(v.swamped) > 3 else "")
    what = (
        f"a few values of {named} lie so far from all others, as fill values do, that the model cannot tell these apart"
    )
    return Fault(
        "swamped", what, "drop the rows that hold them (they have the largest outlier scores), or leave the column out"
    )


def _shape(v: Verdict) -> Fault | None:
    s = v.shape
    if v.kept is None or s is None or not (off_data(v) or torn(v)):
        return None
    if s.pieces == 1 and unbent(v) and not v.kept.against_pca < NO_BETTER:  # a plane through curved data
        return None
    if s.pieces > 1:
        what = f"the data fall into {s.pieces} pieces"
        what += (
            f", and the manifold bridges them: {_percent(s.between)} of its samples lie where there are no data"
            if off_data(v)
            else ", and the manifold winds between them: it tears neighbours apart"
        )
        return Fault("bridged", what, _one_chart("separate pieces", v))
    if off_data(v):
        what = f"{_percent(s.between)} of the manifold's own samples lie amid the data where there are none"
        fewer = max(1, round(s.dimension))
        if not v.angles and fewer < v.latent_dim and s.dimension < CURVED * s.dimension_gaussian:
            many = f"{what}, and these have about {_dimensions(fewer)}"
            return Fault("bridged", many, f"try --latent-dim {fewer}, with more --epochs or --charts 4")
        advice = _one_chart("close a loop or separate pieces", v)
        return Fault("bridged", what, f"train longer (--epochs); if that does not help, {advice}")
    if s.sample_pieces > s.pieces:
        what = f"the data are in one piece, and the manifold's samples in {s.sample_pieces}"
    else:
        what = f"the manifold tears {_percent(s.torn)} of neighbouring rows apart"
    return Fault("torn", what, _one_chart("close a loop, or cover a closed surface", v))


def _one_chart(cannot: str, v: Verdict) -> str:
    more = f", or --latent-dim {v.latent_dim + 1}" if v.latent_dim + 1 < v.ambient_dim else ""
    spaces = {1: "--latent-space circle, or ", 2: "--latent-space torus:2 or sphere, or "}
    loop = "try " + (spaces.get(v.latent_dim, "") if "close" in cannot else "")
    if v.angles:  # which have one chart
        many = "try more --layers and --epochs"
    elif v.charts > 1:
        many = f"{v.charts} charts are too few here: {loop}--charts {2 * v.charts}"
    else:
        many = f"one chart cannot {cannot}: {loop}--charts {'auto' if 'close' not in cannot else 4}"
    return f"{many}{more}. The density in all columns (log_density_ambient, samples with scatter) depends on it less"


def _unbent(v: Verdict) -> Fault | None:
    if v.kept is None or v.shape is None or not unbent(v) or v.shape.pieces > 1:
        return None
    what = (
        f"the manifold has not found the shape of the data: it keeps {_percent(v.kept.share)} of the variance and PCA "
        f"{_percent(v.kept.pca)}, though the data have about {_dimensions(max(1, round(v.shape.dimension)))}"
    )
    larger = ", or give a larger --latent-dim" if v.latent_dim < v.ambient_dim - 1 else ""
    return Fault("undertrained", what, f"train longer (--epochs), or on more rows{larger}")


def _astray(v: Verdict) -> Fault | None:
    if v.kept is None or v.shape is None or not astray(v) or unbent(v) or _dimension(v) or _rows(v):
        return None
    what = (
        f"the manifold has not found the shape of the data: it loses {_small(1 - v.kept.share)} of the variance, and planes "
        f"through neighbouring rows {_small(v.shape.planes)}"
    )
    many = 2 * v.charts if v.charts > 1 else 4
    return Fault("astray", what, f"try {'' if v.angles else f'--charts {many}, or '}more --layers and --epochs")


def _dimension(v: Verdict) -> Fault | None:
    if v.kept is None or not loses_much(v) or unbent(v) or v.latent_dim >= v.ambient_dim - 1:
        return None
    worst = sorted(v.kept.columns.items(), key=lambda item: item[1])[:3]
    named = f" (least of {', '.join(name for name, _ in worst)})" if len(v.kept.columns) > 3 else ""
    what = (
        f"{_dimensions(v.latent_dim)} {'is' if v.latent_dim == 1 else 'are'} too few: the manifold keeps only "
        f"{_percent(v.kept.share)} of the variance of held-out rows{named}"
    )
    if v.kind == "image":
        return Fault("dimension", what, "give a larger --latent-dim")
    wanted = min(max(v.kept.pca_95, v.latent_dim + 1), v.ambient_dim - 1)
    return Fault("dimension", what, f"try --latent-dim {wanted}, or auto")


def _pca(v: Verdict) -> Fault | None:
    if v.kept is None or not worse_than_pca(v):
        return None
    what = f"the squared reconstruction error is {v.kept.against_pca:.2g} times that of PCA with as many dimensions"
    if v.kept.against_training > BEYOND_TRAINING:
        many = f"{v.kept.against_training:.2g} times that of training rows"
        return Fault("rows", f"{what}, and {many}: there are too few rows", "give more rows, or fewer --layers")
    advice = "leave --target-error at auto, or give a larger --beta or more --epochs"
    return Fault("worse than PCA", what, advice)


def _wild(v: Verdict) -> Fault | None:
    if v.shape is None or not _more(v.shape.beyond, v.shape.floor, OFF, v.shape.samples):
        return None
    what = f"{_percent(v.shape.beyond)} of the manifold's own samples lie far outside of the data"
    return Fault("wild", what, "train longer (--epochs), or on more rows")


def _samples(v: Verdict) -> Fault | None:
    s = v.samples
    if s is None:
        return None
    floor, slack = max(s.classifier_floor, 0.5), SIGMAS * s.standard_error
    behind = s.classifier - s.classifier_mixture > BEHIND + slack
    if s.classifier - floor <= TOLD_APART + slack and not behind:
        return None
    what = f"a classifier tells samples from data {_percent(s.classifier)} of the time (chance {_percent(floor)})"
    if behind:
        what += f", and those of a Gaussian mixture {_percent(s.classifier_mixture)}"
    if _by_heart(v):
        return Fault("rows", f"{what}: there are too few rows", "give more rows")
    if loses_much(v) and v.latent_dim < v.ambient_dim - 1:
        return Fault("samples", what, "a larger --latent-dim leaves less to the scatter")
    return Fault("samples", what, "train longer (--epochs), or on more rows")


def _density(v: Verdict) -> Fault | None:
    d = v.density
    if d is None or v.rounded or d.mixture - d.model - SIGMAS * d.over_mixture_error <= BEHIND_NATS:
        return None
    what = f"a Gaussian mixture gives held-out rows {d.mixture - d.model:.2g} nats more than the model"
    if _by_heart(v):
        return Fault("rows", f"{what}: there are too few rows", "give more rows")
    return Fault("density", what, "train longer (--epochs), or on more rows")


def _rows(v: Verdict) -> Fault | None:
    parameters = v.latent_dim * (v.latent_dim + 3) / 2
    if v.kind == "table" and parameters > BY_HEART / 2 * v.train:
        what = f"{v.train} rows are too few for {_dimensions(v.latent_dim)}: they would not do for one Gaussian"
        return Fault("rows", what, "give more rows, or a smaller --latent-dim")
    d = v.density
    if d is None or v.rounded or not _by_heart(v) or d.model - d.mixture > SIGMAS * d.over_mixture_error:
        return None
    what = f"training rows are {d.train - d.model:.2g} nats likelier than held-out ones: there are too few rows"
    return Fault("rows", what, "give more rows")


def _by_heart(v: Verdict) -> bool:
    """Whether training rows are much likelier than held-out ones."""
    d = v.density
    return d is not None and d.train - d.model - SIGMAS * 2**0.5 * d.standard_error > BY_HEART


def _numerics(v: Verdict) -> Fault | None:
    n = v.numerics
    if n is None:
        return None
    if n.round_trip_missed > OFF:
        what = f"decoding and encoding again misses {_percent(n.round_trip_missed)} of held-out rows"
        what += f", by up to {n.round_trip_worst:.1g}"
        return Fault("round trip", what, "train with --dtype float64" if n.precision == "float32" else "train again")
    if not n.condition <= _EPS[n.precision] ** -0.5:
        what = f"the manifold has collapsed: its directions differ in extent by a factor of {n.condition:.1g}"
        return Fault("collapsed", what, "give a smaller --latent-dim")
    return None


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _small(share: float) -> str:
    return f"{100 * share:.2g} %"


def _dimensions(count: int) -> str:
    return f"{count} dimension{'' if count == 1 else 's'}"


_RULES: tuple[Callable[[Verdict], Fault | None], ...] = (
    _swamped,
    _shape,
    _unbent,
    _dimension,
    _rows,
    _pca,
    _numerics,
    _astray,
    _wild,
    _samples,
    _density,
)
