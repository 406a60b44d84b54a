#include "train/config/control_config.h"

#include "base/given.h"
#include "train/config/train_config.h"

/* The default of overlap_share, as a number and as the text of the table. */
#define OVERLAP_SHARE      0.5
#define TEXT_OF(number)    #number
#define DEFAULT_OF(number) TEXT_OF(number)

static const weft_key control_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(weft_control_config, path), "", "",
     "data set with the control video of every clip of data.path, under the same keys; poses for "
     "Wan Animate"},
    {"face", WEFT_KEY_STRING, offsetof(weft_control_config, face), "", "",
     "Wan Animate: data set with the video of the face of every clip, which has at least as many "
     "frames. It is decoded in every step"},
    {"image", WEFT_KEY_STRING, offsetof(weft_control_config, image), "", "",
     "Wan Animate: data set with an image of the character for every clip; the first frame of a "
     "video counts. Empty: the first frame of the clip"},
    {"background", WEFT_KEY_STRING, offsetof(weft_control_config, background), "", "",
     "Wan Animate: data set with a video of the background for every clip, in which the character "
     "is replaced; needs mask"},
    {"mask", WEFT_KEY_STRING, offsetof(weft_control_config, mask), "", "",
     "Wan Animate: data set with a video for every clip that is white where the character is, and "
     "black where the background is kept"},
    {"image_encoder", WEFT_KEY_STRING, offsetof(weft_control_config, image_encoder), "", "",
     "Wan Animate: folder of the image encoder, for a transformer with image_dim; it is frozen"},
    {"dropout", WEFT_KEY_F64, offsetof(weft_control_config, dropout), "0", "",
     "share of samples without the control video: zeros in its place, or grey frames in the form "
     "of VACE. Not for Wan Animate",
     .min = 0, .max = 1},
    {"face_dropout", WEFT_KEY_F64, offsetof(weft_control_config, face_dropout), "0", "",
     "Wan Animate: share of samples with a black face, which trains the unconditional branch of "
     "guidance; its product with caption_dropout is the share without both",
     .min = 0, .max = 1},
    {"window_overlap", WEFT_KEY_I64, offsetof(weft_control_config, window_overlap), "0", "",
     "Wan Animate: first frames of a clip that are given in some samples, as `weft generate "
     "--window-overlap` gives the last frames of the window before: 1 or 5. 0 (default): no frames",
     .min = 0, .max = 1e6},
    {"overlap_share", WEFT_KEY_F64, offsetof(weft_control_config, overlap_share),
     DEFAULT_OF(OVERLAP_SHARE), "",
     "Wan Animate: share of samples that begin with the given frames of window_overlap",
     .min = 1e-6, .max = 1},
};
const weft_section weft_control_section = {"control",
                                           "control videos of a transformer, such as depth, edges "
                                           "or poses, with condition: control",
                                           sizeof(weft_control_config),
                                           control_keys,
                                           WEFT_COUNT(control_keys),
                                           .single = "path"};

static weft_status conflict(const char *path, const char *key)
{
    return weft_run_conflict(path, key, "condition: control");
}

static bool has(const char *text)
{
    return text && text[0];
}

/* The first key with a value that only models which move a character take. */
static const char *moving_key(const weft_control_config *c)
{
    const weft_given keys[] = {{"control.face", has(c->face)},
                               {"control.image", has(c->image)},
                               {"control.background", has(c->background)},
                               {"control.mask", has(c->mask)},
                               {"control.image_encoder", has(c->image_encoder)},
                               {"control.face_dropout", c->face_dropout > 0},
                               {"control.window_overlap", c->window_overlap > 0},
                               {"control.overlap_share", c->overlap_share != OVERLAP_SHARE}};
    return weft_first_given(keys, WEFT_COUNT(keys));
}

weft_status weft_control_check_sets(const weft_control_config *c, bool moves, bool tokens,
                                    const char *class_name, const char *path)
{
    const char *key = moving_key(c);
    if (!moves)
        return key ? weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = key),
                                "%s takes a control video only. Remove the key, or train "
                                "WanAnimateTransformer3DModel.",
                                class_name)
                   : WEFT_OK;
    if (c->dropout > 0)
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                          WEFT_AT(.file = path, .key = "control.dropout"),
                          "%s always gets its poses; guidance omits the caption and the face. "
                          "Write control.face_dropout in its place.",
                          class_name);
    if (!c->window_overlap && c->overlap_share != OVERLAP_SHARE)
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                          WEFT_AT(.file = path, .key = "control.overlap_share"),
                          "no frames are given. Write control.window_overlap: 1 or 5, or remove "
                          "the key.");
    if (!has(c->face))
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "control.face"),
                          "%s moves a character by poses and by a face. Give the data set with "
                          "the videos of faces, with the keys of data.path: control: {path: POSES, "
                          "face: FACES}.",
                          class_name);
    if (has(c->background) != has(c->mask))
        return weft_error(
            WEFT_MSG_CONFIG_MISSING_KEY,
            WEFT_AT(.file = path, .key = has(c->mask) ? "control.background" : "control.mask"),
            "the character is replaced where the mask is white in the background, "
            "which needs both sets. Give both keys, or none.");
    if (tokens && !has(c->image_encoder))
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = "control.image_encoder"),
                          "this %s takes tokens of the image (image_dim). Give the folder of the "
                          "encoder, such as FOLDER/image_encoder of the published model.",
                          class_name);
    if (!tokens && has(c->image_encoder))
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT,
                          WEFT_AT(.file = path, .key = "control.image_encoder"),
                          "this %s takes no tokens of an image: its config has no image_dim. "
                          "Remove the key.",
                          class_name);
    return WEFT_OK;
}

weft_status weft_control_check_overlap(const weft_run *run, const weft_grid *grid, const char *path)
{
    const int64_t shared = run->control.window_overlap;
    const weft_train_stage *stage = run->train_stages.item;
    char rule[32];
    if (!shared)
        return WEFT_OK;
    if (!weft_grid_takes_frames(grid, shared))
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = "control.window_overlap", WEFT_NUMBER(shared)),
            "the autoencoder encodes %s frames to whole latents. Write 1 or 5, as the pipeline "
            "gives.",
            weft_grid_rule(grid, rule));
    for (int64_t i = 0; i < run->train_stages.count; i++)
        for (int b = 0; b < weft_train_stage_bucket_count(&stage[i]); b++) {
            const int64_t frames = weft_train_stage_bucket(&stage[i], b)->frames;
            if (frames <= shared)
                return weft_error(
                    WEFT_MSG_CONFIG_VALUE,
                    WEFT_AT(.file = path, .key = "control.window_overlap", WEFT_NUMBER(shared)),
                    "stage %" PRId64 " trains clips of %" PRId64
                    " frames, of which none would be left to generate. Give fewer frames, or train "
                    "longer clips.",
                    i, frames);
        }
    return WEFT_OK;
}

weft_status weft_control_check(const weft_run *run, const char *path)
{
    const bool given = has(run->control.path);
    const char *other = given                      ? "control"
                        : run->control.dropout > 0 ? "control.dropout"
                                                   : moving_key(&run->control);
    if (run->condition != WEFT_CONDITION_CONTROL)
        return other
                   ? weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = other),
                                "control videos have no effect without condition: control. Add it.")
                   : WEFT_OK;
    if (!given)
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "control"),
                          "condition: control needs the control video of each clip. Give their "
                          "data set, with the keys of data.path: control: SHARDS.");
    if (!weft_run_model_given(&run->transformer))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "condition"),
                          "an autoencoder has no control videos. Remove condition: control.");
    if (run->data.sources.count)
        return conflict(path, "data.sources");
    if (weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE)
        return conflict(path, "parallel.cascades");
    return WEFT_OK;
}
