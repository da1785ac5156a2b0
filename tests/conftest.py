"""No test reaches beyond this machine: a hub id that is not bundled fails at once."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
