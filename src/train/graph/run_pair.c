#include "train/graph/run_pair.h"

weft_run_pair weft_run_pair_of(const weft_run *run, const weft_run_models *models)
{
    if (weft_run_prefers(run))
        return (weft_run_pair){run->preference.rejected, "preference.rejected", "batch.rejected"};
    if (run->condition == WEFT_CONDITION_CONTROL)
        return (weft_run_pair){run->control.path, "control", "batch.control"};
    if (models->grey_rest)
        return (weft_run_pair){run->data.path, "condition", "batch.first_frame", true};
    return (weft_run_pair){0};
}

weft_run weft_run_pair_run(const weft_run *run, const weft_run_pair *pair)
{
    weft_run second = *run;
    second.data.path = pair->path;
    second.data.first_only = pair->first_only;
    return second;
}

weft_run_models weft_run_pair_models(const weft_run_models *models)
{
    weft_run_models second = *models;
    second.text_precomputed = false;
    return second;
}
