from __future__ import annotations

import subprocess
import sys

WITHOUT_PACKAGES = """
import sys
sys.modules |= dict.fromkeys(["pandas", "py4j", "pyarrow", "pyspark"])  # None: as if not installed
from dedup_job.commands import spark_backfill
from dedup_job.config import EngineSettings
from dedup_job.errors import ConfigError
try:
    with spark_backfill.session(EngineSettings(), "a test"):
        pass
except ConfigError as error:
    print(error)
"""


def test_without_the_packages_of_spark_it_is_said_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES], capture_output=True, text=True, check=False
    )
    told = "[engine] kind: Spark needs pyspark, pandas, pyarrow; run pip install 'dedup-job[spark]'\n"
    assert done.stdout == told, done.stderr
