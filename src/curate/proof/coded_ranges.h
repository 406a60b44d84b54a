/* Where coded data end inside of a packet. Private to video/. */
#ifndef WEFT_VIDEO_TAILS_H
#define WEFT_VIDEO_TAILS_H

#include <libavcodec/avcodec.h>
#include <stdbool.h>

/* The entropy coded data of one slice (H.264, HEVC) or tile (VP9): bytes [begin, end) of a packet.
 * All of them are needed to decode it, and no more. */
typedef struct weft_tail {
    int begin, end;
    int length_at, length_bytes; /* where their number stands, big endian; 0 bytes: nowhere */
    int frame_at, frame_bytes;   /* where the bytes of their frame stand, little endian */
} weft_tail;

/* Whether the ends of this codec's data are known here. */
bool weft_tails_known(const AVCodecParameters *par);
/* Those of the picture that the packet shows, in the order of decoding; at most `most`. 0: none
 * that is understood. */
int weft_tails_find(const AVCodecParameters *par, const uint8_t *data, int size, weft_tail *list,
                    int most);
/* A copy of the packet with other bytes at the end of the data that `tail` tells, which depend on
 * `variant`. NULL: out of memory. */
AVPacket *weft_tail_altered(const AVPacket *packet, const weft_tail *tail, int variant);
/* A copy with more bytes behind them. NULL: out of memory, or the bytes cannot be told so. */
AVPacket *weft_tail_grown(const AVPacket *packet, const weft_tail *tail);

#endif
