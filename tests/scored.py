"""The scores of a file's rows in memory."""

import numpy as np

from rectangular_flows.evaluation.explain import Explanation
from rectangular_flows.evaluation.scored import ScoredRows, open_scoring


def score_file(run, source, **options) -> ScoredRows:
    parts = list(open_scoring(run, str(source), **options).parts())
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    texts = {name: [cell for part in parts for cell in part.texts[name]] for name in parts[0].texts}
    why = [part.explanation for part in parts if part.explanation is not None]
    return ScoredRows(columns, texts, Explanation.cat(why) if why else None)
