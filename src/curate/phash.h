/* Perceptual hashes of key frames, and which shots show the same by them. */
#ifndef WEFT_CURATE_PHASH_H
#define WEFT_CURATE_PHASH_H

#include <stdint.h>

enum { WEFT_PHASH_WORDS = 4, WEFT_PHASH_BITS = 256 };

/* The signs, against their median, of the 16 x 16 lowest frequencies (without the constant ones) of
 * the DCT of a luma picture: stable under scaling, compression and changes of light (the method of
 * PDQ, Davis and Rosen 2019, on 64 x 36 means). */
typedef struct weft_phash {
    uint64_t word[WEFT_PHASH_WORDS];
} weft_phash;

/* `luma` is u8 [height, width] with `stride`; any size, is resampled to 64 x 64. mirrored: of the
 * picture seen in a mirror. */
void weft_phash_make(const uint8_t *luma, int64_t width, int64_t height, int64_t stride,
                     weft_phash *hash, weft_phash *mirrored);
int weft_phash_distance(const weft_phash *a, const weft_phash *b); /* 0 .. 256 */

/* The share of the shorter list's frames that have a frame within `distance` bits in the other at one common offset in
 * time (the best one, give or take two steps). Frames are samples at equal steps; of the shorter list every fourth is
 * looked for, so steps are to be a quarter of what tells frames apart. */
double weft_phash_overlap(const weft_phash *a, int64_t a_count, const weft_phash *b, int64_t b_count,
                          int distance);

#endif
