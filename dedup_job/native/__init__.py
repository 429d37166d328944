"""Machine code: the only room that knows the compiler (numba) and how what it makes is kept."""
