#include "train/made_of.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the data ------------------------------------------------------------------------------ */

/* Samples that come more than once in a step are no error: small sets, and tests, live by them. */
static void tell_repetition(const weft_run *run, int64_t index, const weft_loader *loader)
{
    const weft_stage *stage = (const weft_stage *)run->stages.item + index;
    for (int i = 0; i < weft_stage_bucket_count(stage); i++) {
        const int64_t have = weft_loader_bucket_samples(loader, i);
        const int64_t take = weft_stage_bucket(stage, i)->batch * stage->accumulate;
        if (have > 0 && take > have)
            weft_warn("stages.%lld: a step takes %lld samples of bucket %d, which has %lld: some "
                      "come several times in it",
                      (long long)index, (long long)take, i, (long long)have);
    }
}

static weft_status check_stage(const weft_run *run, int64_t index, uint64_t *fingerprint)
{
    const weft_stage *stage = (const weft_stage *)run->stages.item + index;
    const weft_run_data *d = &run->data;
    const int count = weft_stage_bucket_count(stage);
    weft_loader *loader = NULL;
    weft_bucket *sizes = weft_alloc(count * (int64_t)(sizeof *sizes + sizeof(bool)));
    if (!sizes)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d buckets", count);
    bool *image = (bool *)(sizes + count);
    for (int i = 0; i < count; i++) {
        sizes[i] = *weft_stage_bucket(stage, i);
        image[i] = sizes[i].frames == 1;
        sizes[i].batch = 1; /* nothing is read; slots stay small */
    }
    const weft_loader_config config = {.shards = d->path,
                                       .split = d->split[0] ? d->split : NULL,
                                       .buckets = {count, sizes},
                                       .fps = d->fps,
                                       .image = stage->images >= 0 ? image : NULL,
                                       .images = stage->images,
                                       .threads = 1,
                                       .prefetch = 1};
    weft_status_code status = weft_loader_open(&config, 0, 1, NULL, 0, &loader);
    if (status == WEFT_OK) {
        tell_repetition(run, index, loader);
        *fingerprint = weft_dataset_fingerprint(weft_loader_dataset(loader));
        weft_loader_close(loader);
    } else {
        status = weft_fail_context(status, "stages.%lld", (long long)index);
    }
    weft_free(sizes);
    return status;
}

weft_status weft_run_check_data(const weft_run *run, uint64_t *fingerprint)
{
    for (int64_t i = 0; i < run->stages.count; i++)
        WEFT_TRY(check_stage(run, i, fingerprint));
    return WEFT_OK;
}

/* ---- hashes -------------------------------------------------------------------------------- */

json_t *weft_hash_text(uint64_t hash)
{
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    return json_string(text);
}

static bool has_weights(const char *name)
{
    static const char *const extensions[] = {"safetensors", "gguf", "pt", "pth", "bin"};
    for (int i = 0; i < WEFT_COUNT(extensions); i++)
        if (!strcmp(weft_path_extension(name), extensions[i]))
            return true;
    return false;
}

/* Of a model's weights and config. */
static weft_status hash_model(const char *folder, json_t **hash)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(folder, false, &names));
    uint64_t all = 0;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        XXH3_state_t state;
        if (!has_weights(names.name[i]) && strcmp(names.name[i], "config.json"))
            continue;
        char *path = weft_path_join(folder, names.name[i]);
        XXH3_64bits_reset_withSeed(&state, all);
        status = path ? weft_hash_file(&state, path) : weft_fail(WEFT_E_MEMORY, "out of memory");
        weft_free(path);
        all = XXH3_64bits_digest(&state);
    }
    weft_names_free(&names);
    *hash = weft_hash_text(all);
    return status;
}

/* Of the nets of LPIPS. */
static weft_status hash_lpips(const weft_run_lpips *c, json_t **hash)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    WEFT_TRY(weft_hash_file(&state, c->trunk));
    WEFT_TRY(weft_hash_file(&state, c->heads));
    *hash = weft_hash_text(XXH3_64bits_digest(&state));
    return WEFT_OK;
}

/* Of a stage's sizes: what decides which samples come in which order. */
static json_t *hash_stage(const weft_stage *stage)
{
    uint64_t hash = (uint64_t)stage->accumulate;
    for (int i = 0; i < weft_stage_bucket_count(stage); i++) {
        const weft_bucket *b = weft_stage_bucket(stage, i);
        const int64_t size[4] = {b->batch, b->frames, b->height, b->width};
        hash = XXH3_64bits_withSeed(size, sizeof size, hash);
    }
    return weft_hash_text(hash);
}

/* What the matrices beside a transformer's layers are. */
static json_t *lora_of(const weft_run_lora *lora)
{
    json_t *targets = json_array();
    for (int64_t i = 0; i < lora->targets.count && lora->rank; i++)
        json_array_append_new(targets, json_string(lora->targets.item[i]));
    const double alpha = lora->alpha > 0 ? lora->alpha : (double)lora->rank;
    return json_pack("{s:I, s:f, s:b, s:o}", "rank", (json_int_t)lora->rank, "alpha",
                     lora->rank ? alpha : 0, "rslora", lora->rank && lora->rooted, "targets",
                     targets);
}

weft_status weft_made_of(const weft_run *run, const weft_run_models *models, uint64_t fingerprint,
                         json_t **made_of)
{
    json_t *m = json_object(), *stages = json_array(), *hash;
    weft_status_code status = WEFT_OK;
    json_object_set_new(m, "data", weft_hash_text(fingerprint));
    if (weft_run_denoises(models)) {
        WEFT_GO(hash_model(run->autoencoder.weights, &hash));
        json_object_set_new(m, "autoencoder", hash);
        if (strcmp(run->autoencoder.tile, "off") != 0)
            json_object_set_new(m, "tile", json_string(run->autoencoder.tile));
    }
    if (models->tuned) {
        WEFT_GO(hash_model(weft_run_trained_from(run, models)->weights, &hash));
        json_object_set_new(m, "base", hash);
    }
    json_object_set_new(m, "lora", lora_of(&run->transformer.lora));
    if (weft_run_perceives(run)) {
        WEFT_GO(hash_lpips(&run->loss.lpips, &hash));
        json_object_set_new(m, "lpips", hash);
    }
    for (int r = 0; r < models->captions.readers; r++) {
        const weft_reader *reader = &models->captions.reader[r];
        if (models->text_stays >> r & 1) {
            WEFT_GO(hash_model(weft_run_text(run, r)->weights, &hash));
            json_object_set_new(m, reader->reading->encoder, hash);
        }
        if (reader->tokenizer[0]) {
            uint64_t own;
            WEFT_GO(weft_captions_hash(&models->captions, r, &own));
            json_object_set_new(m, reader->reading->tokenizer, weft_hash_text(own));
        }
    }
    for (int64_t i = 0; i < run->stages.count; i++)
        json_array_append_new(stages, hash_stage((const weft_stage *)run->stages.item + i));
    json_object_set(m, "stages", stages);
    *made_of = json_incref(m);
out:
    json_decref(stages);
    json_decref(m);
    return status;
}

/* ---- comparing ----------------------------------------------------------------------------- */

static void compare_stages(const json_t *before, const json_t *now, weft_buf *changes)
{
    const size_t count = json_array_size(before);
    for (size_t i = 0; i < count; i++)
        if (!json_equal(json_array_get(before, i), json_array_get(now, i)))
            weft_buf_printf(changes, "\n  stages.%zu %s", i,
                            i < json_array_size(now) ? "has another batch or size" : "is gone");
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
        weft_buf_printf(changes, "\n  transformer.lora.%s was %s and is %s", key, a ? a : "?",
                        b ? b : "?");
        free(a);
        free(b);
    }
}

weft_status weft_made_of_compare(const json_t *before, const json_t *now, bool allowed,
                                 const char *where)
{
    static const struct {
        const char *key, *what;
    } named[] = {
        {"data", "the shards under data.path (or data.split) are others"},
        {"autoencoder", "the autoencoder is another one (its weights or its config)"},
        {"tile", "autoencoder.tile is another, and latents are others where tiles overlap"},
        {"base", "the weights that are tuned are others (their files or their config)"},
        {"lpips", "the nets of loss.lpips are others (their files)"},
        {"text_encoder", "the text encoder is another one (its weights or its config)"},
        {"text_encoder_2", "the second text encoder is another one (its weights or its config)"},
        {"tokenizer", "the tokenizer is another one (its files, or the length of a text)"},
        {"tokenizer_2", "the second tokenizer is another one (its files, or the length of a text)"},
    };
    weft_buf changes = {0};
    if (!before)
        return WEFT_OK;
    for (int i = 0; i < WEFT_COUNT(named); i++) {
        const json_t *a = json_object_get(before, named[i].key),
                     *b = json_object_get(now, named[i].key);
        if (a || b ? !a || !b || !json_equal(a, b) : false)
            weft_buf_printf(&changes, "\n  %s", named[i].what);
    }
    compare_lora(json_object_get(before, "lora"), json_object_get(now, "lora"), &changes);
    compare_stages(json_object_get(before, "stages"), json_object_get(now, "stages"), &changes);
    weft_status_code status = weft_buf_check(&changes);
    if (status == WEFT_OK && changes.len > 0 && !allowed)
        status = weft_fail(WEFT_E_CONFIG,
                           "%s: this is not the run that it was:%s\ngo on nevertheless with "
                           "--set checkpoint.allow_changes=true, or set another out",
                           where, changes.data);
    else if (status == WEFT_OK && changes.len > 0)
        weft_warn("%s: going on although this is not the run that it was:%s", where, changes.data);
    weft_buf_free(&changes);
    return status;
}

void weft_made_of_log_changes(const char *folder, const char *yaml)
{
    char path[560], *before = NULL;
    int64_t bytes;
    weft_buf changes = {0};
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    if (weft_file_read(path, 1 << 24, &before, &bytes) != WEFT_OK ||
        weft_config_changes(before, yaml, &changes) != WEFT_OK)
        weft_warn("%s: not compared with the config: %s", path, weft_error_message());
    for (char *line = changes.data, *end; line && (end = strchr(line, '\n')); line = end + 1)
        weft_info("changed since the checkpoint: %.*s", (int)(end - line), line);
    weft_buf_free(&changes);
    weft_free(before);
}
