"""A verdict on the first screen of a report."""

from __future__ import annotations

from ..evaluation.verdict import Verdict
from ..evaluation.verdict_text import lines, reason, word
from .page import Cards, Grid, Metric, Part


def verdict_card(verdict: Verdict) -> Cards:
    """Good or not, and why."""
    why = reason(verdict)
    return Cards([Metric("Verdict", word(verdict), f"{why[0].upper()}{why[1:]}", good=verdict.good)])


def verdict_numbers(verdict: Verdict) -> list[Part]:
    """The numbers behind it."""
    shown = [[name.strip(), value] for name, value in lines(verdict)]
    caption = f"The verdict in numbers, on {verdict.held_out:,} rows held out of training, in the units of the model"
    return [Grid(["", "the model, and what to compare it with"], shown, caption)] if shown else []
