"""All collections of a job, as they were, to begin from there again."""

from __future__ import annotations

from bson.raw_bson import RawBSONDocument

from tests.support.job import RAW, Job


def names(job: Job) -> list[str]:
    """Return the names of the collections in the job's database."""
    return [name for name in job.database.list_collection_names() if not name.startswith("system.")]


def contents(job: Job, name: str) -> list[RawBSONDocument]:
    """Return the records of a collection in the job's database."""
    return list(job.database[name].with_options(RAW).find())


class Snapshot:
    """The collections of a job at one moment."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.contents = {name: contents(job, name) for name in names(job)}

    def restore(self) -> None:
        for name in {*self.contents, *names(self.job)}:
            collection = self.job.database[name].with_options(RAW)
            collection.delete_many({})
            if self.contents.get(name):
                collection.insert_many(self.contents[name])
