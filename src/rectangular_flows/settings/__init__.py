"""The settings of ``rnf fit`` and of the estimator: a key of a configuration file, and a flag, for each.

Imports no torch: ``rnf fit --help`` lists them all, with what the docstrings here, in ``training/config.py`` and in
``densities/registry.py`` say about them.
"""

from .data import DataSettings
from .fit import FitSettings, help_of, settings_table
from .model import ModelSettings
from .presets import DEFAULT_PRESET, PRESET_FOLDERS, preset_files, preset_summary, read_preset, read_toml

__all__ = [
    "DEFAULT_PRESET",
    "PRESET_FOLDERS",
    "DataSettings",
    "FitSettings",
    "ModelSettings",
    "help_of",
    "preset_files",
    "preset_summary",
    "read_preset",
    "read_toml",
    "settings_table",
]
