"""Names of the array types that most compiled functions and their callers take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
