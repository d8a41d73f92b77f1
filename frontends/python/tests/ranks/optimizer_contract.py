"""All checks of DistributedOptimizer in one launch, on one, two, three and four ranks."""

from __future__ import annotations

import optimizer
import scaling
import sparse
import wrapping
from support import run_checks

import penstock.torch as hvd

if __name__ == "__main__":
    hvd.init(
        process_sets=wrapping.SETS, config_text='[runtime]\ncheck_parameters = "error"\n'
    )
    checks: dict[str, object] = {}
    for script in (optimizer, scaling, sparse, wrapping):
        own = {f"{n} of {script.__name__}.py": f for n, f in vars(script).items() if "check_" in n}
        checks.update(own)
    run_checks({n: f for n, f in checks.items() if n.startswith("check_")})
