"""What every model is: one file a family, each a config schema and a function config -> tree.

See `docs/adding-a-model.md`.
"""
