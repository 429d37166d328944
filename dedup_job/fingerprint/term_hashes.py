"""Stable hashes of terms (xxh3 of their UTF-8 bytes), and tables of values by hash.

Terms of up to 16 bytes, which are nearly all, are hashed in compiled code, from their code points. Longer
terms are hashed by the xxhash package. Both compute the same function: XXH3 with the default secret and seed
0 (https://github.com/Cyan4973/xxHash, `xxhash.h`; the names of its parts are kept here).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from dedup_job.native.compiled import compiled, compiled_helper, multiply_high, prefetch, swap_bytes
from dedup_job.text.characters import CODE_POINT, decode_text, encode_texts

Codes = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_LONGEST: Final = 16  # bytes
_AHEAD: Final = 8  # lookups that are prefetched
_PRIME32_2 = np.uint64(0x85EBCA77)
_PRIME64_1, _PRIME64_2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME64_3, _PRIME_MX1 = np.uint64(0x165667B19E3779F9), np.uint64(0x165667919E3779F9)
_PRIME_MX2 = np.uint64(0x9FB21C651E98DF25)
# Two neighbouring words of the secret by xor, for each range of lengths and half of the hash.
_FLIP_3, _FLIP_3_HIGH = np.uint64(0x87275A9B), np.uint64(0x302C208B)
_FLIP_8, _FLIP_8_128 = np.uint64(0xC73AB174C5ECD5A2), np.uint64(0xC4F023344DC994AC)
_FLIP_16 = (np.uint64(0x6782737BEA4239B9), np.uint64(0xAF56BC3B0996523A))
_FLIP_16_128 = (np.uint64(0x59973F0033362349), np.uint64(0xC202797692D63D58))


def hash_terms(codes: Codes, starts: Numbers, stops: Numbers, bits: int) -> Hashes:
    """Return the stable hash of each term, uint64 (n, bits / 64), least significant word first.

    64 bits are xxh3-64 of the UTF-8 bytes, 128 bits xxh3-128 (low word, high word).

    Args:
        codes: Code points; other bits are ignored.
        starts: Where each term begins in `codes`.
        stops: Where each term ends.

    >>> from dedup_job.text.characters import encode_text
    >>> f"{hash_terms(encode_text('hello'), np.array([0]), np.array([5]), 64)[0, 0]:x}"
    '9555e8555c62dcfd'
    """
    hashes = np.empty((len(starts), bits // 64), np.uint64)
    digest = xxhash.xxh3_64_intdigest if bits == 64 else xxhash.xxh3_128_intdigest
    for term in _hash_short_terms(codes, starts, stops, hashes).tolist():
        text = decode_text(codes[starts[term] : stops[term]] & CODE_POINT)
        value = digest(text.encode("utf-8", "surrogatepass"))
        hashes[term] = [value >> shift & (2**64 - 1) for shift in range(0, bits, 64)]
    return hashes


def hash_strings(terms: Sequence[str], bits: int) -> Hashes:
    """Return the stable hash of each term, like `hash_terms`."""
    encoded = encode_texts(terms)
    return hash_terms(encoded.values, encoded.offsets[:-1], encoded.offsets[1:], bits)


@compiled
def _hash_short_terms(codes: Codes, starts: Numbers, stops: Numbers, hashes: Hashes) -> Numbers:
    """Write the hashes of short terms; return the numbers of the other terms."""
    others, count = np.empty(len(starts), np.int64), 0
    for term in range(len(starts)):
        low, high, length = _encode_utf8(codes, starts[term], stops[term])
        if length < 1 or length > _LONGEST:
            others[count] = term
            count += 1
        elif hashes.shape[1] == 1:
            hashes[term, 0] = _xxh3_64(low, high, length)
        else:
            hashes[term, 0], hashes[term, 1] = _xxh3_128(low, high, length)
    return others[:count].copy()


@compiled_helper
def _encode_utf8(codes: Codes, start: int, stop: int) -> tuple[np.uint64, np.uint64, int]:
    """Return the first and the last 8 of up to 16 UTF-8 bytes, the first byte lowest, and their number.

    The number is greater than 16 for a longer term. "ab" has the bytes 0x61 and 0x62: 0x6261, 0, 2.
    """
    low = high = np.uint64(0)
    length = 0
    for place in range(start, stop):
        code = np.int64(codes[place] & CODE_POINT)
        # The bytes of a character, the first one lowest: 0b0xxxxxxx, or 0b110xxxxx 0b10xxxxxx and so on, with
        # the upper bits of the code point first.
        size, packed = 1, code
        if code >= 0x10000:
            size = 4
            packed = (
                0x808080F0 | code >> 18 | (code >> 12 & 63) << 8 | (code >> 6 & 63) << 16 | (code & 63) << 24
            )
        elif code >= 0x800:
            size = 3
            packed = 0x8080E0 | code >> 12 | (code >> 6 & 63) << 8 | (code & 63) << 16
        elif code >= 0x80:
            size = 2
            packed = 0x80C0 | code >> 6 | (code & 63) << 8
        octets = np.uint64(packed)
        if length + size > _LONGEST:
            return low, high, _LONGEST + 1
        shift = np.uint64(8 * (length & 7))
        if length < 8:
            low |= octets << shift
            if length + size > 8:
                high = octets >> np.uint64(64) - shift
        else:
            high |= octets << shift
        length += size
    return low, high, length


@compiled_helper
def _last_octets(low: np.uint64, high: np.uint64, length: int) -> np.uint64:
    """Return the last 8 of 9 to 16 bytes."""
    # In two steps, because a shift by 64 is undefined.
    return low >> np.uint64(8 * (length - 9)) >> np.uint64(8) | high << np.uint64(8 * (16 - length))


@compiled_helper
def _xxh3_64(low: np.uint64, high: np.uint64, length: int) -> np.uint64:
    """Return XXH3_64bits of 1 to 16 bytes."""
    if length <= 3:
        return _avalanche_64(_combine(low, length) ^ _FLIP_3)
    if length <= 8:
        last = low >> np.uint64(8 * (length - 4))
        keyed = (last + (low << np.uint64(32))) ^ _FLIP_8
        keyed ^= (keyed << np.uint64(49) | keyed >> np.uint64(15)) ^ (
            keyed << np.uint64(24) | keyed >> np.uint64(40)
        )
        keyed *= _PRIME_MX2
        keyed = (keyed ^ (keyed >> np.uint64(35)) + np.uint64(length)) * _PRIME_MX2
        return keyed ^ keyed >> np.uint64(28)
    first, last = low ^ _FLIP_16[0], _last_octets(low, high, length) ^ _FLIP_16[1]
    folded = first * last ^ multiply_high(first, last)
    return _avalanche(np.uint64(length) + swap_bytes(first) + last + folded)


@compiled_helper
def _xxh3_128(low: np.uint64, high: np.uint64, length: int) -> tuple[np.uint64, np.uint64]:
    """Return XXH3_128bits of 1 to 16 bytes, the low word first."""
    if length <= 3:
        combined = _combine(low, length)
        swapped = swap_bytes(combined) >> np.uint64(32)
        swapped = (swapped << np.uint64(13) | swapped >> np.uint64(19)) & np.uint64(0xFFFFFFFF)
        return _avalanche_64(combined ^ _FLIP_3), _avalanche_64(swapped ^ _FLIP_3_HIGH)
    if length <= 8:
        last = low >> np.uint64(8 * (length - 4))
        keyed = ((low & np.uint64(0xFFFFFFFF)) + (last << np.uint64(32))) ^ _FLIP_8_128
        factor = _PRIME64_1 + np.uint64(4 * length)
        below, above = keyed * factor, multiply_high(keyed, factor)
        above += below << np.uint64(1)
        below ^= above >> np.uint64(3)
        below = (below ^ below >> np.uint64(35)) * _PRIME_MX2
        return below ^ below >> np.uint64(28), _avalanche(above)
    last = _last_octets(low, high, length)
    mixed = low ^ last ^ _FLIP_16_128[0]
    below = mixed * _PRIME64_1 + (np.uint64(length - 1) << np.uint64(54))
    last ^= _FLIP_16_128[1]
    above = multiply_high(mixed, _PRIME64_1) + last
    above += (last & np.uint64(0xFFFFFFFF)) * (_PRIME32_2 - np.uint64(1))
    below ^= swap_bytes(above)
    return (
        _avalanche(below * _PRIME64_2),
        _avalanche(multiply_high(below, _PRIME64_2) + above * _PRIME64_2),
    )


@compiled_helper
def _combine(octets: np.uint64, length: int) -> np.uint64:
    """Return 1 to 3 bytes, the middle one, and their number, in 32 bits."""
    first, last = octets & np.uint64(255), octets >> np.uint64(8 * (length - 1))
    middle = octets >> np.uint64(8 * (length >> 1)) & np.uint64(255)
    return first << np.uint64(16) | middle << np.uint64(24) | last | np.uint64(length << 8)


@compiled_helper
def _avalanche_64(value: np.uint64) -> np.uint64:
    """XXH64_avalanche."""
    value = (value ^ value >> np.uint64(33)) * _PRIME64_2
    value = (value ^ value >> np.uint64(29)) * _PRIME64_3
    return value ^ value >> np.uint64(32)


@compiled_helper
def _avalanche(value: np.uint64) -> np.uint64:
    """XXH3_avalanche."""
    value = (value ^ value >> np.uint64(37)) * _PRIME_MX1
    return value ^ value >> np.uint64(32)


def build_table(hashes: Hashes, values: Numbers) -> Hashes:
    """Build a table of values greater than 0 by hash; the last value of a hash counts.

    Returns:
        uint64 (m, 2): slots of a hash table with open addressing, each a hash and its value, 0 if free.
    """
    # At most half of the slots are filled. Not `zeros`, so that numpy asks for large memory pages.
    slots = np.full((2 << len(hashes).bit_length(), 2), 0, np.uint64)
    _fill_table(hashes, values, slots)
    return slots


@compiled
def _fill_table(hashes: Hashes, values: Numbers, slots: Hashes) -> None:
    for entry in range(len(hashes)):
        slot = find_hash(hashes[entry], slots)
        slots[slot, 0], slots[slot, 1] = hashes[entry], values[entry]


@compiled_helper
def find_hash(value: np.uint64, slots: Hashes) -> int:
    """Return the slot of a hash in a table, or the free slot for it."""
    slot = int(np.int64(value & np.uint64(len(slots) - 1)))
    while slots[slot, 1] != 0 and slots[slot, 0] != value:
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@compiled
def look_up(hashes: Hashes, slots: Hashes) -> Numbers:
    """Return the value of each hash, int64; 0 for a hash that is not in the table."""
    values = np.empty(len(hashes), np.int64)
    for entry in range(len(hashes)):
        if entry + _AHEAD < len(hashes):
            prefetch(slots, np.int64(hashes[entry + _AHEAD] & np.uint64(len(slots) - 1)) * 2)
        values[entry] = slots[find_hash(hashes[entry], slots), 1]
    return values
