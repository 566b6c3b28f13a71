"""Settings that may be secret, on their way to tasks."""

from __future__ import annotations

import base64
import pickle
from typing import Any


class Sealed(dict[str, Any]):
    """Settings that are encoded as they travel: Spark and Py4J log what they send, if they are asked to log that much.

    Whoever reads such a log can decode them. They are not found by who searches it, and not shown by who prints it.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (base64.b64encode(pickle.dumps(dict(self))),)


def _opened(content: bytes) -> Sealed:
    return Sealed(pickle.loads(base64.b64decode(content)))
