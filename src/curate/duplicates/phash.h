/* Perceptual hashes of frames with coarse colours, and duplicate detection with the hashes. */
#ifndef WEFT_CURATE_DUPLICATES_PHASH_H
#define WEFT_CURATE_DUPLICATES_PHASH_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_PHASH_WORDS = 4, WEFT_PHASH_BITS = 256, WEFT_PHASH_CELLS = 16 };

/* word: signs of the 16 x 16 lowest frequencies (without the constant ones) of the luma DCT. Signs
 * are stable under scaling, compression and changes of light (as PDQ, Davis and Rosen 2019). PDQ
 * compares with the median; here the threshold is 0, so that the hash of a mirrored frame follows
 * from its own. Signs ignore colour: cb and cr are the mean chroma of 4 x 4 cells. */
typedef struct weft_phash {
    uint64_t word[WEFT_PHASH_WORDS];
    uint8_t cb[WEFT_PHASH_CELLS], cr[WEFT_PHASH_CELLS];
} weft_phash;

/* Limits below which two frames are the same. */
typedef struct weft_phash_limits {
    int bits;   /* maximum number of different bits */
    int colour; /* maximum chroma difference of a cell; 255: colours are ignored */
} weft_phash_limits;

/* Computes a hash. `plane` are Y, Cb, Cr, u8 [height, width] with strides, at most 512 a side. Luma
 * is resampled to 64 x 64. */
void weft_phash_make(const uint8_t *const plane[3], const int64_t stride[3], int64_t width,
                     int64_t height, weft_phash *hash);
weft_phash weft_phash_mirror(const weft_phash *hash);              /* hash of the mirrored frame */
int weft_phash_distance(const weft_phash *a, const weft_phash *b); /* bits, 0 .. 256 */
bool weft_phash_same(const weft_phash *a, const weft_phash *b, weft_phash_limits limits);

/* Text form: 128 hexadecimal digits and a NUL. Parsing returns false for any other text. */
enum { WEFT_PHASH_TEXT = 129 };
void weft_phash_print(const weft_phash *hash, char text[WEFT_PHASH_TEXT]);
bool weft_phash_parse(const char *text, weft_phash *hash);

/* Share of the shorter list's frames (equal lengths: a's) that match a frame of the other list at
 * one common time offset: the best offset, within two steps. Frames are samples at equal steps.
 * Only every STRIDE-th frame of the shorter list is compared, so a step should be a quarter of the
 * time in which frames change noticeably. */
enum { WEFT_PHASH_STRIDE = 4 };
double weft_phash_overlap(const weft_phash *a, int64_t a_count, const weft_phash *b,
                          int64_t b_count, weft_phash_limits limits);

#endif
