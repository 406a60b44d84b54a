/* Where generated videos go: mp4 files, arrays, and a contact sheet. */
#ifndef WEFT_GENERATE_GALLERY_H
#define WEFT_GENERATE_GALLERY_H

#include "base/json.h"
#include "generate/generator.h"

typedef struct weft_gallery weft_gallery;

/* A video; strings are borrowed. */
typedef struct weft_gallery_item {
    const char *file; /* below the folder; NULL: 0000.mp4 by its number */
    const char *prompt, *negative;
    uint64_t seed;
    int64_t frames, height, width, steps;
    double guidance;
    const char *sampler; /* it and the rate: known when the video begins */
    double fps;
} weft_gallery_item;

typedef struct weft_gallery_options {
    const char *out;   /* one file when it ends in .mp4 (of one video), else a folder */
    const char *sheet; /* a contact sheet, .png, of videos of one size; NULL: none */
    bool raw; /* beside each video the model's own numbers: f32 (frames, height, width, 3), .npy */
    const weft_gallery_item *items; /* [count], borrowed */
    int64_t count;
    bool goes_on; /* prompts.jsonl stays, and lines come behind its own; else it begins anew */
    bool second;  /* another rank has opened the same before: nothing is looked at or removed */
} weft_gallery_options;

/* WEFT_E_ARG: `sheet` is no name for a .png. */
weft_status weft_gallery_check_sheet(const char *sheet);
/* 0003.mp4 of video 3, where `file` is NULL; else `file`. */
const char *weft_gallery_name(const char *file, int64_t number, char own[32]);
/* "dog.walk.safetensors" of dog.mp4, "OUT/0003.walk.safetensors" of video 3 of a folder, for ending
 * "walk.safetensors". */
weft_status weft_gallery_beside(const char *out, const weft_gallery_item *item, int64_t number,
                                const char *ending, weft_buf *path);
/* `path` is a video of that prompt, seed, size, steps and guidance, as its file says. */
bool weft_gallery_is_there(const char *path, const weft_gallery_item *item);
/* In a folder each video has a line of JSON in prompts.jsonl as soon as it is whole. */
weft_status weft_gallery_open(const weft_gallery_options *options, weft_gallery **gallery);
/* Members that the line of the video which is written now has beside its own; taken. */
void weft_gallery_facts(weft_gallery *gallery, json_t *facts);
/* As weft_generator_sink.frames. */
weft_status weft_gallery_frames(weft_gallery *gallery, int64_t prompt, int64_t first_frame,
                                int64_t count, const float *frames);
/* Writes the sheet. */
weft_status weft_gallery_finish(weft_gallery *gallery);
void weft_gallery_free(weft_gallery *gallery); /* accepts NULL; an unfinished file does not stay */

#endif
