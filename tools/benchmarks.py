"""docs/benchmarks.md from what ``rnf bench GROUP --out docs/benchmarks`` measured: ``python tools/benchmarks.py``."""

from pathlib import Path

from rectangular_flows.paper.bench.run import page

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Write the page."""
    (DOCS / "benchmarks.md").write_text(page(DOCS / "benchmarks", "benchmarks/"), encoding="utf-8")


if __name__ == "__main__":
    main()
