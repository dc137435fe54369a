"""How good a fit is: against a known truth, by samples, by what it says of other data; and the dimension of data."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
