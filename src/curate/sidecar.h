/* Captions from the files beside a video: NAME.json ({"caption": text} or {"shots": [{start, end,
 * caption}]}, frames, inclusive) and NAME.txt, with any case of the extension. */
#ifndef WEFT_CURATE_CAPTION_H
#define WEFT_CURATE_CAPTION_H

#include "base/json.h"
#include "base/memory.h"

/* What one sidecar says; zero-initialise. */
typedef struct weft_sidecar {
    json_t *json; /* owned; an object, or NULL */
    char *text;   /* owned; of a .txt, without a byte order mark and blanks at its end; or NULL */
    weft_buf why; /* why it, or a part of it, is of no use; empty: all of it is */
} weft_sidecar;

/* Never fails: what cannot be read is `why`. */
void weft_sidecar_read(const char *path, weft_sidecar *out);
void weft_sidecar_free(weft_sidecar *sidecar);
/* The caption of frames start .. end: of the annotated shot that covers most of them, when that is
 * at least half, else the file's own. Lives as long as the sidecar; NULL: none. */
const char *weft_sidecar_caption(const weft_sidecar *sidecar, int64_t start, int64_t end);

#endif
