"""weft's random numbers (src/base/rng.h), for references that draw noise."""
import math

SAMPLER, DECODER, GIVEN, STAGE, DECODED = 7, 13, 16, 18, 22  # purposes


def philox(key, high, low):
    c, k = [low & 0xffffffff, low >> 32, high & 0xffffffff, high >> 32], [key & 0xffffffff, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xffffffff, a >> 32 ^ c[3] ^ k[1], a & 0xffffffff]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return c


def uniform(key, index, purpose):
    return ((philox(key, purpose, index // 4)[index % 4] >> 8) + 0.5) / 2**24


def normal(key, index, purpose=DECODER):
    block = philox(key, purpose | 1 << 32, index // 2)
    angle = 2 * math.pi * (block[1] + 0.5) / 2**32
    return math.sqrt(-2 * math.log((block[0] + 0.5) / 2**32)) * (math.sin(angle) if index % 2 else math.cos(angle))
