#include "train/config/history_config.h"

#include "base/given.h"
#include "train/config/train_config.h"

static const char *const order_words[] = {"auto", "reverse", "forward", NULL};
static const weft_key history_keys[] = {
    {"window", WEFT_KEY_I64, offsetof(weft_history_config, window), "0", "frames",
     "length of a section, as `weft generate --window`. 0 (default): the one in weft.json of "
     "transformer.weights; without it the model's own, 36 for Framepack and 33 for Helios",
     .min = 0, .max = 1e6},
    {"sections", WEFT_KEY_ENUM, offsetof(weft_history_config, sections), "auto", "",
     "Framepack: order of the sections, as `weft generate --sections`. reverse: the history is "
     "after the section, forward (F1): before it; auto: as in weft.json of "
     "transformer.weights, otherwise reverse. Helios: always forward",
     .choices = order_words},
};
const weft_section weft_history_section = {
    "history",
    "sections of a clip and their histories, with condition: history (Framepack, Helios)",
    sizeof(weft_history_config), history_keys, WEFT_COUNT(history_keys)};

static weft_status conflict(const char *path, const char *key)
{
    return weft_run_conflict(path, key, "condition: history");
}

weft_status weft_history_check(const weft_run *run, const char *path)
{
    const weft_given keys[] = {{"history.window", run->history.window > 0},
                               {"history.sections", run->history.sections != 0}},
                     others[] = {{"distill.method", run->distill.method != 0},
                                 {"preference.rejected", weft_run_prefers(run)},
                                 {"identity", weft_run_model_given(&run->identity)},
                                 {"parallel.cascades",
                                  weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE}};
    const char *given = weft_first_given(keys, WEFT_COUNT(keys)),
               *other = weft_first_given(others, WEFT_COUNT(others));
    if (run->condition != WEFT_CONDITION_HISTORY)
        return given ? weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = given),
                                  "a history has no effect without condition: history. Add it.")
                     : WEFT_OK;
    if (!weft_run_model_given(&run->transformer))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "condition"),
                          "an autoencoder has no history. Remove condition: history.");
    return other ? conflict(path, other) : WEFT_OK;
}
