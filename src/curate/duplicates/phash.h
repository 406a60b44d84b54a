/* Perceptual hashes of frames with coarse colours, and which shots show the same by them. */
#ifndef WEFT_CURATE_PHASH_H
#define WEFT_CURATE_PHASH_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_PHASH_WORDS = 4, WEFT_PHASH_BITS = 256, WEFT_PHASH_CELLS = 16 };

/* word: the signs of the 16 x 16 lowest frequencies (without the constant ones) of the DCT of a
 * luma picture: stable under scaling, compression and changes of light (as PDQ, Davis and Rosen
 * 2019, but against 0, so that the hash of a mirrored picture follows from its own). Signs do not
 * see colour: cb and cr are the mean chroma of 4 x 4 cells. */
typedef struct weft_phash {
    uint64_t word[WEFT_PHASH_WORDS];
    uint8_t cb[WEFT_PHASH_CELLS], cr[WEFT_PHASH_CELLS];
} weft_phash;

/* When two pictures are the same. */
typedef struct weft_phash_limits {
    int bits;   /* at most so many differ */
    int colour; /* and no cell's chroma by more levels; 255: colours do not matter */
} weft_phash_limits;

/* `plane` are Y, Cb, Cr, u8 [height, width] with strides; any size up to 512, luma is resampled to
 * 64 x 64. */
void weft_phash_make(const uint8_t *const plane[3], const int64_t stride[3], int64_t width,
                     int64_t height, weft_phash *hash);
weft_phash weft_phash_mirror(const weft_phash *hash); /* of the picture seen in a mirror */
int weft_phash_distance(const weft_phash *a, const weft_phash *b); /* bits, 0 .. 256 */
bool weft_phash_same(const weft_phash *a, const weft_phash *b, weft_phash_limits limits);

/* As text: 128 hexadecimal digits and a NUL. Reading gives false for anything else. */
enum { WEFT_PHASH_TEXT = 129 };
void weft_phash_print(const weft_phash *hash, char text[WEFT_PHASH_TEXT]);
bool weft_phash_parse(const char *text, weft_phash *hash);

/* The share of the shorter list's frames (of equal ones: a's) that are the same as a frame of the
 * other at one common offset in time (the best one, give or take two steps). Frames are samples at
 * equal steps; of the shorter list every STRIDE-th is looked for, so steps are to be a quarter of
 * what tells frames apart. */
enum { WEFT_PHASH_STRIDE = 4 };
double weft_phash_overlap(const weft_phash *a, int64_t a_count, const weft_phash *b,
                          int64_t b_count, weft_phash_limits limits);

#endif
