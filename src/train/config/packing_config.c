#include "train/config/packing_config.h"

/* Returns the error of a key that has no meaning for packed rows. */
static weft_status conflict(const char *path, const char *key)
{
    return weft_run_conflict(path, key, "data.packing");
}

static weft_status check_stage(const weft_train_stage *s, const char *path, int64_t index)
{
    char key[64];
    for (int i = 0; i < weft_train_stage_bucket_count(s); i++) {
        const int64_t batch = weft_train_stage_bucket(s, i)->batch;
        if (batch > 1)
            return weft_error(
                WEFT_MSG_CONFIG_CONFLICT,
                WEFT_AT(.file = path, .key = weft_message_key(key, "stages.%" PRId64, index),
                        WEFT_NUMBER(batch)),
                "batch has no effect with data.packing, whose rows and tokens set the size of a "
                "batch. Remove batch: %" PRId64 ".",
                batch);
    }
    if (s->tokens > 0 || s->load > 0)
        return conflict(path, weft_message_key(key, "stages.%" PRId64 ".%s", index,
                                               s->tokens > 0 ? "max_tokens" : "max_load"));
    return s->last_images >= 0
               ? conflict(path, weft_message_key(key, "stages.%" PRId64 ".image_share_end", index))
               : WEFT_OK;
}

weft_status weft_row_packing_check(const weft_run *run, const char *path)
{
    if (!weft_run_packs(run))
        return WEFT_OK;
    if (!weft_run_model_given(&run->transformer))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "data.packing"),
                          "rows of tokens are for a transformer; an autoencoder reads clips of one "
                          "size. Remove data.packing.");
    if (run->data.samples_from == WEFT_FROM_PIXELS)
        return conflict(path, "data.input");
    if (weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.file = path, .key = "parallel.cascades"),
                          "the planner of cascades gives each sample to a group of ranks, and a "
                          "packed row has samples of one group only. Remove data.packing: the "
                          "planner balances samples of different sizes, too.");
    if (run->condition != WEFT_CONDITION_NONE)
        return conflict(path, "condition");
    if (weft_run_model_given(&run->identity))
        return conflict(path, "identity");
    if (run->noise.flow.by_resolution)
        return conflict(path, "flow.shift_by_resolution");
    for (int64_t i = 0; i < run->train_stages.count; i++)
        WEFT_TRY(check_stage((const weft_train_stage *)run->train_stages.item + i, path, i));
    return WEFT_OK;
}
