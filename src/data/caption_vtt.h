/* Captions from the cues of a WebVTT file: texts with the span of time to which they belong. */
#ifndef WEFT_DATA_CAPTION_VTT_H
#define WEFT_DATA_CAPTION_VTT_H

#include "base/memory.h"

typedef struct weft_caption_cue {
    double start, end; /* seconds */
    char *text;        /* owned; lines joined by blanks, without tags */
} weft_caption_cue;

/* Zero-initialise. */
typedef struct weft_caption_vtt {
    weft_caption_cue *cue; /* in the order of the file; owned */
    int64_t cues, capacity;
} weft_caption_vtt;

/* Reads the cues of a text, which ends with NUL and is changed. `why` (appended): why all or some
 * cues are unusable. Only a lack of memory is an error. */
weft_status weft_caption_vtt_parse(char *text, weft_caption_vtt *vtt, weft_buf *why);
void weft_caption_vtt_free(weft_caption_vtt *vtt);
/* Appends the cues of a clip, joined by blanks. A cue belongs to the clip [start, end) if both
 * share at least half of the cue or half of the clip. */
void weft_caption_vtt_join(const weft_caption_vtt *vtt, double start, double end,
                           weft_buf *caption);

#endif
