/* A model that the server offers: its name, folder and legal values, read once from the configs of
 * the folder. No weights are read. */
#ifndef WEFT_SERVE_SERVED_MODEL_H
#define WEFT_SERVE_SERVED_MODEL_H

#include "base/json.h"
#include "base/memory.h"
#include "model/model.h"
#include "serve/compute_fields.h"
#include "serve/method_fields.h"

enum { WEFT_MODEL_NAME = 128 }; /* bytes of a name */

typedef struct weft_served_model {
    char *name, *folder;
    int64_t size[3];       /* frames, height and width of the training; 0: unknown */
    int64_t pixel_step[2]; /* height and width are multiples */
    double fps, guidance;
    int64_t steps; /* of a distilled model, or the usual number */
    weft_grid grid;
    bool takes_image, needs_image;           /* a first frame */
    bool takes_last_image, needs_last_image; /* a last frame */
    bool takes_control, needs_control;       /* a control video */
    bool takes_references;                   /* reference images of a control */
    bool takes_video;                        /* a video to change, and its mask */
    /* moves the character of the image by the control and a video of a face; a video is the
     * background and needs a mask */
    bool needs_face;
    bool takes[WEFT_METHOD_NEEDS]; /* options */
    int64_t identity_images;       /* maximum images of an identity; 0: none */
    weft_compute compute;          /* defaults of requests; the caller sets it */
} weft_served_model;

/* Reads the model of "DIR" or "NAME=DIR"; without NAME, the name is the name of the folder. */
weft_status weft_served_model_open(const char *spec, weft_served_model *model);
void weft_served_model_close(weft_served_model *model);
/* The legal values for /capabilities. NULL: out of memory. */
json_t *weft_served_model_json(const weft_served_model *model);
/* Hash of names, sizes and times of the files in the model's folder and in its subfolders: another
 * value after a change of a file. */
uint64_t weft_served_model_stamp(const weft_served_model *model);
/* WEFT_E_ARG: the model cannot generate this size; the error has the nearest legal value. */
weft_status weft_served_model_check(const weft_served_model *model, const int64_t size[3]);
/* Checks the size of a refined video, which has twice the frames of the coarse video, or the same
 * number (same_frames). */
weft_status weft_served_model_check_refined(const weft_served_model *model, bool same_frames,
                                            const int64_t size[3]);

#endif
