"""Training: the objective, its schedules, the loop, and the folder a run leaves behind."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
