"""Where data come from."""

from .synthetic import von_mises_circle, von_mises_log_density

__all__ = ["von_mises_circle", "von_mises_log_density"]
