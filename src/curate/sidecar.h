/* Captions from the files next to a video: NAME.json ({"caption": text} or {"shots": [{start, end,
 * caption}]}, frames, inclusive), NAME.vtt (cues of WebVTT) and NAME.txt, with any case of the
 * extension. */
#ifndef WEFT_CURATE_SIDECAR_H
#define WEFT_CURATE_SIDECAR_H

#include "base/json.h"
#include "base/memory.h"
#include "data/caption_vtt.h"

/* Content of one sidecar; zero-initialise. */
typedef struct weft_sidecar {
    json_t *json; /* owned; an object, or NULL */
    char *text;   /* owned; .txt without byte order mark and trailing blanks; or NULL */
    weft_caption_vtt cues;
    weft_buf why; /* why all or a part is unusable; empty: no problem */
} weft_sidecar;

/* Reads a sidecar. Never fails: problems are reported in `why`. */
void weft_sidecar_read(const char *path, weft_sidecar *out);
void weft_sidecar_free(weft_sidecar *sidecar);
/* Appends the cues of the seconds start .. end. */
void weft_sidecar_join_cues(const weft_sidecar *sidecar, double start, double end,
                            weft_buf *caption);
/* Caption of frames start .. end: of the annotated shot with the largest overlap, if at least half
 * of the frames; otherwise the file's own. Valid as long as the sidecar; NULL: none. */
const char *weft_sidecar_caption(const weft_sidecar *sidecar, int64_t start, int64_t end);

#endif
