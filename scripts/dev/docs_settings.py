"""What each setting means, for docs/reference/settings.md: a phrase, and an example of its value in TOML."""

from __future__ import annotations

INTRODUCTION = """\
# Settings

A settings file is TOML. `dedup-job init -c shop.toml` writes one; `config/` in the source has commented
examples for a backfill, a nightly run and a report.

```toml
[source]
database = "shop"
collection = "pages"
fields = ["title", "body"]

[target]
database = "shop"
collection = "pages_unique"
```

These five keys are required. An unknown key is an error, and all errors of a file are reported together (exit
code 78). Relative paths are relative to the settings file. An integer has a billion at most.

**Connection strings** are not in the file. They come from the environment variables `DEDUP_SOURCE_URI` and
`DEDUP_TARGET_URI` (default: the source's), or from files with mode 0600 that `uri_file` names.

**For one command or one machine**, `--set report.directory=/var/lib/dedup-job` changes a setting, and so does
an environment variable, here `DEDUP_REPORT_DIRECTORY`. Both have precedence over the file, and `--set` over
the variable.

**The recipe** is everything that affects a decision: `[source] fields`, `[clean]`, `[recipe]` and `[match]`
except `cache_mb`. The ledger stores it, and a run with another recipe is refused:
[change settings later](../how-to/change-settings-later.md).
"""

SECTIONS = {
    "source": "The collection to read. JavaScript in `filter` is refused, because it may answer differently "
    "each time; `$expr` does most of it.",
    "target": "The collection for the unique records. The ledger is stored beside it, in "
    "`COLLECTION.dedup.*`: [ledger collections](ledger.md).",
    "mark": "What [`mark`](../how-to/without-a-second-copy.md#mark-the-duplicates) writes into dropped "
    "records of the source.",
    "clean": "How the text of a record is extracted from HTML: "
    "[exclude boilerplate](../how-to/boilerplate.md).",
    "recipe": "How a text becomes a fingerprint. Keys that are absent have the profile's value: "
    "[profiles](#profiles).",
    "match": "When two texts match. Keys that are absent have the profile's value: [profiles](#profiles).",
    "engine": "Where records are processed. All keys but `kind` and `workers` are for "
    "[Spark](../how-to/use-spark.md).",
    "limits": "Batch sizes, timeouts, read rates, and the guards that stop a run "
    "([exit code 5](../how-to/recover-from-exit-codes.md#5-a-guard-stopped-the-run)).",
    "reference": "Further collections whose texts count as kept, once for each: "
    "[reference collections](../how-to/against-a-reference-collection.md).",
    "report": "Saved reports, the HTML page, and [monitoring](../how-to/watch-a-run.md).",
}

# section: {key: (meaning, example)}
MEANINGS: dict[str, dict[str, tuple[str, str]]] = {
    "source": {
        "database": ("database of the source", '"shop"'),
        "collection": (
            "collection with the records; views, time series and clustered ones are refused",
            '"pages"',
        ),
        "fields": ("dotted paths of the text fields, joined in this order", '["title", "page.body"]'),
        "filter": (
            "only records that match this filter are decided; extended JSON, without JavaScript",
            '\'{"lang": "zh"}\'',
        ),
        "lookback_hours": (
            "how far before the previous run a nightly run reads, because ObjectIds do not arrive in order",
            "72",
        ),
        "full_scan_days": ("days after which a run compares all ids, even if the counts agree", "1"),
        "read_preference": (
            "members of the replica set that `backfill` and `report` read records from: "
            "[read from a secondary](../how-to/read-from-a-secondary.md)",
            '"secondaryPreferred"',
        ),
        "max_staleness_seconds": ("secondaries that lag more are not read", "300"),
        "uri_file": ("file with the connection string, mode 0600", '"source.uri"'),
    },
    "target": {
        "database": ("database of the target; without copies, of the ledger", '"shop"'),
        "collection": (
            "collection to fill; views, time series and capped ones are refused; "
            "without copies, the ledger is stored under this name",
            '"pages_unique"',
        ),
        "copy": (
            "`false`: copy nothing, and only store which records are duplicates; "
            "the ledger is then beside the source, unless the two settings above name another place",
            "false",
        ),
        "uri_file": ("file with the connection string, mode 0600", '"target.uri"'),
    },
    "mark": {
        "field": ("name of the field that says of what a record is a duplicate", '"duplicate_of"'),
        "auto": ("also mark what `backfill` and `run` drop, when they end", "true"),
    },
    "clean": {
        "select": ("CSS selectors of the elements that hold the text", '["article", "div.content"]'),
        "remove": ("CSS selectors of elements to leave out", '["nav", "footer"]'),
        "drop_after": ("cut the text where one of these strings begins", '["Share:"]'),
        "max_chars": ("longer texts are copied without being compared", "500_000"),
    },
    "recipe": {
        "hmm": ("also find words that are in no dictionary, by a hidden Markov model", "false"),
        "profile": ("a set of values for all other keys here and in `[match]`", '"thorough"'),
        "features": (
            "the terms: `words`, `words+han` (words and Chinese characters), `words:N` or `chars:N`",
            '"words:2"',
        ),
        "min_length": ("least length of a word, in characters", "1"),
        "tf": ("weight of a term's frequency: 1 + ln, the frequency itself, or 1", '"raw"'),
        "idf": ("weight of a term's rarity: square root of the IDF, the IDF, or 1", '"full"'),
        "top": ("use only this number of terms, the heaviest; 0 uses all", "30"),
        "bits": ("bits of a fingerprint", "128"),
        "min_terms": ("a text with fewer different terms has no fingerprint", "4"),
        "idf_table": ("file with the IDF of terms, as `fit-idf` writes it", '"idf.txt"'),
        "stop_words": ("file with words to ignore, one per line", '"stop.txt"'),
        "user_words": ("file with words for the segmenter", '"words.txt"'),
    },
    "match": {
        "radius": ("fingerprints that differ in at most this number of bits are compared", "4"),
        "bands": ("number of MinHash bands; 0 for none", "20"),
        "rows": ("MinHash values in a band", "5"),
        "band_radius": ("greatest distance of fingerprints that share a band, in bits", "64"),
        "min_similarity": ("least similarity of duplicates; 0 compares fingerprints only", "0.9"),
        "shingle": ("length of a shingle; default: 3 for Chinese, Japanese, Korean, else 5", "4"),
        "numbers": (
            "`distinguish` never matches texts whose numbers differ: [numbers](../how-to/numbers.md)",
            '"distinguish"',
        ),
        "within": (
            "records match only if these fields are equal: [groups](../how-to/only-within-a-site.md)",
            '["site", "lang"]',
        ),
        "prefer": (
            "which of two matching records is kept, the most important rule first; default: the earlier one: "
            "[prefer](../how-to/keep-the-newest.md)",
            '["longest", { field = "published", order = "newest" }]',
        ),
        "cache_mb": ("memory for shingles of kept records; does not affect decisions", "64"),
    },
    "engine": {
        "kind": ("where a backfill is processed", '"spark"'),
        "workers": ("worker processes", "4"),
        "master": ("Spark master; default: what `spark-submit` sets, or this machine", '"spark://host:7077"'),
        "work": ("folder for Spark's stages, reachable from all executors", '"hdfs://host/dedup/shop"'),
        "conf": ("further settings of Spark", '{ "spark.executor.memory" = "8g" }'),
        "partitions": ("least number of partitions of a stage; default: four per core", "2000"),
    },
    "limits": {
        "batch_records": ("records in a batch; each batch is committed as a whole", "1000"),
        "batch_mb": ("size of a batch", "8"),
        "in_flight_mb": ("memory for records that were read and not yet committed", "128"),
        "record_seconds": ("processor time for a record; more, twice, makes it `poison`", "10"),
        "connect_seconds": ("timeout of a connection or an answer", "30"),
        "retry_seconds": ("how long a server that fails is retried before exit code 69", "600"),
        "read_seconds": ("the server ends a read that takes longer", "1800"),
        "max_docs_per_second": ("read rate", "500"),
        "max_mb_per_second": ("read rate", "5"),
        "max_lag_seconds": (
            "reading and writing pause while a secondary of the source or the target lags more: "
            "[limit the load](../how-to/spare-a-busy-server.md#replication-lag)",
            "30",
        ),
        "allow_plaintext": ("allow connections to other machines without TLS", "true"),
        "max_unchecked_share": ("guard: share of the first 1,000 records without usable text", "0.99"),
        "max_failed_share": ("guard: share of records on which the job failed", "0.01"),
        "max_drop_share": ("guard: share of records dropped, from 10,000 records on", "0.5"),
        "max_group": ("guard: duplicates of one record", "1000"),
        "max_vanished_share": ("guard: share of records deleted from the source, for `sync`", "0.1"),
    },
    "reference": {
        "database": ("database of the reference", '"shop"'),
        "collection": (
            "collection that is only read; views, time series and clustered ones are refused",
            '"tests"',
        ),
        "fields": ("dotted paths of its text fields; default: those of the source", '["question"]'),
        "uri_env": (
            "environment variable with its connection string; default: the source's connection",
            '"DEDUP_REFERENCE_URI"',
        ),
    },
    "report": {
        "directory": ("folder for the reports of runs, as JSON; default: they are only printed", '"reports"'),
        "samples": ("near duplicates shown in a report", "20"),
        "groups": ("largest groups shown in a report", "10"),
        "keep": ("number of reports in the folder; older ones are deleted", "90"),
        "metrics": (
            "file for the textfile collector of node_exporter",
            '"/var/lib/prometheus/node-exporter/dedup-job.prom"',
        ),
        "ping": ("address that is called when a run starts, succeeds or fails", '"https://hc-ping.com/..."'),
        "show": ("fields shown beside each text on the HTML page", '["url", "title"]'),
        "group_by": ("the HTML page counts dropped records by this field", '"site"'),
    },
}
