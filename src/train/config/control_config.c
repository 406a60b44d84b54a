#include "train/config/control_config.h"

#include "base/given.h"
#include "train/config/train_config.h"

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
    return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = key),
                      "it cannot be combined with condition: control. Remove one of the two.");
}

static bool has(const char *text)
{
    return text && text[0];
}

/* The first key with a value that only models take which move a character. */
static const char *moving_key(const weft_control_config *c)
{
    const weft_given keys[] = {{"control.face", has(c->face)},
                               {"control.image", has(c->image)},
                               {"control.background", has(c->background)},
                               {"control.mask", has(c->mask)},
                               {"control.image_encoder", has(c->image_encoder)}};
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

weft_status weft_control_check(const weft_run *run, const char *path)
{
    const bool given = has(run->control.path);
    const char *other = given ? "control" : moving_key(&run->control);
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
    if (run->distill.method)
        return conflict(path, "distill.method");
    if (weft_run_prefers(run))
        return conflict(path, "preference.rejected");
    if (run->data.sources.count)
        return conflict(path, "data.sources");
    if (weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE)
        return conflict(path, "parallel.cascades");
    return WEFT_OK;
}
