"""Makes the package importable from the checkout. The environment cannot change that."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.pop("PENSTOCK_CONFIG", None)
