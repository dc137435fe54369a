from .config import TrainingConfig as TrainingConfig
from .fitting import fit as fit
from .objective import Objective as Objective
from .objective import Terms as Terms
from .optimisers import register_optimiser as register_optimiser
from .run import Epoch as Epoch
from .run import Run as Run
