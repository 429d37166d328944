"""The batch job that removes duplicate and near-duplicate texts from a MongoDB collection."""

__version__ = "0.1.0"
