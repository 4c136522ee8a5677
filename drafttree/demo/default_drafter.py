"""Where the demo's drafter lies."""

from __future__ import annotations

from pathlib import Path

import drafttree
from drafttree.errors import UserError

PLACE = Path("drafters") / "smollm2-135m-instruct"


def default_drafter() -> Path:
    """The drafter of the checkout: below the working directory, or beside the package. UserError if there is none."""
    for root in (Path.cwd(), Path(str(drafttree.__file__)).resolve().parents[1]):
        if (root / PLACE / "config.json").is_file():
            return root / PLACE
    raise UserError(f"--drafter: found no {PLACE}, which the repository has; run from a checkout or name a drafter")
