"""An Airflow DAG with a nightly run.

Tried: Airflow 3.3 loads it, and finds the task. Not tried: a scheduler.
"""

from __future__ import annotations

from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

# 3: some records were refused; 75: another run is in progress. Neither is a failure of the night.
COMMAND = "dedup-job run -c /etc/dedup-job/shop.toml --log json || case $? in 3|75) ;; *) exit $? ;; esac"

with DAG(
    "dedup_job", start_date=datetime(2026, 1, 1), schedule="30 2 * * *", catchup=False, max_active_runs=1
) as dag:
    BashOperator(task_id="run", bash_command=COMMAND)
