/* Training with control videos (depth, edges, poses): condition: control. A model that moves a
 * character (WEFT_FRAME_CONDITION_CHARACTER) takes poses as the control, and further sets. */
#ifndef WEFT_TRAIN_CONFIG_CONTROL_CONFIG_H
#define WEFT_TRAIN_CONFIG_CONTROL_CONFIG_H

#include "base/config.h"
#include "model/model.h"

typedef struct weft_control_config {
    /* Data sets with the keys of data.path; "": none. All but `path` are for models that move a
     * character. */
    const char *path, *face;
    const char *image; /* "": the first frame of each clip */
    const char *background, *mask;
    const char *image_encoder; /* folder of the encoder of `image`, if the model takes its tokens */
    double dropout;            /* share of samples without the control */
    /* Further keys of models that move a character: */
    double face_dropout;    /* share of samples with a black face */
    int64_t window_overlap; /* first frames of a clip that are given; 0 (default): no frames */
    double overlap_share;   /* share of samples that begin with given frames */
} weft_control_config;
extern const weft_section weft_control_section;

typedef struct weft_run weft_run;
/* Requires the data set of control videos exactly if condition is control, and rejects keys that
 * cannot be combined with condition: control. */
weft_status weft_control_check(const weft_run *run, const char *path);
/* Requires the sets that a model needs that moves a character (`moves`), and rejects them for other
 * models. `tokens`: whether the model takes tokens of the image. */
weft_status weft_control_check_sets(const weft_control_config *control, bool moves, bool tokens,
                                    const char *class_name, const char *path);
/* Checks window_overlap against the clips of all buckets. `grid`: of the autoencoder. */
weft_status weft_control_check_overlap(const weft_run *run, const weft_grid *grid,
                                       const char *path);

#endif
