"""A report as one HTML file: text, numbers, tables, charts and pictures, with nothing to fetch from anywhere."""
