"""A verdict in words: one or two sentences, and a line for each of its numbers."""

from __future__ import annotations

from .judgement import LOST, Fault, loses_much
from .verdict import ENOUGH, Verdict

_WORST = 3  # columns that are named


def sentences(v: Verdict) -> str:
    """Good, or the gravest one or two faults and what to do about them.

    Example:
        >>> sentences(Verdict(latent_dim=2, ambient_dim=5, train=60, held_out=7))
        'Not judged: 7 rows were held out of training, and it takes 20. Train on more rows, or hold out more of them.'
    """
    return f"{word(v)}: {reason(v)}"


def word(v: Verdict) -> str:
    """Good, not good, not finished, or not judged."""
    if v.kept is not None and not v.finished:
        return "Not finished"
    return {True: "Good", False: "Not good", None: "Not judged"}[v.good]


def reason(v: Verdict) -> str:
    """Why, and what to do."""
    if v.kept is None:
        return (
            f"{v.held_out} row{' was' if v.held_out == 1 else 's were'} held out of training, and it takes {ENOUGH}. "
            "Train on more rows, or hold out more of them."
        )
    found = v.faults
    if not found:
        return f"{_merits(v)}."
    first, *others = found
    told = _sentence(first)
    if others:
        told += f" Also, {others[0].what}" + ("." if others[0].advice == first.advice else f": {others[0].advice}.")
    return told


def _sentence(fault: Fault) -> str:
    return f"{fault.what}. {fault.advice[0].upper()}{fault.advice[1:]}."


def _merits(v: Verdict) -> str:
    if v.kept is None:
        return ""
    parts = [
        f"the manifold keeps {_percent(v.kept.share)} of the variance of held-out rows (PCA {_percent(v.kept.pca)})"
    ]
    if loses_much(v) or 1 - v.kept.share > LOST:
        parts[0] += "; the rest is scatter around it"
    if v.samples is not None:
        parts.append(
            f"a classifier tells samples with scatter from data {_percent(v.samples.classifier)} of the time (real rows "
            f"{_percent(v.samples.classifier_floor)}, those of a Gaussian mixture {_percent(v.samples.classifier_mixture)})"
        )
    told = ", and ".join(parts)
    if v.shape is not None and v.shape.pieces > v.shape.sample_pieces > 0:
        told += f". A bridge joins the {v.shape.pieces} pieces of the data on the manifold, since one chart cannot part them"
        told += f"; {_percent(v.shape.between)} of its own samples lie where there are no data"
    return told


def lines(v: Verdict) -> list[tuple[str, str]]:
    """The numbers, as (what, value) each."""
    found: list[tuple[str, str]] = []
    if (k := v.kept) is not None:
        found.append(
            (
                "variance kept",
                f"{_percent(k.share)} ± {100 * k.standard_error:.1g}; PCA with as many dimensions {_percent(k.pca)}",
            )
        )
        if v.shape is not None and v.shape.planes == v.shape.planes:
            found.append(("… planes through neighbours", _percent(1 - v.shape.planes)))
        worst = sorted(k.columns.items(), key=lambda item: item[1])[:_WORST]
        if worst:
            found.append(("… least", ", ".join(f"{name} {_percent(share)}" for name, share in worst)))
    if (s := v.samples) is not None:
        found += [
            (
                "samples with scatter: classifier",
                f"{_percent(s.classifier)} ± {100 * s.standard_error:.1f}; "
                f"real against real {_percent(s.classifier_floor)}, Gaussian mixture {_percent(s.classifier_mixture)}",
            ),
            (
                "… sliced Wasserstein-2, squared",
                f"{s.wasserstein:.3g}; real against real {s.wasserstein_floor:.3g}, "
                f"Gaussian mixture {s.wasserstein_mixture:.3g}",
            ),
        ]
    if (d := v.density) is not None:
        found.append(
            (
                "log-density in all columns",
                f"{d.model:.4g} ± {d.standard_error:.1g} nats; Gaussian mixture {d.mixture:.4g}, "
                f"one Gaussian {d.gaussian:.4g}",
            )
        )
    if (m := v.shape) is not None:
        found += [
            ("pieces", f"data {m.pieces}, manifold {m.sample_pieces}; {_percent(m.torn)} of neighbours torn apart"),
            (
                "manifold where no data are",
                f"{_percent(m.between + m.beyond)} of its samples ({_percent(m.between)} amid the data); held-out rows "
                f"{_percent(m.floor)}",
            ),
        ]
    if (n := v.numerics) is not None:
        found += [
            ("round trip", f"{n.round_trip:.1g} (worst {n.round_trip_worst:.1g}), relative, {n.precision}"),
            ("singular values, largest / least", f"{n.condition:.3g} (worst {n.condition_worst:.3g})"),
        ]
    return found


def text(v: Verdict) -> str:
    """All of it."""
    shown, notes = lines(v), []
    if v.rounded:
        notes.append(f"{_some(v.rounded)}: few distinct values, to which samples are rounded before they are compared")
    if v.kind == "table" and v.kept is not None and v.samples is None:
        notes.append("this model has no density in all columns: train it again for one")
    width = max((len(name) for name, _ in shown), default=0)
    head = (
        [f"Verdict, on {v.held_out:,} rows that were held out of training (model's units; log-density: the data's):"]
        if shown
        else []
    )
    body = [f"  {name:<{width}}  {value}" for name, value in shown]
    return "\n".join([*head, *body, *(f"  note: {note}" for note in notes), sentences(v)])


def _percent(share: float) -> str:
    """Near 100 %, what is missing keeps two digits."""
    missing = abs(1 - share)
    digits = 1 if missing >= 0.01 or missing == 0 else 2 if missing >= 0.001 else 3
    return f"{100 * share:.{digits}f} %"


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
