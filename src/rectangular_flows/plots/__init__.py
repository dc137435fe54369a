"""Figures. Each module separates the numbers that a figure shows from drawing them."""
