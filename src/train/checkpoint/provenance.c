#include "train/checkpoint/provenance.h"
#include "train/graph/run_pair.h"

#include "base/config_text.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "format/tensors/tensors.h"
#include "generate/conditioning/clip_preprocess.h"
#include "prompt/conditioning_hash.h"
#include "train/checkpoint/run_file.h"
#include "train/config/run_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ---------------------------------------------------------------------------------- */

/* Warns of samples that occur several times in a step. They are allowed for small data sets and
 * tests. */
static void warn_repetition(const weft_run *run, int64_t index, const weft_loader *loader)
{
    const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + index;
    for (int i = 0; i < weft_train_stage_bucket_count(train_stage); i++) {
        const int64_t have = weft_loader_bucket_samples(loader, i);
        const int64_t take =
            weft_train_stage_bucket(train_stage, i)->batch * train_stage->accumulate;
        if (have > 0 && take > have)
            weft_warning(WEFT_MSG_SAMPLE_REPEATED,
                         WEFT_AT(.key = weft_message_key((char[64]){0}, "stages.%" PRId64, index)),
                         "a step takes %" PRId64 " samples of bucket %d, which has %" PRId64
                         ": some occur several times "
                         "in a step",
                         take, i, have);
    }
}

static weft_status check_train_stage(const weft_run *run, int64_t index, uint64_t *fingerprint)
{
    const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + index;
    const weft_run_data *d = &run->data;
    const int count = weft_train_stage_bucket_count(train_stage);
    weft_loader *loader = NULL;
    weft_bucket *sizes = weft_alloc(count * (int64_t)(sizeof *sizes + sizeof(bool)));
    WEFT_TRY(WEFT_ALLOCATED(sizes, "%d buckets", count));
    bool *image = (bool *)(sizes + count);
    for (int i = 0; i < count; i++) {
        sizes[i] = *weft_train_stage_bucket(train_stage, i);
        image[i] = sizes[i].frames == 1;
        sizes[i].batch = 1; /* nothing is read; saves memory */
    }
    const weft_loader_config config = {
        .shards = d->path,
        .split = d->split[0] ? d->split : NULL,
        .sources = d->sources,
        .blend = d->blend,
        .buckets = {count, sizes},
        .clip_seconds = d->clip_seconds,
        .fps = d->fps,
        .image = train_stage->images >= 0 ? image : NULL,
        .images = train_stage->images,
        .last_images = train_stage->last_images,
        .image_batches =
            train_stage->last_images >= 0 ? train_stage->steps * train_stage->accumulate : 0,
        .threads = 1,
        .prefetch = 1};
    weft_status_code status = WEFT_OK;
    WEFT_GO(
        weft_error_at(weft_loader_open(&config, 0, 1, NULL, 0, &loader),
                      WEFT_AT(.key = weft_message_key((char[64]){0}, "stages.%" PRId64, index))));
    warn_repetition(run, index, loader);
    *fingerprint = weft_dataset_fingerprint(weft_loader_dataset(loader));
    weft_loader_close(loader);
out:
    weft_free(sizes);
    return status;
}

weft_status weft_run_check_data(const weft_run *run, uint64_t *fingerprint)
{
    for (int64_t i = 0; i < run->train_stages.count; i++)
        WEFT_TRY(check_train_stage(run, i, fingerprint));
    return WEFT_OK;
}

/* ---- hashes -------------------------------------------------------------------------------- */

/* Hash of a model's weights and config. */
static weft_status hash_model(const char *folder, json_t **hash)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(folder, false, &names));
    uint64_t all = 0;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count; i++) {
        XXH3_state_t state;
        if (!weft_tensors_is_file(names.name[i]) && strcmp(names.name[i], "config.json"))
            continue;
        char *path = weft_path_join(folder, names.name[i]);
        XXH3_64bits_reset_withSeed(&state, all);
        status =
            path ? weft_hash_file(&state, path) : weft_no_memory("the provenance of a checkpoint");
        weft_free(path);
        WEFT_GO(status);
        all = XXH3_64bits_digest(&state);
    }
out:
    weft_names_free(&names);
    *hash = weft_hash_text(all);
    return status;
}

/* Hash of the preprocessing of an image encoder, in its folder or around it; of nothing without
 * such a file. */
static weft_status hash_preprocessing(const char *encoder, json_t **hash)
{
    XXH3_state_t state;
    char *path;
    XXH3_64bits_reset(&state);
    WEFT_TRY(weft_clip_encoder_processor_path(encoder, &path));
    const weft_status_code status = weft_path_exists(path) ? weft_hash_file(&state, path) : WEFT_OK;
    weft_free(path);
    *hash = status == WEFT_OK ? weft_hash_text(XXH3_64bits_digest(&state)) : NULL;
    return status;
}

/* Hash of the LPIPS files. */
static weft_status hash_lpips(const weft_run_lpips *c, json_t **hash)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    WEFT_TRY(weft_hash_file(&state, c->trunk));
    WEFT_TRY(weft_hash_file(&state, c->heads));
    *hash = weft_hash_text(XXH3_64bits_digest(&state));
    return WEFT_OK;
}

/* Hash of a training stage's batches and sizes, which determine the order of samples. */
static json_t *hash_train_stage(const weft_train_stage *train_stage)
{
    uint64_t hash = (uint64_t)train_stage->accumulate;
    for (int i = 0; i < weft_train_stage_bucket_count(train_stage); i++) {
        const weft_bucket *b = weft_train_stage_bucket(train_stage, i);
        const int64_t size[4] = {b->batch, b->frames, b->height, b->width};
        hash = XXH3_64bits_withSeed(size, sizeof size, hash);
    }
    return weft_hash_text(hash);
}

/* The settings of the transformer's LoRA. */
static json_t *lora_of(const weft_run *run, const weft_run_models *models)
{
    const weft_run_lora *lora = &run->transformer.lora;
    const weft_string_list layers =
        weft_run_trainable(run, weft_run_trained(models)->family, "").targets;
    json_t *targets = json_array();
    for (int64_t i = 0; i < layers.count && lora->rank; i++)
        json_array_append_new(targets, json_string(layers.item[i]));
    const double alpha = lora->alpha > 0 ? lora->alpha : (double)lora->rank;
    return json_pack("{s:I, s:f, s:b, s:o}", "rank", (json_int_t)lora->rank, "alpha",
                     lora->rank ? alpha : 0, "rslora", lora->rank && lora->rooted, "targets",
                     targets);
}

/* The settings of a list of sources that the shards do not show. */
static json_t *blend_of(const weft_run_data *data)
{
    json_t *sources = json_array();
    for (int64_t i = 0; i < data->sources.count; i++) {
        const weft_data_source *s = (const weft_data_source *)data->sources.item + i;
        char name[WEFT_SOURCE_NAME_BYTES];
        json_array_append_new(sources,
                              json_pack("{s:s, s:f, s:s}", "name", weft_data_source_name(s, name),
                                        "weight", s->weight, "prompt_prefix", s->prompt_prefix));
    }
    return json_pack("{s:s, s:o}", "kind", weft_blend_names[data->blend], "sources", sources);
}

/* Adds the contents of a further data set. */
static weft_status add_pair(const weft_run *run, const weft_run_pair *pair, json_t *m)
{
    const weft_run second = weft_run_pair_run(run, pair);
    weft_dataset *dataset;
    WEFT_TRY(weft_run_data_open(&second.data, &dataset));
    json_t *hash = weft_hash_text(weft_dataset_fingerprint(dataset)),
           *images = json_object_get(m, pair->key);
    /* the rejected clips, or without them the set of a control, have the key "pair"; others have
     * their own. Sets of reference images are a list */
    const bool other = weft_run_prefers(run) ? strcmp(pair->key, "preference.rejected") != 0
                                             : strchr(pair->key, '.') != NULL;
    if (pair->kind != WEFT_PAIR_IDENTITY)
        json_object_set_new(m, other ? pair->key : "pair", hash);
    else if (images)
        json_array_append_new(images, hash);
    else
        json_object_set_new(m, pair->key, json_pack("[o]", hash));
    weft_dataset_close(dataset);
    return WEFT_OK;
}

/* Adds the contents of all further data sets that differ from the first one, and the image
 * encoders. */
static weft_status add_pairs(const weft_run *run, const weft_run_models *models, json_t *m)
{
    weft_run_pair pair[WEFT_RUN_PAIRS];
    const int pairs = weft_run_pairs_of(run, models, pair);
    json_t *hash;
    for (int i = 0; i < pairs; i++)
        if (pair[i].path != run->data.path)
            WEFT_TRY(add_pair(run, &pair[i], m));
    if (models->identity_image_encoder.family) {
        WEFT_TRY(hash_model(run->identity.image_encoder, &hash));
        json_object_set_new(m, "identity_image_encoder", hash);
        WEFT_TRY(hash_preprocessing(run->identity.image_encoder, &hash));
        json_object_set_new(m, "identity_preprocessing", hash);
    }
    if (!models->image_tokens)
        return WEFT_OK;
    WEFT_TRY(hash_model(run->control.image_encoder, &hash));
    json_object_set_new(m, "image_encoder", hash);
    return WEFT_OK;
}

/* Adds the teacher of a distillation, and the first weights of its fake score. */
static weft_status add_networks(const weft_run *run, json_t *m)
{
    json_t *hash;
    if (run->distill.teacher[0]) {
        WEFT_TRY(hash_model(run->distill.teacher, &hash));
        json_object_set_new(m, "teacher", hash);
    }
    if (!run->distill.fake_weights[0])
        return WEFT_OK;
    WEFT_TRY(hash_model(run->distill.fake_weights, &hash));
    json_object_set_new(m, "fake_score", hash);
    return WEFT_OK;
}

weft_status weft_provenance_make(const weft_run *run, const weft_run_models *models,
                                 uint64_t fingerprint, json_t **made_of)
{
    json_t *m = json_object(), *train_stages = json_array(), *hash;
    weft_status_code status = WEFT_OK;
    json_object_set_new(m, "data", weft_hash_text(fingerprint));
    if (run->data.sources.count)
        json_object_set_new(m, "blend", blend_of(&run->data));
    if (weft_run_trains_denoiser(models)) {
        WEFT_GO(hash_model(run->autoencoder.weights, &hash));
        json_object_set_new(m, "autoencoder", hash);
        if (strcmp(run->autoencoder.tile, "off") != 0)
            json_object_set_new(m, "tile", json_string(run->autoencoder.tile));
    }
    if (weft_run_has_sound(&models->sound)) {
        WEFT_GO(hash_model(run->sound.autoencoder, &hash));
        json_object_set_new(m, "audio_vae", hash);
    }
    if (models->partly_trained || run->distill.method || weft_run_prefers(run)) {
        WEFT_GO(hash_model(weft_run_trained_from(run, models)->weights, &hash));
        json_object_set_new(m, "base", hash);
    }
    if (models->denoiser.family && models->denoiser.family->was_positive)
        json_object_set_new(m, "prediction", json_string("data - noise"));
    json_object_set_new(m, "lora", lora_of(run, models));
    WEFT_GO(add_networks(run, m));
    WEFT_GO(add_pairs(run, models, m));
    if (weft_run_uses_lpips(run)) {
        WEFT_GO(hash_lpips(&run->loss.lpips, &hash));
        json_object_set_new(m, "lpips", hash);
    }
    for (int r = 0; r < models->text.encoders; r++) {
        const weft_text_encoder *encoder = &models->text.encoder[r];
        if (models->text_frozen >> r & 1) {
            WEFT_GO(hash_model(weft_run_text(run, r)->weights, &hash));
            json_object_set_new(m, encoder->row->encoder, hash);
        }
        if (encoder->connectors.family) {
            char folder[1024];
            weft_run_connectors_folder(weft_run_text(run, r), folder, sizeof folder);
            WEFT_GO(hash_model(folder, &hash));
            json_object_set_new(m, encoder->row->connectors, hash);
        }
        if (encoder->tokenizer[0]) {
            uint64_t own;
            WEFT_GO(weft_text_conditioning_hash(&models->text, r, &own));
            json_object_set_new(m, encoder->row->tokenizer, weft_hash_text(own));
        }
    }
    for (int64_t i = 0; i < run->train_stages.count; i++)
        json_array_append_new(
            train_stages, hash_train_stage((const weft_train_stage *)run->train_stages.item + i));
    json_object_set(m, "stages", train_stages);
    *made_of = json_incref(m);
out:
    json_decref(train_stages);
    json_decref(m);
    return status;
}

/* ---- comparison ---------------------------------------------------------------------------- */

static void compare_train_stages(const json_t *before, const json_t *now, weft_buf *changes)
{
    const size_t count = json_array_size(before);
    for (size_t i = 0; i < count; i++)
        if (!json_equal(json_array_get(before, i), json_array_get(now, i)))
            weft_buf_printf(changes, "\n  stages.%zu %s", i,
                            i < json_array_size(now) ? "has another batch or size" : "was removed");
}

static void compare_lora(const json_t *before, const json_t *now, weft_buf *changes)
{
    const char *key;
    json_t *is;
    json_object_foreach((json_t *)(uintptr_t)now, key, is)
    {
        const json_t *was = json_object_get(before, key);
        if (!was || json_equal(was, is))
            continue;
        char *a = json_dumps(was, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)),
             *b = json_dumps(is, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        weft_buf_printf(changes, "\n  transformer.lora.%s changed from %s to %s", key, a ? a : "?",
                        b ? b : "?");
        free(a);
        free(b);
    }
}

const json_t *weft_provenance_of_state(const json_t *state)
{
    const json_t *provenance = json_object_get(state, "provenance");
    return provenance ? provenance : json_object_get(state, "made_of");
}

/* Whether earlier versions did not store the row of a network that the run has nevertheless used:
 * self_forcing has always required distill.teacher. */
static bool never_stored(const weft_run *run, const char *key)
{
    return run->distill.method == WEFT_DISTILL_SELF_FORCING && !strcmp(key, "teacher");
}

weft_status weft_provenance_check(const weft_run *run, const json_t *before, const json_t *now,
                                  const char *where)
{
    static const struct {
        const char *key, *what;
    } named[] = {
        {"data", "the data shards changed (data.path or data.split)"},
        {"blend", "the sources changed (names, weights or prompt prefixes of data.path, or "
                  "data.blend)"},
        {"autoencoder", "the autoencoder changed (weights or config)"},
        {"audio_vae", "the autoencoder of sound changed (weights or config)"},
        {"connectors", "the text connectors changed (weights or config)"},
        {"tile", "autoencoder.tile changed, and with it the latents where tiles overlap"},
        {"pair", "the clips of preference.rejected or of control changed"},
        {"control", "the clips of control changed"},
        {"control.image", "the images of control.image changed"},
        {"control.face", "the clips of control.face changed"},
        {"control.background", "the clips of control.background changed"},
        {"control.mask", "the clips of control.mask changed"},
        {"image_encoder", "the image encoder changed"},
        {"identity.images", "the images of identity.images changed"},
        {"identity_image_encoder", "the image encoder of identity changed"},
        {"base", "the initial weights changed (files or config)"},
        {"teacher", "the model of distill.teacher changed (weights or config)"},
        {"fake_score", "the model of distill.fake_weights changed (weights or config)"},
        {"lpips", "the networks of loss.lpips changed (files)"},
        {"prediction", "the model predicts data - noise, and the checkpoint's model predicts the "
                       "opposite (STDiT3 up to version 0.2.0)"},
        {"text_encoder", "the text encoder changed (weights or config)"},
        {"text_encoder_2", "the second text encoder changed (weights or config)"},
        {"tokenizer", "the tokenizer changed (files or max_length)"},
        {"tokenizer_2", "the second tokenizer changed (files or max_length)"},
    };
    weft_buf changes = {0};
    if (!before)
        return WEFT_OK;
    for (int i = 0; i < WEFT_COUNT(named); i++) {
        const json_t *a = json_object_get(before, named[i].key),
                     *b = json_object_get(now, named[i].key);
        if (!a && never_stored(run, named[i].key))
            continue;
        if (a || b ? !a || !b || !json_equal(a, b) : false)
            weft_buf_printf(&changes, "\n  %s", named[i].what);
    }
    compare_lora(json_object_get(before, "lora"), json_object_get(now, "lora"), &changes);
    compare_train_stages(json_object_get(before, "stages"), json_object_get(now, "stages"),
                         &changes);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&changes));
    if (changes.len > 0 && !run->checkpoint.allow_changes)
        WEFT_GO(weft_error(WEFT_MSG_CHECKPOINT_MISMATCH, WEFT_AT(.file = where),
                           "the run changed since the checkpoint:%s\nResume nevertheless with "
                           "--set checkpoint.allow_changes=true, or set another out",
                           changes.data));
    if (changes.len > 0)
        weft_warning(WEFT_MSG_RUN_CHANGED, WEFT_AT(.file = where),
                     "resuming although the run changed since the checkpoint:%s", changes.data);
out:
    weft_buf_free(&changes);
    return status;
}

/* Replaces the names of earlier versions in a dumped config. A dump with removed keys is
 * unchanged. */
static weft_status rename_dump(const char *path, char **text, int64_t bytes)
{
    weft_arena *arena = weft_arena_create();
    weft_run run;
    weft_buf now = {0};
    WEFT_TRY(WEFT_ALLOCATED(arena, "the config before"));
    weft_status_code status = WEFT_OK;
    if (weft_config_parse_dump(arena, *text, bytes, path, &weft_run_section, &run) == WEFT_OK) {
        weft_config_dump(&weft_run_section, &run, &now);
        status = weft_buf_check(&now);
        weft_free(*text);
        *text = now.data;
    }
    weft_arena_free(arena);
    return status;
}

static weft_status read_config(const char *folder, char path[560], char **text, int64_t *bytes)
{
    snprintf(path, 560, "%s/config.yaml", folder);
    return weft_file_read(path, 1 << 24, text, bytes);
}

bool weft_provenance_config_has(const char *folder, const char *text)
{
    char path[560], *config = NULL;
    int64_t bytes;
    const bool read = read_config(folder, path, &config, &bytes) == WEFT_OK,
               has = !read || strstr(config, text);
    weft_free(config);
    return has;
}

void weft_provenance_log_changes(const char *folder, const char *yaml)
{
    char path[560], *before = NULL;
    int64_t bytes;
    weft_buf changes = {0};
    if (read_config(folder, path, &before, &bytes) != WEFT_OK ||
        rename_dump(path, &before, bytes) != WEFT_OK ||
        weft_config_changes(before, yaml, &changes) != WEFT_OK)
        weft_warn_error(WEFT_MSG_RUN_CHANGED, "the file is not compared with the config");
    for (char *line = changes.data, *end; line && (end = strchr(line, '\n')); line = end + 1)
        weft_notice(WEFT_MSG_RUN_CHANGED, WEFT_NOWHERE, "changed since the checkpoint: %.*s",
                    (int)(end - line), line);
    weft_buf_free(&changes);
    weft_free(before);
}

/* ---- warnings ------------------------------------------------------------------------------ */

void weft_run_warn_unusual(const weft_run *run)
{
    const weft_train_stage *train_stage = run->train_stages.item;
    for (int64_t i = 0; i < run->train_stages.count; i++)
        if (train_stage[i].warmup > train_stage[i].steps)
            weft_warning(WEFT_MSG_CONFIG_UNUSUAL,
                         WEFT_AT(.key = weft_message_key((char[64]){0},
                                                         "stages.%" PRId64 ".warmup_steps", i),
                                 WEFT_NUMBER(train_stage[i].warmup)),
                         "a warm-up of %" PRId64 " step%s is longer than the stage, %" PRId64
                         " step%s: the learning rate rises until the last step of the stage, which "
                         "reaches lr",
                         train_stage[i].warmup, weft_plural(train_stage[i].warmup),
                         train_stage[i].steps, weft_plural(train_stage[i].steps));
}

void weft_run_warn_captions(const weft_loader *loader)
{
    const weft_dataset *data = weft_loader_dataset(loader);
    const int64_t count = weft_dataset_count(data);
    int64_t without = 0;
    for (int64_t i = 0; i < count; i++)
        without += !weft_dataset_at(data, i)->captioned;
    if (without > 0)
        weft_warning(WEFT_MSG_CAPTION_INVALID, WEFT_AT(WEFT_NUMBER(without)),
                     "%" PRId64 " of %" PRId64 " samples have no caption%s", without, count,
                     without == count
                         ? ": the model will generate videos but not follow prompts (weft curate "
                           "reads captions from .txt or .json files next to the footage)"
                         : "; they train without text");
}

weft_status weft_run_print_targets(const weft_run *run, const weft_run_models *models)
{
    const weft_run_lora *lora = &run->transformer.lora;
    const weft_string_list targets =
        weft_run_trainable(run, weft_run_trained(models)->family, "").targets;
    weft_buf names = {0};
    if (!lora->rank || !weft_run_lora_is_auto(lora))
        return WEFT_OK;
    for (int64_t i = 0; i < targets.count; i++)
        weft_buf_printf(&names, "%s%s", i ? ", " : "", targets.item[i]);
    const weft_status_code status = weft_buf_check(&names);
    if (status == WEFT_OK)
        weft_notice(
            WEFT_MSG_LORA_TARGETS,
            WEFT_AT(.key = "transformer.lora.targets", .value = names.data,
                    WEFT_DETAILS(WEFT_WORD("source", lora->recorded.count ? "run" : "family"))),
            "auto is %s%s", names.data, lora->recorded.count ? ", as in the checkpoint" : "");
    weft_buf_free(&names);
    return status;
}
