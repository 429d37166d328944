"""Compiled functions: the only package that uses the compiler (numba) and its cache directly."""
