"""An Airflow DAG with a nightly run. Not tried: Airflow is not installed here."""

from __future__ import annotations

from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

# 3: some records were refused; 75: another run is in progress. Neither is a failure of the night.
COMMAND = "dedup-job run -c /etc/dedup-job/shop.toml --log json || case $? in 3|75) ;; *) exit $? ;; esac"

with DAG(
    "dedup_job", start_date=datetime(2026, 1, 1), schedule="30 2 * * *", catchup=False, max_active_runs=1
):
    BashOperator(task_id="run", bash_command=COMMAND)
