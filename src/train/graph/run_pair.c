#include "train/graph/run_pair.h"

#include "train/graph/character_inputs.h"
#include "train/graph/identity_inputs.h"

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

/* The sets of the run's task. */
static int sets_of(const weft_run *run, const weft_run_models *models, weft_run_pair *pair)
{
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

/* The sets of the rejected clips: the clips, and their first frames if the run has such a set. */
static int rejected_sets(const weft_run *run, const weft_run_models *models, weft_run_pair *pair)
{
    const char *path = run->preference.rejected, *key = "preference.rejected";
    int count = 0;
    if (!weft_run_prefers(run))
        return 0;
    pair[count++] = (weft_run_pair){
        .path = path,
        .key = key,
        .input = "batch.rejected",
        .kind = WEFT_PAIR_LATENTS,
        .sound = weft_run_has_sound(&models->sound) ? "batch.rejected_sound" : NULL};
    if (models->grey_rest)
        pair[count++] = (weft_run_pair){.path = path,
                                        .key = key,
                                        .input = "batch.rejected_first_frame",
                                        .kind = WEFT_PAIR_LATENTS,
                                        .given_frames = 1};
    return count;
}

/* The sets of reference images. */
static int identity_sets(const weft_run *run, const weft_run_models *models, weft_run_pair *pair)
{
    const weft_string_list *images = &run->identity.images;
    if (!weft_identity_inputs_given(run, models))
        return 0;
    const int count = images->count ? (int)images->count : 1;
    for (int i = 0; i < count; i++)
        pair[i] = (weft_run_pair){images->count ? images->item[i] : run->data.path,
                                  images->count ? "identity.images" : "identity.image_encoder",
                                  WEFT_IDENTITY_INPUT, WEFT_PAIR_IDENTITY,
                                  .features = weft_identity_inputs_features(models)};
    return count;
}

int weft_run_pairs_of(const weft_run *run, const weft_run_models *models,
                      weft_run_pair pair[WEFT_RUN_PAIRS])
{
    int count = sets_of(run, models, pair);
    count += rejected_sets(run, models, pair + count);
    return count + identity_sets(run, models, pair + count);
}

/* Sets the image encoder of a pair, and its features. */
static void set_encoder(const weft_run *run, const weft_run_pair *pair, weft_run_data *data)
{
    const char *folder = pair->kind == WEFT_PAIR_STILLS     ? run->control.image_encoder
                         : pair->kind == WEFT_PAIR_IDENTITY ? run->identity.image_encoder
                                                            : NULL;
    data->image_encoder = folder && folder[0] ? folder : NULL;
    data->image_features =
        pair->kind == WEFT_PAIR_IDENTITY ? pair->features : WEFT_FEATURES_OF_FRAME;
}

weft_run weft_run_pair_run(const weft_run *run, const weft_run_pair *pair)
{
    weft_run second = *run;
    second.data.path = pair->path;
    second.data.given_frames = pair->given_frames;
    second.data.rest = pair->rest;
    set_encoder(run, pair, &second.data);
    return second;
}

weft_run_models weft_run_pair_models(const weft_run_models *models, const weft_run_pair *pair)
{
    weft_run_models second = *models;
    second.text_precomputed = false;
    if (!pair->sound)
        second.sound = (weft_run_sound){0};
    return second;
}

/* The size with the fewest pixels of a frame. */
static weft_bucket smallest(const weft_train_stage *stage)
{
    weft_bucket least = *weft_train_stage_bucket(stage, 0);
    for (int i = 1; i < weft_train_stage_bucket_count(stage); i++) {
        const weft_bucket *b = weft_train_stage_bucket(stage, i);
        if (b->height * b->width < least.height * least.width)
            least = *b;
    }
    return least;
}

/* Whether the sizes of a pair are of one frame. */
static bool is_still(const weft_run_pair *pair)
{
    return pair->kind == WEFT_PAIR_STILLS || pair->kind == WEFT_PAIR_IDENTITY;
}

weft_status weft_run_pair_stage(const weft_run *run, const weft_run_pair *pair,
                                const weft_train_stage *stage, weft_train_stage *own)
{
    const int count = weft_train_stage_bucket_count(stage);
    weft_bucket *size;
    int64_t sizes = 0;
    *own = *stage;
    if (!is_still(pair))
        return WEFT_OK;
    if (pair->kind == WEFT_PAIR_IDENTITY && run->identity.image_encoder[0]) {
        own->size = smallest(stage);
        own->size.frames = 1;
        own->buckets = (weft_section_list){0};
        return WEFT_OK;
    }
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
    if (is_still(pair) && own->buckets.count)
        weft_free(own->buckets.item);
}
