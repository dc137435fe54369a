from . import densities as densities
from . import errors as errors
from . import flows as flows
from . import volume as volume
from .atlas import Atlas as Atlas
from .estimator import RectangularFlowEstimator as RectangularFlowEstimator
from .estimator import RectangularFlowOutlierDetector as RectangularFlowOutlierDetector
from .manifold import RectangularFlow as RectangularFlow
from .manifold import Scores as Scores
from .runs.saved import SavedRun as SavedRun
from .storage.models import load as load
from .storage.models import save as save
from .training.config import TrainingConfig as TrainingConfig
from .training.fitting import fit as fit
from .training.run import Run as Run

__version__: str
