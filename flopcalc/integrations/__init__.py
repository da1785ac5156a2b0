"""Doors to trainers, each imported by its own name: `flopcalc.integrations.transformers`, `.lightning`,
`.verl`, `.torch`. The library behind a door is imported with it."""
