#include "train/graph/run_pair.h"

#include "train/graph/character_inputs.h"

static int character_sets(const weft_run *run, weft_run_pair *pair)
{
    const weft_control_config *c = &run->control;
    int count = 0;
    pair[count++] = (weft_run_pair){c->path, "control", "batch.control", WEFT_PAIR_LATENTS};
    pair[count++] = (weft_run_pair){c->image[0] ? c->image : run->data.path, "control.image",
                                    "batch.image", WEFT_PAIR_STILLS};
    pair[count++] = (weft_run_pair){c->face, "control.face", "batch.face", WEFT_PAIR_FRAMES};
    if (c->window_overlap)
        pair[count++] = (weft_run_pair){.path = run->data.path,
                                        .key = "control.window_overlap",
                                        .input = "batch.overlap",
                                        .kind = WEFT_PAIR_LATENTS,
                                        .given_frames = c->window_overlap,
                                        .rest = c->background[0] ? c->background : NULL};
    if (!c->background[0])
        return count;
    pair[count++] =
        (weft_run_pair){c->background, "control.background", "batch.background", WEFT_PAIR_LATENTS};
    pair[count++] = (weft_run_pair){c->mask, "control.mask", "batch.marks", WEFT_PAIR_MARKS};
    return count;
}

int weft_run_pairs_of(const weft_run *run, const weft_run_models *models,
                      weft_run_pair pair[WEFT_RUN_PAIRS])
{
    if (weft_run_prefers(run)) {
        *pair = (weft_run_pair){run->preference.rejected, "preference.rejected", "batch.rejected",
                                WEFT_PAIR_LATENTS};
        return 1;
    }
    if (run->condition == WEFT_CONDITION_CONTROL && weft_run_moves_character(models))
        return character_sets(run, pair);
    if (run->condition == WEFT_CONDITION_CONTROL) {
        *pair = (weft_run_pair){run->control.path, "control", "batch.control", WEFT_PAIR_LATENTS};
        return 1;
    }
    if (!models->grey_rest)
        return 0;
    *pair = (weft_run_pair){run->data.path, "condition", "batch.first_frame", WEFT_PAIR_LATENTS,
                            .given_frames = 1};
    return 1;
}

weft_run weft_run_pair_run(const weft_run *run, const weft_run_pair *pair)
{
    weft_run second = *run;
    second.data.path = pair->path;
    second.data.given_frames = pair->given_frames;
    second.data.rest = pair->rest;
    second.data.image_encoder = pair->kind == WEFT_PAIR_STILLS && run->control.image_encoder[0]
                                    ? run->control.image_encoder
                                    : NULL;
    return second;
}

weft_run_models weft_run_pair_models(const weft_run_models *models)
{
    weft_run_models second = *models;
    second.text_precomputed = false;
    return second;
}

weft_status weft_run_pair_stage(const weft_run_pair *pair, const weft_train_stage *stage,
                                weft_train_stage *own)
{
    const int count = weft_train_stage_bucket_count(stage);
    weft_bucket *size;
    int64_t sizes = 0;
    *own = *stage;
    if (pair->kind != WEFT_PAIR_STILLS)
        return WEFT_OK;
    own->size.frames = 1;
    if (!stage->buckets.count)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(size, count, "%d buckets", count));
    for (int i = 0; i < count; i++) {
        const weft_bucket *b = weft_train_stage_bucket(stage, i);
        int64_t k = 0;
        while (k < sizes && (size[k].height != b->height || size[k].width != b->width))
            k++;
        size[k] = *b;
        size[k].frames = 1;
        sizes += k == sizes;
    }
    own->buckets = (weft_section_list){sizes, size};
    return WEFT_OK;
}

void weft_run_pair_stage_free(const weft_run_pair *pair, weft_train_stage *own)
{
    if (pair->kind == WEFT_PAIR_STILLS && own->buckets.count)
        weft_free(own->buckets.item);
}
