/* Where generated videos go: mp4 files, arrays, and a contact sheet. */
#ifndef WEFT_GENERATE_GALLERY_H
#define WEFT_GENERATE_GALLERY_H

#include "generate/generator.h"

typedef struct weft_gallery weft_gallery;

/* WEFT_E_ARG: `sheet` is no name for a .png. */
weft_status weft_gallery_check_sheet(const char *sheet);

/* One file when `out` ends in .mp4 (then count must be 1), else a folder with 0000.mp4 ... and
 * prompts.jsonl. `sheet` may be NULL. `raw`: beside each video also the model's own numbers, f32
 * (frames, height, width, 3) in [-1,1], as .npy. Prompts and seeds are borrowed. */
weft_status weft_gallery_open(const char *out, const char *sheet, bool raw,
                              const char *const *prompts, const uint64_t *seeds, int64_t count,
                              const weft_generator_options *settings, double fps,
                              weft_gallery **gallery);
/* As weft_generator_sink.frames. */
weft_status weft_gallery_frames(weft_gallery *gallery, int64_t prompt, int64_t first_frame,
                                int64_t count, const float *frames);
/* Finishes the last file, writes prompts.jsonl and the sheet. */
weft_status weft_gallery_finish(weft_gallery *gallery);
void weft_gallery_free(weft_gallery *gallery); /* accepts NULL; an unfinished file does not stay */

#endif
