/* Byte ranges of entropy coded data in packets. Private to curate/. */
#ifndef WEFT_CURATE_PROOF_CODED_RANGES_H
#define WEFT_CURATE_PROOF_CODED_RANGES_H

#include <libavcodec/avcodec.h>
#include <stdbool.h>

/* Entropy coded data of one coded slice (H.264, HEVC) or tile (VP9): bytes [begin, end) of a
 * packet. Decoding needs exactly these bytes. */
typedef struct weft_coded_range {
    int begin, end;
    int length_at, length_bytes; /* field with their length, big endian; 0 bytes: no field */
    int frame_at, frame_bytes;   /* field with the frame's length, little endian */
} weft_coded_range;

/* True if coded ranges can be found for this codec. */
bool weft_coded_ranges_known(const AVCodecParameters *par);
/* Finds the ranges of the picture that the packet shows, in decoding order; at most `most`. Returns
 * their number; 0: none found, or unsupported data. */
int weft_coded_ranges_find(const AVCodecParameters *par, const uint8_t *data, int size,
                           weft_coded_range *list, int most);
/* Copy of the packet with other bytes at the end of `range`; the bytes depend on `variant`. NULL:
 * out of memory. */
AVPacket *weft_coded_range_altered(const AVPacket *packet, const weft_coded_range *range,
                                   int variant);
/* Copy of the packet with more bytes after `range`. NULL: out of memory, or the length field cannot
 * hold the new length. */
AVPacket *weft_coded_range_grown(const AVPacket *packet, const weft_coded_range *range);

#endif
