#include "train/config/preference_config.h"

#include "train/config/packing_config.h"
#include "train/config/train_config.h"

static const weft_key preference_keys[] = {
    {"rejected", WEFT_KEY_STRING, offsetof(weft_preference_config, rejected), "", "",
     "data set with the rejected clip of every clip of data.path, under the same keys; with sound "
     "where that clip has sound. Empty: no preference tuning"},
    {"beta", WEFT_KEY_F64, offsetof(weft_preference_config, beta), "2000", "",
     "weight of the difference from transformer.weights; larger: smaller changes", .min = 0,
     .max = 1e9},
};
const weft_section weft_preference_section = {
    "preference",
    "preference tuning of a transformer with pairs of clips (Diffusion-DPO)",
    sizeof(weft_preference_config),
    preference_keys,
    WEFT_COUNT(preference_keys),
    .single = "rejected"};

static weft_status conflict(const char *path, const char *key)
{
    return weft_run_conflict(path, key, "preference.rejected");
}

weft_status weft_preference_check(const weft_run *run, const char *path)
{
    if (!weft_run_prefers(run))
        return WEFT_OK;
    if (!weft_run_model_given(&run->transformer) || !run->transformer.weights[0])
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = "transformer.weights"),
                          "preference tuning starts with a trained transformer, which is also its "
                          "reference. Give its folder.");
    if (run->distill.method)
        return conflict(path, "distill.method");
    if (weft_run_packs(run))
        return conflict(path, "data.packing");
    if (run->data.sources.count)
        return conflict(path, "data.sources");
    if (weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE)
        return conflict(path, "parallel.cascades");
    if (run->parallel.pp != 1)
        return conflict(path, "parallel.pp");
    return weft_run_model_given(&run->identity) ? conflict(path, "identity") : WEFT_OK;
}
