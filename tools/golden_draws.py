"""The random numbers of weft (src/base/rng.h: Philox 4x32-10, splitmix64) and the ids of samples (XXH3-64 of the key), for makers of
golden files that train with the same draws."""
import math

import numpy as np

MASK = 2**64 - 1


def philox(key, high, low):
    c = [low & 0xffffffff, low >> 32, high & 0xffffffff, high >> 32]
    k = [key & 0xffffffff, key >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xffffffff, (p >> 32) ^ c[3] ^ k[1], p & 0xffffffff]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return c


def uniform(key, purpose, index):
    return ((philox(key, purpose, index // 4)[index % 4] >> 8) + 0.5) / 2**24


def normal(key, purpose, index):
    block = philox(key, purpose | 1 << 32, index // 2)
    radius = math.sqrt(-2 * math.log((block[0] + 0.5) / 2**32))
    angle = 2 * math.pi * (block[1] + 0.5) / 2**32
    return np.float32(radius * (math.sin(angle) if index % 2 else math.cos(angle)))


def below(key, purpose, n):
    """A number of 0 to n - 1: the first draw of the stream whose remainder is even."""
    word, at = lambda i: philox(key, purpose | 2 << 32, i // 4)[i % 4], 0
    while (value := word(at) << 32 | word(at + 1)) >= MASK - MASK % n:
        at += 2
    return value % n


def mix(a, b):
    z = (a + 0x9E3779B97F4A7C15 * (b + 1)) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def sample_id(key):
    """XXH3-64 of a key of 4 to 8 bytes, without a seed."""
    data = key.encode()
    assert 4 <= len(data) <= 8
    secret = 0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE  # bytes 8 to 23 of XXH3's default secret

    def left(x, bits):
        return (x << bits | x >> 64 - bits) & MASK
    h = (int.from_bytes(data[-4:], "little") + (int.from_bytes(data[:4], "little") << 32)) ^ secret
    h ^= left(h, 49) ^ left(h, 24)
    h = h * 0x9FB21C651E98DF25 & MASK
    h ^= (h >> 35) + len(data)
    h = h * 0x9FB21C651E98DF25 & MASK
    return h ^ h >> 28


def item_key(seed, step, key, epoch=0):
    """Key of the draws of a sample in a step (src/train/graph/step_inputs.c)."""
    mixed = mix(mix(seed, step), sample_id(key))
    return mix(mixed, epoch) if epoch else mixed
