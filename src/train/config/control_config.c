#include "train/config/control_config.h"

#include "train/config/train_config.h"

static const weft_key control_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(weft_control_config, path), "", "",
     "data set with the control video of every clip of data.path, under the same keys"},
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

weft_status weft_control_check(const weft_run *run, const char *path)
{
    const bool given = run->control.path && run->control.path[0];
    if (run->condition != WEFT_CONDITION_CONTROL)
        return given
                   ? weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "control"),
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
